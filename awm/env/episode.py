"""An episode: one run of an environment in a process of its own, from the initial state to a verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from awm.env.errors import EnvironmentFault
from awm.env.results import CallResult
from awm.env.toolworker import ToolWorker
from awm.env.verdict import failed_verdict
from awm.models import Task, Verdict

if TYPE_CHECKING:
    from awm.env.environment import Environment

__all__ = ["SESSION", "Episode", "EpisodeOver", "Step"]

SESSION = "episode"
"""Name of the one session in an episode's worker."""

R = TypeVar("R")


class EpisodeOver(RuntimeError):
    """The episode has ended, and can't do what was asked. `fault` says why, if it was the environment that failed."""

    def __init__(self, message: str, fault: str | None = None) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Step:
    """One call of an episode."""

    tool: str
    arguments: Any
    result: CallResult


class Episode:
    """One run on one task. Made by `Environment.episode` or taken from a `Pool`; one request at a time.

    What the agent does wrong (an unknown tool, bad arguments, a refusal of the tool) is a result, and the episode goes
    on. So is a bug of the environment that its process survives; `bugs` counts those. When the process dies or hangs,
    `fault` says so, the verdict is `environment_error`, and everything else raises EpisodeOver.

    A method whose name starts with `a` is a coroutine and does what its namesake does. One that is cancelled while it
    waits ends the episode.
    """

    def __init__(
        self,
        environment: Environment,
        task: Task | None = None,
        *,
        record: bool = False,
        acquire: Callable[[], ToolWorker] | None = None,
        ready: Callable[[], ToolWorker | None] | None = None,
        release: Callable[[Episode], None] | None = None,
    ) -> None:
        """Prepare to start.

        :param acquire: Gives the worker, with the initial state open; the environment starts one by default.
        :param ready: Gives a worker without delay, or None; asked first by coroutines.
        :param release: Told once, when the episode is closed.
        """
        self.environment = environment
        self.task = task
        self.fault: str | None = None
        self.bugs = 0
        self.calls = 0
        self.verdict: Verdict | None = None
        self.steps: list[Step] = []
        self._record = record
        self._acquire = acquire or environment.start_worker
        self._ready = ready
        self._release = release
        self._worker: ToolWorker | None = None
        self._live: ToolWorker | None = None  # the worker, as long as it may be asked
        self._closed = False

    # -- its life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Start."""
        return await self.astart()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        state = f"fault: {self.fault}" if self.fault else "closed" if self._closed else f"{self.calls} calls"
        task = f", task {self.task.number}" if self.task else ""
        return f"<Episode of {self.environment.slug}{task}: {state}>"

    @property
    def started(self) -> bool:
        """Whether the episode ever had a process."""
        return self._worker is not None

    @property
    def over(self) -> bool:
        """Whether the episode takes no more calls."""
        return self._closed or self.fault is not None

    def start(self) -> Self:
        """Start the process, if it does not run yet; raises SandboxUnavailable, ModuleError, EnvironmentFault."""
        self._started()
        return self

    async def astart(self) -> Self:
        """Do what `start` does."""
        await self._astarted()
        return self

    def close(self) -> None:
        """End the process. Harmless when it is gone."""
        if self._closed:
            return
        self._closed = True
        self._live = None
        if self._worker is not None:
            self._worker.kill()
        if self._release is not None:
            self._release(self)

    async def aclose(self) -> None:
        """Do what `close` does."""
        self.close()

    # -- what agents do ----------------------------------------------------------------------------------------------

    def call(self, tool: str, arguments: Any = None) -> CallResult:
        """Call a tool and return what the agent reads.

        :param arguments: An object by name; None means none. Whatever does not fit is a result of kind
            `invalid_arguments`.
        """
        worker = self._live or self._started()
        try:
            result = worker.call(SESSION, tool, arguments)
        except EnvironmentFault as error:
            raise self._fail(error) from error
        self._note(tool, arguments, result)
        return result

    async def acall(self, tool: str, arguments: Any = None) -> CallResult:
        """Do what `call` does."""
        result = await self._aask(lambda worker: worker.acall(SESSION, tool, arguments))
        self._note(tool, arguments, result)
        return result

    def call_many(self, calls: Sequence[tuple[str, Any]]) -> list[CallResult]:
        """Make calls one after the other, in one message; each is a tool's name and its arguments.

        A failing call does not stop those after it. The environment's clock advances with each.
        """
        results = self._ask(lambda worker: worker.call_many(SESSION, calls))
        self._note_all(calls, results)
        return results

    async def acall_many(self, calls: Sequence[tuple[str, Any]]) -> list[CallResult]:
        """Do what `call_many` does."""
        results = await self._aask(lambda worker: worker.acall_many(SESSION, calls))
        self._note_all(calls, results)
        return results

    def reset(self) -> None:
        """Go back to the initial state and its first moment; `calls` and `bugs` go on counting."""
        self._ask(lambda worker: worker.reset(SESSION))
        self._forget()

    async def areset(self) -> None:
        """Do what `reset` does."""
        await self._aask(lambda worker: worker.areset(SESSION))
        self._forget()

    # -- its state ---------------------------------------------------------------------------------------------------

    def diff(self) -> dict[str, Any]:
        """Return what changed since the start: by table the rows added, removed and changed, `{}` if nothing did.

        `awm.env.diff.state_diff` describes the form.
        """
        return self._ask(lambda worker: worker.diff(SESSION))

    async def adiff(self) -> dict[str, Any]:
        """Do what `diff` does."""
        return await self._aask(lambda worker: worker.adiff(SESSION))

    def snapshot(self) -> bytes:
        """Return the database as it is now, as the bytes of a SQLite file."""
        return self._ask(lambda worker: worker.dump(SESSION))

    async def asnapshot(self) -> bytes:
        """Do what `snapshot` does."""
        return await self._aask(lambda worker: worker.adump(SESSION))

    def content_hash(self) -> str:
        """Return a hash of schema and rows, equal for equal content under any version of SQLite."""
        return self._ask(lambda worker: worker.content_hash(SESSION))

    async def acontent_hash(self) -> str:
        """Do what `content_hash` does."""
        return await self._aask(lambda worker: worker.acontent_hash(SESSION))

    def verify(self, answer: str | None = None) -> Verdict:
        """Judge the state as it is now, and the agent's final answer if it gave one.

        The state does not change, and the episode can go on. Where the environment failed, now or before, the verdict
        is `environment_error`. Raises ValueError for an episode without a task and a task without a verifier,
        EpisodeOver for a closed episode.
        """
        task = self._judged_task()
        try:
            final = self.snapshot()
        except EpisodeOver as over:
            return self._failed(over)
        self.verdict = self.environment.verify(task.number, final, answer)
        return self.verdict

    async def averify(self, answer: str | None = None) -> Verdict:
        """Do what `verify` does."""
        task = self._judged_task()
        try:
            final = await self.asnapshot()
        except EpisodeOver as over:
            return self._failed(over)
        self.verdict = await asyncio.to_thread(self.environment.verify, task.number, final, answer)
        return self.verdict

    # -- its worker --------------------------------------------------------------------------------------------------

    def _started(self) -> ToolWorker:
        self._check()
        if self._worker is None:
            self._worker = self._live = self._acquire()
        return self._worker

    async def _astarted(self) -> ToolWorker:
        self._check()
        if self._worker is None:
            worker = self._ready() if self._ready is not None else None
            if worker is None:
                worker = await asyncio.to_thread(self._acquire)
            if self._closed or self._worker is not None:
                worker.kill()
                self._check()
                raise RuntimeError("two requests at a time: an episode takes one after the other")
            self._worker = self._live = worker
        return self._worker

    def _check(self) -> None:
        if self.fault is not None:
            raise EpisodeOver(f"the episode is over, because its environment failed: {self.fault}", self.fault)
        if self._closed:
            raise EpisodeOver("the episode is closed")

    def _ask(self, request: Callable[[ToolWorker], R]) -> R:
        worker = self._started()
        try:
            return request(worker)
        except EnvironmentFault as error:
            raise self._fail(error) from error

    async def _aask(self, request: Callable[[ToolWorker], Awaitable[R]]) -> R:
        worker = self._live or await self._astarted()
        try:
            return await request(worker)
        except EnvironmentFault as error:
            raise self._fail(error) from error
        except asyncio.CancelledError:
            self.close()
            raise

    def _fail(self, error: EnvironmentFault) -> EpisodeOver:
        """End the episode because of its environment; return the error to raise."""
        self.fault = str(error)
        self._live = None
        if self._worker is not None:
            self._worker.kill()
        return EpisodeOver(f"the episode is over, because its environment failed: {self.fault}", self.fault)

    def _failed(self, over: EpisodeOver) -> Verdict:
        if over.fault is None:
            raise over
        self.verdict = failed_verdict(over.fault)
        return self.verdict

    def _judged_task(self) -> Task:
        if self.task is None:
            raise ValueError("an episode without a task can't be verified: name one, `environment.episode(task=1)`")
        if self.task.number not in self.environment.verifiers:
            raise ValueError(f"task {self.task.number} of {self.environment.slug} has no verifier")
        return self.task

    # -- its record --------------------------------------------------------------------------------------------------

    def _note(self, tool: str, arguments: Any, result: CallResult) -> None:
        self.calls += 1
        if result.is_bug:
            self.bugs += 1
        if self._record:
            self.steps.append(Step(tool, arguments, result))

    def _note_all(self, calls: Sequence[tuple[str, Any]], results: Sequence[CallResult]) -> None:
        for (tool, arguments), result in zip(calls, results, strict=True):
            self._note(tool, arguments, result)

    def _forget(self) -> None:
        self.verdict = None
        self.steps = []
