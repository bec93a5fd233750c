"""A small lending library as an environment, in memory and as the files that the pipeline writes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from awm.env import Environment, Sandbox
from awm.env.cells import join_cells
from awm.env.clock import FrozenClock
from awm.env.database import build, content_hash, open_database, table_counts
from awm.env.sql import split_statements
from awm.models import DatabaseSummary, EnvironmentSummary, TaskKind
from awm.store import Layout
from synth.library_environment import CLOCK, DATA, MODULE, SCENARIO, SCHEMA, TASKS, TOOLSET, VERIFIER

__all__ = ["CLOCK", "FAULTY", "library_environment", "library_snapshot", "write_library"]


FAULTY = '''\
from __future__ import annotations

import re
from awm.env.tool import Connection, ToolError


def _module(name):
    return re.enum.sys.modules["importlib"].import_module(name)


def fine(db: Connection) -> str:
    """Answer."""
    return "fine"


def refuse(db: Connection) -> str:
    """Refuse."""
    raise ToolError("not today")


def crash(db: Connection) -> str:
    """Fail."""
    return {}["x"]


def hang(db: Connection) -> str:
    """Come to no end, in Python."""
    while True:
        len("")


def odd(db: Connection):
    """Return what is no JSON."""
    return {1, object}


def die(db: Connection) -> str:
    """End the process."""
    _module("os")._exit(3)


def spin(db: Connection) -> str:
    """Come to no end where nothing can interrupt it."""
    return all(_module("itertools").repeat(1))
'''
"""A tool module with every kind of bug."""


def library_snapshot() -> bytes:
    """Return the initial state."""
    return build(split_statements(SCHEMA + DATA), FrozenClock(CLOCK))


def library_environment(sandbox: Sandbox | None, **parts: Any) -> Environment:
    """Return the environment; `parts` replace its own."""
    usual: dict[str, Any] = {
        "source": MODULE,
        "snapshot": library_snapshot(),
        "clock": CLOCK,
        "scenario": SCENARIO,
        "tasks": TASKS.tasks,
        "verifiers": {1: VERIFIER},
        "toolset": TOOLSET,
    }
    return Environment("lending_library", **usual | parts, sandbox=sandbox)


def write_library(data: Path) -> Path:
    """Write the environment into a folder `data`, and return that."""
    layout, slug = Layout(data.parent), SCENARIO.slug
    snapshot = library_snapshot()
    connection = open_database(snapshot)
    counts = table_counts(connection)
    connection.close()
    summary = DatabaseSummary(slug=slug, clock=CLOCK, tables=counts, content_hash=content_hash(snapshot))
    layout.write_model("scenarios", slug, SCENARIO)
    layout.write_model("tasks", slug, TASKS)
    layout.write_model("databases", slug, summary)
    layout.write_model("toolsets", slug, TOOLSET)
    for step, suffix, content in (
        ("databases", ".db", snapshot),
        ("tools", ".py", MODULE.encode()),
        ("verifiers", ".py", join_cells({"01": VERIFIER}).encode()),
    ):
        path = layout.file(step, slug, suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    layout.write_model(
        "environments",
        slug,
        EnvironmentSummary(
            slug=slug,
            name=SCENARIO.name,
            category=SCENARIO.category,
            tables=len(counts),
            rows=sum(counts.values()),
            tools=len(TOOLSET.tools),
            read_only_tools=sum(tool.read_only for tool in TOOLSET.tools),
            code_lines=len(MODULE.splitlines()),
            tasks=(1, 2),
            task_kinds={TaskKind.READ: 1, TaskKind.WRITE: 1},
            clock=CLOCK,
            content_hash=summary.content_hash,
            unreached_tools=(),
            tools_sha256=hashlib.sha256(MODULE.encode()).hexdigest(),
        ),
    )
    return data
