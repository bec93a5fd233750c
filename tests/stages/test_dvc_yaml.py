"""`dvc.yaml` names what each stage depends on: its script, its prompts, the code that it imports, its parameters."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from awm.synth.loop.source import import_closure, module_path

PROJECT = Path(__file__).parents[2]
STAGES: dict[str, dict[str, Any]] = yaml.safe_load((PROJECT / "dvc.yaml").read_text())["stages"]
LLM_STAGES = [name for name in STAGES if name != "filter"]


def code_of(stage: str) -> set[PurePosixPath]:
    """Files of the project's own code that a stage imports; package files with nothing but a docstring don't count."""
    found = set()
    for module in import_closure(f"stages.{stage}"):
        path = module_path(module)
        assert path is not None
        if path.name != "__init__.py" or re.search(r"^(import|from) ", path.read_text(), re.MULTILINE):
            found.add(PurePosixPath(path.relative_to(PROJECT).as_posix()))
    return found


def dependencies(stage: str) -> set[PurePosixPath]:
    return {PurePosixPath(entry) for entry in STAGES[stage]["deps"]}


def test_the_stages_stand_in_their_order() -> None:
    assert list(STAGES) == ["scenarios", "tasks", "schemas", "databases", "toolsets", "tools", "verifiers", "filter"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_module_that_a_stage_imports_is_a_dependency(stage: str) -> None:
    named = dependencies(stage)

    assert [path for path in sorted(code_of(stage)) if not named & {path, *path.parents}] == []


@pytest.mark.parametrize("stage", STAGES)
def test_no_code_is_named_that_a_stage_does_not_import(stage: str) -> None:
    code = code_of(stage)
    named = [path for path in dependencies(stage) if path.parts[0] in ("awm", "stages") and path.suffix != ".md"]

    assert [path for path in sorted(named) if not any(path in (used, *used.parents) for used in code)] == []


@pytest.mark.parametrize("stage", LLM_STAGES)
def test_a_stage_depends_on_the_prompts_that_its_steps_use(stage: str) -> None:
    sources = [path for path in code_of(stage) if path.parts[:2] == ("awm", "synth")]
    own = (PROJECT / f"awm/synth/{stage}.py").read_text()
    used = {f"awm/synth/prompts/{name}.md" for name in re.findall(r'^    prompt = "(\w+)"', own, re.MULTILINE)}

    assert sources
    assert used
    assert {str(path) for path in dependencies(stage) if path.suffix == ".md"} == {*used, "awm/synth/prompts/repair.md"}


@pytest.mark.parametrize("stage", LLM_STAGES)
def test_an_llm_stage_depends_on_its_recordings_and_on_who_answers(stage: str) -> None:
    assert PurePosixPath(f"data/recordings/{stage}") in dependencies(stage)
    assert {"llm.provider", "llm.model", "repair", stage} <= set(STAGES[stage]["params"])


@pytest.mark.parametrize("stage", STAGES)
def test_dependencies_and_parameters_exist_and_outputs_are_the_layouts(stage: str) -> None:
    outputs = {str(entry) for other in STAGES.values() for entry in other["outs"]}
    params = yaml.safe_load((PROJECT / "params.yaml").read_text())
    for path in dependencies(stage):
        assert str(path) in outputs or (PROJECT / path).exists(), path
    for key in STAGES[stage]["params"]:
        section: Any = params
        for part in key.split("."):
            assert part in section, key
            section = section[part]
    assert STAGES[stage]["metrics"] == [{f"data/metrics/{stage}.json": {"cache": False}}]
    assert f"data/rejects/{stage}.json" in STAGES[stage]["outs"]


def test_every_prompt_file_is_used_by_a_stage() -> None:
    files = {f"awm/synth/prompts/{path.name}" for path in (PROJECT / "awm/synth/prompts").glob("*.md")}

    assert {str(path) for stage in STAGES for path in dependencies(stage) if path.suffix == ".md"} == files
