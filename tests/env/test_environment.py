"""Environments: loading what the pipeline built, their tools, tasks and verdicts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from awm.env import Environment, ModuleError, Sandbox, environment_slugs
from awm.models import Outcome
from awm.store import StoreError
from library import library_environment, write_library


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder `data` with one environment."""
    return write_library(tmp_path / "data")


def test_what_the_pipeline_built_is_loaded(data: Path, sandbox: Sandbox):
    environment = Environment.load(data, "lending_library", sandbox=sandbox)
    assert environment_slugs(data) == ["lending_library"]
    assert environment.scenario.name == "Lending Library"
    assert [task.number for task in environment.tasks] == [1, 2]
    assert [tool.name for tool in environment.tools] == ["list_loans", "renew_loan", "return_loan"]
    assert environment.toolset is not None and len(environment.toolset.tools) == 3
    assert list(environment.verifiers) == [1]
    with environment.episode(task=1) as episode:
        assert episode.verify("Dracula").verdict is Outcome.COMPLETED


def test_only_tasks_that_passed_the_filter_are_offered(data: Path, sandbox: Sandbox):
    path = data / "environments" / "lending_library.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tasks": [1]}))
    environment = Environment.load(data, "lending_library", sandbox=sandbox)
    assert [task.number for task in environment.tasks] == [1]
    with pytest.raises(ValueError, match="lending_library has no task 2; it has: 1"):
        environment.episode(task=2)


def test_an_environment_that_the_filter_did_not_keep_can_be_loaded(data: Path, sandbox: Sandbox):
    (data / "environments" / "lending_library.json").unlink()
    assert environment_slugs(data) == []
    assert len(Environment.load(data, "lending_library", sandbox=sandbox).tasks) == 2


def test_an_unknown_slug_names_the_known_ones(data: Path):
    with pytest.raises(StoreError, match="there are: lending_library"):
        Environment.load(data, "bank")


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("tools/lending_library.py", r"lending_library.py: not found; run `dvc repro tools`"),
        ("databases/lending_library.db", r"lending_library.db: not found; run `dvc repro databases`"),
        ("tasks/lending_library.json", r"lending_library.json: not found; run `dvc repro tasks`"),
    ],
)
def test_a_missing_file_is_named(data: Path, file: str, message: str):
    (data / file).unlink()
    with pytest.raises(StoreError, match=message):
        Environment.load(data, "lending_library")


def test_parts_that_the_filter_did_not_see_are_refused(data: Path):
    with (data / "tools" / "lending_library.py").open("a") as file:
        file.write("\n# changed\n")
    with pytest.raises(StoreError, match="the tool module of lending_library changed after the filter ran"):
        Environment.load(data, "lending_library")


def test_damaged_files_are_named(data: Path):
    (data / "verifiers" / "lending_library.py").write_text("x = 1\n")
    with pytest.raises(StoreError, match=r"verifiers/lending_library\.py: line 1: .*dvc repro -f verifiers"):
        Environment.load(data, "lending_library")
    (data / "tasks" / "lending_library.json").write_text("{}")
    with pytest.raises(StoreError, match=r"tasks/lending_library\.json: slug: "):
        Environment.load(data, "lending_library")


def test_a_task_without_a_verifier_cannot_be_verified(sandbox: Sandbox):
    environment = library_environment(sandbox)
    with pytest.raises(ValueError, match="task 2 of lending_library has no verifier"):
        environment.verify(2, environment.snapshot)


@pytest.mark.parametrize(
    ("verifier", "error"),
    [
        ("def verify(initial, final, answer):\n    return {}['x']\n", "crash: KeyError: 'x' (line 2)"),
        ("def verify(initial, final, answer):\n    initial.execute('SELECT * FROM x')\n", "sql_error: "),
        ("def verify(initial, final, answer):\n    return True\n", "invalid: verify must return "),
        ("def verify(initial, final, answer):\n    while True:\n        len('')\n", "timeout: no result within 2 s"),
        ("def verify(initial, final, answer)\n", "syntax: line 1: "),
        ("import os\n", "lint: line 1: "),
    ],
    ids=["crash", "sql", "shape", "timeout", "syntax", "lint"],
)
def test_a_verifier_without_a_verdict_is_the_environments_failure(sandbox: Sandbox, verifier: str, error: str):
    environment = library_environment(sandbox, verifiers={1: verifier})
    verdict = environment.verify(1, environment.snapshot)
    assert verdict.verdict is Outcome.ENVIRONMENT_ERROR
    assert verdict.evidence["error"].startswith(error)


def test_a_module_that_cannot_be_used_says_so(sandbox: Sandbox):
    environment = library_environment(sandbox, source="def broken(\n")
    with pytest.raises(ModuleError, match="syntax: line 1"):
        _ = environment.tools
    with pytest.raises(ModuleError, match="syntax: line 1"):
        environment.episode().start()


def test_an_environment_closes_its_own_sandbox_and_no_other(sandbox: Sandbox):
    with library_environment(None) as own:
        assert own.episode().call("list_loans").ok
        assert own.sandbox is not sandbox
        zygote = own.sandbox._zygote
    assert zygote is not None and zygote._process.returncode is not None
    with library_environment(sandbox) as shared:
        assert shared.episode().call("list_loans").ok
    assert sandbox._zygote is not None and sandbox._zygote._process.poll() is None
