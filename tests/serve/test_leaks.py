"""A thousand sessions, opened and closed, leave nothing behind: no process, no port, no file, no memory."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from mcp.server.session import ServerSession
from mcp.server.streamable_http import StreamableHTTPServerTransport

from awm.env.environment import Environment
from awm.env.episode import Episode
from awm.env.pool import Pool
from awm.serve.http import environment_app
from awm.serve.mcp import mcp_server
from awm.serve.session import Session
from serve.conftest import Serve
from serve.library_server import descendants, open_files

KINDS = (Episode, Session, ServerSession, StreamableHTTPServerTransport)
HEADERS = {"accept": "application/json, text/event-stream"}
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Client:
    """The least that an MCP client has to say over HTTP."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, headers=HEADERS, timeout=60)

    def ask(self, method: str, params: dict, session: str | None = None, number: int | None = 1) -> httpx.Response:
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        if number is not None:
            message["id"] = number
        headers = {} if session is None else {"mcp-session-id": session}
        return self.http.post("/mcp", json=message, headers=headers)

    def open(self) -> str:
        session = self.ask("initialize", INITIALIZE).headers["mcp-session-id"]
        self.ask("notifications/initialized", {}, session, None)
        return session

    def call(self, session: str, tool: str, arguments: dict) -> dict:
        return self.ask("tools/call", {"name": tool, "arguments": arguments}, session).json()["result"]

    def close(self, session: str) -> int:
        return self.http.delete("/mcp", headers={"mcp-session-id": session}).status_code


@pytest.fixture
def client(environment: Environment, served: Serve) -> Iterator[Client]:
    with Pool(environment, size=2) as pool:
        client = Client(served(environment_app(mcp_server(environment, pool.episode))))
        yield client
        client.http.close()


def live_objects() -> int:
    gc.collect()
    return sum(isinstance(found, KINDS) for found in gc.get_objects())


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def settled(count, limit: int) -> int:
    """Return a count once it is at most the limit, or what it is after ten seconds."""
    end = time.monotonic() + 10
    while (found := count()) > limit and time.monotonic() < end:
        time.sleep(0.1)
    return found


def run_sessions(client: Client, number: int) -> None:
    for _ in range(number):
        session = client.open()
        assert client.call(session, "renew_loan", {"loan_id": 1})["structuredContent"]["renewals"] == 1
        assert client.close(session) == 200


def test_a_thousand_sessions_leave_nothing_behind(client: Client) -> None:
    run_sessions(client, 100)
    before = (len(descendants()), len(open_files()), threading.active_count(), live_objects())
    memory = resident_mb()

    run_sessions(client, 900)

    # A thread pool may still grow by a thread or two; a thread per session would be hundreds.
    before = (before[0], before[1], before[2] + 5, before[3])
    after = (
        settled(lambda: len(descendants()), before[0]),
        settled(lambda: len(open_files()), before[1]),
        settled(threading.active_count, before[2]),
        settled(live_objects, before[3]),
    )
    assert all(now <= then for now, then in zip(after, before, strict=True)), (before, after)
    assert resident_mb() - memory < 20
