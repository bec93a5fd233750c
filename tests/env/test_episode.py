"""Episodes: what agents do, whose fault failures are, verdicts, and that everything repeats."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from awm.env import Environment, Episode, EpisodeOver, Sandbox
from awm.models import Outcome
from library import FAULTY, library_environment

RENEWED = {
    "loans": {
        "added": [],
        "removed": [],
        "changed": [
            {
                "key": {"id": 1},
                "before": {"due_on": "2026-03-09", "renewals": 0},
                "after": {"due_on": "2026-03-23", "renewals": 1},
            }
        ],
    }
}


@pytest.fixture(scope="module")
def library(sandbox: Sandbox) -> Environment:
    """The lending library."""
    return library_environment(sandbox)


@pytest.fixture(scope="module")
def faulty(sandbox: Sandbox) -> Environment:
    """An environment with every kind of bug."""
    return library_environment(sandbox, source=FAULTY)


def test_an_episode_from_its_start_to_its_verdict(library: Environment):
    with library.episode(task=1, record=True) as episode:
        assert episode.call("list_loans", {"status": "open"}).value[0]["title"] == "Dracula"
        assert episode.call("renew_loan", {"loan_id": 1}).ok
        assert episode.diff() == RENEWED
        assert episode.verify("Dracula").verdict is Outcome.AGENT_ERROR
        assert [step.tool for step in episode.steps] == ["list_loans", "renew_loan"]
        episode.reset()
        assert (episode.diff(), episode.steps, episode.calls) == ({}, [], 2)
        assert episode.snapshot() == library.snapshot
        assert episode.verify("It is Dracula.").verdict is Outcome.COMPLETED
        assert episode.verdict is not None and episode.verdict.verdict is Outcome.COMPLETED


async def test_coroutines_do_the_same(library: Environment):
    async with library.episode(task=1, record=True) as episode:
        assert (await episode.acall("list_loans", {"status": "open"})).value[0]["title"] == "Dracula"
        results = await episode.acall_many([("renew_loan", {"loan_id": 1}), ("nothing", None)])
        assert [result.kind for result in results] == ["ok", "unknown_tool"]
        assert await episode.adiff() == RENEWED
        assert (await episode.averify("Dracula")).verdict is Outcome.AGENT_ERROR
        await episode.areset()
        assert await episode.asnapshot() == library.snapshot
        assert await episode.acontent_hash() == episode.content_hash()
        assert (await episode.averify("Dracula")).verdict is Outcome.COMPLETED


async def test_many_episodes_run_side_by_side(library: Environment):
    async def run(loan: int) -> str:
        async with library.episode() as episode:
            for _ in range(5):
                await episode.acall("list_loans")
            await episode.acall("return_loan", {"loan_id": loan})
            return await episode.acontent_hash()

    first, second, *others = await asyncio.gather(*(run(loan) for loan in (1, 2, 1, 2, 1, 2)))
    assert first != second
    assert others == [first, second, first, second]


def test_an_episode_starts_with_what_is_first_asked(library: Environment):
    episode = library.episode()
    assert not episode.started
    assert episode.call("list_loans").ok
    assert episode.started
    episode.close()


@pytest.mark.parametrize(
    ("tool", "arguments", "kind"),
    [
        ("list_loans", None, "ok"),
        ("list_loans", {}, "ok"),
        ("list_loans", "", "ok"),
        ("list_loans", '{"status": "open"}', "ok"),
        ("list_loans", "open", "invalid_arguments"),
        ("list_loans", [], "invalid_arguments"),
        ("list_loans", {"status": "lost"}, "invalid_arguments"),
        ("renew_loan", None, "invalid_arguments"),
        ("renew_loan", {"loan_id": 99}, "tool_error"),
        ("list_books", {}, "unknown_tool"),
        ("", {}, "unknown_tool"),
        (None, {}, "unknown_tool"),
        (["list_loans"], {}, "unknown_tool"),
    ],
)
def test_what_an_agent_does_wrong_is_a_result_and_no_bug(library: Environment, tool, arguments, kind):
    with library.episode() as episode:
        assert episode.call(tool, arguments).kind == kind
        assert (episode.bugs, episode.fault, episode.calls) == (0, None, 1)
        assert episode.call("list_loans").ok


def test_bugs_that_the_process_survives_are_results_and_counted(faulty: Environment):
    with faulty.episode(task=1) as episode:
        kinds = [episode.call(tool).kind for tool in ("refuse", "crash", "hang", "odd", "fine")]
        assert kinds == ["tool_error", "crash", "timeout", "unserialisable", "ok"]
        assert (episode.bugs, episode.fault, episode.over) == (3, None, False)
        assert episode.verify("Dracula").verdict is Outcome.COMPLETED


@pytest.mark.parametrize(("tool", "reason"), [("die", "ended by itself"), ("spin", "did not answer in time")])
def test_the_loss_of_the_process_ends_the_episode(faulty: Environment, tool: str, reason: str):
    with faulty.episode(task=1) as other, faulty.episode(task=1) as episode:
        with pytest.raises(EpisodeOver, match=f"its environment failed: .*{reason}") as raised:
            episode.call(tool)
        assert episode.over and episode.fault == raised.value.fault
        for request in (episode.reset, episode.diff, episode.content_hash, lambda: episode.call("fine")):
            with pytest.raises(EpisodeOver, match=reason):
                request()
        verdict = episode.verify("Dracula")
        assert (verdict.verdict, verdict.evidence) == (Outcome.ENVIRONMENT_ERROR, {"error": episode.fault})
        assert other.call("fine").ok


async def test_the_loss_of_the_process_ends_the_episode_for_coroutines_too(faulty: Environment):
    async with faulty.episode(task=1) as other, faulty.episode(task=1) as episode:
        lost, fine = await asyncio.gather(episode.acall("spin"), other.acall("fine"), return_exceptions=True)
        assert isinstance(lost, EpisodeOver) and "did not answer in time" in str(lost)
        assert fine.value == "fine"
        assert (await episode.averify()).verdict is Outcome.ENVIRONMENT_ERROR
        with pytest.raises(EpisodeOver):
            await episode.acall("fine")


def test_a_process_killed_from_outside_ends_the_episode(library: Environment):
    with library.episode(task=1) as episode:
        assert episode._worker is not None
        os.kill(episode._worker.pid, signal.SIGKILL)
        assert episode.verify().verdict is Outcome.ENVIRONMENT_ERROR
        assert episode.fault is not None


async def test_a_cancelled_request_ends_the_episode_and_is_no_fault(faulty: Environment):
    episode = await faulty.episode(task=1).astart()
    waiting = asyncio.create_task(episode.acall("spin"))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert episode.over and episode.fault is None
    with pytest.raises(EpisodeOver, match="the episode is closed"):
        await episode.acall("fine")


def test_a_closed_episode_says_so(library: Environment):
    episode = library.episode(task=1).start()
    episode.close()
    episode.close()
    for request in (episode.start, episode.reset, episode.verify, lambda: episode.call("list_loans")):
        with pytest.raises(EpisodeOver, match="the episode is closed"):
            request()


def test_an_episode_without_a_task_or_a_verifier_cannot_be_verified(library: Environment):
    with library.episode() as episode, pytest.raises(ValueError, match="can't be verified: name one"):
        episode.verify()
    with (
        library.episode(task=2) as episode,
        pytest.raises(ValueError, match="task 2 of lending_library has no verifier"),
    ):
        episode.verify()


# -- everything repeats ------------------------------------------------------------------------------------------------

CHANGING = '''\
from __future__ import annotations

import random
from datetime import datetime
from typing import Annotated
from uuid import uuid4

from pydantic import Field

from awm.env.tool import Connection


def write(db: Connection, note: Annotated[str, Field(description="What to write")]) -> dict:
    """Write what depends on the clock and on chance."""
    text = f"{note} {datetime.now()} {random.random()} {uuid4()} {sorted({'a', 'b', note})}"
    db.execute("INSERT INTO users (name, email) VALUES (?, hex(randomblob(4)) || CURRENT_TIMESTAMP)", (text,))
    return {"id": db.execute("SELECT max(id) FROM users").fetchone()[0], "text": text}
'''

SAME_CALLS = """
import json, sys
from library import FAULTY, library_environment
from awm.env import Sandbox
source, *notes = sys.argv[1:]
with Sandbox() as sandbox, library_environment(sandbox, source=source).episode() as episode:
    results = [episode.call("write", {"note": note}).value for note in notes]
    print(json.dumps([results, episode.content_hash()]))
"""

CALLS = ("one", "two", "three")


def replay(episode: Episode) -> list:
    """Make the calls; return all that can be seen of them."""
    return [[episode.call("write", {"note": note}).value for note in CALLS], episode.content_hash()]


def test_the_same_calls_end_in_the_same_state(sandbox: Sandbox):
    environment = library_environment(sandbox, source=CHANGING)
    with environment.episode() as one, environment.episode() as other:
        first = replay(one)
        state = one.snapshot()
        one.reset()
        assert replay(one) == replay(other) == first
        assert one.snapshot() == other.snapshot() == state
    assert len({result["text"] for result in first[0]}) == len(CALLS)


def test_the_same_calls_end_in_the_same_state_in_another_process(sandbox: Sandbox):
    tests = Path(__file__).parent.parent
    path = os.pathsep.join(map(str, (tests.parent, tests)))
    environ = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-c", SAME_CALLS, CHANGING, *CALLS]
    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    with library_environment(sandbox, source=CHANGING).episode() as episode:
        assert json.loads(ran.stdout) == replay(episode)


def test_the_clock_advances_with_each_call_whatever_comes_of_it(sandbox: Sandbox):
    with library_environment(sandbox, source=CHANGING).episode() as episode:
        episode.call("nothing")
        episode.call("write", {"note": 5})
        episode.call_many([("write", {"note": "a"}), ("write", {"note": "b"})])
        assert "2026-03-02 09:00:04" in episode.call("write", {"note": "c"}).value["text"]
