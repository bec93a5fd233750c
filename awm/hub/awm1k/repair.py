"""Mend SQL that does not parse, where only one reading of it makes sense.

Each function gives candidates, the likeliest first. Whether one runs is for the caller to try; a candidate that does
not is dropped, and the statement counts as broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Repair", "insert_repairs", "table_repairs"]

_BACKSLASHED = re.compile(r"\\'")
# Between two letters or digits, an apostrophe ends no text: behind a text stands a comma, a bracket or a space. The one
# exception is a blob, x'00'.
_INNER_APOSTROPHE = re.compile(r"(?<![^\W_])([^\W_]+)'(?=[^\W_])")
_BLOB_PREFIX = re.compile(r"[xX]")
_TEXT = re.compile(r"'(?:[^']|'')*'|--[^\n]*")


@dataclass(frozen=True)
class Repair:
    """A statement that may be what was meant, and what was changed in it."""

    text: str
    change: str


def insert_repairs(statement: str) -> Iterator[Repair]:
    """Yield candidates for an INSERT whose texts hold apostrophes that were not doubled."""
    unslashed = _BACKSLASHED.sub("''", statement)
    if unslashed != statement:
        yield Repair(unslashed, r"\' in a text was written ''")
    doubled = _INNER_APOSTROPHE.sub(_doubled, statement)
    if doubled != statement:
        yield Repair(doubled, "an apostrophe between two letters was doubled")
    both = _INNER_APOSTROPHE.sub(_doubled, unslashed)
    if both not in (statement, unslashed, doubled):
        yield Repair(both, "apostrophes in texts were doubled")


def _doubled(match: re.Match[str]) -> str:
    word = match.group(1)
    return match.group() if _BLOB_PREFIX.fullmatch(word) else f"{word}''"


def table_repairs(ddl: str) -> Iterator[Repair]:
    """Yield candidates for a CREATE TABLE in which one line opens a bracket that nothing closes."""
    lines = ddl.split("\n")
    unbalanced = [number for number, line in enumerate(lines) if _depth(line) > 0]
    if _depth(ddl) != 1:
        return
    for number in unbalanced:
        if re.match(r"\s*create\s+table", lines[number], re.IGNORECASE) and len(lines) > 1:
            continue  # it opens the list of columns, which the last line closes
        line = lines[number].rstrip()
        mended = line[:-1].rstrip() + ")," if line.endswith(",") else line + ")"
        text = "\n".join([*lines[:number], mended, *lines[number + 1 :]])
        yield Repair(text, f"the bracket left open in line {number + 1} was closed at its end")


def _depth(text: str) -> int:
    """Return how many brackets stay open in a piece of SQL."""
    plain = _TEXT.sub("", text)
    return plain.count("(") - plain.count(")")
