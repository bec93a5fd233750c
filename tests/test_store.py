from __future__ import annotations

from pathlib import Path

import pytest

from awm.models import Scenario
from awm.store import ItemStore, Layout, StoreError, digest, write_atomic

SCENARIO = Scenario(slug="a_shop", name="A Shop", description="Sells ☕.", category="commerce and retail")


def test_a_model_survives_the_round_trip(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.write_model("scenarios", "a_shop", SCENARIO)

    assert layout.read_models("scenarios", Scenario) == [SCENARIO]


def test_slugs_are_sorted_and_of_one_suffix(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    for name in ("b.sql", "a.sql", "a.db", "c.json"):
        write_atomic(layout.step("databases") / name, "")

    assert layout.slugs("databases", ".sql") == ["a", "b"]


@pytest.mark.parametrize("text", ["", '{"slug": "a_shop", "name": "A Sh', '{"slug": "a_shop"}', '{"extra": 1}'])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, text: str) -> None:
    layout = Layout(tmp_path)
    write_atomic(layout.file("scenarios", "a_shop", ".json"), text)

    with pytest.raises(StoreError, match=r"a_shop\.json: .*run `dvc repro -f scenarios`"):
        layout.read_model("scenarios", "a_shop", Scenario)


def test_missing_outputs_name_the_stage_to_run(tmp_path: Path) -> None:
    layout = Layout(tmp_path)

    with pytest.raises(StoreError, match="run `dvc repro tasks` first"):
        layout.slugs("tasks", ".json")
    with pytest.raises(StoreError, match="run `dvc repro tasks`"):
        layout.read_text("tasks", "a_shop", ".json")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    write_atomic(path, "old")

    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "new \ud800")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_equal_values_have_equal_digests() -> None:
    assert digest({"a": 1, "b": [2, "ü"]}) == digest({"b": [2, "ü"], "a": 1})
    assert digest({"a": 1}) != digest({"a": "1"})


def test_the_first_stored_item_stays_and_a_damaged_one_counts_as_absent(tmp_path: Path) -> None:
    store = ItemStore(tmp_path)
    store.put("tasks", "ab12", SCENARIO)
    store.put("tasks", "ab12", SCENARIO.model_copy(update={"name": "Another"}))
    assert store.get("tasks", "ab12", Scenario) == SCENARIO

    (entry,) = tmp_path.rglob("*.json")
    entry.write_bytes(entry.read_bytes()[:20])
    assert store.get("tasks", "ab12", Scenario) is None
    store.put("tasks", "ab12", SCENARIO)
    assert store.get("tasks", "ab12", Scenario) == SCENARIO
