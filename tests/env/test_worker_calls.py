"""Calls: arguments, results, transactions, sessions, clocks."""

from __future__ import annotations

import pytest

from awm.env import EnvironmentFault, ToolWorker

CLOCK = "2025-03-01 10:00:00"


def test_a_call_answers_with_plain_data(worker: ToolWorker):
    result = worker.call("s", "get_order", {"order_id": 1})
    assert result.ok
    assert result.value == {"id": 1, "status": "open", "zip": "02134"}
    assert result.notes == ()


def test_a_tool_error_is_the_tools_own_words_and_leaves_nothing(worker: ToolWorker):
    result = worker.call("s", "set_status", {"order_id": 1, "status": "lost"})
    assert (result.kind, result.message, result.line) == ("tool_error", "an order can't be lost", None)
    assert not worker.changed("s")


def test_an_unknown_tool_is_answered_with_the_known_ones(worker: ToolWorker):
    result = worker.call("s", "delete_order", {})
    assert result.kind == "unknown_tool"
    assert result.message == "unknown tool 'delete_order'; the tools are: get_order, set_status, times"


def test_changes_stay_until_reset(worker: ToolWorker, snapshot):
    before = worker.content_hash("s")
    worker.call("s", "set_status", {"order_id": 1, "status": "sent"})
    assert worker.changed("s")
    assert worker.content_hash("s") != before
    assert worker.call("s", "get_order", {"order_id": 1}).value["status"] == "sent"
    worker.reset("s")
    assert worker.dump("s") == snapshot
    assert worker.content_hash("s") == before


def test_reading_changes_nothing(worker: ToolWorker):
    worker.call("s", "get_order", {"order_id": 1})
    worker.call("s", "set_status", {"order_id": 99, "status": "sent"})
    assert not worker.changed("s")


def test_many_calls_go_in_one_message(worker: ToolWorker):
    results = worker.call_many(
        "s",
        [
            ("set_status", {"order_id": 1, "status": "sent"}),
            ("get_order", {"order_id": 99}),
            ("get_order", {"order_id": "\ud800"}),
            ("get_order", {"order_id": 1}),
        ],
    )
    assert [result.kind for result in results] == ["ok", "tool_error", "invalid_arguments", "ok"]
    assert results[3].value["status"] == "sent"


def test_sessions_know_nothing_of_each_other(worker: ToolWorker, snapshot):
    worker.open("other", snapshot, "2030-01-01 00:00:00")
    worker.call("s", "set_status", {"order_id": 1, "status": "sent"})
    assert worker.call("other", "get_order", {"order_id": 1}).value["status"] == "open"
    assert worker.call("other", "times", {}).value["day"] == "2030-01-01"
    assert worker.call("s", "times", {}).value["day"] == "2025-03-01"
    worker.close("other")
    with pytest.raises(EnvironmentFault, match="no session 'other' is open"):
        worker.call("other", "times", {})
    assert worker.changed("s")


def test_the_clock_is_frozen_advances_with_each_call_and_starts_again(worker: ToolWorker):
    first = worker.call("s", "times", {}).value
    assert first == {"sql": [CLOCK, CLOCK], "python": "2025-03-01T10:00:00", "day": "2025-03-01"}
    worker.call("s", "get_order", {"order_id": 99})
    assert worker.call("s", "times", {}).value["python"] == "2025-03-01T10:00:02"
    worker.reset("s")
    assert worker.call("s", "times", {}).value == first


def test_random_numbers_and_ids_repeat_after_a_reset(sandbox, snapshot):
    with sandbox.worker() as worker:
        worker.load(
            "import random\nfrom uuid import uuid4\nfrom awm.env.tool import Connection\n"
            "def draw(db: Connection):\n    '''Draw.'''\n"
            "    return [random.random(), uuid4(), db.execute('SELECT random()').fetchone()[0], sorted({'a', 'b'})]\n"
        )
        worker.open("s", snapshot, CLOCK)
        first, second = worker.call("s", "draw", {}).value, worker.call("s", "draw", {}).value
        assert first[:3] != second[:3]
        worker.reset("s")
        assert worker.call("s", "draw", {}).value == first


@pytest.mark.parametrize(
    ("database", "clock", "message"),
    [
        (b"no database at all", CLOCK, "open: "),
        (bytes(17 << 20), CLOCK, "17 MiB of data, more than the 16 MiB of a message"),
        (None, "yesterday", "'yesterday' is not a time"),
    ],
    ids=["junk", "too large", "no time"],
)
def test_a_session_that_cannot_be_opened_is_a_fault(worker: ToolWorker, snapshot, database, clock, message):
    with pytest.raises(EnvironmentFault, match=message):
        worker.open("bad", database or snapshot, clock)
    assert worker.call("s", "get_order", {"order_id": 1}).ok


CRASHES = [
    ("return {}['x']", "KeyError: 'x'"),
    ("db.execute('SELECT * FROM nowhere')", "OperationalError: no such table: nowhere"),
    ("db.execute('INSERT INTO orders VALUES (1, 2, 3)')", "IntegrityError: UNIQUE constraint failed: orders.id"),
    ("assert False, 'no'", "AssertionError: no"),
    ("class M(BaseModel):\n    a: int\nM(a='x')", "ValidationError: M: field 'a': input should be a valid integer"),
    ("getattr(db, 'commit')()", "DatabaseError: not authorized"),
    ("db.execute('/**/ROLLBACK')", "DatabaseError: not authorized"),
    ("getattr(db, 'executescript')('DELETE FROM orders')", "DatabaseError: not authorized"),
    ("db.execute('/**/DROP TABLE orders')", "DatabaseError: not authorized"),
]


@pytest.mark.parametrize(("code", "message"), CRASHES, ids=[message for _, message in CRASHES])
def test_a_crash_names_its_line_and_is_rolled_back(run_tool, code, message):
    result = run_tool("db.execute('DELETE FROM notes')\n" + code)
    assert result.kind == "crash"
    assert result.message.startswith(message)
    assert result.line == 12 + code.count("\n")


MESSAGES = [
    ("raise ToolError('x' * (17 << 20))", "x" * 10_000 + "..."),
    ("raise ToolError('half \\ud800 a pair')", "half ? a pair"),
    ("class E(ToolError):\n    def __str__(self): return 1 / 0\nraise E", "E"),
]


@pytest.mark.parametrize(("code", "message"), MESSAGES, ids=["long", "surrogate", "unspeakable"])
def test_any_tool_error_is_answered(run_tool, code, message):
    result = run_tool(code)
    assert (result.kind, result.message) == ("tool_error", message)


def test_other_messages_are_cleaned_too(run_tool):
    assert run_tool("raise KeyError(\"half \\ud800\", 'x' * (17 << 20))").message.startswith("KeyError: ('half ")
    assert run_tool('raise ValueError("half \\ud800")').message == "ValueError: half ?"
    assert run_tool("return {'half \\ud800': b''}").kind == "unserialisable"


@pytest.mark.parametrize("code", ["return 1", "return db.execute('SELECT 1')", "raise ToolError('no')"])
def test_a_tool_that_closes_its_connection_is_told_and_costs_no_process(sandbox, snapshot, code):
    source = (
        "from awm.env.tool import Connection, ToolError\n"
        f"def shut(db: Connection):\n    '''Shut.'''\n    getattr(db, 'close')()\n    {code}\n"
        "def change(db: Connection):\n    '''Change.'''\n    db.execute('DELETE FROM notes')\n"
    )
    with sandbox.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, CLOCK)
        assert worker.call("s", "change", {}).ok
        result = worker.call("s", "shut", {})
        assert result.kind == "crash"
        assert result.message.startswith("the tool closed the database connection, which it must leave open")
        assert not worker.changed("s")
        assert worker.dump("s") == snapshot
        assert worker.call("s", "change", {}).ok


def test_the_line_is_the_innermost_of_the_module(run_tool):
    result = run_tool("def inner():\n    return 1 / 0\nreturn sorted([1, 2], key=lambda _: inner())")
    assert (result.message, result.line) == ("ZeroDivisionError: division by zero", 12)


def test_a_constraint_that_waits_for_the_commit_is_a_crash(run_tool, sandbox, snapshot):
    result = run_tool("db.execute('INSERT INTO parts(order_id) VALUES (99)')\nreturn 'fine'")
    assert (result.kind, result.message) == ("crash", "IntegrityError: FOREIGN KEY constraint failed")


def test_a_transaction_that_ended_by_a_swallowed_error_is_a_crash(run_tool):
    result = run_tool(
        """
        try:
            db.execute("INSERT OR ROLLBACK INTO orders VALUES (1, 2, 3)")
        except Exception:
            pass
        return "fine"
        """
    )
    assert (result.kind, result.message) == ("crash", "the transaction of the call was ended before the tool returned")


def test_open_cursors_survive_neither_commit_nor_reset(sandbox, snapshot):
    source = (
        "from awm.env.tool import Connection\n"
        "class Box:\n    kept = None\n"
        "def keep(db: Connection):\n    '''Keep.'''\n"
        "    setattr(Box, 'kept', db.execute('SELECT id FROM orders'))\n    return next(Box.kept)[0]\n"
        "def use(db: Connection):\n    '''Use.'''\n    return [row[0] for row in Box.kept]\n"
    )
    with sandbox.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, CLOCK)
        assert worker.call("s", "keep", {}).value == 1
        worker.reset("s")
        assert worker.call("s", "use", {}).message.startswith("ProgrammingError")


PARAMETERS = '''
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from pydantic import BaseModel, Field
from awm.env.tool import Connection

class Line(BaseModel):
    sku: str
    count: int = Field(ge=1)

class Size(str, Enum):
    BIG = "big"

def run(
    db: Connection,
    number: Annotated[int, Field(description="A", ge=1)] = 1,
    code: Annotated[str, Field(description="B")] = "",
    flag: Annotated[bool, Field(description="C")] = False,
    when: Annotated[date | None, Field(description="D")] = None,
    kind: Annotated[Literal["a", "b"], Field(description="E")] = "a",
    size: Annotated[Size | None, Field(description="F")] = None,
    lines: Annotated[list[Line], Field(description="G")] = (),
    extra: Annotated[dict[str, Any] | None, Field(description="H")] = None,
    from_: Annotated[str, Field(description="I", alias="from")] = "",
    schema: Annotated[str, Field(description="J")] = "",
    price: Annotated[Decimal, Field(description="K")] = Decimal(0),
):
    """Give back."""
    return {k: v for k, v in {"number": number, "code": code, "flag": flag, "when": when, "kind": kind, "size": size,
        "lines": lines, "extra": extra, "from": from_, "schema": schema, "price": price}.items()}

def need(
    db: Connection,
    order_id: Annotated[int, Field(description="A")],
    note: Annotated[str, Field(description="B")] = "",
):
    """Need one."""
'''


@pytest.fixture(scope="module")
def parameters(sandbox, snapshot):
    with sandbox.worker() as worker:
        signatures = {signature.name: signature for signature in worker.load(PARAMETERS)}
        worker.open("s", snapshot, CLOCK)
        yield worker, signatures


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("number", 5, 5),
        ("number", "5", 5),
        ("number", 5.0, 5),
        ("code", "02134", "02134"),
        ("code", "", ""),
        ("flag", True, True),
        ("flag", "true", True),
        ("when", "2025-03-01", "2025-03-01"),
        ("when", None, None),
        ("kind", "b", "b"),
        ("size", "big", "big"),
        ("lines", [{"sku": "x", "count": 1}], [{"sku": "x", "count": 1}]),
        ("extra", {"a": [1]}, {"a": [1]}),
        ("from", "here", "here"),
        ("schema", "public", "public"),
        ("price", "1.50", "1.50"),
    ],
)
def test_fitting_arguments_arrive(parameters, name, given, taken):
    result = parameters[0].call("s", "run", {name: given})
    assert result.ok, result.message
    assert result.value[name] == taken
    assert result.notes == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"number": "five"},
            "argument 'number': input should be a valid integer, unable to parse string as an integer, got \"five\"",
        ),
        ({"number": 0}, "argument 'number': input should be greater than or equal to 1, got 0"),
        (
            {"number": 1.5},
            "argument 'number': input should be a valid integer, got a number with a fractional part, got 1.5",
        ),
        ({"number": None}, "argument 'number': input should be a valid integer, got null"),
        ({"code": 2134}, "argument 'code': input should be a valid string, got 2134"),
        ({"kind": "c"}, "argument 'kind': input should be 'a' or 'b', got \"c\""),
        ({"size": "huge"}, "argument 'size': input should be 'big', got \"huge\""),
        ({"lines": [{"sku": "x"}]}, "argument 'lines[0].count' is missing"),
        ({"lines": "[{"}, "argument 'lines': input should be a valid list, got \"[{\""),
        ({"lines": "3"}, "argument 'lines': input should be a valid list, got \"3\""),
        (
            {"number": 0, "code": 1},
            "argument 'number': input should be greater than or equal to 1, got 0; argument 'code': ",
        ),
        ({"number": 1 << 70}, "the arguments can't be passed on: "),
        ({"code": "x" * (17 << 20)}, "the arguments can't be passed on: 17 MiB of data"),
        ([1], "the arguments must be an object with the keys: number (optional), code (optional)"),
        ({1: 2}, "argument '[1]': keys should be strings, got 1"),
    ],
)
def test_other_arguments_are_explained(parameters, arguments, message):
    result = parameters[0].call("s", "run", arguments)
    assert result.kind == "invalid_arguments"
    assert result.message.startswith(message), result.message
    assert "pydantic" not in result.message


def test_missing_and_unknown_arguments_name_the_known_ones(parameters):
    result = parameters[0].call("s", "need", {"id": 3})
    assert result.message == (
        "argument 'order_id' is missing; unknown argument 'id'; this tool takes: order_id, note (optional)"
    )


def test_json_text_does_for_an_object_or_a_list_and_is_noted(parameters):
    result = parameters[0].call("s", "run", {"lines": '[{"sku": "x", "count": 2}]', "extra": '{"a": 1}'})
    assert result.value["lines"] == [{"sku": "x", "count": 2}]
    assert result.value["extra"] == {"a": 1}
    assert result.notes == (
        "argument 'lines' was JSON text and was parsed; give the list itself",
        "argument 'extra' was JSON text and was parsed; give the object itself",
    )


def test_the_schema_is_what_callers_need(parameters):
    signature = parameters[1]["run"]
    assert (signature.description, signature.line) == ("Give back.", 16)
    schema = signature.parameters
    assert list(schema["properties"]) == [
        *("number", "code", "flag", "when", "kind", "size", "lines", "extra", "from", "schema", "price")
    ]
    assert schema["properties"]["number"] == {"default": 1, "description": "A", "minimum": 1, "type": "integer"}
    assert schema["properties"]["kind"]["enum"] == ["a", "b"]
    assert schema["$defs"]["Line"]["properties"]["count"] == {"minimum": 1, "type": "integer"}
    assert "title" not in str(schema)
    assert parameters[1]["need"].parameters["required"] == ["order_id"]
    assert parameters[1]["need"].result == {}


def test_the_result_is_described_where_it_is_declared(worker: ToolWorker, shop):
    order, _, times = worker.load(shop)
    assert order.result["properties"]["zip"] == {"type": "string"}
    assert times.result == {"additionalProperties": True, "type": "object"}


def test_rows_models_dates_and_decimals_become_plain_data(run_tool):
    result = run_tool(
        """
        d = _module("datetime")
        class M(BaseModel):
            a: int
        row = db.execute("SELECT id, zip FROM orders").fetchone()
        return {
            "row": row, "rows": [row], "m": M(a=1), "d": d.date(2025, 3, 1), "t": (1, 2), "s": {3}, 4: None,
            "n": {"m": [M(a=2)]},
        }
        """
    )
    assert result.value == {
        "row": {"id": 1, "zip": "02134"},
        "rows": [{"id": 1, "zip": "02134"}],
        "m": {"a": 1},
        "d": "2025-03-01",
        "t": [1, 2],
        "s": [3],
        "4": None,
        "n": {"m": [{"a": 2}]},
    }
