"""A project with two environments, and `awm` run in it as people run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import awm
from awm.models import DatabaseSummary
from awm.store import Layout
from library import CLOCK, FAULTY, library_snapshot, write_library
from synth.library_environment import SCENARIO, TASKS, TOOLSET

ROOT = Path(awm.__file__).resolve().parent.parent
SHOWY = '''

def show(db: Connection) -> dict:
    """Say what terminals and markup would take for something else."""
    return {"title": "\\x1b]0;owned\\x07[red]not red[/red]", "half": "\\u202egnp"}
'''

Awm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project folder: the lending library as the pipeline leaves it, and `faulty`, which no filter would pass."""
    root = tmp_path_factory.mktemp("project")
    write_library(root / "data")
    layout = Layout(root)
    for step, part in (("scenarios", SCENARIO), ("tasks", TASKS), ("toolsets", TOOLSET)):
        layout.write_model(step, "faulty", part.model_copy(update={"slug": "faulty"}))
    layout.write_model("databases", "faulty", DatabaseSummary(slug="faulty", clock=CLOCK, tables={}, content_hash=""))
    layout.file("databases", "faulty", ".db").write_bytes(library_snapshot())
    layout.file("tools", "faulty", ".py").write_text(FAULTY + SHOWY)
    return root


@pytest.fixture(scope="session")
def run_awm(project: Path) -> Awm:
    """Run `awm` in the project; check its exit status."""

    def run(*arguments: str, said: str = "", status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "awm.cli", *arguments],
            cwd=project,
            input=said,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200", **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done

    return run
