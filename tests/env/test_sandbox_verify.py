"""Verifiers: one process each, two read-only databases, one verdict."""

from __future__ import annotations

import sqlite3

import pytest

from awm.env import EnvironmentFault, Sandbox

CLOCK = "2025-03-01 10:00:00"
HEAD = (
    "import math, re\nfrom datetime import datetime\nfrom awm.env.verifier import Connection, mentions, state_diff\n"
    "def verify(initial: Connection, final: Connection, answer: str | None) -> dict:\n"
)


@pytest.fixture(scope="module")
def final(snapshot) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(snapshot)
    connection.execute("UPDATE orders SET status = 'sent' WHERE id = 1")
    connection.commit()
    return connection.serialize()


@pytest.fixture
def verify(sandbox: Sandbox, snapshot, final):
    def run(body: str, answer: str | None = "Order 1 is sent."):
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        return sandbox.verify(HEAD + lines, snapshot, final, answer, clock=CLOCK)

    return run


def test_a_verdict_comes_with_its_evidence(verify):
    result = verify(
        "diff = state_diff(initial, final)\n"
        "row = final.execute('SELECT status FROM orders WHERE id = 1').fetchone()\n"
        "evidence = {'diff': diff, 'row': row, 'said': mentions(answer, 'sent'), 'now': datetime.now(),\n"
        "            'sql': initial.execute(\"SELECT datetime('now')\").fetchone()[0]}\n"
        "return {'verdict': 'completed', 'evidence': evidence}"
    )
    assert result.ok
    assert result.value["verdict"] == "completed"
    evidence = result.value["evidence"]
    assert evidence["diff"]["orders"]["changed"][0]["after"] == {"status": "sent"}
    assert evidence["row"] == {"status": "sent"}
    assert evidence["said"] is True
    assert (evidence["now"], evidence["sql"]) == ("2025-03-01T10:00:00", CLOCK)


@pytest.mark.parametrize(
    ("body", "kind", "message", "line"),
    [
        ("final.execute('SELECT * FROM nowhere')", "sql_error", "OperationalError: no such table: nowhere", 5),
        ("final.execute('DELETE FROM orders')", "sql_error", "DatabaseError: not authorized", 5),
        ("initial.execute('UPDATE orders SET zip = 1')", "sql_error", "DatabaseError: not authorized", 5),
        ("\nreturn {}['x']", "crash", "KeyError: 'x'", 6),
        ("return answer.nothing", "crash", "AttributeError: 'str' object has no attribute 'nothing'", 5),
        ("re.enum.sys.exit(0)", "crash", "SystemExit: 0", 5),
        ("re.enum.sys.modules['os']._exit(0)", "crash", "the verifier ended its process", None),
        ("while True:\n    len('')", "timeout", "no result within 2 s", None),
        ("sum(iter(int, 1))", "timeout", "no result within 2 s", None),
        ("return True", "invalid", "verify must return", None),
        ("return {'verdict': 'completed'}", "invalid", "verify must return", None),
        ("return {'verdict': 'yes', 'evidence': {}}", "invalid", "the verdict must be one of completed", None),
        ("return {'verdict': 'completed', 'evidence': []}", "invalid", "the evidence must be a dict", None),
        (
            "return {'verdict': 'completed', 'evidence': {'x': b''}}",
            "invalid",
            "result['evidence']['x'] is bytes",
            None,
        ),
        (
            "return {'verdict': 'completed', 'evidence': {'x': math.nan}}",
            "invalid",
            "result['evidence']['x'] is nan",
            None,
        ),
    ],
)
def test_what_is_no_verdict_is_told_apart(verify, body, kind, message, line):
    result = verify(body)
    assert (result.ok, result.value) == (False, None)
    assert result.kind == kind
    assert result.message.startswith(message), result.message
    assert result.line == line


def test_query_only_holds_without_the_authorizer(verify):
    result = verify("final.set_authorizer(None)\nfinal.execute('DELETE FROM orders')")
    assert result.message == "OperationalError: attempt to write a readonly database"


def test_no_verifier_knows_of_another(verify, sandbox, snapshot):
    body = (
        "sys = re.enum.sys\nseen = getattr(sys, 'seen', 0)\nsys.seen = seen + 1\n"
        "return {'verdict': 'completed', 'evidence': {'seen': seen}}"
    )
    assert [verify(body).value["evidence"]["seen"] for _ in range(3)] == [0, 0, 0]


def test_a_broken_database_is_a_fault(sandbox, snapshot):
    with pytest.raises(EnvironmentFault, match="verify: "):
        sandbox.verify(HEAD + "    pass\n", b"no database", snapshot, None, clock=CLOCK)


def test_an_answer_that_is_no_unicode_text_is_still_an_answer(verify):
    body = "return {'verdict': 'agent_error', 'evidence': {'answer': answer}}"
    assert verify(body, "a\ud800b").value["evidence"] == {"answer": "a?b"}


def test_no_answer_is_none(verify):
    assert verify("return {'verdict': 'completed', 'evidence': {'answer': answer}}", None).value["evidence"] == {
        "answer": None
    }
