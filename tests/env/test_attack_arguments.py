"""What an agent can do without any code: names and arguments that no one would send in good faith."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from awm.env import Sandbox, ToolWorker

MODULE = '''
import re
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID
from pydantic import BaseModel, Field
from awm.env.tool import Connection, ToolError

LIMIT = 5


class Node(BaseModel):
    value: int = 0
    child: "Node | None" = None


def _hidden(db: Connection):
    """Do not call."""
    return "hidden"


def find(db: Connection, text: Annotated[str, Field(description="Text")]) -> list[str]:
    """Find orders of a status."""
    return [row[0] for row in db.execute("SELECT zip FROM orders WHERE status = ?", (text,))]


def note(db: Connection, text: Annotated[str, Field(description="Text")]) -> str:
    """Keep a note."""
    db.execute("INSERT INTO notes(text) VALUES (?)", (text,))
    return f"kept: {text}".format() if "{" not in text else "kept"


def shaped(
    db: Connection,
    node: Annotated[Node | None, Field(description="Node")] = None,
    extra: Annotated[dict[str, Any] | None, Field(description="Anything")] = None,
    number: Annotated[int, Field(description="Number")] = 0,
    ratio: Annotated[float, Field(description="Ratio")] = 0.0,
    price: Annotated[Decimal, Field(description="Price")] = Decimal(0),
    day: Annotated[date | None, Field(description="Day")] = None,
    key: Annotated[UUID | None, Field(description="Key")] = None,
    code: Annotated[str, Field(description="Code", pattern="^(a+)+$", max_length=100000)] = "a",
    kind: Annotated[Literal["a", "b"], Field(description="Kind")] = "a",
) -> str:
    """Take everything."""
    return "taken"


Node.model_rebuild()
'''


@pytest.fixture(scope="module")
def tools(sandbox: Sandbox, snapshot: bytes) -> Iterator[ToolWorker]:
    """A worker with decent tools; it must live through everything here."""
    with sandbox.worker() as worker:
        worker.load(MODULE)
        worker.open("s", snapshot, "2025-03-01")
        yield worker
        assert worker.call("s", "find", {"text": "open"}).value == ["02134", "10115"]


NAMES: list[Any] = [
    *("_hidden", "Connection", "ToolError", "BaseModel", "Node", "LIMIT", "re", "__init__", "__class__", "_load"),
    *("", " find", "find ", "FIND", "find()", "find\0", "fіnd", "../find", "tools.find", "worker._load", "\ud800"),
    *(None, 5, True, 1.5, ["find"], {"name": "find"}, b"find", "x" * 1_000_000),
]


@pytest.mark.parametrize("name", NAMES, ids=[ascii(name)[:20] for name in NAMES])
def test_no_other_name_is_a_tool(tools: ToolWorker, name: Any):
    result = tools.call("s", name, {"text": "x"})
    assert result.kind in ("unknown_tool", "invalid_arguments")


def deep(depth: int, leaf: Any = 1) -> Any:
    """Return a value nested in lists."""
    for _ in range(depth):
        leaf = [leaf]
    return leaf


def chain(depth: int) -> dict[str, Any]:
    """Return a node with children below children."""
    node: dict[str, Any] = {"value": 1}
    for _ in range(depth):
        node = {"child": node}
    return node


INVALID: dict[str, Any] = {
    "the database itself": {"db": None},
    "a name with underscores": {"__class__": 1},
    "the function": {"self": 1},
    "an argument by position": {"0": 1},
    "a list": [1, 2],
    "a text": "number=1",
    "a number": 5,
    "true": True,
    "bytes": b"{}",
    "keys that are no text": {5: 1},
    "keys in bytes": {b"number": 1},
    "half a character": {"code": "\ud800"},
    "a number too large for the wire": {"number": 1 << 64},
    "a number too small": {"number": -(1 << 63) - 1},
    "many digits": {"number": "9" * 5000},
    "more digits": {"number": "9" * 1_000_000},
    "digits of another script, and a letter": {"number": "१२x"},
    "a fraction": {"number": 0.5},
    "infinity for a number": {"number": float("inf")},
    "infinity in words": {"number": "Infinity"},
    "no number for a price": {"price": "NaN"},
    "an infinite price": {"price": "Infinity"},
    "a day that does not exist": {"day": "2025-02-30"},
    "a year that does not exist": {"day": "99999-01-01"},
    "a day in seconds, far away": {"day": 1e300},
    "a day far in the past": {"day": -1e300},
    "a key that is none": {"key": "x" * 100_000},
    "a kind that is none": {"kind": "a\0"},
    "a kind in a list": {"kind": ["a"]},
    "a pattern that backtracks": {"code": "a" * 90_000 + "b"},
    "more text than allowed": {"code": "a" * 100_001},
    "17 MB": {"code": "a" * (17 << 20)},
    "a node that is a number": {"node": 5},
    "a node of nodes that ends wrongly": {"node": {"child": {"child": {"value": "x"}}}},
    "a text that is nearly an object": {"extra": "{"},
    "a text of an object, nested without end": {"extra": '{"a":' * 100_000},
    "a text of a list for an object": {"extra": "[" * 100_000},
    "nested without end": {"number": deep(100_000)},
    "nested too deep for the wire": {"extra": {"a": deep(1100)}},
    "ten thousand unknown names": {f"a{n}": n for n in range(10_000)},
    "a long unknown name": {"x" * 1_000_000: 1},
    "an unknown name that is empty": {"": 1},
    "an unknown name with a line's end": {"a\nb": 1},
    "an object of Python": {"extra": {"a": object}},
    "a set": {"extra": {"a": {1}}},
}


@pytest.mark.parametrize("arguments", INVALID.values(), ids=INVALID)
def test_it_is_an_invalid_argument(tools: ToolWorker, arguments: Any):
    result = tools.call("s", "shaped", arguments)
    assert result.kind == "invalid_arguments", result
    assert "Traceback" not in result.message
    assert not tools.changed("s")


TAKEN: dict[str, Any] = {
    "none": None,
    "nothing": {},
    "infinity for a ratio": {"ratio": float("inf")},
    "no number for a ratio": {"ratio": float("nan")},
    "a price of many zeros": {"price": "1E+999999"},
    "children below children": {"node": chain(60)},
    "depth where anything goes": {"extra": {"a": deep(100)}},
    "many keys": {"extra": {str(n): n for n in range(100_000)}},
    "keys that collide": {"extra": {str(n * ((1 << 61) - 1)): n for n in range(10_000)}},
    "names of Python's own": {"extra": {"__class__": "x", "__proto__": {}, "$ref": "#", "constructor": 1}},
    "a long pattern that fits": {"code": "a" * 90_000},
}


@pytest.mark.parametrize("arguments", TAKEN.values(), ids=TAKEN)
def test_it_is_odd_and_harmless(tools: ToolWorker, arguments: Any):
    result = tools.call("s", "shaped", arguments)
    assert result.kind in ("ok", "invalid_arguments"), result


TEXTS = {
    "SQL": "x'; DROP TABLE orders; --",
    "a union": "' UNION SELECT sql FROM sqlite_master --",
    "a pattern": "%_%",
    "a format": "{0.__class__.__mro__}",
    "an older format": "%s%s%s%n",
    "a path": "../../etc/passwd",
    "code": "__import__('os').system('id')",
    "a shell": "$(id)`id`;id",
    "a template": "{{ 7 * 7 }}",
    "a nought": "a\0b",
    "a terminal's command": "\x1b]0;x\x07\x9b2J",
    "text that runs backwards": "\u202eabc",
    "a mark of order": "\ufeffabc",
    "beyond the first plane": "\U0001f600" * 1000,
    "marks upon marks": "a" + "\u0301" * 10_000,
    "a megabyte": "x" * (1 << 20),
    "JSON": '{"__proto__": 1}',
    "a full-text query": 'NEAR("a" "b") OR *:',
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_text_is_text(sandbox: Sandbox, tools: ToolWorker, text: str):
    assert tools.call("s", "find", {"text": text}).value == []
    assert tools.call("s", "note", {"text": text}).ok
    [row] = tools.diff("s")["notes"]["added"]
    assert row["text"] == text
    tools.reset("s")


def test_sessions_that_do_not_exist_are_not_opened_by_asking(tools: ToolWorker):
    from awm.env import EnvironmentFault

    for name in ("", "other", "__class__", "s\0", "_sessions"):
        with pytest.raises(EnvironmentFault, match="no session"):
            tools.call(name, "find", {"text": "x"})
