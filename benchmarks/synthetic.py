"""A synthetic environment of the usual size, for measurements: 20 tables, 45 tools, about 800 rows, made by rule.

It is as the pipeline's own are: foreign keys, checks, indexes, defaults that ask the clock, tools with described
arguments that return pydantic models, and a verifier that compares two states.
"""

from __future__ import annotations

import random

from awm.env.clock import FrozenClock
from awm.env.database import build
from awm.env.environment import Environment
from awm.env.host import Sandbox
from awm.env.policy import Limits
from awm.env.sql import split_statements
from awm.models import Task, TaskKind

__all__ = ["CLOCK", "READ", "READ_MODEL", "WRITE", "synthetic_environment", "synthetic_schema", "synthetic_source"]

CLOCK = "2026-03-02 09:00:00"
ROWS = 40
READ = ("get_order", {"order_id": 7})
"""A light read: one row by its key."""
READ_MODEL = ("describe_order", {"order_id": 7})
"""A row and the one it refers to, as a pydantic model."""
WRITE = ("set_order_status", {"order_id": 7, "status": "done"})

_NAMES = """
    user address supplier category product warehouse stock cart order payment shipment parcel refund invoice ticket
    message review coupon campaign subscription
""".split()

_HEAD = '''\
"""Tools of a synthetic shop."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from awm.env.tool import Connection, ToolError

Status = Literal["new", "open", "done", "closed"]


def _rows(db, sql, *values):
    return [dict(row) for row in db.execute(sql, values).fetchall()]
'''

_GET = '''

def get_{name}(db: Connection, {name}_id: Annotated[int, Field(description="Id of the {name}")]) -> dict[str, Any]:
    """Return one {name}."""
    row = db.execute("SELECT * FROM {name}s WHERE id = ?", ({name}_id,)).fetchone()
    if row is None:
        raise ToolError(f"there is no {name} {{{name}_id}}")
    return dict(row)
'''

_MODELS = '''

class {Model}(BaseModel):
    id: int
    name: str
    status: str
    amount: float
    note: str | None
    created_at: str
    parent: str | None


def describe_{name}(db: Connection, {name}_id: Annotated[int, Field(description="Id of the {name}")]) -> {Model}:
    """Return one {name} with the name of what it belongs to."""
    rows = _rows(
        db,
        "SELECT t.id, t.name, t.status, t.amount, t.note, t.created_at, p.name AS parent FROM {name}s t "
        "LEFT JOIN {parent}s p ON p.id = t.parent_id WHERE t.id = ?",
        {name}_id,
    )
    if not rows:
        raise ToolError(f"there is no {name} {{{name}_id}}")
    return {Model}(**rows[0])


def list_{name}s(
    db: Connection,
    status: Annotated[Status | None, Field(description="Only those in this state")] = None,
    limit: Annotated[int, Field(description="At most so many", ge=1, le=100)] = 20,
) -> list[{Model}]:
    """List {name}s, the newest first."""
    rows = _rows(
        db,
        "SELECT t.id, t.name, t.status, t.amount, t.note, t.created_at, p.name AS parent FROM {name}s t "
        "LEFT JOIN {parent}s p ON p.id = t.parent_id WHERE ? IS NULL OR t.status = ? ORDER BY t.id DESC LIMIT ?",
        status,
        status,
        limit,
    )
    return [{Model}(**row) for row in rows]
'''

_WRITE = '''

def set_{name}_status(
    db: Connection,
    {name}_id: Annotated[int, Field(description="Id of the {name}")],
    status: Annotated[Status, Field(description="New state")],
) -> {Model}:
    """Change the state of a {name}."""
    found = describe_{name}(db, {name}_id)
    if found.status == "closed":
        raise ToolError(f"{name} {{{name}_id}} is closed")
    db.execute("UPDATE {name}s SET status = ? WHERE id = ?", (status, {name}_id))
    return describe_{name}(db, {name}_id)
'''

_TABLE = """\
CREATE TABLE {name}s (
    id INTEGER PRIMARY KEY,
    parent_id INTEGER REFERENCES {parent}s (id),
    name TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('new', 'open', 'done', 'closed')),
    amount REAL NOT NULL DEFAULT 0 CHECK (amount >= 0),
    note TEXT,
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX {name}s_parent ON {name}s (parent_id);
CREATE INDEX {name}s_status ON {name}s (status);
"""

_VERIFIER = """\
from awm.env.verifier import Connection, mentions, state_diff


def verify(initial: Connection, final: Connection, answer: str | None) -> dict:
    wanted = {"orders": {"added": [], "removed": [], "changed": [
        {"key": {"id": 7}, "before": {"status": "open"}, "after": {"status": "done"}}]}}
    changes = state_diff(initial, final)
    verdict = "completed" if changes == wanted else "agent_error"
    return {"verdict": verdict, "evidence": {"changes": changes, "said": mentions(answer, 7)}}
"""

_TASK = Task(number=1, kind=TaskKind.WRITE, text="Mark order 7 as done.")


def synthetic_environment(slug: str = "synthetic", sandbox: Sandbox | None = None, **options: Limits) -> Environment:
    """Return the environment; the options are those of `Environment`."""
    return Environment(
        slug,
        source=synthetic_source(),
        snapshot=build(split_statements(synthetic_schema() + _data()), FrozenClock(CLOCK)),
        clock=CLOCK,
        tasks=[_TASK],
        verifiers={1: _VERIFIER},
        sandbox=sandbox,
        **options,
    )


def synthetic_source() -> str:
    """Return the tool module."""
    parts = [_HEAD]
    for number, name in enumerate(_NAMES):
        named = {"name": name, "Model": name.title(), "parent": _parent(number)}
        parts.append(_GET.format(**named))
        if number % 2 == 0:
            parts.append(_MODELS.format(**named))
        if number % 4 == 0:
            parts.append(_WRITE.format(**named))
    return "".join(parts)


def synthetic_schema() -> str:
    """Return the DDL."""
    return "".join(_TABLE.format(name=name, parent=_parent(number)) for number, name in enumerate(_NAMES))


def _parent(number: int) -> str:
    return _NAMES[max(0, number // 2)]


def _data() -> str:
    chance = random.Random(7)
    statements = []
    for number, name in enumerate(_NAMES):
        rows = ",\n".join(
            f"  ({row}, {'NULL' if number == 0 else chance.randint(1, ROWS)}, '{name.title()} {row}', "
            f"'{'open' if row == 7 else chance.choice(('new', 'open', 'done', 'closed'))}', "
            f"{chance.randint(0, 9999) / 100}, "
            f"'{chance.getrandbits(160):040x}')"
            for row in range(1, ROWS + 1)
        )
        statements.append(f"INSERT INTO {name}s (id, parent_id, name, status, amount, note) VALUES\n{rows};\n")
    return "".join(statements)
