"""The fenced blocks of code in an answer, and code without a fence."""

from __future__ import annotations

import ast
import re
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Literal

MAX_BLOCKS = 1000
MAX_ENDS = 20  # closing fences tried for one block of code, those outside its strings first
MAX_LOOKED_AT = 1_000_000  # characters read in search of the ends of all blocks of code
FENCE_LINE = re.compile(r"^[ \t]*+(`{3,}+|~{3,}+)([^\n`]*+)$", re.MULTILINE)

Language = Literal["python", "sql"]
TAGS: dict[str, frozenset[str]] = {
    "python": frozenset({"python", "py", "python3"}),
    "sql": frozenset({"sql", "sqlite", "sqlite3"}),
}
_PYTHON_LINE = re.compile(
    r"^(?:from [\w.]+ import |import [\w.]+(?: as \w+)?\s*(?:,|#|$)|(?:async )?def \w+\(|class \w+[(:]|@\w+)",
    re.MULTILINE,
)
_SQL_LINE = re.compile(
    r"^[ \t]*+(?:CREATE\s+(?:(?:UNIQUE|TEMP|TEMPORARY|VIRTUAL)\s+)?(?:TABLE|INDEX|VIEW|TRIGGER)\s"
    r"|INSERT\s+(?:OR\s+\w+\s+)?INTO\s|REPLACE\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|PRAGMA\s+\w+|BEGIN\b[^\n]*;"
    r"|(?:DROP\s+(?:TABLE|INDEX|VIEW|TRIGGER)|ALTER\s+TABLE)\s|WITH\s+(?:RECURSIVE\s+)?\w+\s+AS\s*\("
    # Up to the next line that selects, so that many of them without a FROM are read once.
    r"|SELECT\s(?:(?!\n[ \t]*+SELECT\s|\bFROM\s)[^;])*+FROM\s)",
    re.MULTILINE | re.IGNORECASE,
)


class CodeBlocks:
    """The fenced blocks of an answer.

    A fence inside a string of the code is not the end of its block, so of the fences that may be the end the first one
    counts with which the code compiles. The search is bounded over all blocks together.
    """

    def __init__(self, text: str, language: Language, compiles: Callable[[str], bool]) -> None:
        self._text, self._language, self._compiles = text, language, compiles
        self._fences = list(FENCE_LINE.finditer(text))
        self._looks_left = MAX_LOOKED_AT

    def split(self) -> tuple[list[tuple[str, str]], bool]:
        """Return the (tag, content) of each block, and whether a fence opens that is never closed.

        Of more than `MAX_BLOCKS` blocks only the first `MAX_BLOCKS + 1` are returned.
        """
        blocks: list[tuple[str, str]] = []
        position = 0
        for index, opener in enumerate(self._fences):
            if len(blocks) > MAX_BLOCKS:
                break
            if opener.start() < position:
                continue
            tag = (opener.group(2).split() or [""])[0].lower()
            is_code = tag in TAGS[self._language] or not tag
            ends = self._ends(opener, index + 1)
            end = self._likely_end(opener, ends) if is_code else next(ends, None)
            if end is None:
                return blocks, True
            blocks.append((tag, self._text[opener.end() + 1 : end[0]]))
            position = end[1]
        return blocks, False

    def _ends(self, opener: re.Match[str], index: int) -> Iterator[tuple[int, int]]:
        """Where the block may end: (end of its content, position behind the closing fence), nearest first."""
        mark = opener.group(1)
        closed = False
        for number in range(index, len(self._fences)):
            fence = self._fences[number]
            if fence.group(1).startswith(mark) and not fence.group(2).strip():
                closed = True
                yield fence.start(), fence.end()
        if closed:
            return
        stripped = self._text.rstrip()
        if stripped.endswith(mark) and len(stripped) - len(mark) > opener.end():
            yield len(stripped) - len(mark), len(self._text)  # the closing fence behind the last line of code

    def _likely_end(self, opener: re.Match[str], ends: Iterator[tuple[int, int]]) -> tuple[int, int] | None:
        """The end with which the code compiles, else the first one outside its strings, else the nearest."""
        nearest = next(ends, None)
        following = next(ends, None)
        if nearest is None or following is None:
            return nearest
        outside: list[tuple[int, int]] = []
        inside: list[tuple[int, int]] = []
        for end in chain((nearest, following), ends):
            code = self._look(opener, end)
            if code is None or len(outside) == MAX_ENDS:
                break
            if not _OUTSIDE_STRINGS[self._language](code):
                inside.append(end)
            elif self._compiles(code):
                return end
            else:
                outside.append(end)
        for end in inside[: MAX_ENDS - len(outside)]:
            code = self._look(opener, end)
            if code is not None and self._compiles(code):
                return end
        return outside[0] if outside else nearest

    def _look(self, opener: re.Match[str], end: tuple[int, int]) -> str | None:
        """The code up to an end, unless too much has been looked at."""
        start = opener.end() + 1
        self._looks_left -= end[0] - start + 100
        return self._text[start : end[0]] if self._looks_left > 0 else None


def python_compiles(code: str) -> bool:
    return _python_tree(code) is not None


def _python_tree(code: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes are for the caller's check to report
        try:
            return ast.parse(code)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def sql_complete(code: str) -> bool:
    try:
        return sqlite3.complete_statement(code + "\n;")
    except ValueError:  # a character that SQL can't hold
        return False


_OUTSIDE_STRINGS: dict[str, Callable[[str], bool]] = {
    "python": lambda code: (code.count('"""') + code.count("'''")) % 2 == 0,
    "sql": lambda code: code.count("'") % 2 == 0,
}


def is_code_in(text: str, language: Language) -> bool:
    if language == "sql":
        return _SQL_LINE.search(text) is not None
    tree = _python_tree(text)
    return _PYTHON_LINE.search(text) is not None if tree is None else _does_something(tree)


def _does_something(tree: ast.Module) -> bool:
    """Single words and numbers are Python too, but no module is made of these alone."""
    return any(not isinstance(node, ast.Expr) for node in tree.body)


def bare_code(text: str, language: Language) -> list[str]:
    """The text without fences, from its first line of code on, if it is code."""
    line = (_PYTHON_LINE if language == "python" else _SQL_LINE).search(text)
    if language == "python" and (tree := _python_tree(text)) is not None:
        return [text] if _does_something(tree) else []
    if line is None:
        return []
    before, code = text[: line.start()], text[line.start() :]
    if language == "python":
        return [text] if not before.strip() else [code] * python_compiles(code)
    is_comment = all(part.strip().startswith("--") or not part.strip() for part in before.splitlines())
    return [text] if is_comment else [code] * code.rstrip().endswith(";")
