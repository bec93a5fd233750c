"""SQL that comes in through an argument: a careless tool runs it, and the connection keeps to what tools may do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from awm.env import Sandbox, ToolWorker

MODULE = '''
from typing import Annotated
from pydantic import Field
from awm.env.tool import Connection


def run(db: Connection, sql: Annotated[str, Field(description="SQL")]) -> list:
    """Run any SQL."""
    return [list(row) for row in db.execute(sql)]


def search(db: Connection, text: Annotated[str, Field(description="What to look for")]) -> list:
    """Search as one should not."""
    return [row[0] for row in db.execute(f"SELECT id FROM orders WHERE status = '{text}'")]
'''

NOT_AUTHORIZED = """
ATTACH '/tmp/awm-hostile' AS x
ATTACH ':memory:' AS x
DETACH main
CREATE TABLE x(a)
CREATE TEMP TABLE x(a)
CREATE TABLE x AS SELECT * FROM orders
CREATE VIEW x AS SELECT 1
CREATE TEMP VIEW x AS SELECT 1
CREATE INDEX x ON orders(zip)
CREATE UNIQUE INDEX x ON orders(status)
CREATE TRIGGER x AFTER INSERT ON orders BEGIN DELETE FROM parts; END
CREATE TEMP TRIGGER x AFTER INSERT ON orders BEGIN DELETE FROM parts; END
CREATE VIRTUAL TABLE x USING fts5(a)
CREATE VIRTUAL TABLE temp.x USING fts5(a)
DROP TABLE orders
DROP TABLE notes
ALTER TABLE orders RENAME TO gone
ALTER TABLE orders ADD COLUMN x
ALTER TABLE orders DROP COLUMN zip
REINDEX
ANALYZE
BEGIN
COMMIT
END
ROLLBACK
PRAGMA writable_schema=ON
PRAGMA foreign_keys=OFF
PRAGMA defer_foreign_keys=ON
PRAGMA ignore_check_constraints=ON
PRAGMA journal_mode=WAL
PRAGMA journal_mode=OFF
PRAGMA synchronous=OFF
PRAGMA max_page_count=1000000000
PRAGMA page_size=65536
PRAGMA cache_size=1000000000
PRAGMA mmap_size=1000000000
PRAGMA temp_store=FILE
PRAGMA temp_store_directory='/tmp'
PRAGMA hard_heap_limit=1
PRAGMA soft_heap_limit=1
PRAGMA trusted_schema=ON
PRAGMA query_only=ON
PRAGMA user_version=7
PRAGMA schema_version=7
PRAGMA application_id=7
PRAGMA encoding='UTF-16'
PRAGMA auto_vacuum=FULL
PRAGMA incremental_vacuum
PRAGMA locking_mode=EXCLUSIVE
PRAGMA case_sensitive_like=ON
PRAGMA recursive_triggers=ON
PRAGMA reverse_unordered_selects=ON
PRAGMA optimize
PRAGMA shrink_memory
PRAGMA threads=8
PRAGMA wal_checkpoint
PRAGMA cell_size_check=OFF
PRAGMA analysis_limit=0
PRAGMA busy_timeout=100000000
""".strip().splitlines()

REFUSED = {
    "SELECT load_extension('/tmp/x')": "not authorized to use function: load_extension",
    "SELECT fts3_tokenizer('simple')": "not authorized to use function: fts3_tokenizer",
    "SELECT readfile('/etc/passwd')": "no such function: readfile",
    "SELECT writefile('/tmp/awm-hostile', 'x')": "no such function: writefile",
    "SELECT edit('x')": "no such function: edit",
    "SELECT * FROM fsdir('/')": "no such table: fsdir",
    "SELECT * FROM pragma_writable_schema": "not authorized",
    "VACUUM": "cannot VACUUM from within a transaction",
    "VACUUM INTO '/tmp/awm-hostile'": "cannot VACUUM from within a transaction",
    "UPDATE sqlite_master SET sql = ''": "table sqlite_master may not be modified",
    "INSERT INTO sqlite_schema VALUES (1, 2, 3, 4, 5)": "table sqlite_master may not be modified",
    "DELETE FROM sqlite_master": "table sqlite_master may not be modified",
    "INSERT INTO temp.sqlite_master VALUES (1, 2, 3, 4, 5)": "table sqlite_temp_master may not be modified",
    "SELECT 1; DROP TABLE orders": "You can only execute one statement at a time",
    "SELECT zeroblob(1 << 30)": "string or blob too big",
    "SELECT randomblob(1 << 30)": "user-defined function raised exception",
    "SELECT hex(zeroblob(10 << 20))": "string or blob too big",
    "SELECT replace(hex(zeroblob(1 << 20)), '0', hex(zeroblob(1 << 10)))": "string or blob too big",
    "SELECT group_concat(hex(zeroblob(1 << 20))) FROM orders a, orders b, orders c": "string or blob too big",
    "WITH RECURSIVE n(i) AS (SELECT zeroblob(1 << 20) UNION ALL SELECT i || i FROM n) SELECT max(i) FROM n": "string",
    "SELECT json_group_array(hex(zeroblob(1 << 20))) FROM orders a, orders b, orders c": "string or blob too big",
    "SELECT " + "(" * 2000 + "1" + ")" * 2000: "parser stack overflow",
    "SELECT 1" + " + 1" * 2000: "Expression tree is too large (maximum depth 1000)",
    "SELECT 1" + " UNION ALL SELECT 1" * 1000: "too many terms in compound SELECT",
    "SELECT * FROM " + ", ".join(f"orders a{n}" for n in range(65)): "at most 64 tables in a join",
    "SELECT " + "1," * 3000 + "1": "too many columns in result set",
    "SELECT '" + "x" * (1 << 20) + "'": "query string is too large",
    "SELECT json('" + "[" * 3000 + "]" * 3000 + "')": "malformed JSON",
    "SELECT ?": "Incorrect number of bindings supplied",
    "SELECT 1 \0 ; DROP TABLE orders": "the query contains a null character",
    "INSERT INTO notes(notes) VALUES ('no such command')": "SQL logic error",
    "SELECT text FROM notes WHERE notes MATCH 'AND AND'": "fts5: syntax error",
}

HARMLESS = (
    *("PRAGMA foreign_keys", "PRAGMA foreign_keys=ON", "PRAGMA table_info(orders)", "PRAGMA integrity_check"),
    *("SAVEPOINT a", "EXPLAIN DELETE FROM orders", "SELECT name FROM sqlite_master", "SELECT * FROM pragma_table_list"),
    *("SELECT text FROM notes WHERE notes MATCH 'door'", "SELECT json_extract('{\"a\": [1]}', '$.a[0]')"),
    "INSERT INTO notes(notes) VALUES ('integrity-check')",
)


@pytest.fixture(scope="module")
def careless(sandbox: Sandbox, snapshot: bytes) -> Iterator[ToolWorker]:
    """A worker whose tools run what they are told."""
    with sandbox.worker() as worker:
        worker.load(MODULE)
        worker.open("s", snapshot, "2025-03-01")
        yield worker


@pytest.mark.parametrize("sql", NOT_AUTHORIZED)
def test_it_is_not_authorized(careless: ToolWorker, sql: str):
    result = careless.call("s", "run", {"sql": sql})
    assert (result.kind, result.message) == ("crash", "DatabaseError: not authorized")
    assert not careless.changed("s")


@pytest.mark.parametrize(("sql", "message"), REFUSED.items(), ids=[sql[:50].replace("\0", "NUL") for sql in REFUSED])
def test_it_is_refused(careless: ToolWorker, sql: str, message: str):
    result = careless.call("s", "run", {"sql": sql})
    assert result.kind == "crash"
    assert message in result.message
    assert not careless.changed("s")


@pytest.mark.parametrize("sql", HARMLESS)
def test_it_is_harmless(careless: ToolWorker, sql: str):
    assert careless.call("s", "run", {"sql": sql}).ok
    assert careless.call("s", "run", {"sql": "SELECT count(*) FROM orders"}).value == [[3]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("open' OR '1'='1", [1, 2, 3]),
        ("' UNION SELECT sql FROM sqlite_master --", None),
        ("'; DELETE FROM orders; --", None),
        ("x' AND (DELETE FROM orders) --", None),
    ],
)
def test_an_injection_reaches_no_further_than_reading(careless: ToolWorker, text: str, found: list[int] | None):
    """What it may do is what the tool could do: read, and at worst change rows of this one episode."""
    result = careless.call("s", "search", {"text": text})
    assert found is None or result.value == found
    assert not careless.changed("s")


def test_a_full_text_table_can_be_broken_from_inside_and_harms_its_own_episode_only(sandbox, snapshot):
    """Known to succeed: rows of the tables inside a virtual table can be changed."""
    with sandbox.worker() as worker:
        worker.load(MODULE)
        worker.open("s", snapshot, "2025-03-01")
        worker.open("other", snapshot, "2025-03-01")
        assert worker.call("s", "run", {"sql": "UPDATE notes_data SET block = zeroblob(100)"}).ok
        assert worker.call("s", "run", {"sql": "DELETE FROM notes_content"}).ok
        assert worker.call("s", "run", {"sql": "SELECT text FROM notes"}).value == []
        assert worker.call("other", "run", {"sql": "SELECT text FROM notes WHERE notes MATCH 'door'"}).ok
        worker.reset("s")
        assert worker.call("s", "run", {"sql": "SELECT text FROM notes WHERE notes MATCH 'door'"}).ok


UNGUARDED = {
    "db.execute('/**/VACUUM INTO \"/tmp/awm-hostile\"')": "OperationalError: cannot VACUUM",
    "end()\ndb.execute('/**/VACUUM INTO \"/tmp/awm-hostile\"')": "OperationalError: unable to open database",
    "end()\ndb.execute(\"/**/ATTACH '/etc/passwd' AS x\")": "OperationalError: unable to open database",
    "end()\ndb.execute(\"/**/ATTACH 'file:/etc/passwd?mode=ro' AS x\")": "OperationalError: unable to open database",
    "db.enable_load_extension(True)\ndb.load_extension('/tmp/x')": "OperationalError: /tmp/x.so: cannot open",
    "db.backup(_module('sqlite3').connect('/tmp/awm-hostile'))": "OperationalError: unable to open database",
}


@pytest.mark.parametrize(("code", "message"), UNGUARDED.items(), ids=UNGUARDED)
def test_without_the_authorizer_nothing_leaves_the_database(run_tool, code: str, message: str):
    """Generated code can take the authorizer off. What is left then is the operating system's refusal."""
    head = "db.set_authorizer(None)\ndb.setlimit(7, 10)\ndef end():\n    db.execute('/**/ROLLBACK')\n"
    result = run_tool(head + code)
    if "enable_load_extension" in code and result.message.startswith("AttributeError"):
        return  # this Python was built without
    assert result.message.startswith(message), result.message


def test_dropping_the_schema_is_undone_by_reset(run_tool, sandbox, snapshot):
    source = """
from awm.env.tool import Connection


def drop(db: Connection):
    '''Drop.'''
    db.set_authorizer(None)
    db.execute("/**/DROP TABLE orders")
    return 1


def count(db: Connection):
    '''Count.'''
    return db.execute("SELECT count(*) FROM orders").fetchone()[0]
"""
    with sandbox.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, "2025-03-01")
        worker.call("s", "drop", {})
        assert worker.call("s", "count", {}).kind == "crash"
        worker.reset("s")
        assert worker.call("s", "count", {}).value == 3
