"""Read the published files: JSON lines, one file a stage, joined by the scenario's name.

The files spell a name in different ways (`SurveyMonkey Apply`, `surveymonkey_apply`). What joins them is the name
without case, accents and all that is no letter or digit.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from awm.synth.slug import unique_slugs

__all__ = ["Published", "PublishedLayoutError", "PublishedScenario", "TableData", "TableSchema", "read_published"]

_SCENARIOS, _TASKS, _SCHEMAS, _SAMPLES = "gen_scenario.jsonl", "gen_tasks.jsonl", "gen_db.jsonl", "gen_sample.jsonl"
_MODULES, _VERIFIERS, _CODE_VERIFIERS = "gen_envs.jsonl", "gen_verifier.jsonl", "gen_verifier.pure_code.jsonl"
_FILES = (_SCENARIOS, _TASKS, _SCHEMAS, _SAMPLES, _MODULES, _VERIFIERS, _CODE_VERIFIERS)


class PublishedLayoutError(ValueError):
    """The folder does not hold the published layout; the message says what is missing."""


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore")


class TableSchema(_Lenient):
    """DDL of one table."""

    name: str
    ddl: str
    indexes: list[str] = []


class TableData(_Lenient):
    """INSERTs of one table."""

    table_name: str
    insert_statements: list[str] = []


class _Scenario(_Lenient):
    name: str
    description: str = ""


class _Tasks(_Lenient):
    scenario: str
    tasks: list[str]


class _SchemaTables(_Lenient):
    tables: list[TableSchema]


class _Schema(_Lenient):
    scenario: str
    db_schema: _SchemaTables


class _SampleTables(_Lenient):
    tables: list[TableData]


class _Sample(_Lenient):
    scenario: str
    sample_data: _SampleTables


class _Module(_Lenient):
    scenario: str
    full_code: str


class _Code(_Lenient):
    code: str


class _Verifier(_Lenient):
    scenario: str
    task_idx: int = Field(ge=0)
    verification: _Code


_MODELS: dict[str, type[_Lenient]] = {
    _SCENARIOS: _Scenario,
    _TASKS: _Tasks,
    _SCHEMAS: _Schema,
    _SAMPLES: _Sample,
    _MODULES: _Module,
    _VERIFIERS: _Verifier,
    _CODE_VERIFIERS: _Verifier,
}


@dataclass
class PublishedScenario:
    """All that is published about one scenario; None or empty where a file has nothing about it.

    `verifiers` holds sources by task, numbered from 1: those of `gen_verifier.pure_code.jsonl` come after those of
    `gen_verifier.jsonl`.
    """

    slug: str
    name: str
    description: str = ""
    tasks: list[str] | None = None
    schema: list[TableSchema] | None = None
    sample: list[TableData] | None = None
    full_code: str | None = None
    verifiers: dict[int, list[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A folder in the published layout, and what in it could not be read."""

    scenarios: list[PublishedScenario]
    problems: list[str]


def read_published(folder: Path) -> Published:
    """Read a folder; raise PublishedLayoutError if there is nothing to import in it."""
    found = [name for name in _FILES if (folder / name).is_file()]
    if _MODULES not in found:
        raise PublishedLayoutError(f"{folder}: no {_MODULES} here: name the folder with the published gen_*.jsonl")
    problems: list[str] = []
    records = [(name, record) for name in found for record in _records(folder / name, problems)]
    names = _Names()
    for _, record in records:  # gen_scenario.jsonl comes first: its spelling is the one for people
        names.add(_name(record))
    slugs = unique_slugs(names.spelled.values())
    scenarios = {
        key: PublishedScenario(slug, name) for (key, name), slug in zip(names.spelled.items(), slugs, strict=True)
    }
    seen: set[tuple[str, str]] = set()
    for file, record in records:
        key = names.key(_name(record))
        if (file, key) in seen and not isinstance(record, _Verifier):
            problems.append(f"{file}: {names.spelled[key]!r} comes a second time; the first one counts")
            continue
        seen.add((file, key))
        _ADDING[type(record)](scenarios[key], record)
    return Published(list(scenarios.values()), problems)


class _Names:
    """The scenarios' names by what all spellings of one have in common."""

    def __init__(self) -> None:
        self.spelled: dict[str, str] = {}
        self._by_ascii: dict[str, str] = {}

    def add(self, name: str) -> None:
        key = self.key(name)
        self.spelled.setdefault(key, name)
        self._by_ascii.setdefault(re.sub("[^a-z0-9]", "", name.lower()), key)

    def key(self, name: str) -> str:
        folded = unicodedata.normalize("NFKD", name.casefold())
        key = "".join(character for character in folded if character.isalnum()) or name
        return key if key in self.spelled else self._by_ascii.get(key, key)  # 'Café' is also written 'caf_'


def _records(path: Path, problems: list[str]) -> Iterator[_Lenient]:
    model = _MODELS[path.name]
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                yield model.model_validate(json.loads(line))
            except ValidationError as error:
                first = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(str(part) for part in first["loc"])
                problems.append(f"{path.name}, line {number}: {where}: {first['msg']}")
            except ValueError as error:
                problems.append(f"{path.name}, line {number}: no JSON: {error}")


def _name(record: _Lenient) -> str:
    return record.name if isinstance(record, _Scenario) else str(getattr(record, "scenario", ""))


def _add_verifier(scenario: PublishedScenario, record: Any) -> None:
    scenario.verifiers.setdefault(record.task_idx + 1, []).append(_without_fence(record.verification.code))


_ADDING: dict[type[_Lenient], Callable[[PublishedScenario, Any], None]] = {
    _Scenario: lambda scenario, record: setattr(scenario, "description", record.description),
    _Tasks: lambda scenario, record: setattr(scenario, "tasks", record.tasks),
    _Schema: lambda scenario, record: setattr(scenario, "schema", record.db_schema.tables),
    _Sample: lambda scenario, record: setattr(scenario, "sample", record.sample_data.tables),
    _Module: lambda scenario, record: setattr(scenario, "full_code", record.full_code),
    _Verifier: _add_verifier,
}


def _without_fence(code: str) -> str:
    """Drop a code fence of Markdown around a source."""
    match = re.fullmatch(r"\s*```(?:python|py)?\s*\n(.*?)\n?```\s*", code, re.DOTALL)
    return match.group(1) if match else code
