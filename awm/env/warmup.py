"""Use every part once that generated code will use, so that workers start with all of it in memory.

pydantic imports and builds much of itself on first use, which would cost each worker a tenth of a second, and which the
mode without file access could not do at all.
"""

from __future__ import annotations

import importlib
import sqlite3
import sys
from contextlib import closing

from awm.env import tool, verifier
from awm.env.clock import FrozenClock
from awm.env.database import content_hash, open_database
from awm.env.jsonable import to_jsonable
from awm.env.module import find_tools, load_module, signatures
from awm.env.policy import PRELOADED, READABLE_PACKAGES
from awm.env.summing import install_sum

__all__ = ["warm_up"]

_OWN = (tool, verifier)

_SOURCE = '''
from __future__ import annotations
import json, math, re, sqlite3
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union
from uuid import UUID, uuid4
from typing_extensions import TypedDict
from pydantic import BaseModel, ConfigDict, Field, computed_field, field_validator, model_validator
from awm.env.tool import Connection, ToolError

class Status(str, Enum):
    OPEN = "open"

class Line(BaseModel):
    sku: str = Field(min_length=1, pattern="^[a-z]+$")
    price: Decimal = Decimal(1)
    tags: list[str] = Field(default_factory=list)

    @field_validator("sku")
    @classmethod
    def check(cls, value: str) -> str:
        return value

class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int
    lines: list[Line]
    made: datetime
    due: date | None = None
    key: UUID | None = None
    extra: dict[str, Any] = {}

    @computed_field
    @property
    def total(self) -> float:
        return 1.0

    @model_validator(mode="after")
    def whole(self) -> Order:
        return self

class Note(TypedDict):
    text: str

@dataclass
class Point:
    x: float

def sample(
    db: Connection,
    number: Annotated[int, Field(description="A", ge=1)],
    status: Annotated[Status, Field(description="B")],
    kind: Annotated[Literal["a", "b"], Field(description="C")] = "a",
    line: Annotated[Optional[Line], Field(description="D")] = None,
    note: Annotated[Note | None, Field(description="E")] = None,
    day: Annotated[Union[date, datetime, None], Field(description="F")] = None,
    price: Annotated[Decimal, Field(description="G")] = Decimal(1),
    names: Annotated[list[str] | None, Field(description="H", max_length=3)] = None,
    point: Annotated[Point | None, Field(description="I")] = None,
) -> Order:
    """Sample."""
    db.execute("SELECT json_group_array(value), datetime('now') FROM json_each('[1]')").fetchall()
    return Order(id=number, lines=[Line(sku="a")], made=datetime.now(), key=uuid4())

def rows(db: Connection) -> list[dict[str, Any]]:
    """Sample."""
    return [dict(row) for row in db.execute("SELECT 1 AS one")]
'''


def warm_up() -> None:
    """Import, build and call; leave nothing behind but what is cached, and one `sum` for all Pythons."""
    install_sum()
    for name in (*PRELOADED, *READABLE_PACKAGES):
        try:
            importlib.import_module(name)
        except ImportError:
            if name in PRELOADED:
                raise
    tools = find_tools(load_module(_SOURCE, "tools"))
    signatures(tools)
    with closing(open_database(_empty(), clock=FrozenClock("2000-01-01"), read_only=True)) as connection:
        keywords, _ = tools["sample"].arguments.validate(
            {"number": 1, "status": "open", "line": {"sku": "a"}, "day": "2000-01-01", "price": "1.5", "names": ["x"]}
        )
        to_jsonable(tools["sample"].function(connection, **keywords))
        to_jsonable(tools["rows"].function(connection))
        content_hash(connection)
    del sys.modules["tools"]


def _empty() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t(a)")
        return connection.serialize()
