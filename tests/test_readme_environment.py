"""The README's example of an episode runs, on the environment that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


def test_the_example_completes_its_task() -> None:
    """Skipped before `make repro`: environments are outputs, and not in Git."""
    if not (PROJECT / "data/environments/halyard_berths.json").exists():
        pytest.skip("data/environments is not built")
    (example,) = re.findall(r"^```py\n(.*?)^```", (PROJECT / "README.md").read_text(), re.MULTILINE | re.DOTALL)

    ran = subprocess.run([sys.executable, "-c", example], cwd=PROJECT, capture_output=True, text=True, timeout=120)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip().endswith("completed")
