"""Same environment, same calls, same final state: in another episode, process, Python and version of SQLite."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from env.across_pythons import BYTES, COMPARED, differences
from env.same_state import final_state

SCRIPT = Path(__file__).with_name("same_state.py")
# What every Python and every SQLite must come to. They change with `same_state.py`, and with nothing else.
PINNED = {
    "initial": "463facb5a0675459973cf0c23336601da78a5bffb889c58ea56a48fb55b32d9e",
    "final": "c1615455effb0cb29c183350b8e8933cb0d2ed956d0035bde9f7b1e4ae9d2300",
    "results": "b9e91753b009b4e54fb04e9a118092af36556cc6f031e542caff7ca7a42d9dfb",
}
OUTCOMES = "ok ok ok ok ok ok tool_error ok tool_error crash invalid_arguments unknown_tool ok ok ok ok".split()


@pytest.fixture(scope="module")
def here() -> dict:
    """What this process makes of the calls."""
    return final_state()


def test_the_final_state_is_the_same_under_every_python(here: dict):
    assert here["outcomes"] == OUTCOMES
    assert {name: here[name] for name in COMPARED} == PINNED


def test_another_process_of_the_host_gives_the_same_bytes(here: dict):
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True)
    other = json.loads(done.stdout)
    assert differences(json.loads(json.dumps(here)), other) == []
    assert {name: other[name] for name in BYTES} == {name: here[name] for name in BYTES}


def test_what_the_host_has_set_changes_nothing(here: dict, monkeypatch: pytest.MonkeyPatch):
    for name, value in {
        "TZ": "Pacific/Auckland",
        "LANG": "C",
        "LC_ALL": "C",
        "PYTHONHASHSEED": "77",
        "PYTHONOPTIMIZE": "2",
        "PYTHONUTF8": "0",
    }.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True)
    assert differences(json.loads(json.dumps(here)), json.loads(done.stdout)) == []
