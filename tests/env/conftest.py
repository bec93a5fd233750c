"""A small shop: its snapshot, its tools, and sandboxes to run them in."""

from __future__ import annotations

import os
import sqlite3
import textwrap
from collections.abc import Callable, Iterator

import pytest

from awm.env import CallResult, Limits, Sandbox, ToolWorker

CLOCK = "2025-03-01 10:00:00"
CANARY = "canary-value-that-no-worker-may-see"

SHOP = '''
from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from awm.env.tool import Connection, ToolError


class Order(BaseModel):
    id: int
    status: str
    zip: str


def get_order(db: Connection, order_id: Annotated[int, Field(description="Order to read")]) -> Order:
    """Return one order."""
    row = db.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
    if row is None:
        raise ToolError(f"there is no order {order_id}")
    return Order(**row)


def set_status(
    db: Connection,
    order_id: Annotated[int, Field(description="Order to change")],
    status: Annotated[str, Field(description="New status")],
) -> dict[str, Any]:
    """Change the status of an order."""
    db.execute("UPDATE orders SET status = ? WHERE id = ?", (status, order_id))
    if status == "lost":
        raise ToolError("an order can't be lost")
    return {"changed": order_id}


def times(db: Connection) -> dict[str, Any]:
    """Tell the time."""
    sql = db.execute("SELECT datetime('now'), CURRENT_TIMESTAMP").fetchone()
    return {"sql": list(sql), "python": datetime.now(), "day": date.today()}
'''


@pytest.fixture(scope="session")
def shop() -> str:
    """Source of a tool module."""
    return SHOP


@pytest.fixture(scope="session")
def snapshot() -> bytes:
    """A database of three orders, with a full-text table."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(
        """
        CREATE TABLE orders(id INTEGER PRIMARY KEY, status TEXT NOT NULL, zip TEXT NOT NULL);
        INSERT INTO orders VALUES (1, 'open', '02134'), (2, 'open', '10115'), (3, 'closed', '75001');
        CREATE TABLE parts(id INTEGER PRIMARY KEY, order_id INTEGER
            REFERENCES orders(id) DEFERRABLE INITIALLY DEFERRED, photo BLOB);
        CREATE VIRTUAL TABLE notes USING fts5(text);
        INSERT INTO notes VALUES ('leave at the door'), ('ring twice');
        """
    )
    connection.commit()
    try:
        return connection.serialize()
    finally:
        connection.close()


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with short limits, as strict as the machine allows."""
    os.environ["AWM_TEST_CANARY"] = CANARY
    with Sandbox(Limits(call_s=1.0, load_s=2.0, verify_s=2.0, grace_s=0.5, memory_mb=256)) as sandbox:
        sandbox.worker().kill()
        del os.environ["AWM_TEST_CANARY"]
        yield sandbox


@pytest.fixture
def worker(sandbox: Sandbox, shop: str, snapshot: bytes) -> Iterator[ToolWorker]:
    """A worker with the shop's tools and one session, `s`."""
    with sandbox.worker() as worker:
        worker.load(shop)
        worker.open("s", snapshot, CLOCK)
        yield worker


def one_tool(body: str, parameters: str = "") -> str:
    """Write a module with one tool, `run`, that reaches the whole library in a way no lint can see."""
    return (
        "import re\n"
        "from typing import Annotated, Any, Literal\n"
        "from pydantic import BaseModel, Field\n"
        "from awm.env.tool import Connection, ToolError\n\n"
        "def _module(name: str) -> Any:\n"
        '    return re.enum.sys.modules["importlib"].import_module(name)\n\n'
        f"def run(db: Connection{', ' if parameters else ''}{parameters}):\n"
        '    """Run."""\n' + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
    )


RunTool = Callable[..., CallResult]


@pytest.fixture
def run_tool(sandbox: Sandbox, snapshot: bytes) -> RunTool:
    """Run the body of a tool in a worker of its own."""

    def run(body: str, arguments: dict | None = None, parameters: str = "", sandbox: Sandbox = sandbox) -> CallResult:
        with sandbox.worker() as worker:
            worker.load(one_tool(body, parameters))
            worker.open("s", snapshot, CLOCK)
            return worker.call("s", "run", arguments or {})

    return run
