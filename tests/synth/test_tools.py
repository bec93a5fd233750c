"""Tool modules and verifiers, tried in a real sandbox."""

# ruff: noqa: E501 - rows of the tables below hold lines of source

from __future__ import annotations

import sqlite3
from itertools import islice

import pytest

from awm.config import SandboxConfig, ToolsConfig, VerifiersConfig
from awm.env import Sandbox
from awm.models import Outcome, Task, Toolset
from awm.synth.arguments import MISSING_ID, Rows, draw_arguments, malformed_arguments, missing_id_arguments
from awm.synth.databases import initial_state
from awm.synth.loop.step import CheckFailure, Problem
from awm.synth.tools import ToolsStep, ToolsSubject, read_python, tools_items
from awm.synth.trial import integrity_problems_of
from awm.synth.verifiers import VerifiersStep, VerifierSubject, table_rows, verifier_items
from awm.verify.code import code_verdict
from synth.library_environment import CLOCK, DATA, MODULE, SCENARIO, SCHEMA, TASKS, TOOLSET, VERIFIER

SNAPSHOT = initial_state(SCHEMA, DATA, CLOCK)
LIST, RENEW, RETURN = TOOLSET.tools
LIMITS = SandboxConfig(mode="auto", call_timeout_s=2.0, verify_timeout_s=5.0, memory_mb=512)


def check_tools(sandbox: Sandbox, source: str, toolset: Toolset = TOOLSET, max_unreached: float = 0.0) -> list[Problem]:
    step = ToolsStep(ToolsConfig(valid_calls=60, seed=1, max_unreached=max_unreached), sandbox)
    (item,) = tools_items([ToolsSubject(SCENARIO, SCHEMA, toolset, SNAPSHOT, CLOCK, "hash")], step.config, LIMITS)
    return step.check(source, item)


def check_verifier(sandbox: Sandbox, source: str, task: Task = TASKS.tasks[0]) -> list[Problem]:
    step = VerifiersStep(VerifiersConfig(max_rows_shown=2), sandbox)
    subject = VerifierSubject(SCENARIO, SCHEMA, TOOLSET, SNAPSHOT, CLOCK, "hash", task)
    (item,) = verifier_items([subject], step.config, LIMITS)
    return step.check(source, item)


def test_a_good_module_has_no_problems(sandbox: Sandbox) -> None:
    assert check_tools(sandbox, MODULE) == []


@pytest.mark.parametrize(
    ("old", "new", "reason", "said"),
    [
        ("def return_loan(", "def give_back(", "missing", "the function return_loan is missing"),
        ("def _shown(", "def shown(", "lint", "shown"),
        ("loan_id: Annotated[int, Field(description=\"Loan to return\")]", "loan: Annotated[int, Field(description=\"L\")]",
         "signature", "parameter loan_id is missing"),
        ("Annotated[int, Field(description=\"Weeks to add, 1 to 4\")] = 2", "Annotated[str, Field(description=\"W\")] = '2'",
         "signature", "weeks is string, the toolset says integer"),
        ('Literal["open", "returned"]', 'Literal["open", "closed"]', "signature", "must be Literal['open', 'returned']"),
        (" = 2,\n", ",\n", "signature", "must be optional"),
        ("from typing", "import os\nfrom typing", "lint", "os"),
        ("USER_ID = 1\n", "USER_ID = 1\nseen = []\n", "lint", "seen"),
        ("USER_ID = 1\n", "USER_ID = 1\nLIMIT = 1 / 0\n", "import", "ZeroDivisionError"),
        ("USER_ID = 1\n", "USER_ID = 1\n)\n", "syntax", "line"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_fit_is_named(sandbox: Sandbox, old: str, new: str, reason: str, said: str) -> None:
    assert old in MODULE
    problems = check_tools(sandbox, MODULE.replace(old, new))

    assert reason in {problem.reason for problem in problems}
    assert said in " ".join(problem.message for problem in problems)


@pytest.mark.parametrize(
    ("old", "new", "reason", "tool"),
    [
        # an unknown id reaches attribute access, as in a quarter of published environments
        ('raise ToolError(f"no loan {loan_id} of yours")', "return None", "crash", "renew_loan"),
        # nothing checks the range, and a CHECK constraint stops the call
        ('if loan["status"] != "open" or loan["renewals"] >= 2:', "if False:", "crash", "renew_loan"),
        ("b.title FROM loans l JOIN books b ON b.id = l.book_id \"\n        \"WHERE l.user_id",
         "b.titel FROM loans l JOIN books b ON b.id = l.book_id \"\n        \"WHERE l.user_id", "crash", "list_loans"),
        # the answer to an unknown id is success
        ('    loan = _loan(db, loan_id)\n    if loan["status"] != "open":\n        raise ToolError(f"loan {loan_id} is returned already")',
         '    loan = db.execute("SELECT * FROM loans WHERE id = ?", (loan_id,)).fetchone()\n    if loan is None:\n        return None',
         "accepted", "return_loan"),
        # a read-only tool that writes
        ("    rows = db.execute(", '    db.execute("UPDATE loans SET renewals = 1 WHERE id = 1")\n    rows = db.execute(', "wrote", "list_loans"),
        # a writing tool that never writes
        ("    db.execute(\"UPDATE loans SET status = 'returned' WHERE id = ?\", (loan_id,))\n"
         "    db.execute(\"UPDATE books SET copies = copies + 1 WHERE id = ?\", (loan[\"book_id\"],))\n", "", "no_effect", "return_loan"),
        ('raise ToolError(f"loan {loan_id} is returned already")', "pass\n    while True:\n        db.execute('SELECT 1')", "timeout", "return_loan"),
        ("return [_shown(row) for row in rows]", "return [b'bytes' for row in rows]", "unserialisable", "list_loans"),
        ("return [_shown(row) for row in rows]", "raise ToolError('closed today')", "never_succeeds", "list_loans"),
        ("    rows = db.execute(", "    import sys\n    rows = db.execute(", "lint", "list_loans"),
    ],
)  # fmt: skip
def test_a_tool_that_fails_when_tried_is_named(sandbox: Sandbox, old: str, new: str, reason: str, tool: str) -> None:
    assert old in MODULE
    problems = check_tools(sandbox, MODULE.replace(old, new))

    assert (reason, tool) in {(problem.reason, problem.part) for problem in problems}


def test_state_kept_between_calls_shows_when_two_episodes_interleave(sandbox: Sandbox) -> None:
    """An iterator in a constant escapes the linter; the second episode sees what the first one left."""
    source = MODULE.replace("USER_ID = 1\n", "USER_ID = 1\nNUMBERS = iter(range(10**6))\n").replace(
        'renewals")})', 'renewals")} | {"renewals": next(NUMBERS)})'
    )
    assert source.count("NUMBERS") == 2

    assert {problem.reason for problem in check_tools(sandbox, source)} == {"state"}


def test_a_row_that_refers_to_nothing_is_named(sandbox: Sandbox) -> None:
    """A table without a declared foreign key can't get one after the fact; the check still looks at those declared."""
    found = integrity_problems_of(orphaned())

    assert len(found) == 1
    assert "loans" in found[0]


def orphaned() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(SNAPSHOT)
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("UPDATE loans SET book_id = 77 WHERE id = 1")
    connection.commit()
    return connection.serialize()


def with_tool(name: str, body: str) -> tuple[str, Toolset]:
    """The library with one more writing tool on loans."""
    source = (
        MODULE
        + f'''

def {name}(db: Connection, loan_id: Annotated[int, Field(description="Loan")]) -> Loan:
    """Do something to a loan that is in the right state."""
    loan = _loan(db, loan_id)
{body}
    return _shown(_loan(db, loan_id))
'''
    )
    spec = RETURN.model_copy(update={"name": name})
    return source, TOOLSET.model_copy(update={"tools": (*TOOLSET.tools, spec)})


def test_a_tool_is_tried_in_states_that_only_other_tools_lead_to(sandbox: Sandbox) -> None:
    """No loan of the sample data was renewed once; renew_loan leads there."""
    body = """\
    if loan["renewals"] != 1:
        raise ToolError("only loans that were renewed once")
    db.execute("UPDATE loans SET renewals = 0 WHERE id = ?", (loan_id,))"""
    source, toolset = with_tool("undo_renewal", body)

    assert check_tools(sandbox, source, toolset) == []


def test_a_tool_that_no_state_lets_succeed_fails_the_module_beyond_a_share(sandbox: Sandbox) -> None:
    source, toolset = with_tool("sell_book", '    raise ToolError("the book is not for sale")')

    (problem,) = check_tools(sandbox, source, toolset)
    assert (problem.reason, problem.part) == ("never_succeeds", "sell_book")
    assert check_tools(sandbox, source, toolset, max_unreached=0.25) == []


def test_a_tool_that_never_succeeds_is_called_badly_all_the_same(sandbox: Sandbox) -> None:
    body = """\
    if loan["user_id"] == USER_ID:
        raise ToolError("not for you")"""
    source, toolset = with_tool("sell_book", body)
    broken = source.replace(
        '    """Do something to a loan that is in the right state."""\n    loan = _loan(db, loan_id)\n',
        '    """Do something to a loan that is in the right state."""\n'
        '    loan = db.execute("SELECT * FROM loans WHERE id = ?", (loan_id,)).fetchone()\n',
    )
    assert broken != source

    problems = check_tools(sandbox, broken, toolset, max_unreached=0.25)
    assert {problem.part for problem in problems} == {"sell_book"}
    assert "TypeError" in problems[0].message


def test_problems_are_the_same_every_time(sandbox: Sandbox) -> None:
    broken = MODULE.replace('raise ToolError(f"no loan {loan_id} of yours")', "return None")

    assert check_tools(sandbox, broken) == check_tools(sandbox, broken)


def test_valid_arguments_come_from_rows_that_belong_together() -> None:
    rows = Rows(SNAPSHOT)
    drawn = list(islice(draw_arguments(RENEW, rows, "seed"), 50))

    assert {entry["loan_id"] for entry in drawn} == {1, 2, 3, 4}
    assert drawn[0].keys() == {"loan_id"}, "required parameters alone come first"
    assert drawn == list(islice(draw_arguments(RENEW, rows, "seed"), 50))


def test_missing_ids_and_malformed_values_cover_each_parameter() -> None:
    rows = Rows(SNAPSHOT)

    assert [entry for _, entry in missing_id_arguments(RENEW, rows, {"loan_id": 1})] == [{"loan_id": MISSING_ID}]
    malformed = list(malformed_arguments(RENEW, {"loan_id": 1, "weeks": 2}))
    assert {"loan_id": "abc", "weeks": 2} in [entry for _, refused, entry in malformed if refused]
    assert {"weeks": 2} in [entry for _, refused, entry in malformed if refused]
    assert {"loan_id": 1, "weeks": -1} in [entry for _, refused, entry in malformed if not refused]


def test_source_that_does_not_parse_is_asked_for_again_in_full() -> None:
    with pytest.raises(CheckFailure) as failure:
        read_python("```python\ndef list_loans(db)\n    return []\n```", None)

    (problem,) = failure.value.problems
    assert (problem.reason, problem.part) == ("syntax", None)
    assert problem.message == "line 1: expected ':': def list_loans(db)"


def test_a_repair_replaces_the_named_function_only() -> None:
    fixed = read_python("```python\ndef _loan(db, loan_id):\n    raise ToolError('no')\n```", MODULE)

    assert fixed.count("def _loan(") == 1
    assert "raise ToolError('no')" in fixed
    assert "def renew_loan(" in fixed


def test_a_good_verifier_has_no_problems(sandbox: Sandbox) -> None:
    assert check_verifier(sandbox, VERIFIER) == []


@pytest.mark.parametrize(
    ("old", "new", "reason", "said"),
    [
        ('"agent_error"', '"completed"', "passes_untouched", "unchanged database"),
        ('"agent_error"', '"failed"', "invalid", "'failed'"),
        ('"agent_error"', '"environment_error"', "invalid", "environment_error"),
        (', "evidence": {"expected": row["title"]}', "", "invalid", "evidence"),
        ('{"expected": row["title"]}', "None", "invalid", "evidence"),
        ("SELECT b.title", "SELECT b.titel", "sql_error", "no such column: b.titel"),
        ("changes = ", "initial.execute('DELETE FROM loans')\n    changes = ", "sql_error", "not authorized"),
        ("changes = ", "open('/etc/passwd')\n    changes = ", "lint", "open"),
        ("changes = ", "while True:\n        len('x')\n    changes = ", "timeout", "timeout"),
        ("def verify(initial", "def check(initial", "lint", "verify"),
        ("    row = initial", "    try:\n        initial.execute('SELECT x')\n    except Exception:\n        pass\n    row = initial", "lint", "except"),
    ],
)  # fmt: skip
def test_a_verifier_that_cannot_be_trusted_is_named(
    sandbox: Sandbox, old: str, new: str, reason: str, said: str
) -> None:
    assert old in VERIFIER
    (problem, *_) = check_verifier(sandbox, VERIFIER.replace(old, new))

    assert problem.reason == reason
    assert said in problem.message


def test_a_verdict_needs_the_right_answer_and_an_untouched_state(sandbox: Sandbox) -> None:
    changed = initial_state(SCHEMA, DATA.replace("'Emma', 2", "'Emma', 9"), CLOCK)

    def verdict(final: bytes, answer: str | None) -> Outcome:
        return code_verdict(sandbox, VERIFIER, SNAPSHOT, final, answer, clock=CLOCK).verdict

    assert verdict(SNAPSHOT, "You have to return Dracula first.") is Outcome.COMPLETED
    assert verdict(SNAPSHOT, "Emma, on 9 March.") is Outcome.AGENT_ERROR
    assert verdict(changed, "You have to return Dracula first.") is Outcome.AGENT_ERROR


def test_a_broken_verifier_is_the_environments_fault(sandbox: Sandbox) -> None:
    verdict = code_verdict(sandbox, VERIFIER.replace("b.title", "b.x"), SNAPSHOT, SNAPSHOT, None, clock=CLOCK)

    assert verdict.verdict is Outcome.ENVIRONMENT_ERROR
    assert "no such column" in verdict.evidence["error"]


def test_a_verifiers_request_shows_rows_as_literals_and_how_many_are_left_out() -> None:
    books, loans, users = table_rows(SNAPSHOT, 2)

    assert books.rows == ("1, 'Emma', 2", "2, 'Dracula', 1")
    assert (books.more, loans.more, users.more) == (1, 2, 0)
