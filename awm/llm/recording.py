"""Recorded answers as JSON Lines: one format for committed recordings and for the answers that a stage used.

Committed recordings are `<recordings>/<step>/<scenario>.jsonl`. A stage's own answers are `data/llm/<step>/NN.jsonl`,
sharded by scenario so that one changed scenario rewrites one file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from awm.llm.errors import RecordingError
from awm.llm.request import MAX_TOKENS, Frozen, LLMAnswer, LLMRequest, Usage, answer_key
from awm.store import canonical_json, write_atomic

__all__ = [
    "SHARDS",
    "Recording",
    "RecordingEntry",
    "files_of",
    "json_problem",
    "read_entries",
    "read_json_lines",
    "shard_of",
    "write_entries",
    "write_shards",
]

SHARDS = 16


class RecordingEntry(Frozen):
    """One answer with what it answers, as stored on one line."""

    step: str
    item: str
    attempt: int = Field(ge=1)
    prompt_sha256: str
    model: str
    parameters: dict[str, Any]
    finish_reason: str
    content: str
    usage: Usage

    @field_validator("parameters")
    @classmethod
    def _hashable(cls, value: dict[str, Any]) -> dict[str, Any]:
        """They are part of the answer's key, which knows neither NaN nor half of a surrogate pair."""
        try:
            canonical_json(value).encode()
        except (ValueError, RecursionError) as error:
            raise ValueError(json_problem(error)) from None
        return value

    @field_validator("usage")
    @classmethod
    def _countable(cls, value: Usage) -> Usage:
        if max(value.input_tokens, value.cached_input_tokens, value.output_tokens) > MAX_TOKENS:
            raise ValueError(f"more than {MAX_TOKENS} tokens")
        return value

    @classmethod
    def of(cls, request: LLMRequest, answer: LLMAnswer, parameters: dict[str, Any]) -> RecordingEntry:
        """Join a request and its answer."""
        return cls(
            step=request.step,
            item=request.item,
            attempt=request.attempt,
            prompt_sha256=request.prompt_sha256,
            model=answer.model,
            parameters=parameters,
            finish_reason=answer.finish_reason,
            content=answer.content,
            usage=answer.usage,
        )

    @property
    def position(self) -> tuple[str, str, int]:
        """Step, item and attempt: unique in a recording, and its order."""
        return self.step, self.item, self.attempt

    @property
    def key(self) -> str:
        """Key of this answer in the response cache; equal to `request_key` of the request that got it."""
        return answer_key(self.prompt_sha256, self.model, self.parameters, self.attempt)

    @property
    def answer(self) -> LLMAnswer:
        """The answer alone."""
        return LLMAnswer(content=self.content, finish_reason=self.finish_reason, model=self.model, usage=self.usage)

    def line(self) -> str:
        """Return the entry as one line of JSON with sorted keys, newline included."""
        return json.dumps(self.model_dump(), sort_keys=True, ensure_ascii=False) + "\n"


class Recording:
    """Recorded answers by step, item and attempt."""

    def __init__(self, entries: Iterable[RecordingEntry] = ()) -> None:
        """Index the entries.

        :raises RecordingError: two entries have the same step, item and attempt.
        """
        self._entries: dict[tuple[str, str, int], RecordingEntry] = {}
        for entry in entries:
            self._add(entry, "the entries given")

    @classmethod
    def load(cls, folder: Path) -> Recording:
        """Read all `*.jsonl` of a folder, in the order of their names. A folder that does not exist is empty.

        :raises RecordingError: the folder can't be read, or a line is not a recorded answer or repeats an earlier one.
        """
        recording = cls()
        for path in files_of(folder, "*.jsonl"):
            for number, entry in read_entries(path):
                recording._add(entry, f"{path}, line {number}")
        return recording

    def _add(self, entry: RecordingEntry, where: str) -> None:
        if entry.position in self._entries:
            step, item, attempt = entry.position
            raise RecordingError(
                f"{where}: a second answer for step {step}, item {item}, attempt {attempt}: keep one of the two"
            )
        self._entries[entry.position] = entry

    def __len__(self) -> int:
        """Count the entries."""
        return len(self._entries)

    def get(self, step: str, item: str, attempt: int) -> RecordingEntry | None:
        """Return one entry, or None."""
        return self._entries.get((step, item, attempt))

    def entries(self) -> list[RecordingEntry]:
        """List all entries, sorted by step, item and attempt."""
        return [self._entries[position] for position in sorted(self._entries)]

    def of_item(self, step: str, item: str) -> list[RecordingEntry]:
        """List the entries of one item, by attempt."""
        if not hasattr(self, "_by_item"):
            self._by_item: dict[tuple[str, str], list[RecordingEntry]] = {}
            for entry in self.entries():
                self._by_item.setdefault((entry.step, entry.item), []).append(entry)
        return self._by_item.get((step, item), [])


def files_of(folder: Path, pattern: str) -> list[Path]:
    """List the files of a folder whose names match, by name. A folder that does not exist is empty.

    :raises RecordingError: the folder can't be read, or is none.
    """
    try:
        return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RecordingError(f"{folder} can't be read: {error.strerror}: make it a folder that you may read") from None


def read_entries(path: Path) -> Iterator[tuple[int, RecordingEntry]]:
    """Read one file of recorded answers, with line numbers from 1.

    :raises RecordingError: a line is cut off or is not a recorded answer.
    """
    for number, value in read_json_lines(path, "recorded answer"):
        try:
            yield number, RecordingEntry.model_validate(value)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "the line"
            raise RecordingError(f"{path}, line {number}: not a recorded answer: {field}: {first['msg']}") from None


def read_json_lines(path: Path, kind: str) -> Iterator[tuple[int, Any]]:
    """Read a JSON Lines file, with line numbers from 1; blank lines are skipped.

    :param kind: what a line holds, for the message.
    :raises RecordingError: the file is not UTF-8, or a line is not JSON; names the line, and says when it is the last
        one and cut off.
    """
    try:
        # Not splitlines(): a string may hold U+2028 and its kin, which are no ends of lines here.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} can't be read: {error}: write or download it again") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError) as error:
            is_cut = number == len(lines) and isinstance(error, json.JSONDecodeError)
            cut = "the last line is cut off" if is_cut else f"not JSON ({json_problem(error)})"
            raise RecordingError(
                f"{path}, line {number}: {cut}: write or download the file again, or delete this {kind}"
            ) from None


def json_problem(error: Exception) -> str:
    """Return in few words why JSON can't be read or written."""
    match error:
        case json.JSONDecodeError():
            return error.msg
        case RecursionError():
            return "nested too deep"
        case UnicodeError():
            return "half of a surrogate pair"
        case _:
            return "a number that is too long, or none such as NaN"


def shard_of(item: str) -> int:
    """Return the shard of an item: a stable hash of its scenario, the part before the first slash."""
    scenario = item.partition("/")[0]
    return int(hashlib.sha256(scenario.encode("utf-8")).hexdigest()[:8], 16) % SHARDS


def write_entries(path: Path, entries: Iterable[RecordingEntry]) -> None:
    """Write entries to one file, sorted by step, item and attempt; the file is replaced as a whole.

    :raises RecordingError: two entries have the same step, item and attempt.
    """
    write_atomic(path, "".join(entry.line() for entry in Recording(entries).entries()))


def write_shards(folder: Path, entries: Iterable[RecordingEntry]) -> list[Path]:
    """Write a stage's answers to `NN.jsonl` files, only those with content; shards of an earlier run go.

    :return: the files written, by name.
    :raises RecordingError: two entries have the same step, item and attempt.
    """
    shards: dict[str, list[RecordingEntry]] = {}
    for entry in Recording(entries).entries():
        shards.setdefault(f"{shard_of(entry.item):02d}.jsonl", []).append(entry)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("[0-9][0-9].jsonl"):
        if stale.name not in shards:
            stale.unlink()
    for name, content in shards.items():
        write_entries(folder / name, content)
    return [folder / name for name in sorted(shards)]
