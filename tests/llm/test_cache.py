from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from awm.llm.cache import ResponseCache, cache_root, project_root
from awm.llm.errors import ItemError, ProviderError
from awm.llm.request import LLMAnswer
from llm.scripted_server import ScriptedServer, held

KEY = "a" * 64

# A process of its own: says that it is ready, asks for the texts it is given, all at once, and prints the answers.
ASK = """
import asyncio, sys
from pathlib import Path
from awm.config import LLMConfig
from awm.llm.cache import ResponseCache
from awm.llm.openai_provider import OpenAIProvider
from awm.llm.request import LLMRequest, Message, request_key

url, path, lease, *texts = sys.argv[1:]
config = LLMConfig(provider="openai", model="m", base_url=url, max_output_tokens=10, structured_output="off",
                   concurrency=8, timeout_s=30, retries=0)

async def main():
    cache, provider = ResponseCache(Path(path), lease_s=float(lease)), OpenAIProvider(config)
    print("ready", flush=True)
    async def ask(text):
        request = LLMRequest(step="s", item="i", attempt=1, messages=(Message(role="user", content=text),))
        return await cache.call(request_key(request, config), lambda: provider.answer(request))
    print([answer.content for answer in await asyncio.gather(*map(ask, texts))], flush=True)

asyncio.run(main())
"""


def start(url: str, path: Path, *texts: str, lease: float = 60) -> subprocess.Popen[str]:
    """Start a process that asks, and return when it is about to."""
    command = [sys.executable, "-c", ASK, url, str(path), str(lease), *texts]
    folder = Path(__file__).parents[2]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def wait_for(condition: Callable[[], bool], *processes: subprocess.Popen[str]) -> None:
    """Wait for a condition while all these processes live."""
    while not condition():
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)


def an_answer(content: str = "yes", finish_reason: str = "stop") -> LLMAnswer:
    return LLMAnswer(content=content, finish_reason=finish_reason, model="m")


@pytest.fixture
def cache(tmp_path):
    opened = ResponseCache(tmp_path / "cache" / "responses.sqlite")
    yield opened
    opened.close()


def test_the_first_answer_stays(cache):
    assert cache.get(KEY) is None
    assert cache.put(KEY, an_answer("first")) == an_answer("first")
    assert cache.put(KEY, an_answer("second")) == an_answer("first")
    assert cache.put_all([(KEY, an_answer("third")), ("b", an_answer())]) == 1


@pytest.mark.parametrize("answer", [an_answer("half", "length"), an_answer(" "), an_answer("no", "refusal")])
def test_unusable_answers_are_passed_on_and_not_stored(cache, answer):
    async def ask():
        return answer

    assert asyncio.run(cache.call(KEY, ask)) == answer
    assert cache.get(KEY) is None


def test_an_error_is_passed_on_and_the_next_call_asks_again(cache):
    async def fail():
        raise ItemError("broken")

    async def ask():
        return an_answer()

    with pytest.raises(ItemError):
        asyncio.run(cache.call(KEY, fail))
    assert asyncio.run(cache.call(KEY, ask)) == an_answer()


def test_a_cancelled_call_gives_its_lease_back(cache):
    async def run():
        started = asyncio.Event()

        async def never():
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(cache.call(KEY, never))
        await started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

        async def ask():
            return an_answer()

        return await cache.call(KEY, ask)

    assert asyncio.run(run()) == an_answer()


def test_tasks_that_want_the_same_answer_ask_once(cache):
    asked = []

    async def ask():
        asked.append(1)
        await asyncio.sleep(0)
        return an_answer()

    async def run():
        return await asyncio.gather(*(cache.call(KEY, ask) for _ in range(20)))

    assert asyncio.run(run()) == [an_answer()] * 20
    assert len(asked) == 1


def test_two_processes_that_want_the_same_answers_pay_once(tmp_path):
    both = threading.Event()
    texts = [f"text {number}" for number in range(6)]
    with ScriptedServer(lambda body: held(both, body["messages"][0]["content"].upper())) as server:
        processes = [start(server.base_url, tmp_path / "r.sqlite", *texts) for _ in range(2)]
        wait_for(lambda: len(server.requests) == 6, *processes)
        both.set()
        outputs = [process.communicate()[0] for process in processes]
    assert outputs == [f"{[text.upper() for text in texts]}\n"] * 2
    assert sorted(server.prompts) == texts


def test_a_killed_process_leaves_a_sound_cache_and_its_requests_are_asked_again(tmp_path):
    path = tmp_path / "r.sqlite"
    never = threading.Event()
    with ScriptedServer(lambda body: "HI" if len(server.requests) <= 3 else held(never, "late")) as server:
        start(server.base_url, path, "a", "b", "c").communicate()
        process = start(server.base_url, path, "a", "b", "c", "d", "e", lease=1)
        wait_for(lambda: len(server.requests) == 5, process)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        with sqlite3.connect(path) as connection:
            assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
            assert connection.execute("select count(*) from response").fetchone() == (3,)
            assert connection.execute("select count(*) from lease").fetchone() == (2,)
        never.set()
        output = start(server.base_url, path, "a", "b", "c", "d", "e").communicate()[0]
    assert output == "['HI', 'HI', 'HI', 'late', 'late']\n"
    assert sorted(server.prompts) == ["a", "b", "c", "d", "d", "e", "e"]


def test_a_living_process_renews_its_lease(tmp_path):
    cache = ResponseCache(tmp_path / "r.sqlite", lease_s=0.3)

    def expires() -> float:
        with sqlite3.connect(cache.path) as connection:
            return connection.execute("select expires from lease where key = ?", (KEY,)).fetchone()[0]

    async def ask():
        first = expires()
        while expires() == first:
            await asyncio.sleep(0.01)
        return an_answer()

    assert asyncio.run(cache.call(KEY, ask)) == an_answer()
    cache.close()


def test_the_root_is_found(tmp_path, monkeypatch):
    monkeypatch.delenv("DVC_ROOT")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_root(inner) == inner.resolve()
    (tmp_path / "dvc.yaml").touch()
    assert cache_root(inner) == tmp_path.resolve() / ".awm_cache"
    monkeypatch.setenv("DVC_ROOT", "/somewhere")
    assert cache_root(inner) == Path("/somewhere/.awm_cache")
    monkeypatch.setenv("AWM_CACHE_DIR", "/elsewhere")
    assert cache_root(inner) == Path("/elsewhere")


def test_a_file_that_is_no_cache_is_said(tmp_path):
    path = tmp_path / "responses.sqlite"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(ProviderError, match=r"responses\.sqlite can't be used"):
        ResponseCache(path)


def execute(cache: ResponseCache, sql: str, *values: object) -> None:
    with sqlite3.connect(cache.path) as connection:
        connection.execute(sql, values)


@pytest.mark.parametrize(
    "row", ["{", "{}", b"\xff\xfe", 5, '{"content": "half", "finish_reason": "length", "model": "m"}']
)
def test_a_damaged_row_counts_as_absent_and_is_replaced(cache, row):
    async def ask():
        return an_answer("new")

    execute(cache, "insert into response values (?, ?)", KEY, row)
    execute(cache, "insert into response values ('b', ?)", row)
    assert cache.get(KEY) is None
    assert asyncio.run(cache.call(KEY, ask)) == an_answer("new")
    assert cache.put_all([(KEY, an_answer("old")), ("b", an_answer("b"))]) == 1
    assert (cache.get(KEY), cache.get("b")) == (an_answer("new"), an_answer("b"))


def test_a_cache_with_other_columns_is_said(tmp_path):
    path = tmp_path / "responses.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("create table response(id, text)")
    cache = ResponseCache(path)
    with pytest.raises(ProviderError, match=r"responses\.sqlite can't be used: no such column.*delete it"):
        cache.get(KEY)
    with pytest.raises(ProviderError, match=r"responses\.sqlite can't be used"):
        cache.put(KEY, an_answer())
    cache.close()


def test_a_damaged_page_is_said(tmp_path):
    path = tmp_path / "responses.sqlite"
    cache = ResponseCache(path)
    cache.put_all([(f"{number:064}", an_answer("x" * 1000)) for number in range(100)])
    cache.close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xee" * (len(content) - 4096))
    cache = ResponseCache(path)
    with pytest.raises(ProviderError, match=r"responses\.sqlite can't be used.*delete it"):
        cache.get(KEY)
    cache.close()


def test_a_lease_from_a_clock_that_was_set_back_does_not_block(cache):
    async def ask():
        return an_answer()

    execute(cache, "insert into lease values (?, 'gone', ?)", KEY, time.time() + 10_000)
    assert asyncio.run(cache.call(KEY, ask)) == an_answer()


def test_the_cache_folder_may_be_in_ones_home(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("AWM_CACHE_DIR", "~/cache")
    assert cache_root() == Path("/somewhere/cache")
