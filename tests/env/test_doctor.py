"""What `awm doctor` finds: here, in containers without privileges, and where something is missing."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from awm.env.doctor import Diagnosis, diagnose
from env.containers import CONTAINERS

ROOT = Path(__file__).resolve().parents[2]
ENTER = Path(__file__).with_name("containers.py")
on_x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="outer filters by number on x86_64")


@pytest.fixture(scope="module")
def here() -> Diagnosis:
    return diagnose()


def test_it_says_what_holds_here(here: Diagnosis):
    found = {check.name: check for check in here.checks}
    assert here.isolated and here.ok
    assert here.mode in ("strict", "nofs")
    assert found["Python"].found.endswith(".".join(map(str, sys.version_info[:3])))
    assert found["SQLite"].found == sqlite3.sqlite_version
    assert found["kernel"].found.split()[1] == os.uname().release
    assert found["a tool call"].found == found["a verification"].found == "works"
    assert found["user"].found.startswith("root" if os.geteuid() == 0 else "user id")


def test_each_attempt_of_the_self_test_is_listed(here: Diagnosis):
    refused = [check for check in here.checks if check.name.startswith("a worker may not ")]
    assert len(refused) == 8
    assert all(check.found in ("refused (EPERM)", "refused (EACCES)", "refused (ENOMEM)") for check in refused)


def test_there_is_advice_wherever_something_is_not_all_it_could_be(here: Diagnosis):
    assert all(bool(check.advice) == (check.state != "ok") for check in here.checks)


def test_off_is_not_isolated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("AWM_SANDBOX", "off")
    found = diagnose()
    assert (found.isolated, found.ok, found.mode) == (False, False, "off")
    [check] = [check for check in found.checks if check.name == "sandbox"]
    assert (check.state, check.advice) == ("missing", "unset AWM_SANDBOX to isolate generated code")


def test_an_unknown_mode_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWM_SANDBOX", "on")
    found = diagnose()
    assert (found.isolated, found.mode) == (False, None)
    assert "AWM_SANDBOX=on is no mode of the sandbox" in found.checks[-2].found


def doctor_in(container: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `awm doctor` in a stand-in for a container."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, str(ENTER), container, sys.executable, "-m", "awm.cli", "doctor", *options],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "300", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


EXPECTED = {
    "docker": (0, "as here"),
    "docker of old": (0, "nofs"),
    "gvisor": (0, "nofs"),
    "no seccomp": (1, None),
}


@on_x86_64
@pytest.mark.parametrize("container", CONTAINERS)
def test_in_a_container(here: Diagnosis, container: str):
    status, mode = EXPECTED[container]
    done = doctor_in(container, "--json")
    assert done.returncode == status, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["isolated"] is (status == 0)
    assert found["mode"] == (here.mode if mode == "as here" else mode)
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["seccomp"] == ("missing" if container == "no seccomp" else "ok")
    assert states["Landlock"] == ("limited" if mode == "nofs" else "ok" if here.mode == "strict" else "limited")


@on_x86_64
def test_without_seccomp_it_names_the_layer_and_the_way_out():
    done = doctor_in("no seccomp")
    assert done.returncode == 1
    assert "cannot isolate generated code: seccomp filters are not available" in done.stdout
    assert "AWM_SANDBOX=off" in done.stdout
    assert done.stdout.splitlines()[-1] == "generated code is not isolated on this machine"
    assert done.stderr == ""


@on_x86_64
def test_without_landlock_it_says_what_is_lost():
    done = doctor_in("gvisor")
    assert done.returncode == 0
    assert "Landlock: not needed: generated code gets no file access at all instead." in done.stdout
    assert done.stdout.splitlines()[-1] == "generated code is isolated on this machine"
