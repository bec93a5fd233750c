"""The one place where an LLM's answer text becomes data: JSON, a pydantic model, or code.

What is meant is taken; what is missing is never made up. An answer that stops in the middle is an error, as is one that
can be read in two ways, so that the repair loop can ask again. How single values are read is in `_relaxed_json`.

Which part of an answer counts:

- Thinking blocks (`<think>`, `<thinking>`) before the answer are dropped. An answer that never leaves one is an error.
- JSON in code fences comes before JSON in prose. Of several fences the last one that parses (and, for a model,
  validates) counts, because LLMs draft first and correct later. Of several values in prose the longest counts, the last
  among equals.
- Values that follow each other without a word between them (one JSON object a line, say) are an error, unless equal.
- Of several code blocks the longest that compiles counts, the last among equals: usage examples are shorter than the
  code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from awm.llm._code_blocks import (
    FENCE_LINE,
    MAX_BLOCKS,
    TAGS,
    CodeBlocks,
    Language,
    bare_code,
    is_code_in,
    python_compiles,
    sql_complete,
)
from awm.llm._relaxed_json import RelaxedReader, UnreadableError
from awm.llm.errors import LLMError

__all__ = ["MalformedAnswer", "parse_code", "parse_json", "parse_model"]

Model = TypeVar("Model", bound=BaseModel)

MAX_PROBLEMS = 10
MAX_CHARACTERS = 2_000_000
MAX_STEPS = 100_000  # values begun in vain, brackets in prose among them
STEPS_PER_FAILURE = 10
EXCERPT = 200
_HERE = " <<HERE>> "


class MalformedAnswer(LLMError, ValueError):
    """An answer that holds no usable data.

    No `AnswerError`: that one carries the `LLMAnswer`, of which only the text is known here.

    `what` says why; `line` and `column` (from 1) say where in the answer; `excerpt` is the text around it, at most 200
    characters, with a mark at the place.
    """

    def __init__(self, what: str, text: str = "", position: int | None = None) -> None:
        self.what = what
        self.line = self.column = None if position is None else 0
        self.excerpt = ""
        message = what
        if position is not None:
            self.line = text.count("\n", 0, position) + 1
            self.column = position - (text.rfind("\n", 0, position) + 1) + 1
            half = (EXCERPT - len(_HERE)) // 2
            self.excerpt = text[max(0, position - half) : position] + _HERE + text[position : position + half]
            message = f"{what}\nat line {self.line}, column {self.column}: {self.excerpt.strip()}"
        super().__init__(message)


# --- thinking -------------------------------------------------------------------------------------------------------

_THINK_OPEN = re.compile(r"[^{\[`~]*?<(think|thinking)>", re.IGNORECASE)
_LONE_CLOSE = re.compile(r"^[ \t]*</(?:think|thinking)>", re.IGNORECASE | re.MULTILINE)


def _answer_start(text: str) -> int:
    """Where the answer begins: behind the thinking blocks. An answer that is too long to be one is refused.

    Chat templates may put the opening tag into the prompt, so a lone closing tag at the start of a line ends a block
    too, unless the text before it looks like an answer.
    """
    if len(text) > MAX_CHARACTERS:
        raise MalformedAnswer(f"the answer has more than {MAX_CHARACTERS} characters: give a shorter one")
    position = 0
    while match := _THINK_OPEN.match(text, position):
        close = re.compile(rf"</{match.group(1)}>", re.IGNORECASE).search(text, match.end())
        if close is None:
            raise MalformedAnswer(
                "the answer never left its thinking block: write the answer behind it", text, len(text)
            )
        position = close.end()
    if position == 0 and not re.match(r"[\s\ufeff]*(?:[{\[\"]|```|~~~)", text):
        close = _LONE_CLOSE.search(text)
        position = close.end() if close else 0
    if not text[position:].strip("\ufeff \t\r\n"):
        where = "nothing follows the thinking block" if position else "the text is empty"
        raise MalformedAnswer(f"there is no answer: {where}", text, position)
    return position


# --- JSON -----------------------------------------------------------------------------------------------------------

_OPENER = re.compile(r"[{\[]")
_FENCE_BEFORE = re.compile(r"(?:`{3,}|~{3,})[ \t]*[\w+-]*\s*\Z")
_CLOSERS = re.compile(r"[\s}\]]*")
_NEXT_KEY = re.compile(r""",\s*(["'“‘])[^"'“”‘’\n]*["'”’]\s*:""")


@dataclass(frozen=True)
class _Found:
    """A JSON value in an answer."""

    value: Any
    start: int
    end: int
    fenced: bool


def parse_json(text: str) -> Any:
    """The JSON value of an answer.

    Raises `MalformedAnswer` when there is none, when it is cut off or broken, and when several follow each other.
    """
    found = _json_values(text)
    return _single(_preferred(found), found, text).value


def parse_model(text: str, model: type[Model]) -> Model:
    """The answer's JSON as a `model`.

    Raises `MalformedAnswer` as `parse_json` does, or with one line a problem (`tools.3.name: Field required`), at most
    10.
    """
    found = _json_values(text)
    first_problem: MalformedAnswer | None = None
    for candidate in _preferred(found):
        try:
            validated = model.model_validate_json(json.dumps(candidate.value))
        except ValidationError as error:
            first_problem = first_problem or MalformedAnswer(_validation_problems(error, model))
            continue
        _single([candidate], found, text)
        return validated
    assert first_problem is not None  # there is at least one candidate, and none validated
    raise first_problem


def _json_values(text: str) -> list[_Found]:
    """All JSON values of the answer, in order, none of them inside another or in a broken one."""
    start = _answer_start(text)
    reader = RelaxedReader(text)
    found, failures = _scan(reader, start)
    if not found and not failures:
        return [_whole_scalar(reader, start)]
    last = failures[-1] if failures else None
    fenced = any(value.fenced for value in found)
    if last and (not found or not fenced or (last.truncated and last.position > found[-1].end)):
        raise MalformedAnswer(("the JSON is cut off: " if last.truncated else "") + last.what, text, last.position)
    return found


def _scan(reader: RelaxedReader, start: int) -> tuple[list[_Found], list[UnreadableError]]:
    text = reader.text
    found: list[_Found] = []
    failures: list[UnreadableError] = []
    first = reader.skip_space(start)
    position = start
    wasted = 0
    while match := _OPENER.search(text, position):
        at = match.start()
        fenced = _FENCE_BEFORE.search(text[max(start, at - 60) : at]) is not None
        before = reader.steps
        try:
            value, end = reader.value(at)
            _refuse_early_end(reader, at, end)
        except UnreadableError as error:
            wasted += reader.steps - before + (error.position - at) // 100
            if wasted > MAX_STEPS:
                raise MalformedAnswer("the answer holds too many brackets that begin no JSON", text, at) from None
            if not (error.begun or fenced or at == first):  # a bracket in prose
                position = at + 1
                continue
            failures.append(error)
            wasted += STEPS_PER_FAILURE
            # Never look inside a broken value: a part of it would parse and pass for the whole.
            position = _next_fence(text, error.position, inside=fenced)
        else:
            found.append(_Found(value, at, end, fenced))
            position = end
    return found, failures


def _refuse_early_end(reader: RelaxedReader, start: int, end: int) -> None:
    """An extra bracket at the end of an answer is harmless; one in the middle would cut off what follows it."""
    closers = _CLOSERS.match(reader.text, end)
    behind = closers.end() if closers else end
    if _NEXT_KEY.match(reader.text, behind):
        closed = "is closed too early: there is a closing bracket too many"
        raise UnreadableError(lambda: f"the value that opens in line {reader.line(start)} {closed}", end, begun=True)


def _next_fence(text: str, position: int, *, inside: bool) -> int:
    """The start of the next code block's content; the text's end if there is none."""
    for match in FENCE_LINE.finditer(text, position):
        if inside and not match.group(2).strip():
            inside = False
            continue
        return match.end()
    return len(text)


def _whole_scalar(reader: RelaxedReader, start: int) -> _Found:
    """The answer when it is nothing but a string, number, boolean or null."""
    text = reader.text
    try:
        value, end = reader.value(start)
    except UnreadableError as error:
        what = error.what if error.begun and not error.truncated else "there is no JSON in the answer"
        raise MalformedAnswer(what, text, reader.skip_space(start)) from None
    if reader.skip_space(end) != len(text):
        raise MalformedAnswer("there is no JSON object or array in the answer", text, reader.skip_space(start))
    return _Found(value, start, end, fenced=False)


def _preferred(found: Sequence[_Found]) -> list[_Found]:
    """The candidates, best first."""
    fenced = [value for value in found if value.fenced]
    if fenced:
        return fenced[::-1]
    return sorted(found, key=lambda value: (value.end - value.start, value.start), reverse=True)


def _single(candidates: Sequence[_Found], found: Sequence[_Found], text: str) -> _Found:
    """The first candidate, if no other value stands directly beside it."""
    chosen = candidates[0]
    index = found.index(chosen)
    for left, right in zip(
        found[max(0, index - 1) : index + 1], found[max(0, index - 1) + 1 : index + 2], strict=False
    ):
        between = text[left.end : right.start]
        if left.value != right.value and not between.strip(" \t\r\n,}]"):
            raise MalformedAnswer("several JSON values follow each other: give exactly one", text, right.start)
    return chosen


def _validation_problems(error: ValidationError, model: type[BaseModel]) -> str:
    problems = error.errors(include_url=False, include_context=False)
    lines = [f"the JSON does not fit {model.__name__} ({len(problems)} problem{'s' * (len(problems) != 1)}):"]
    for problem in problems[:MAX_PROBLEMS]:
        where = ".".join(str(part) for part in problem["loc"]) or "(top level)"
        given = problem["input"]
        shown = "" if isinstance(given, dict | list) or problem["type"] == "missing" else f" (got {_short(given)})"
        lines.append(f"{where}: {problem['msg']}{shown}")
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
    return "\n".join(lines)


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False, default=str)
    return shown if len(shown) <= 60 else shown[:57] + "..."


# --- code -----------------------------------------------------------------------------------------------------------

_NOT_TEXT = re.compile(r"[\x00\ud800-\udfff]")
_BLANK_LINES = re.compile(r"(?:[^\S\n]*+\n)*+")


def parse_code(text: str, language: Language) -> str:
    """The code of an answer, as it stands there, without blank lines around it and with one line end at its end.

    Takes the fenced block of that language (else one without a tag that is code), or, without any fence, the whole text
    if it is code, with prose before it cut off. Code that does not compile is returned if it is the only block: what is
    wrong in it is for the caller's check to say. Raises `MalformedAnswer` when there is no code or a fence is never
    closed.
    """
    start = _answer_start(text)
    body = text[start:].lstrip("\ufeff")
    offset = len(text) - len(body)
    compiles = cache(python_compiles if language == "python" else sql_complete)
    blocks, unclosed = CodeBlocks(body, language, compiles).split()
    if len(blocks) > MAX_BLOCKS:
        raise MalformedAnswer(f"there are more than {MAX_BLOCKS} code blocks in the answer: give one")
    tagged = [code for tag, code in blocks if tag in TAGS[language] and code.strip()]
    untagged = [code for tag, code in blocks if not tag and code.strip() and is_code_in(code, language)]
    candidates = tagged or untagged
    if unclosed and not any(compiles(code) for code in candidates):
        raise MalformedAnswer("the code is cut off: its fence is never closed", text, len(text))
    if not candidates and not blocks:
        candidates = bare_code(body, language)
    if not candidates:
        raise MalformedAnswer(f"there is no {language} code block in the answer", text, offset)
    best = candidates[0]
    if len(candidates) > 1:
        best = max(enumerate(candidates), key=lambda pair: (compiles(pair[1]), len(pair[1]), pair[0]))[1]
    if match := _NOT_TEXT.search(best):
        where = offset + body.index(best) + match.start()
        raise MalformedAnswer(f"the code holds the character {match.group()!r}, which no code may", text, where)
    return _tidy(best)


def _tidy(code: str) -> str:
    code = code.replace("\r\n", "\n").rstrip()
    match = _BLANK_LINES.match(code)
    return code[match.end() if match else 0 :] + "\n"
