"""The channel to a worker: messages of all sizes, coroutines, deadlines, and answers that are in no hurry."""

from __future__ import annotations

import asyncio

import pytest

from awm.env import Sandbox, ToolWorker, WorkerDied, WorkerTimeout

CLOCK = "2025-03-01 10:00:00"

ECHO = """
import re
from typing import Annotated
from pydantic import Field
from awm.env.tool import Connection

def _module(name: str):
    return re.enum.sys.modules["importlib"].import_module(name)

def echo(db: Connection, text: Annotated[str, Field(description="A")]) -> str:
    '''Give back.'''
    return text

def trickle(db: Connection, seconds: Annotated[float, Field(description="A")]) -> str:
    '''Answer a byte at a time.'''
    _module("signal").setitimer(0, 0)
    end = _module("time").monotonic() + seconds
    for byte in (100).to_bytes(4, "little") + bytes(99):
        if _module("time").monotonic() < end:
            _send(bytes([byte]))
            _module("time").sleep(0.2)
    return "late"

def _send(data: bytes) -> None:
    for fd in range(3, 64):
        try:
            _module("os").write(fd, data)
        except OSError:
            continue

def stay(db: Connection) -> bool:
    '''Come to no end.'''
    return all(_module("itertools").repeat(1))
"""


@pytest.fixture
def echo(sandbox: Sandbox, snapshot: bytes):
    with sandbox.worker() as worker:
        worker.load(ECHO)
        worker.open("s", snapshot, CLOCK)
        yield worker


@pytest.mark.parametrize("size", [0, 1, 16_000, 16_384, 16_385, 300_000, 4_000_000])
async def test_messages_of_any_size_come_and_go(echo: ToolWorker, size: int):
    text = "x" * size
    assert echo.call("s", "echo", {"text": text}).value == text
    assert (await echo.acall("s", "echo", {"text": text})).value == text
    results = echo.call_many("s", [("echo", {"text": text})] * 3)
    assert [result.value for result in results] == [text] * 3


async def test_requests_and_coroutines_take_turns(echo: ToolWorker, snapshot: bytes):
    for number in range(20):
        assert echo.call("s", "echo", {"text": str(number)}).value == str(number)
        assert (await echo.acall("s", "echo", {"text": str(-number)})).value == str(-number)
    await echo.areset("s")
    assert await echo.adump("s") == echo.dump("s") == snapshot


def test_a_deadline_holds_though_bytes_keep_coming(echo: ToolWorker):
    with pytest.raises(WorkerTimeout):  # and not at the end of the tool, whose answer would not be understood
        echo.call("s", "trickle", {"seconds": 30})
    assert not echo.alive


async def test_a_deadline_holds_for_coroutines(echo: ToolWorker):
    assert echo.alive
    with pytest.raises(WorkerTimeout):
        await echo.acall("s", "stay", {})
    assert not echo.alive
    with pytest.raises(WorkerDied, match="is gone: it did not answer in time"):
        await echo.acall("s", "echo", {"text": ""})


async def test_a_cancelled_request_ends_the_process(echo: ToolWorker):
    waiting = asyncio.create_task(echo.acall("s", "stay", {}))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    with pytest.raises(WorkerDied, match="a request to it was cancelled"):
        echo.dump("s")


def test_soft_limits_hold_one_after_the_other(echo: ToolWorker, sandbox: Sandbox, snapshot: bytes):
    source = (
        "from awm.env.tool import Connection\n"
        "def loop(db: Connection):\n    '''Loop.'''\n    while True:\n        len('')\n"
        "def fine(db: Connection):\n    '''Answer.'''\n    return 'fine'\n"
    )
    with sandbox.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, CLOCK)
        kinds = [worker.call("s", name, {}).kind for name in ("fine", "loop", "fine", "loop", "fine")]
        assert kinds == ["ok", "timeout", "ok", "timeout", "ok"]
