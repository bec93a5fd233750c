"""SQL as text: quoting, splitting a script into statements, and what a statement is about. Nothing here runs SQL."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

__all__ = ["Statement", "conflict_clauses", "quote_identifier", "split_statements", "statement_kind", "statement_table"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<text>'(?:[^']|'')*(?:'|\Z))
      | (?P<name>"(?:[^"]|"")*(?:"|\Z) | `(?:[^`]|``)*(?:`|\Z) | \[[^\]]*(?:\]|\Z))
      | (?P<word>[^\W\d][\w$]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEAD_TOKENS = 400
_TRIGGER_EVENTS = frozenset({"INSERT", "UPDATE", "DELETE"})


@dataclass(frozen=True)
class Statement:
    """One SQL statement of a script.

    `text` starts at the statement's first token, without comments before it, and includes the closing semicolon.
    `line` is the line of that token in the script, from 1. `terminated` is false for a last statement without a closing
    semicolon: the script may have been cut off there.
    """

    text: str
    line: int
    terminated: bool = True


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str

    @property
    def word(self) -> str:
        """The keyword in upper case, or "" for anything that is not a bare word."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str | None:
        """The identifier that this token spells, unquoted; None if it can't be one."""
        if self.kind == "word":
            return self.text
        if self.kind not in ("name", "text"):  # SQLite takes 'orders' as a table name too
            return None
        quote = self.text[0]
        inner = self.text[1:-1]
        return inner if quote == "[" else inner.replace(quote * 2, quote)


def quote_identifier(name: str) -> str:
    """Return a table or column name as it is written in SQL.

    `sqlite_utils` has the same function, but importing it takes longer than starting an episode.
    """
    return '"' + name.replace('"', '""') + '"'


def split_statements(sql: str) -> list[Statement]:
    """Split a script into statements.

    Semicolons in strings, quoted names, comments and trigger bodies do not end a statement. Empty statements and
    comments between statements are left out. A last statement without a semicolon is kept with `terminated=False`.
    """
    # One character for one, so that offsets still hold: `complete_statement` refuses NULs and lone surrogates.
    scanned = sql.replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    statements: list[Statement] = []
    start = _skip_space(scanned, 0)
    line = 1 + scanned.count("\n", 0, start)
    end = start
    while (end := scanned.find(";", end) + 1) > 0:
        if not sqlite3.complete_statement(scanned[start:end]):
            continue
        if end - start > 1:
            statements.append(Statement(sql[start:end], line))
        following = _skip_space(scanned, end)
        line += scanned.count("\n", start, following)
        start = end = following
    if start < len(sql):
        statements.append(Statement(sql[start:].rstrip(), line, terminated=False))
    return statements


def statement_kind(text: str) -> str:
    """Return what a statement does, in upper case: "CREATE TABLE", "CREATE TEMP VIEW", "INSERT", "INSERT OR IGNORE"...

    A `WITH` in front of an INSERT does not hide it. Returns "" for an empty statement.
    """
    tokens = list(islice(_tokens(text), 6))
    words = [token.word for token in tokens]
    if not words:
        return ""
    if words[0] == "WITH":
        body = _after_common_tables(text)
        return statement_kind(body) if body else "WITH"
    if words[0] == "CREATE":
        count = next((n for n, word in enumerate(words) if word in _OBJECTS), len(words) - 1) + 1
        return " ".join(word for word in words[:count] if word != "UNIQUE")
    if words[0] == "INSERT" and words[1:2] == ["OR"]:
        return " ".join(words[:3])
    return words[0] or tokens[0].text


_OBJECTS = frozenset({"TABLE", "INDEX", "VIEW", "TRIGGER"})


def statement_table(text: str) -> str | None:
    """Return the table that a statement concerns, as it is written there but without quotes; None if there is none.

    That is the table which CREATE TABLE or CREATE VIRTUAL TABLE makes, which CREATE INDEX or CREATE TRIGGER is on, or
    which INSERT, REPLACE, UPDATE or DELETE changes.
    """
    kind = statement_kind(text)
    if text.lstrip()[:4].upper() == "WITH":
        text = _after_common_tables(text) or ""
    tokens = list(islice(_tokens(text), _HEAD_TOKENS))
    words = [token.word for token in tokens]
    if kind.startswith("CREATE"):
        target = kind.rpartition(" ")[2]
        if target == "TABLE":
            after = words.index("TABLE") + 1
            return _qualified_name(tokens, after + 3 if words[after : after + 3] == ["IF", "NOT", "EXISTS"] else after)
        if target in ("INDEX", "TRIGGER"):
            return _table_after_on(tokens, words)
        return None
    if kind.startswith(("INSERT", "REPLACE")) and "INTO" in words:
        return _qualified_name(tokens, words.index("INTO") + 1)
    if kind == "DELETE" and "FROM" in words:
        return _qualified_name(tokens, words.index("FROM") + 1)
    if kind == "UPDATE":
        return _qualified_name(tokens, 3 if words[1:2] == ["OR"] else 1)
    return None


def conflict_clauses(text: str) -> set[str]:
    """Return the words that follow each ON CONFLICT of a statement, in upper case; "" where it is an upsert."""
    if not re.search("conflict", text, re.IGNORECASE):  # large INSERTs need no reading
        return set()
    words = [token.word or token.text for token in _tokens(text)]
    pairs = zip(words, words[1:], [*words[2:], ""], strict=False)
    return {after if after.isalpha() else "" for on, conflict, after in pairs if on == "ON" and conflict == "CONFLICT"}


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup and match.lastgroup != "space":
            yield _Token(match.lastgroup, match.group())


def _skip_space(text: str, start: int) -> int:
    while (match := _TOKEN.match(text, start)) and match.lastgroup == "space":
        start = match.end()
    return start


def _after_common_tables(text: str) -> str | None:
    """Return what follows the common table expressions of a statement that starts with WITH."""
    depth = 0
    for match in _TOKEN.finditer(text):
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if depth == 0 and match.group().upper() in ("INSERT", "REPLACE", "UPDATE", "DELETE", "SELECT", "VALUES"):
            return text[match.start() :]
    return None


def _qualified_name(tokens: list[_Token], position: int) -> str | None:
    if position + 2 < len(tokens) and tokens[position + 1].text == ".":
        position += 2
    return tokens[position].name if position < len(tokens) else None


def _table_after_on(tokens: list[_Token], words: list[str]) -> str | None:
    position = next((n for n, word in enumerate(words) if word == "ON"), None)
    return None if position is None else _qualified_name(tokens, position + 1)
