"""A pool: episodes whose processes are ready before they are asked for, and a record of which environments fail."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from awm.env.environment import Environment
from awm.env.episode import Episode
from awm.env.errors import EnvironmentFault, ModuleError, SandboxUnavailable
from awm.env.toolworker import ToolWorker
from awm.models import Outcome

__all__ = ["EnvironmentHealth", "Pool", "QuarantinedError"]


class QuarantinedError(EnvironmentFault):
    """The environment failed too often, and the pool gives no more episodes of it."""


@dataclass(frozen=True, slots=True)
class EnvironmentHealth:
    """What a pool has seen of one environment. Episodes count when they are closed."""

    slug: str
    episodes: int = 0
    faults: int = 0
    """Episodes that the environment ended: its process died, hung or did not start, or its verifier failed."""
    bugs: int = 0
    """Calls that crashed, ran out of time or gave no JSON, in a process that went on."""
    calls: int = 0
    ready: int = 0
    """Processes that wait for an episode."""
    quarantined: str | None = None
    """Why there are no more episodes of it; None while there are."""


@dataclass
class _Record:
    environment: Environment
    episodes: int = 0
    faults: int = 0
    bugs: int = 0
    calls: int = 0
    quarantined: str | None = None


class Pool:
    """Episodes of one or more environments. Any thread and any event loop may take them.

    Each taken process is replaced by one of the same environment, in the background; where more environments are in
    use than `size`, the process that waited longest makes room. Close the pool, or use it as a context manager, to end
    all its episodes; the environments stay open.

    :param environments: What episodes are taken of; let them share one sandbox.
    :param size: Processes that wait for an episode, over all environments.
    :param starters: Processes that are started at a time.
    :param max_fault_share: An environment of whose episodes a larger share ends by its own fault is quarantined.
    :param min_episodes: Not before it had so many.
    """

    def __init__(
        self,
        environments: Environment | Iterable[Environment],
        *,
        size: int = 8,
        starters: int = 2,
        max_fault_share: float = 0.2,
        min_episodes: int = 10,
    ) -> None:
        given = [environments] if isinstance(environments, Environment) else list(environments)
        self._records = {environment.slug: _Record(environment) for environment in given}
        if not given or len(self._records) < len(given):
            raise ValueError("a pool needs environments, each with a slug of its own")
        self._size = size
        self._max_fault_share = max_fault_share
        self._min_episodes = min_episodes
        self._lock = threading.Lock()
        self._ready: list[tuple[str, ToolWorker]] = []
        self._live: weakref.WeakSet[Episode] = weakref.WeakSet()
        self._closed = False
        self._starters = ThreadPoolExecutor(starters, thread_name_prefix="awm-pool")
        slugs = list(self._records)
        for number in range(size):
            self._starters.submit(self._prepare_one, slugs[number % len(slugs)])

    def __enter__(self) -> Self:
        """Return the pool."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Return the pool."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.aclose()

    def episode(self, slug: str | None = None, task: int | None = None, *, record: bool = False) -> Episode:
        """Return an episode; with `with` (or `async with`) it takes a process that is ready, or starts one.

        :param slug: Which environment; may be left out where there is only one.
        :param task: Number of the task to verify.
        :param record: Keep every call with its result in `Episode.steps`.

        Raises QuarantinedError for an environment that failed too often, ValueError for an unknown one.
        """
        entry = self._record(slug)
        environment = entry.environment
        name = environment.slug
        self._refuse(entry)
        episode = Episode(
            environment,
            None if task is None else environment.task(task),
            record=record,
            acquire=lambda: self._acquire(name),
            ready=lambda: self._take(name),
            release=self._account,
        )
        with self._lock:
            self._live.add(episode)
        return episode

    def prepare(self, slug: str, count: int = 1) -> None:
        """Start processes of an environment in the background, because so many episodes of it will be wanted."""
        self._refuse(self._record(slug))
        for _ in range(count):
            self._starters.submit(self._prepare_one, slug)

    def health(self) -> tuple[EnvironmentHealth, ...]:
        """Return what was seen of each environment, in the order given."""
        with self._lock:
            waiting = [slug for slug, _ in self._ready]
            return tuple(
                EnvironmentHealth(
                    slug=slug,
                    episodes=entry.episodes,
                    faults=entry.faults,
                    bugs=entry.bugs,
                    calls=entry.calls,
                    ready=waiting.count(slug),
                    quarantined=entry.quarantined,
                )
                for slug, entry in self._records.items()
            )

    @property
    def quarantined(self) -> dict[str, str]:
        """The environments that there are no more episodes of, with the reason."""
        return {entry.slug: entry.quarantined for entry in self.health() if entry.quarantined is not None}

    def close(self) -> None:
        """End all episodes and all processes that wait, and start no more. Harmless when that is done."""
        with self._lock:
            self._closed = True
        self._starters.shutdown(cancel_futures=True)
        with self._lock:
            waiting, self._ready = self._ready, []
            live = list(self._live)
        for _, worker in waiting:
            worker.kill()
        for episode in live:
            episode.close()

    async def aclose(self) -> None:
        """Do what `close` does."""
        await asyncio.to_thread(self.close)

    # -- processes ---------------------------------------------------------------------------------------------------

    def _acquire(self, slug: str) -> ToolWorker:
        """Return a process for an episode: one that is ready, or a new one."""
        return self._take(slug) or self._start(slug)

    def _take(self, slug: str) -> ToolWorker | None:
        self._refuse(self._records[slug])
        taken = None
        while taken is None:
            with self._lock:
                position = next((at for at, (name, _) in enumerate(self._ready) if name == slug), None)
                if position is None:
                    break
                worker = self._ready.pop(position)[1]
            if worker.alive:
                taken = worker
            else:
                worker.kill()
        self._refill(slug)
        return taken

    def _refill(self, slug: str) -> None:
        with suppress(RuntimeError):  # the pool is being closed
            self._starters.submit(self._prepare_one, slug)

    def _start(self, slug: str) -> ToolWorker:
        """Start a process; one that fails counts as an episode that the environment ended."""
        entry = self._records[slug]
        try:
            return entry.environment.start_worker()
        except SandboxUnavailable:  # the machine's fault, and no environment's
            raise
        except EnvironmentFault as fault:
            with self._lock:
                entry.episodes += 1
                entry.faults += 1
                if isinstance(fault, ModuleError):  # no second try can help
                    entry.quarantined = entry.quarantined or f"it does not start: {fault}"
                self._judge(entry, str(fault))
            raise

    def _prepare_one(self, slug: str) -> None:
        """Start a process that waits; what fails here fails again where someone is told."""
        entry = self._records[slug]
        with self._lock:
            waiting = sum(name == slug for name, _ in self._ready)
            if self._closed or entry.quarantined is not None or waiting >= self._size:
                return
        try:
            worker = self._start(slug)
        except (EnvironmentFault, SandboxUnavailable, OSError):
            return
        with self._lock:
            self._ready.append((slug, worker))
            surplus = self._ready[: max(0, len(self._ready) - self._size)]
            del self._ready[: len(surplus)]
            if self._closed or entry.quarantined is not None:
                surplus += [(name, other) for name, other in self._ready if self._closed or name == slug]
                self._ready = [waiter for waiter in self._ready if waiter not in surplus]
        for _, other in surplus:
            other.kill()

    # -- health ------------------------------------------------------------------------------------------------------

    def _record(self, slug: str | None) -> _Record:
        if slug is None:
            if len(self._records) > 1:
                raise ValueError(f"name an environment; the pool has: {', '.join(self._records)}")
            slug = next(iter(self._records))
        if slug not in self._records:
            raise ValueError(f"the pool has no environment {slug!r}; it has: {', '.join(self._records)}")
        return self._records[slug]

    def _refuse(self, entry: _Record) -> None:
        if self._closed:
            raise RuntimeError("the pool is closed")
        if entry.quarantined is not None:
            raise QuarantinedError(f"{entry.environment.slug} is quarantined: {entry.quarantined}")

    def _account(self, episode: Episode) -> None:
        """Count an episode that is closed."""
        entry = self._records[episode.environment.slug]
        verdict = episode.verdict
        failed = episode.fault is not None or (verdict is not None and verdict.verdict is Outcome.ENVIRONMENT_ERROR)
        reason = episode.fault or (str(verdict.evidence.get("error", "")) if verdict is not None else "")
        with self._lock:
            self._live.discard(episode)
            if not episode.started:
                return
            entry.episodes += 1
            entry.faults += failed
            entry.bugs += episode.bugs
            entry.calls += episode.calls
            self._judge(entry, reason)
            dropped = [waiter for waiter in self._ready if entry.quarantined and waiter[0] == episode.environment.slug]
            self._ready = [waiter for waiter in self._ready if waiter not in dropped]
        for _, worker in dropped:
            worker.kill()

    def _judge(self, entry: _Record, last: str) -> None:
        """Quarantine an environment that fails too often."""
        enough = entry.episodes >= self._min_episodes and entry.quarantined is None
        if enough and entry.faults > self._max_fault_share * entry.episodes:
            entry.quarantined = f"{entry.faults} of {entry.episodes} episodes ended by its fault, the last one: {last}"
