"""What SQL may do on a connection, asked by SQLite as it compiles each statement.

This guards against SQL that comes in through arguments. It is no boundary against code that holds the connection, which
could take it off; that is the sandbox's work.
"""

import sqlite3

__all__ = ["authorize_build", "authorize_reads", "authorize_writes"]

_READS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}
    | {sqlite3.SQLITE_TRANSACTION, sqlite3.SQLITE_SAVEPOINT}
)
_WRITES = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_BUILD_REFUSED = frozenset(
    {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_CREATE_TEMP_TABLE}
    | {sqlite3.SQLITE_CREATE_TEMP_INDEX, sqlite3.SQLITE_CREATE_TEMP_VIEW, sqlite3.SQLITE_CREATE_TEMP_TRIGGER}
)
_REFUSED_FUNCTIONS = frozenset({"load_extension", "fts3_tokenizer"})
# Harmless with and without a value. Full-text tables need data_version and page_size to be opened.
_QUERY_PRAGMAS = frozenset(
    {"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list"}
    | {"foreign_key_check", "integrity_check", "quick_check", "data_version", "database_list", "function_list"}
)
_VALUE_PRAGMAS = frozenset({"foreign_keys", "page_size", "page_count", "user_version", "schema_version", "encoding"})


def authorize_writes(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow what a tool may do: read, and change rows."""
    if action in _WRITES:
        return sqlite3.SQLITE_OK
    return authorize_reads(action, first, second)


def authorize_reads(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    """Allow what a verifier may do: read."""
    if action in _READS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if second in _REFUSED_FUNCTIONS else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA:
        allowed = first in _QUERY_PRAGMAS or (second is None and first in _VALUE_PRAGMAS) or _turns_on(first, second)
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK  # how a virtual table is loaded; SQLite itself refuses real writes to it
    return sqlite3.SQLITE_DENY


def _turns_on(pragma: str | None, value: str | None) -> bool:
    """Tell whether a PRAGMA only asks for what is so already."""
    return pragma == "foreign_keys" and value is not None and value.lower() in ("on", "1", "true", "yes")


def authorize_build(action: int, first: str | None, second: str | None, database: str | None, _: str | None) -> int:
    """Allow all that stays in the database that is built."""
    if action in _BUILD_REFUSED or (action == sqlite3.SQLITE_INSERT and database == "temp"):
        return sqlite3.SQLITE_DENY
    refused = action == sqlite3.SQLITE_FUNCTION and second in _REFUSED_FUNCTIONS
    return sqlite3.SQLITE_DENY if refused else sqlite3.SQLITE_OK
