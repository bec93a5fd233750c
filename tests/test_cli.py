"""The command `awm`, on artifacts of the lending library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from awm.cli import app
from awm.llm.recording import Recording, RecordingEntry, write_shards
from awm.llm.request import Usage
from awm.models import EnvironmentSummary
from awm.store import Layout, write_atomic
from awm.synth.databases import initial_state
from synth.library_environment import CLOCK, DATA, SCENARIO, SCHEMA, TASKS, TOOLSET

SLUG = SCENARIO.slug


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A project folder with one environment, as the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    layout = Layout()
    summary = EnvironmentSummary(
        slug=SLUG,
        name=SCENARIO.name,
        category=SCENARIO.category,
        tables=3,
        rows=9,
        tools=3,
        read_only_tools=1,
        code_lines=80,
        tasks=(1, 2),
        task_kinds={},
        unreached_tools=("return_loan",),
        clock=CLOCK,
        content_hash="0" * 64,
        tools_sha256="0" * 64,
    )
    for step, value in (("scenarios", SCENARIO), ("tasks", TASKS), ("toolsets", TOOLSET), ("environments", summary)):
        layout.write_model(step, SLUG, value)
    write_atomic(layout.file("databases", SLUG, ".db"), initial_state(SCHEMA, DATA, CLOCK))
    return layout


def awm(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == status, result.output
    return result.output


def test_list_shows_the_environments_and_where_to_look(layout: Layout) -> None:
    output = awm("env", "list")

    assert "1 environments" in output
    assert "lending_library" in output
    assert "data/{tasks,databases,tools,verifiers}/lending_library.*" in output


def test_list_as_json_is_data(layout: Layout) -> None:
    (entry,) = json.loads(awm("env", "list", "--json"))

    assert (entry["slug"], entry["tables"], entry["tasks"]) == (SLUG, 3, [1, 2])


def test_show_has_tasks_tables_and_tools_with_their_parameters(layout: Layout) -> None:
    output = awm("env", "show", SLUG)

    assert "Renew my loan of the book 'Emma' by two weeks." in output
    assert "renew_loan(loan_id, [weeks])" in output
    assert output.count("never succeeded") == 1
    assert "id, user_id, book_id, due_on, status, renewals, created_at" in output
    assert json.loads(awm("env", "show", SLUG, "--json"))["scenario"]["slug"] == SLUG


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("env", "show", "no_such"), "no environment 'no_such' in data/environments; there are: lending_library"),
        (("env", "show", "../params"), "no environment '../params'"),
        (("llm", "record"), "data/llm: not found; run `dvc repro` first"),
    ],
)
def test_a_users_mistake_is_one_line(layout: Layout, arguments: tuple[str, ...], said: str) -> None:
    output = awm(*arguments, status=1)

    assert said in output
    assert len(output.splitlines()) == 1


def test_params_are_checked_whole_also_keys_that_no_stage_names(layout: Layout) -> None:
    text = (Path(__file__).parents[1] / "params.yaml").read_text()
    Path("params.yaml").write_text(text)
    assert awm("params") == ""
    Path("params.yaml").write_text(text + "executor: ray\n")

    assert "params.yaml: unknown key 'executor'" in awm("params", status=1)


def test_brackets_in_an_llms_text_are_text(layout: Layout) -> None:
    named = SCENARIO.model_copy(update={"name": "A [/x] [bold]Library"})
    layout.write_model("scenarios", SLUG, named)
    odd = TASKS.tasks[0].model_copy(update={"text": "Find [/b] the [red]book."})
    layout.write_model("tasks", SLUG, TASKS.model_copy(update={"tasks": (odd,)}))

    output = awm("env", "show", SLUG)

    assert "A [/x] [bold]Library" in output
    assert "Find [/b] the [red]book." in output


def test_a_damaged_database_is_one_line(layout: Layout) -> None:
    write_atomic(layout.file("databases", SLUG, ".db"), b"not a database at all" * 100)

    assert "file is not a database" in awm("env", "show", SLUG, status=1)


def test_list_outside_of_a_built_project_says_what_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert "data/environments: not found; run `dvc repro environments` first" in awm("env", "list", status=1)


def test_record_copies_the_answers_used_by_scenario(layout: Layout) -> None:
    entries = [
        RecordingEntry(
            step="verifiers",
            item=f"{slug}/{number:02d}",
            attempt=1,
            prompt_sha256="0" * 64,
            model="m",
            parameters={},
            finish_reason="stop",
            content="ü",
            usage=Usage(),
        )
        for slug in ("a_shop", "b_shop")
        for number in (1, 2)
    ]
    write_shards(layout.llm("verifiers"), entries)

    assert "4 answers written" in awm("llm", "record")
    folder = layout.data / "recordings" / "verifiers"
    assert sorted(path.name for path in folder.iterdir()) == ["a_shop.jsonl", "b_shop.jsonl"]
    assert Recording.load(folder).entries() == entries
