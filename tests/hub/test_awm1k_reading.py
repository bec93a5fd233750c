"""The published files: joined by name however it is spelled, and what can't be used is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from awm.hub.awm1k.reading import PublishedLayoutError, read_published
from hub import small_awm1k

MODULE = {"full_code": "x", "db_path": ""}


def write(folder: Path, name: str, *records: object) -> None:
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_joins_all_spellings_of_a_name(tmp_path: Path) -> None:
    [scenario] = read_published(small_awm1k.write(tmp_path)).scenarios

    assert (scenario.slug, scenario.name) == (small_awm1k.SLUG, small_awm1k.NAME)
    assert scenario.description == "A shop for tea."
    assert scenario.tasks == small_awm1k.TASKS
    assert scenario.schema is not None
    assert scenario.schema[0].name == "users"
    assert scenario.full_code == small_awm1k.CODE


def test_code_verifiers_come_after_those_for_a_judge(tmp_path: Path) -> None:
    [scenario] = read_published(small_awm1k.write(tmp_path)).scenarios

    assert scenario.verifiers[1] == [small_awm1k.EVIDENCE, small_awm1k.VERDICT]
    assert scenario.verifiers[2] == [small_awm1k.EVIDENCE]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("SurveyMonkey Apply", "surveymonkey_apply"),
        ("Lowe's", "lowe_s"),
        ("Pokémon GO", "pok_mon_go"),
        ("3D-Printing  Hub", "3d_printing_hub"),
        ("AT&T", "at_t"),
        ("日本", "日本"),
    ],
)
def test_a_spelling_does_not_make_a_second_scenario(tmp_path: Path, name: str, other: str) -> None:
    write(tmp_path, "gen_scenario.jsonl", {"name": name, "description": "d"})
    write(tmp_path, "gen_envs.jsonl", {"scenario": other, **MODULE})

    [scenario] = read_published(tmp_path).scenarios

    assert scenario.name == name
    assert scenario.full_code == "x"


def test_names_apart_stay_apart(tmp_path: Path) -> None:
    write(tmp_path, "gen_envs.jsonl", {"scenario": "Ebay", **MODULE}, {"scenario": "Ebay Motors", **MODULE})

    assert [scenario.slug for scenario in read_published(tmp_path).scenarios] == ["ebay", "ebay_motors"]


def test_lines_that_can_not_be_used_are_named(tmp_path: Path) -> None:
    write(
        tmp_path,
        "gen_envs.jsonl",
        {"scenario": "A", **MODULE},
        "{broken",
        {"scenario": "B"},
        {"scenario": "a", **MODULE},
    )
    write(tmp_path, "gen_tasks.jsonl", {"scenario": "A", "tasks": "no list"})

    published = read_published(tmp_path)

    assert [scenario.slug for scenario in published.scenarios] == ["a"]
    joined = "\n".join(published.problems)
    assert "gen_envs.jsonl, line 2: no JSON" in joined
    assert "gen_envs.jsonl, line 3: full_code: Field required" in joined
    assert "gen_envs.jsonl: 'A' comes a second time; the first one counts" in joined
    assert "gen_tasks.jsonl, line 1: tasks: Input should be a valid list" in joined


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PublishedLayoutError, match=r"no gen_envs.jsonl here"):
        read_published(tmp_path)


def test_a_code_fence_around_a_verifier_is_dropped(tmp_path: Path) -> None:
    folder = small_awm1k.write(tmp_path, verifiers=[(0, "```python\nx = 1\n```\n")], code_verifiers=[])

    [scenario] = read_published(folder).scenarios

    assert scenario.verifiers == {1: ["x = 1"]}
