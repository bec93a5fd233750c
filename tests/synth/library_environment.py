"""A small lending library, whole and right: what tests break one thing of."""

from __future__ import annotations

from awm.models import Parameter, Scenario, Task, TaskKind, TaskSet, Toolset, ToolSpec

CLOCK = "2026-03-02 09:00:00"

SCENARIO = Scenario(
    slug="lending_library",
    name="Lending Library",
    description="Members of a lending library borrow books, renew and return them. A loan can be renewed twice.",
    category="education and learning",
)

TASKS = TaskSet(
    slug="lending_library",
    tasks=(
        Task(number=1, kind=TaskKind.READ, text="Tell me the title of the book that I have to return first."),
        Task(number=2, kind=TaskKind.WRITE, text="Renew my loan of the book 'Emma' by two weeks."),
    ),
)

SCHEMA = """\
CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL UNIQUE);
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT NOT NULL, copies INTEGER NOT NULL CHECK (copies >= 0));
CREATE TABLE loans (
    id INTEGER PRIMARY KEY,
    user_id INTEGER NOT NULL REFERENCES users (id),
    book_id INTEGER NOT NULL REFERENCES books (id),
    due_on TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('open', 'returned')),
    renewals INTEGER NOT NULL DEFAULT 0 CHECK (renewals BETWEEN 0 AND 2),
    created_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX loans_user ON loans (user_id);
"""

DATA = """\
INSERT INTO users (id, name, email) VALUES (1, 'Ada', 'ada@example.org'), (2, 'Bo', 'bo@example.org');
INSERT INTO books (id, title, copies) VALUES (1, 'Emma', 2), (2, 'Dracula', 1), (3, 'Don''t look', 0);
INSERT INTO loans (id, user_id, book_id, due_on, status, renewals) VALUES
  (1, 1, 1, '2026-03-09', 'open', 0), (2, 1, 2, '2026-03-05', 'open', 2), (3, 2, 1, '2026-03-04', 'open', 1),
  (4, 1, 3, date('now', '-30 days'), 'returned', 0);
"""

LOAN_ID = Parameter(
    name="loan_id",
    description="One of the user's loans",
    json_schema={"type": "integer"},
    required=True,
    column="loans.id",
)

TOOLSET = Toolset(
    slug="lending_library",
    tools=(
        ToolSpec(
            name="list_loans",
            description="List the user's loans, the next due first.",
            read_only=True,
            parameters=(
                Parameter(
                    name="status",
                    description="Only loans in this state",
                    json_schema={"type": "string", "enum": ["open", "returned"]},
                    required=False,
                    example="open",
                ),
            ),
            result="list of loans: loan_id, title, due_on, status, renewals",
        ),
        ToolSpec(
            name="renew_loan",
            description="Renew an open loan; refused after two renewals.",
            read_only=False,
            parameters=(
                LOAN_ID,
                Parameter(
                    name="weeks",
                    description="Weeks to add, 1 to 4",
                    json_schema={"type": "integer"},
                    required=False,
                    example=2,
                ),
            ),
            result="the loan",
        ),
        ToolSpec(
            name="return_loan",
            description="Return an open loan.",
            read_only=False,
            parameters=(LOAN_ID,),
            result="the loan",
        ),
    ),
)

MODULE = '''\
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from awm.env.tool import Connection, ToolError

USER_ID = 1


class Loan(BaseModel):
    loan_id: int
    title: str
    due_on: str
    status: str
    renewals: int


def _loan(db, loan_id):
    row = db.execute(
        "SELECT l.*, b.title FROM loans l JOIN books b ON b.id = l.book_id WHERE l.id = ? AND l.user_id = ?",
        (loan_id, USER_ID),
    ).fetchone()
    if row is None:
        raise ToolError(f"no loan {loan_id} of yours")
    return row


def _shown(row):
    return Loan(loan_id=row["id"], **{name: row[name] for name in ("title", "due_on", "status", "renewals")})


def list_loans(
    db: Connection,
    status: Annotated[Literal["open", "returned"] | None, Field(description="Only loans in this state")] = None,
) -> list[Loan]:
    """List the user's loans, the next due first."""
    rows = db.execute(
        "SELECT l.*, b.title FROM loans l JOIN books b ON b.id = l.book_id "
        "WHERE l.user_id = ? AND (? IS NULL OR l.status = ?) ORDER BY l.due_on, l.id",
        (USER_ID, status, status),
    ).fetchall()
    return [_shown(row) for row in rows]


def renew_loan(
    db: Connection,
    loan_id: Annotated[int, Field(description="Loan to renew")],
    weeks: Annotated[int, Field(description="Weeks to add, 1 to 4")] = 2,
) -> Loan:
    """Renew an open loan; refused after two renewals."""
    loan = _loan(db, loan_id)
    if not 1 <= weeks <= 4:
        raise ToolError("weeks must be 1 to 4")
    if loan["status"] != "open" or loan["renewals"] >= 2:
        raise ToolError(f"loan {loan_id} can't be renewed")
    db.execute(
        "UPDATE loans SET due_on = date(due_on, ?), renewals = renewals + 1 WHERE id = ?",
        (f"+{7 * weeks} days", loan_id),
    )
    return _shown(_loan(db, loan_id))


def return_loan(db: Connection, loan_id: Annotated[int, Field(description="Loan to return")]) -> Loan:
    """Return an open loan."""
    loan = _loan(db, loan_id)
    if loan["status"] != "open":
        raise ToolError(f"loan {loan_id} is returned already")
    db.execute("UPDATE loans SET status = 'returned' WHERE id = ?", (loan_id,))
    db.execute("UPDATE books SET copies = copies + 1 WHERE id = ?", (loan["book_id"],))
    return _shown(_loan(db, loan_id))
'''

VERIFIER = """\
from awm.env.verifier import Connection, mentions, state_diff


def verify(initial: Connection, final: Connection, answer: str | None) -> dict:
    row = initial.execute(
        "SELECT b.title FROM loans l JOIN books b ON b.id = l.book_id "
        "WHERE l.user_id = 1 AND l.status = 'open' ORDER BY l.due_on LIMIT 1"
    ).fetchone()
    changes = state_diff(initial, final)
    good = not changes and mentions(answer, row["title"])
    return {"verdict": "completed" if good else "agent_error", "evidence": {"expected": row["title"]}}
"""
