"""The provider for OpenAI Batch files: write the requests, stop, read the answers in a later run.

In `<batch_dir>/<step>/`: `requests-<hash>.jsonl` is a batch's input file, `requests-<hash>.index.jsonl` says which item
each of its lines belongs to, and every `answers*.jsonl` is a batch's output or error file. Nothing here is sent by us:
any server or person can answer the files.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from awm.llm.cache import project_root
from awm.llm.completion import (
    Failure,
    NotACompletion,
    answer_of,
    chat_body,
    failure_error,
    filtered_answer,
    is_permanent,
    tokens_parameter,
)
from awm.llm.errors import AnswerPending, BatchPending, LLMError, RecordingError, answer_error
from awm.llm.recording import files_of, read_json_lines
from awm.llm.request import LLMAnswer, LLMRequest, request_key
from awm.store import canonical_json, write_atomic

if TYPE_CHECKING:
    from awm.config import LLMConfig

__all__ = ["BatchFiles", "BatchProvider", "Ingested", "RequestFile"]

# Limits of the OpenAI Batch API for one input file.
MAX_LINES = 50_000
MAX_BYTES = 200_000_000


@dataclass
class Ingested:
    """What the answer files of a step hold.

    `answers`: by request key. `refused`: errors that asking again would not mend, by request key. `failed`: why a
    request is asked again, by request key. `unknown`: lines that answer none of the requests written here.
    """

    answers: dict[str, LLMAnswer] = field(default_factory=dict)
    refused: dict[str, LLMError] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    unknown: int = 0

    def seen(self) -> set[str]:
        """Return the keys of all requests that some answer file speaks of."""
        return {*self.answers, *self.refused, *self.failed}


@dataclass(frozen=True)
class RequestFile:
    """A batch's input file that waits for its answers."""

    path: Path
    answers_path: Path
    requests: int


class BatchFiles:
    """The files of one step's batches."""

    def __init__(self, config: LLMConfig, step: str, root: Path | None = None) -> None:
        """Name the folder; a relative `llm.batch_dir` is in the project, also in temporary experiment copies."""
        self._config = config
        self.folder = project_root(root) / config.batch_dir / step

    def ingest(self) -> Ingested:
        """Read every `answers*.jsonl`, in the order of their names.

        For a request answered more than once a whole answer wins over an unusable one and that over a failure; among
        equals the first one stays.

        :raises RecordingError: a line is cut off or is not a line of a batch's output; names file and line.
        """
        ingested = Ingested()
        known = {key for keys in self._indexed().values() for key in keys}
        for path in files_of(self.folder, "answers*.jsonl"):
            for number, line in read_json_lines(path, "answer"):
                key = line.get("custom_id") if isinstance(line, dict) else None
                if not isinstance(key, str):
                    raise RecordingError(f"{path}, line {number}: no custom_id: put a batch's output file here")
                if key in known:
                    self._take(ingested, key, line, f"{path}, line {number}")
                else:
                    ingested.unknown += 1
        for key in ingested.answers:
            ingested.refused.pop(key, None)
            ingested.failed.pop(key, None)
        return ingested

    def write_pending(self, requests: Iterable[LLMRequest], seen: set[str] | None = None) -> list[RequestFile]:
        """Write the requests that no waiting file holds yet, and return all files that these requests wait for.

        A file that was written earlier and has no answers at all may be on its way to a server; its requests are not
        written again, so nothing is paid twice. To have them written anew, delete that file.

        :param seen: keys that some answer file speaks of; read from the folder when not given.
        """
        seen = self.ingest().seen() if seen is None else seen
        wanted: dict[str, list[LLMRequest]] = {}
        for request in requests:
            wanted.setdefault(request_key(request, self._config), []).append(request)
        waiting = {path: keys for path, keys in self._indexed().items() if path.is_file() and not seen & keys}
        files = [self._file(path, len(keys)) for path, keys in waiting.items() if keys & wanted.keys()]
        on_the_way = {key for keys in waiting.values() for key in keys}
        new = {key: asked for key, asked in wanted.items() if key not in on_the_way}
        files += [self._write(chunk) for chunk in self._chunks(new)]
        return sorted(files, key=lambda file: file.path)

    def _take(self, ingested: Ingested, key: str, line: dict[str, Any], where: str) -> None:
        response, error = line.get("response"), line.get("error")
        response = response if isinstance(response, dict) else {}
        status = _status(response.get("status_code"), where)
        if not error and status == 200:
            try:
                answer = answer_of(response.get("body"), self._config.model, where)
            except NotACompletion as problem:
                ingested.failed.setdefault(key, str(problem))
                return
            self._keep(ingested, key, answer)
            return
        failure = Failure.of_body(status, error or response.get("body"))
        if filtered := filtered_answer(failure, self._config.model):
            self._keep(ingested, key, filtered)
        elif is_permanent(failure):
            ingested.refused.setdefault(key, failure_error(failure, self._config))
        else:
            ingested.failed.setdefault(key, f"status {failure.status}: {failure.shown}")

    def _keep(self, ingested: Ingested, key: str, answer: LLMAnswer) -> None:
        earlier = ingested.answers.get(key)
        if earlier is None or (answer_error(earlier) and not answer_error(answer)):
            ingested.answers[key] = answer

    def _indexed(self) -> dict[Path, set[str]]:
        """Request files and the keys in each, from their indexes."""
        indexed = {}
        for index in files_of(self.folder, "requests-*.index.jsonl"):
            path = index.with_name(index.name.replace(".index.jsonl", ".jsonl"))
            indexed[path] = keys = set[str]()
            for number, line in read_json_lines(index, "index line"):
                key = line.get("custom_id") if isinstance(line, dict) else None
                if not isinstance(key, str):
                    raise RecordingError(
                        f"{index}, line {number}: no custom_id: restore the file, or delete it and {path.name} to have "
                        f"the requests written again"
                    )
                keys.add(key)
        return indexed

    def _chunks(self, wanted: dict[str, list[LLMRequest]]) -> Iterator[list[tuple[str, str, list[LLMRequest]]]]:
        """Key, line and requests, in the order of items, cut at the limits of a batch file."""
        chunk: list[tuple[str, str, list[LLMRequest]]] = []
        size = 0
        for key, requests in sorted(wanted.items(), key=lambda pair: (pair[1][0].item, pair[1][0].attempt, pair[0])):
            line = self._line(key, requests[0])
            if chunk and (len(chunk) == MAX_LINES or size + len(line) > MAX_BYTES):
                yield chunk
                chunk, size = [], 0
            chunk.append((key, line, requests))
            size += len(line.encode("utf-8"))
        if chunk:
            yield chunk

    def _line(self, key: str, request: LLMRequest) -> str:
        body = chat_body(request, self._config, self._config.structured_output, tokens_parameter(self._config))
        line = {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}
        return json.dumps(line, ensure_ascii=False) + "\n"

    def _write(self, chunk: list[tuple[str, str, list[LLMRequest]]]) -> RequestFile:
        keys = "".join(sorted(key for key, _, _ in chunk))
        path = self.folder / f"requests-{hashlib.sha256(keys.encode()).hexdigest()[:12]}.jsonl"
        index = [
            {
                "custom_id": key,
                "step": request.step,
                "item": request.item,
                "attempt": request.attempt,
                "prompt_sha256": request.prompt_sha256,
            }
            for key, _, requests in chunk
            for request in requests
        ]
        # The index first: a request file without one would be answered in vain.
        write_atomic(_index_of(path), "".join(canonical_json(line) + "\n" for line in index))
        write_atomic(path, "".join(line for _, line, _ in chunk))
        return self._file(path, len(chunk))

    def _file(self, path: Path, requests: int) -> RequestFile:
        name = path.stem.replace("requests-", "answers-", 1)
        answers, number = path.with_name(f"{name}.jsonl"), 1
        while answers.exists():  # answers of an earlier round, which did not answer all
            number += 1
            answers = path.with_name(f"{name}-{number}.jsonl")
        return RequestFile(path=path, answers_path=answers, requests=requests)


class BatchProvider:
    """Answers from the answer files, and collects what they do not hold."""

    def __init__(self, config: LLMConfig, files: BatchFiles, ingested: Ingested) -> None:
        """Answer from `ingested`, which `files` has read."""
        self._config, self._files, self._ingested = config, files, ingested
        self._pending: dict[str, list[LLMRequest]] = {}

    async def answer(self, request: LLMRequest) -> LLMAnswer:
        """Return the answer to a request, or put the request down for the next batch.

        :raises AnswerPending: no answer file holds it.
        :raises ItemError: the server refused this request for good.
        :raises ProviderError: the server refused a setting.
        """
        key = request_key(request, self._config)
        if answer := self._ingested.answers.get(key):
            return answer
        if error := self._ingested.refused.get(key):
            raise error
        self._pending.setdefault(key, []).append(request)
        raise AnswerPending(f"step {request.step}, item {request.item}, attempt {request.attempt} waits for a batch")

    def finish(self) -> None:
        """Write the requests without an answer to a batch file.

        :raises BatchPending: there are any; the message says what to do with the file.
        """
        if not self._pending:
            return
        requests = [request for asked in self._pending.values() for request in asked]
        files = self._files.write_pending(requests, self._ingested.seen())
        raise BatchPending("\n".join(self._report(files)))

    async def aclose(self) -> None:
        """Nothing is open."""

    def _report(self, files: list[RequestFile]) -> Iterator[str]:
        yield f"{len(self._pending)} requests wait for answers from a batch."
        failed = [self._ingested.failed[key] for key in sorted(self._pending) if key in self._ingested.failed]
        if failed:
            yield f"{len(failed)} of them failed in an earlier batch and are asked again, the first with {failed[0]}"
        if self._ingested.unknown:
            yield f"{self._ingested.unknown} lines of the answer files belong to no request of this step."
        for file in files:
            yield f"  {file.path} ({file.requests} requests) -> {file.answers_path}"
        yield (
            "Send each file to the OpenAI Batch API (upload it with purpose batch, then POST /v1/batches with endpoint "
            "/v1/chat/completions), or have it answered in that format otherwise. Save its output, and its error file "
            "if there is one, under the name after the arrow or any other answers*.jsonl in the same folder. "
            "Then run the same command again."
        )


def _status(value: Any, where: str) -> int:
    """A line's HTTP status, which some servers write as text; 0 when there is none."""
    if value is None:
        return 0
    if isinstance(value, str | int) and not isinstance(value, bool) and re.fullmatch(r"[0-9]{1,3}", str(value)):
        return int(value)
    raise RecordingError(f"{where}: status_code is no HTTP status: put a batch's output file here")


def _index_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}.index.jsonl")
