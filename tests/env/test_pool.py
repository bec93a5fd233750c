"""Pools: processes that are ready, replacements, quarantine, and a clean end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from awm.env import Environment, EpisodeOver, ModuleError, Pool, QuarantinedError, Sandbox
from awm.models import Outcome
from library import FAULTY, library_environment


@pytest.fixture
def library(sandbox: Sandbox) -> Environment:
    """The lending library."""
    return library_environment(sandbox)


@pytest.fixture
def pool(library: Environment) -> Iterator[Pool]:
    """Three processes that are ready."""
    with Pool(library, size=3) as pool:
        wait_for(lambda: ready(pool) == 3)
        yield pool


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what happens in the background."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def ready(pool: Pool) -> int:
    """Processes that wait for an episode."""
    return sum(health.ready for health in pool.health())


def is_running(pid: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def renamed(environment: Environment, slug: str) -> Environment:
    """The same environment under another slug."""
    environment.slug = slug
    return environment


def test_episodes_take_what_is_ready_and_it_is_replaced(pool: Pool):
    waiting = {worker.pid for _, worker in pool._ready}
    with pool.episode(task=1) as episode:
        assert episode._worker is not None and episode._worker.pid in waiting
        assert episode.verify("Dracula").verdict is Outcome.COMPLETED
        wait_for(lambda: ready(pool) == 3)
    [health] = pool.health()
    assert (health.episodes, health.faults, health.bugs, health.quarantined) == (1, 0, 0, None)


def test_more_episodes_than_are_ready_start_their_own(pool: Pool):
    episodes = [pool.episode().start() for _ in range(8)]
    assert len({episode._worker.pid for episode in episodes if episode._worker}) == 8
    assert all(episode.call("list_loans").ok for episode in episodes)
    for episode in episodes:
        episode.close()


async def test_coroutines_take_them_too(library: Environment):
    async def run(pool: Pool) -> Outcome:
        async with pool.episode(task=1) as episode:
            await episode.acall("list_loans")
            return (await episode.averify("Dracula")).verdict

    async with Pool(library, size=2) as pool:
        assert set(await asyncio.gather(*(run(pool) for _ in range(8)))) == {Outcome.COMPLETED}
        assert pool.health()[0].episodes == 8


def test_threads_take_them_too(pool: Pool):
    found: list[bool] = []

    def run() -> None:
        with pool.episode() as episode:
            found.append(episode.call("list_loans").ok)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 6


def test_a_process_that_died_while_it_waited_is_passed_over(pool: Pool):
    for _, worker in list(pool._ready):
        os.kill(worker.pid, signal.SIGKILL)
        wait_for(lambda pid=worker.pid: not is_running(pid))
    with pool.episode() as episode:
        assert episode.call("list_loans").ok
    assert pool.health()[0].faults == 0


def test_every_episode_has_a_process_of_its_own(pool: Pool):
    with pool.episode() as first:
        first.call("renew_loan", {"loan_id": 1})
    with pool.episode() as second:
        assert second.diff() == {}
        assert second._worker is not None and first._worker is not None and second._worker.pid != first._worker.pid


def test_an_environment_that_fails_too_often_is_quarantined(library: Environment, sandbox: Sandbox):
    faulty = renamed(library_environment(sandbox, source=FAULTY), "faulty")
    with Pool([library, faulty], size=2, max_fault_share=0.4, min_episodes=4) as pool:
        for tool in ("fine", "fine", "die"):
            with pool.episode("faulty") as episode:
                try:
                    episode.call(tool)
                except EpisodeOver:
                    continue
        assert pool.quarantined == {}
        with pool.episode("faulty") as episode, pytest.raises(EpisodeOver):
            episode.call("die")
        assert list(pool.quarantined) == ["faulty"]
        with pytest.raises(
            QuarantinedError, match="faulty is quarantined: 2 of 4 episodes ended by its fault, the last one: "
        ):
            pool.episode("faulty")
        with pool.episode("lending_library") as episode:
            assert episode.call("list_loans").ok
        [_, health] = pool.health()
        assert (health.slug, health.episodes, health.faults, health.ready) == ("faulty", 4, 2, 0)


def test_bugs_are_counted_and_do_not_quarantine(sandbox: Sandbox):
    faulty = library_environment(sandbox, source=FAULTY)
    with Pool(faulty, size=1, min_episodes=1) as pool:
        with pool.episode() as episode:
            episode.call_many([("crash", None), ("odd", None), ("refuse", None)])
            episode.reset()
        [health] = pool.health()
        assert (health.bugs, health.calls, health.faults, health.quarantined) == (2, 3, 0, None)


def test_a_verifier_that_fails_counts_against_its_environment(sandbox: Sandbox):
    broken = library_environment(sandbox, verifiers={1: "def verify(initial, final, answer):\n    return {}['x']\n"})
    with Pool(broken, size=1, min_episodes=1) as pool:
        with pool.episode(task=1) as episode:
            assert episode.verify().verdict is Outcome.ENVIRONMENT_ERROR
        assert "1 of 1 episodes" in pool.quarantined["lending_library"]
        assert "KeyError" in pool.quarantined["lending_library"]


def test_a_module_that_cannot_start_is_quarantined_at_once(sandbox: Sandbox):
    with Pool(library_environment(sandbox, source="def broken(\n"), size=2) as pool:
        with pytest.raises((ModuleError, QuarantinedError), match="syntax: line 1"):
            pool.episode().start()
        assert pool.quarantined["lending_library"].startswith("it does not start: syntax: line 1")


def test_the_process_that_waited_longest_makes_room(library: Environment, sandbox: Sandbox):
    other = renamed(library_environment(sandbox), "other")
    with Pool([library, other], size=2) as pool:
        wait_for(lambda: [health.ready for health in pool.health()] == [1, 1])
        pool.prepare("other", 2)
        wait_for(lambda: [health.ready for health in pool.health()] == [0, 2])
        assert pool.episode("lending_library").call("list_loans").ok


def test_what_a_pool_does_not_know_is_named(library: Environment, sandbox: Sandbox):
    with Pool([library, renamed(library_environment(sandbox), "other")], size=1) as pool:
        with pytest.raises(ValueError, match="name an environment; the pool has: lending_library, other"):
            pool.episode()
        with pytest.raises(ValueError, match="no environment 'bank'; it has: lending_library, other"):
            pool.episode("bank")
        with pytest.raises(ValueError, match="has no task 7; it has: 1, 2"):
            pool.episode("other", task=7)
    with pytest.raises(ValueError, match="each with a slug of its own"):
        Pool([library, library])


def test_nothing_is_left_when_a_pool_closes(library: Environment):
    pool = Pool(library, size=3)
    wait_for(lambda: ready(pool) == 3)
    episode = pool.episode().start()
    assert episode._worker is not None
    pids = [episode._worker.pid, *(worker.pid for _, worker in pool._ready)]
    pool.close()
    pool.close()
    for pid in pids:
        wait_for(lambda pid=pid: not is_running(pid))
    with pytest.raises(EpisodeOver):
        episode.call("list_loans")
    with pytest.raises(RuntimeError, match="the pool is closed"):
        pool.episode()
