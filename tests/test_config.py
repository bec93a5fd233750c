from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from awm.config import ConfigError, load_params

PROJECT = Path(__file__).parents[1]


def written(tmp_path: Path, change: dict[str, Any] | None = None, text: str | None = None) -> Path:
    """The project's own params.yaml with some keys changed (dotted names; None takes a key away)."""
    path = tmp_path / "params.yaml"
    if text is not None:
        path.write_text(text)
        return path
    content = yaml.safe_load((PROJECT / "params.yaml").read_text())
    for name, value in (change or {}).items():
        *sections, key = name.split(".")
        section = content
        for part in sections:
            section = section[part]
        if value is None:
            del section[key]
        else:
            section[key] = value
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_projects_own_parameters_are_valid() -> None:
    params = load_params(PROJECT / "params.yaml")

    assert params.repair.max_attempts == 5
    assert params.llm.provider == "recorded"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"llm.modle": "x"}, "unknown key 'llm.modle'"),
        ({"surprise": {"a": 1}}, "unknown key 'surprise'"),
        ({"scenarios.count": "many"}, "'scenarios.count' = 'many'"),
        ({"scenarios.count": 2.5}, "'scenarios.count' = 2.5"),
        ({"scenarios.count": 0}, "'scenarios.count' = 0"),
        ({"scenarios.count": True}, "'scenarios.count' = True"),
        ({"scenarios.embedding.threshold": "high"}, "'scenarios.embedding.threshold' = 'high'"),
        ({"llm.provider": "claude"}, "'llm.provider' = 'claude'"),
        ({"llm.temperature": 3.0}, "'llm.temperature' = 3.0"),
        ({"llm.prices": {"m": {"input": 1}}}, "'llm.prices.m.output' is missing"),
        ({"databases.clock": "yesterday"}, "'databases.clock' = 'yesterday'"),
        ({"databases.clock": "2026-02-30 00:00:00"}, "'databases.clock'"),
        ({"repair": None}, "key 'repair' is missing"),
        ({"repair.max_attempts": float("nan")}, "'repair.max_attempts'"),
        ({"llm": "recorded"}, "'llm' = 'recorded'"),
        ({"llm.base_url": ""}, "'llm.base_url' = ''"),
        ({"llm.base_url": "localhost:8000"}, "'llm.base_url' = 'localhost:8000'"),
        ({"llm.model": " "}, "'llm.model' = ' '"),
        ({"llm.api_key_env": "KEY=sk"}, "'llm.api_key_env'"),
        ({"llm.temperature": True}, "'llm.temperature' = True"),
        ({"llm.concurrency": 10**20}, "'llm.concurrency'"),
        ({"llm.timeout_s": 1e300}, "'llm.timeout_s'"),
        ({"sandbox.memory_mb": 10**14}, "'sandbox.memory_mb'"),
        ({"databases.clock": "2026-03-02 09:00:00+02:00"}, "'databases.clock'"),
        ({"schemas.min_tables": 99}, "'schemas': min_tables = 99 is more than max_tables = 30"),
        ({"toolsets.min_tools": 99}, "'toolsets': min_tools = 99 is more than max_tools = 60"),
        ({"tasks.min_reads": 9}, "'tasks': the minima of the kinds add up to 15, more than per_scenario = 10"),
        ({"filter.min_tasks": 11}, "filter.min_tasks = 11 is more than tasks.per_scenario = 10"),
    ],
)
def test_a_bad_key_is_one_line_that_names_it(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_params(written(tmp_path, change))

    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llm: [", "not readable as YAML"),
        ("", "expected sections"),
        ("- a\n- b\n", "expected sections"),
        ("? [a]\n: 1\n", "not readable as YAML"),
        ("a: 2026-99-99\n", "not readable as YAML"),
        ("[" * 3000, "not readable as YAML"),
        ("a: " + "9" * 5000 + "\n", "not readable as YAML"),
        ("repair: {max_attempts: 1}\nrepair: {max_attempts: 2}\n", "'repair' is given twice"),
    ],
)
def test_a_file_that_is_no_params_yaml_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_params(written(tmp_path, text=text))

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_says_where_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="run from the project's top folder"):
        load_params(tmp_path / "params.yaml")


def test_floats_as_dvc_writes_them_are_numbers(tmp_path: Path) -> None:
    """`dvc exp run -S` writes 1e-06, which YAML 1.1 reads as text."""
    path = written(tmp_path)
    path.write_text(path.read_text().replace("threshold: 0.45", "threshold: 1e-06"))

    assert load_params(path).scenarios.embedding.threshold == 1e-6


def test_a_clock_without_quotes_is_the_same_time(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("clock: '2026-03-02 09:00:00'", "clock: 2026-03-02 09:00:00"))

    assert load_params(path).databases.clock == "2026-03-02 09:00:00"


def test_a_clock_without_leading_zeros_is_stored_in_full(tmp_path: Path) -> None:
    path = written(tmp_path, {"databases.clock": "2026-3-2 9:0:0"})

    assert load_params(path).databases.clock == "2026-03-02 09:00:00"


def test_a_folder_in_the_files_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").mkdir()

    with pytest.raises(ConfigError, match="can't be read"):
        load_params(tmp_path / "params.yaml")
