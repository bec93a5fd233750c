r"""A reader for the JSON that LLMs write: strict about what the data is, relaxed about how it is spelled.

Accepted beside JSON: trailing commas, `//`, `#` and `/* */` comments, Python's `True`, `False` and `None`, strings in
single or typographic quotes, raw line breaks inside strings, `\'`. Each of these has one possible meaning.

Not accepted, because a reading would be a guess: an end of the text inside a value, a missing comma, bracket or quote,
an unquoted key, an unknown escape, a key given twice with different values, NaN and infinities, half a surrogate pair.

Why not a library: json-repair answers all of those guesses (it closes truncated values, drops what it does not
understand, reads prose as ""), and json5 knows no Python literals, no raw line breaks and no end position, and accepts
NaN.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100

_SPACE = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|#[^\n]*+)*+")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*+)(\.\d++)?([eE][+-]?\d++)?(?![\w.])", re.ASCII)
_WORD = re.compile(r"-?[A-Za-z_]\w*")
_WORDS = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_NOT_FINITE = {"NaN", "nan", "Infinity", "-Infinity", "inf", "-inf", "-NaN"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\"}
_QUOTES = "\"'“”‘’"
# A typographic quote is also an apostrophe, so it closes a string only where JSON goes on.
_GOES_ON = r"(?=\s*(?:[,:\]}]|//|#|\Z))"
_STRING = {
    '"': re.compile(r'((?:[^"\\]|\\.)*+)"', re.DOTALL),
    "'": re.compile(r"((?:[^'\\]|\\.)*+)'", re.DOTALL),
    "“": re.compile(r"((?:[^”“\\]|\\.|[”“](?!\s*(?:[,:\]}]|//|#|\Z)))*+)[”“]" + _GOES_ON, re.DOTALL),
    "‘": re.compile(r"((?:[^’‘\\]|\\.|[’‘](?!\s*(?:[,:\]}]|//|#|\Z)))*+)[’‘]" + _GOES_ON, re.DOTALL),
}
_STRING["”"], _STRING["’"] = _STRING["“"], _STRING["‘"]


class UnreadableError(Exception):
    """Why the text at `position` is no value.

    `truncated`: the text ended inside the value. `begun`: enough was read to say that it was meant as JSON.
    """

    def __init__(
        self, what: str | Callable[[], str], position: int, *, truncated: bool = False, begun: bool = False
    ) -> None:
        super().__init__()
        self._what = what
        self.position = position
        self.truncated = truncated
        self.begun = begun or truncated

    @property
    def what(self) -> str:
        """The reason in words, made when it is asked for: it takes the whole text to count its lines."""
        return self._what if isinstance(self._what, str) else self._what()


class RelaxedReader:
    """Reads single values out of a text, at given positions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0  # values begun so far: the measure of the work done
        self._last_comment_end = text.rfind("*/")

    def value(self, position: int, depth: int = 0) -> tuple[Any, int]:
        """Read the value at `position` (space and comments may come first); return it and the position behind it.

        Raises `UnreadableError`.
        """
        self.steps += 1
        position = self.skip_space(position)
        character = self._character(position, "a value")
        if depth > MAX_DEPTH:
            raise UnreadableError(f"values are nested more than {MAX_DEPTH} deep", position, begun=True)
        if character == "{":
            return self._object(position, depth)
        if character == "[":
            return self._array(position, depth)
        if character in _QUOTES:
            return self._string(position)
        return self._scalar(position)

    def skip_space(self, position: int) -> int:
        """The position of the next character that is neither space nor comment."""
        while True:
            match = _SPACE.match(self.text, position)
            position = match.end() if match else position
            # A comment that is never closed is none, and finding that out must not take a look at the whole text.
            if not self.text.startswith("/*", position) or position + 2 > self._last_comment_end:
                return position
            position = self.text.find("*/", position + 2) + 2

    def _character(self, position: int, expected: str, opened: int | None = None) -> str:
        if position >= len(self.text):
            raise UnreadableError(
                lambda: f"the text ends where {self._closer(expected, opened)} is expected", position, truncated=True
            )
        return self.text[position]

    def _object(self, start: int, depth: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        position = self.skip_space(start + 1)
        while self._character(position, "}", start) != "}":
            begun = bool(result)
            key_at = position
            if self.text[position] not in _QUOTES:
                raise UnreadableError("expected a key in double quotes or '}'", position, begun=begun)
            key, position = self._string(position)
            position = self.skip_space(position)
            if self._character(position, "':'") != ":":
                raise UnreadableError(f"expected ':' after the key {key[:40]!r}", position, begun=begun)
            item, position = self._begun_value(position + 1, depth)
            if key in result and result[key] != item:
                raise UnreadableError(f"the key {key[:40]!r} is given twice with different values", key_at, begun=True)
            result[key] = item
            position = self._after_item(position, "}", start)
        return result, position + 1

    def _array(self, start: int, depth: int) -> tuple[list[Any], int]:
        result: list[Any] = []
        position = self.skip_space(start + 1)
        while self._character(position, "]", start) != "]":
            item, position = self._begun_value(position, depth) if result else self.value(position, depth + 1)
            result.append(item)
            position = self._after_item(position, "]", start)
        return result, position + 1

    def _begun_value(self, position: int, depth: int) -> tuple[Any, int]:
        try:
            return self.value(position, depth + 1)
        except UnreadableError as error:
            error.begun = True
            raise

    def _after_item(self, position: int, closer: str, start: int) -> int:
        """Step over the comma behind an item; leave `position` at the next item or at the closer."""
        position = self.skip_space(position)
        character = self._character(position, closer, start)
        if character == ",":
            return self.skip_space(position + 1)
        if character != closer:
            raise UnreadableError(lambda: f"expected ',' or {self._closer(closer, start)}", position, begun=True)
        return position

    def _closer(self, closer: str, start: int | None) -> str:
        if start is None:
            return closer
        kind = "object" if closer == "}" else "array"
        return f"the '{closer}' of the {kind} that opens in line {self.line(start)}"

    def line(self, position: int) -> int:
        """The number of the line that holds a position, from 1."""
        return self.text.count("\n", 0, position) + 1

    def _string(self, start: int) -> tuple[str, int]:
        match = _STRING[self.text[start]].match(self.text, start + 1)
        if match is None:
            raise UnreadableError(
                lambda: f"the text ends inside the string that opens in line {self.line(start)}",
                len(self.text),
                truncated=True,
            )
        return self._unescaped(match.group(1), start + 1), match.end()

    def _unescaped(self, body: str, start: int) -> str:
        def decoded(match: re.Match[str]) -> str:
            escape = match.group(1)
            if len(escape) == 5:
                return chr(int(escape[1:], 16))
            if escape in _QUOTES:
                return escape
            if escape not in _ESCAPES:
                what = f"the escape \\{escape} is not JSON (a backslash is written \\\\)"
                raise UnreadableError(what, start + match.start(), begun=True)
            return _ESCAPES[escape]

        if "\\" in body:
            body = _ESCAPE.sub(decoded, body)
        try:
            return body.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise UnreadableError("a string holds half of a surrogate pair", start, begun=True) from None

    def _scalar(self, position: int) -> tuple[Any, int]:
        if match := _NUMBER.match(self.text, position):
            return self._number(match), match.end()
        match = _WORD.match(self.text, position)
        word = match.group() if match else self.text[position]
        if match and word in _WORDS:
            return _WORDS[word], match.end()
        if word in _NOT_FINITE:
            raise UnreadableError(f"{word} is not a JSON number; use a finite number or null", position, begun=True)
        raise UnreadableError(f"expected a JSON value, found {word[:40]!r}", position)

    def _number(self, match: re.Match[str]) -> int | float:
        try:
            number = float(match.group()) if match.group(1) or match.group(2) else int(match.group())
        except ValueError:  # Python's limit on the digits of an int
            raise UnreadableError("a number has too many digits", match.start(), begun=True) from None
        if not math.isfinite(number):
            raise UnreadableError("a number is too large", match.start(), begun=True)
        return number
