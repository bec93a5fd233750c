"""SQL as text: quoting, splitting a script into statements, and what a statement is about. Nothing here runs SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

__all__ = [
    "SCHEMA_KINDS",
    "Statement",
    "build_refusal",
    "conflict_clauses",
    "quote_identifier",
    "split_statements",
    "statement_kind",
    "statement_table",
]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<text>'(?:[^']++|'')*+(?:'|\Z))
      | (?P<name>"(?:[^"]++|"")*+(?:"|\Z) | `(?:[^`]++|``)*+(?:`|\Z) | \[[^\]]*(?:\]|\Z))
      | (?P<word>[^\W\d][\w$]*)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
# Coarser: what matters to where a statement ends. A doubled quote is two quoted pieces here, which comes to the same.
_PIECE = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<end>;)
      | (?P<quoted>'[^']*(?:'|\Z) | "[^"]*(?:"|\Z) | `[^`]*(?:`|\Z) | \[[^\]]*(?:\]|\Z))
      | (?P<plain>[^\s;'"`\[/-]+|[/-])""",
    re.VERBOSE | re.DOTALL,
)
_HEAD_TOKENS = 400
SCHEMA_KINDS = frozenset({"CREATE TABLE", "CREATE INDEX", "CREATE VIEW", "CREATE TRIGGER", "CREATE VIRTUAL TABLE"})
_INSERT_KINDS = frozenset({"INSERT", "INSERT OR ABORT"})
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
    Any text can be split, in time that grows with its length.
    """
    statements: list[Statement] = []
    line, counted, start = 1, 0, -1
    head: list[str] = []
    before = last = ""
    for piece in _PIECE.finditer(sql):
        if piece.lastgroup == "space":
            continue
        word = piece.group().upper() if piece.lastgroup != "quoted" else "''"
        if start < 0:
            if word == ";":
                continue
            start = piece.start()
            line, counted = line + sql.count("\n", counted, start), start
            head, before, last = [], "", ""
        elif word == ";" and (not _opens_trigger(head) or (before, last) == (";", "END")):
            statements.append(Statement(sql[start : piece.end()], line))
            start = -1
        if len(head) < 3:
            head.append(word)
        before, last = last, word
    if start >= 0:
        statements.append(Statement(sql[start:].rstrip(), line, terminated=False))
    return statements


def _opens_trigger(words: list[str]) -> bool:
    return words[:1] == ["CREATE"] and [word for word in words if word not in ("TEMP", "TEMPORARY")][1:2] == ["TRIGGER"]


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
    found = (match for match in _TOKEN.finditer(text) if match.lastgroup != "space")
    words = [match.group().upper() if match.lastgroup == "word" else "" for match in found]
    pairs = zip(words, words[1:], [*words[2:], ""], strict=False)
    return {after if after.isalpha() else "" for on, conflict, after in pairs if on == "ON" and conflict == "CONFLICT"}


def build_refusal(kind: str, text: str) -> str | None:
    """Return why a statement of a kind is not allowed where a database is built, or None."""
    if "\0" in text:
        return "there is a NUL character (U+0000) in the statement: take it out"
    if kind in _INSERT_KINDS:
        return "ON CONFLICT hides rows that break a constraint: write plain INSERT" if conflict_clauses(text) else None
    if kind in ("CREATE TABLE", "CREATE INDEX") and conflict_clauses(text) - {"ABORT"}:
        return "ON CONFLICT in a constraint hides rows that break it: leave it out"
    if kind in SCHEMA_KINDS:
        return None
    if kind.startswith(("INSERT OR", "REPLACE")):
        return f"{kind} hides rows that break a constraint: write plain INSERT"
    if kind == "PRAGMA":
        return "PRAGMA is not allowed: foreign keys are always on, and the rest is fixed"
    if kind in ("BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE"):
        return f"{kind} is not allowed: all statements run in one transaction"
    allowed = "CREATE TABLE, CREATE INDEX, CREATE VIEW, CREATE TRIGGER, CREATE VIRTUAL TABLE and INSERT"
    return f"{kind} is not allowed: use only {allowed}"


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup and match.lastgroup != "space":
            yield _Token(match.lastgroup, match.group())


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
