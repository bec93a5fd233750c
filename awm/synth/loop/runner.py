"""Runs a step over its items: reuse what is stored, ask for the rest concurrently, collect results in a fixed order.

An item that fails is a result like any other (`ItemRecord` with a reason) and never stops the others. A
provider that fails (`ProviderError`) stops the run after the items in flight; what was finished is in the item store.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from awm.config import Params
from awm.llm.cache import cache_root
from awm.llm.client import LLM
from awm.llm.errors import AnswerPending, ProviderError
from awm.llm.recording import RecordingEntry
from awm.models import RejectedAttempt, Rejection
from awm.store import ItemStore, digest
from awm.synth.loop.prompt import prompt_text
from awm.synth.loop.repair import LoopResult, run_loop
from awm.synth.loop.source import code_digest
from awm.synth.loop.step import Item, Step

__all__ = ["AttemptRecord", "ItemRecord", "Runner"]


class AttemptRecord(BaseModel):
    """One attempt in a stored record; the answer itself is among the record's `entries`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt: int
    reasons: tuple[str, ...]
    problems: tuple[str, ...]
    content: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int


class ItemRecord(BaseModel):
    """What a step made of one item, and everything that it took."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    item: str
    status: Literal["passed", "rejected"]
    artifact: dict[str, Any] | None
    reason: str
    detail: str
    attempts: tuple[AttemptRecord, ...]
    entries: tuple[RecordingEntry, ...]
    changed_prompts: int

    @model_validator(mode="after")
    def _has_its_artifact(self) -> ItemRecord:
        if (self.status == "passed") != (self.artifact is not None):
            raise ValueError("an item has an artifact if and only if it passed")
        return self

    def rejection(self, step: str) -> Rejection:
        """The record as one of the step's rejects."""
        attempts = (
            RejectedAttempt(
                attempt=attempt.attempt,
                kind="answer" if attempt.reasons[0] in _ANSWER_REASONS else "check",
                problems=attempt.problems,
                content=attempt.content,
            )
            for attempt in self.attempts
            if attempt.problems
        )
        return Rejection(step=step, item=self.item, reason=self.reason, detail=self.detail, attempts=tuple(attempts))


_ANSWER_REASONS = {"malformed", "truncated", "empty", "refused"}


@dataclass
class Runner:
    """Everything that the steps of one stage share. Use as an async context manager."""

    params: Params
    llm: LLM
    store: ItemStore
    stage: str

    @classmethod
    def create(cls, params: Params, stage: str, root: Path | None = None) -> Runner:
        """A runner for a stage, with the LLM and the item store that the parameters name."""
        root = root or Path()
        return cls(params, LLM(params.llm, stage, root), ItemStore(cache_root() / "items"), stage)

    async def run(self, step: Step[Any], items: Sequence[Item]) -> list[ItemRecord]:
        """Results in the order of `items`.

        Raises ProviderError when the provider can't go on, BatchPending when answers are awaited.
        """
        _refuse_duplicates(step, items)
        version = code_digest(type(step).__module__) + code_digest("awm.synth.loop.repair")
        with _progress() as progress:
            bar = progress.add_task(step.name, total=len(items))
            jobs = [asyncio.create_task(self._one(step, item, version)) for item in items]
            for job in jobs:
                job.add_done_callback(lambda _: _advance(progress, bar, step.name, len(items)))
            results = await _all(jobs)
        self.llm.finish()
        records = [result for result in results if isinstance(result, ItemRecord)]
        _stop_if_provider_failed_everywhere(step, records)
        return records

    async def _one(self, step: Step[Any], item: Item, version: str) -> ItemRecord | None:
        key = self._key(step, item, version)
        stored = await asyncio.to_thread(self.store.get, step.name, key, ItemRecord)
        if stored is not None and stored.item == item.id:
            return stored
        try:
            result = await run_loop(step, item, self.llm, self.params.repair.max_attempts)
        except AnswerPending:
            return None
        record = self._record(item, result)
        if result.final:
            await asyncio.to_thread(self.store.put, step.name, key, record)
        return record

    def _key(self, step: Step[Any], item: Item, version: str) -> str:
        """Hash of all that the result depends on."""
        return digest(
            {
                "step": step.name,
                "version": version,
                "item": item.id,
                "inputs": item.inputs,
                "prompts": [prompt_text(step.prompt), prompt_text("repair")],
                "max_attempts": self.params.repair.max_attempts,
                "llm": self.llm.identity(item.id),
            }
        )

    def _record(self, item: Item, result: LoopResult) -> ItemRecord:
        attempts = tuple(
            AttemptRecord(
                attempt=attempt.number,
                reasons=tuple(dict.fromkeys(problem.reason for problem in attempt.problems)),
                problems=tuple(problem.message for problem in attempt.problems),
                content=attempt.content if attempt.problems else "",
                input_tokens=attempt.usage.input_tokens,
                cached_input_tokens=attempt.usage.cached_input_tokens,
                output_tokens=attempt.usage.output_tokens,
            )
            for attempt in result.attempts
        )
        entries = tuple(self.llm.entries(item.id))
        changed = sum(entry.prompt_sha256 != result.prompts.get(entry.attempt) for entry in entries)
        return ItemRecord(
            item=item.id,
            status="passed" if result.artifact is not None else "rejected",
            artifact=result.artifact.model_dump(mode="json") if result.artifact is not None else None,
            reason=result.reason,
            detail=result.detail,
            attempts=attempts,
            entries=entries,
            changed_prompts=changed,
        )

    async def __aenter__(self) -> Runner:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.llm.aclose()


async def _all(jobs: Sequence[asyncio.Task[ItemRecord | None]]) -> list[ItemRecord | None]:
    """Results of all jobs.

    A provider that can't go on, or an interrupt, cancels the jobs that still wait. Any other error lets them finish
    first, so that their results are stored.
    """
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_EXCEPTION)
        if any(job.done() and isinstance(job.exception(), ProviderError) for job in jobs if not job.cancelled()):
            for job in jobs:
                job.cancel()
    except BaseException:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        raise
    results = await asyncio.gather(*jobs, return_exceptions=True)
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise next((error for error in errors if isinstance(error, ProviderError)), errors[0])
    return [result for result in results if not isinstance(result, BaseException)]


def _refuse_duplicates(step: Step[Any], items: Sequence[Item]) -> None:
    ids = [item.id for item in items]
    twice = sorted({item for item in ids if ids.count(item) > 1}) if len(set(ids)) < len(ids) else []
    if twice:
        raise ValueError(f"{step.name}: items given twice: {', '.join(twice)}")


def _stop_if_provider_failed_everywhere(step: Step[Any], records: Sequence[ItemRecord]) -> None:
    """One item that the provider fails for is that item's fate; all of them is an outage."""
    for reason, advice in (
        ("provider", "check the endpoint, then run the same command again"),
        (
            "not_recorded",
            "the recordings hold nothing for these items; set llm.provider in params.yaml to 'openai' or 'batch'",
        ),
    ):
        if records and all(record.reason == reason for record in records):
            raise ProviderError(f"{step.name}: no item could be answered ({records[0].detail}); {advice}")


def _advance(progress: Progress, bar: TaskID, step: str, total: int) -> None:
    """Move the bar; where there is no terminal, print a line for every tenth of the items."""
    progress.advance(bar)
    done = int(progress.tasks[bar].completed)
    if progress.disable and total > 1 and done * 10 // total > (done - 1) * 10 // total:
        print(f"{step}: {done} of {total} items done", file=sys.stderr, flush=True)


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
