"""What an import stores and reports."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from awm.env import Environment, Sandbox
from awm.hub.awm1k import ImportReport, import_awm1k
from hub import small_awm1k


def found(report: ImportReport, part: str) -> list[tuple[object, ...]]:
    [environment] = report.environments
    return [
        (finding.action, finding.table or finding.task, finding.row, finding.reason)
        for finding in environment.findings
        if finding.part == part
    ]


def test_says_what_of_the_schema_was_mended_and_what_is_lost(report: ImportReport) -> None:
    assert found(report, "schema") == [
        ("repaired", "teas", None, 'near ",": syntax error: the bracket left open in line 4 was closed at its end'),
        ("left out", "users", None, "no such column: city"),
        ("repaired", "gifts", None, 'near ",": syntax error: made from the module\'s model'),
    ]


def test_says_what_of_the_rows_was_mended_and_what_is_lost(report: ImportReport) -> None:
    found_rows = found(report, "sample")

    assert [(action, table, row) for action, table, row, _ in found_rows] == [
        ("left out", "users", 2),
        ("repaired", "teas", 2),
        ("repaired", "teas", 3),
        ("left out", "teas", 4),
        ("repaired", "gifts", 1),
        ("left out", "reviews", 1),
        ("kept", "orders", 2),
    ]
    assert found_rows[0][3] == "UNIQUE constraint failed: users.id"
    assert found_rows[5][3] == "no such table: reviews"


def test_says_which_verifiers_are_of_use(report: ImportReport) -> None:
    assert found(report, "verifier") == [
        ("kept", 3, None, "it says 'complete' on the untouched state"),
        ("left out", 4, None, "on the untouched state: crash: NameError: name 'undefined' is not defined"),
        ("left out", 10, None, "there is no such task"),
    ]
    [environment] = report.environments
    assert (environment.tasks, environment.verifiers, environment.evidence) == (4, 2, 2)


def test_the_report_is_stored(report: ImportReport, folder: Path) -> None:
    assert ImportReport.model_validate_json((folder / "import.json").read_text()) == report


def test_the_database_is_built_at_the_frozen_time(report: ImportReport, environment: Environment) -> None:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(environment.snapshot)

    assert connection.execute("SELECT joined_at FROM users").fetchall() == [("2026-01-29 12:00:00",)]
    assert connection.execute("SELECT name FROM teas ORDER BY id").fetchall() == [
        ("Jade Cloud",),
        ("Smuggler's Blend",),
        ("Weaver's Cup",),
    ]
    assert connection.execute("SELECT text FROM gifts").fetchall() == [("I'll think of you",)]


def test_the_module_is_stored_as_published(report: ImportReport, environment: Environment) -> None:
    assert environment.kind == "fastapi"
    assert environment.source == small_awm1k.CODE
    assert [task.text for task in environment.tasks] == small_awm1k.TASKS
    assert environment.verifiers[1] == small_awm1k.VERDICT
    assert environment.verifiers[2] == small_awm1k.EVIDENCE
    assert environment.toolset is not None
    reading = {tool.name for tool in environment.toolset.tools if tool.read_only}
    assert reading == {"list_teas", "get_tea", "tell_time", "waits", "breaks", "spins"}


def test_a_second_import_gives_the_same_files(
    report: ImportReport, folder: Path, tmp_path: Path, sandbox: Sandbox
) -> None:
    import_awm1k(folder.parent / "published", tmp_path, sandbox=sandbox)

    def contents(root: Path) -> dict[str, bytes]:
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    assert contents(tmp_path) == contents(folder)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"code": "from fastapi import FastAPI\napp = FastAPI()\n"}, "no endpoint that could be a tool"),
        ({"code": "app = 1\n"}, "the module defines no FastAPI application"),
        ({"code": "import numpy_of_another_kind\n"}, "line 1: ModuleNotFoundError"),
        ({"code": "def broken(:\n"}, "syntax: line 1"),
        (
            {"code": "from sqlalchemy import create_engine\nengine = create_engine('postgresql://localhost/x')\n"},
            "only SQLite can be used here, not postgresql",
        ),
        ({"code": "import socket\nsocket.create_connection(('127.0.0.1', 80))\n"}, "PermissionError"),
    ],
)
def test_a_module_that_does_not_start_is_rejected_with_its_reason(
    tmp_path: Path, sandbox: Sandbox, changes: dict[str, str], reason: str
) -> None:
    report = import_awm1k(small_awm1k.write(tmp_path / "in", **changes), tmp_path / "out", sandbox=sandbox)

    assert not report.environments
    [rejected] = report.rejected
    assert rejected.slug == small_awm1k.SLUG
    assert reason in rejected.reason
    assert not (tmp_path / "out" / "environments").exists()


def test_one_that_fails_stops_no_other(tmp_path: Path, sandbox: Sandbox) -> None:
    folder = small_awm1k.write(tmp_path / "in")
    for file in ("gen_envs.jsonl", "gen_db.jsonl"):
        with (folder / file).open("a") as lines:
            record = {"scenario": "Other", "full_code": "raise SystemExit", "db_schema": {"tables": []}}
            lines.write(json.dumps(record) + "\n")
    seen = []

    report = import_awm1k(folder, tmp_path / "out", sandbox=sandbox, progress=lambda done: seen.append(done.slug))

    assert [environment.slug for environment in report.environments] == [small_awm1k.SLUG]
    assert [(one.slug, one.reason) for one in report.rejected] == [("other", "import: line 1: SystemExit: ")]
    assert seen == [small_awm1k.SLUG, "other"]


def test_only_some_can_be_imported(tmp_path: Path, sandbox: Sandbox) -> None:
    folder = small_awm1k.write(tmp_path / "in")

    with pytest.raises(ValueError, match=r"has no scenario nowhere"):
        import_awm1k(folder, tmp_path / "out", only=["nowhere"], sandbox=sandbox)


def test_what_the_module_does_as_it_starts_is_part_of_the_state(tmp_path: Path, sandbox: Sandbox) -> None:
    seeding = small_awm1k.CODE.replace(
        "\n\ndef get_db():",
        "\n\n@app.on_event('startup')\ndef seed():\n    db = SessionLocal()\n    if not db.get(User, 9):\n"
        "        db.add(User(id=9, name='Seeded'))\n        db.commit()\n    db.close()\n\n\ndef get_db():",
        1,
    )
    report = import_awm1k(small_awm1k.write(tmp_path / "in", code=seeding), tmp_path / "out", sandbox=sandbox)

    [finding] = [finding for finding in report.environments[0].findings if finding.part == "tools"]
    assert finding.reason == "the module changes the database as it starts: users: 1 to 2 rows"
    environment = Environment.load(tmp_path / "out", small_awm1k.SLUG, sandbox=sandbox)
    with environment, environment.episode() as episode:
        assert episode.call("forgotten_commit").value == {"users": 3}
        assert episode.diff() == {}
