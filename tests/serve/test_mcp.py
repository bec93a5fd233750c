"""Environments as MCP servers, seen by FastMCP's client and by the official one, over HTTP and stdio."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import ClientSession, McpError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from awm.env.environment import Environment
from awm.env.host import Sandbox
from awm.env.pool import Pool
from awm.serve.http import environment_app
from awm.serve.mcp import all_environments, mcp_server
from serve.conftest import Serve
from serve.library_server import COMMAND, VARIABLES, descendants, gone, library
from synth.library_environment import CLOCK, TOOLSET

EMMA = {"loan_id": 1, "title": "Emma", "due_on": "2026-03-23", "status": "open", "renewals": 1}


@pytest.fixture
def pool(environment: Environment) -> Iterator[Pool]:
    with Pool(environment, size=1, min_episodes=1000) as pool:
        yield pool


@pytest.fixture
def url(environment: Environment, pool: Pool, served: Serve) -> str:
    """Address of the library over HTTP."""
    return served(environment_app(mcp_server(environment, pool.episode))) + "/mcp"


@asynccontextmanager
async def official_http(url: str) -> AsyncIterator[ClientSession]:
    async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        yield session


@asynccontextmanager
async def official_stdio() -> AsyncIterator[ClientSession]:
    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=VARIABLES)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        yield session


async def test_the_tools_are_those_of_the_signatures(environment: Environment) -> None:
    async with Client(mcp_server(environment)) as client:
        listed = {tool.name: tool for tool in await client.list_tools()}

    assert list(listed) == [signature.name for signature in environment.tools]
    for signature in environment.tools:
        assert listed[signature.name].inputSchema == signature.parameters
        assert listed[signature.name].description == signature.description
    hints = {name: tool.annotations and tool.annotations.readOnlyHint for name, tool in listed.items()}
    specified = {spec.name: spec.read_only for spec in TOOLSET.tools}
    assert hints == {signature.name: specified.get(signature.name) for signature in environment.tools}


async def test_the_server_says_what_it_is(environment: Environment) -> None:
    async with Client(mcp_server(environment)) as client:
        assert client.initialize_result is not None
        assert client.initialize_result.serverInfo.name == "Lending Library"
        assert client.initialize_result.instructions == environment.scenario.description


async def test_a_call_gives_text_and_structure(url: str) -> None:
    async with Client(url) as client:
        renewed = await client.call_tool("renew_loan", {"loan_id": 1})
        listed = await client.call_tool("list_loans", {"status": "open"})
        echoed = await client.call_tool("echo_zip", {"zip_code": "02134", "options": '{"a": 1}'})

    assert renewed.structured_content == renewed.data == json.loads(renewed.content[0].text) == EMMA
    assert [loan["loan_id"] for loan in listed.data] == [2, 1]
    assert listed.structured_content == {"result": listed.data}
    assert echoed.content[0].text == echoed.data == "02134"
    assert echoed.meta is not None and "options" in echoed.meta["awm"]["notes"][0]


FAILURES = [
    ("renew_loan", {"loan_id": 99}, "no loan 99 of yours"),
    ("renew_loan", {}, "argument 'loan_id' is missing"),
    ("renew_loan", {"loan_id": "two"}, "loan_id"),
    ("list_loans", {"status": "lost"}, "status"),
    ("list_loans", {"state": "open"}, "state"),
    ("count_days", {"loan_id": 1}, "ZeroDivisionError"),
    ("no_such_tool", {}, "no_such_tool"),
]


@pytest.mark.parametrize(("tool", "arguments", "said"), FAILURES)
async def test_failures_are_tool_errors_and_the_session_goes_on(
    url: str, tool: str, arguments: dict, said: str
) -> None:
    async with Client(url) as client:
        with pytest.raises(ToolError, match=re.escape(said)):
            await client.call_tool(tool, arguments)
        assert (await client.call_tool("renew_loan", {"loan_id": 1})).data == EMMA


async def test_the_official_client_over_http(url: str, environment: Environment) -> None:
    async with official_http(url) as session:
        listed = (await session.list_tools()).tools
        renewed = await session.call_tool("renew_loan", {"loan_id": 1})
        refused = await session.call_tool("renew_loan", {"loan_id": 99})
        without_arguments = await session.call_tool("list_loans")

    assert [tool.inputSchema for tool in listed] == [signature.parameters for signature in environment.tools]
    assert renewed.structuredContent == EMMA and not renewed.isError
    assert refused.isError and refused.content[0].text == "no loan 99 of yours"
    assert len(without_arguments.structuredContent["result"]) == 3


async def test_each_session_is_its_own_episode(url: str) -> None:
    async with Client(url) as first, official_http(url) as second:
        await first.call_tool("renew_loan", {"loan_id": 1})
        seen = await second.call_tool("list_loans", {"status": "open"})
        again = await first.call_tool("list_loans", {"status": "open"})

    assert [loan["renewals"] for loan in seen.structuredContent["result"]] == [2, 0]
    assert [loan["renewals"] for loan in again.data] == [2, 1]


async def test_a_session_that_calls_nothing_starts_nothing(url: str, pool: Pool) -> None:
    async with Client(url) as client:
        await client.list_tools()

    assert pool.health()[0].episodes == 0


async def test_calls_at_a_time_are_made_one_after_the_other(url: str) -> None:
    async with Client(url) as client:
        results = await asyncio.gather(
            *(client.call_tool("renew_loan", {"loan_id": 1}, raise_on_error=False) for _ in range(5))
        )

    assert sorted(result.is_error for result in results) == [False, False, True, True, True]
    assert sorted(result.data["renewals"] for result in results if not result.is_error) == [1, 2]


async def test_the_session_ends_when_its_environment_fails(url: str, pool: Pool) -> None:
    async with Client(url) as other:
        await other.call_tool("renew_loan", {"loan_id": 1})
        async with Client(url) as client:
            with pytest.raises(ToolError, match=r"this session is over, because its environment failed: .*ended"):
                await client.call_tool("end_worker")
            with pytest.raises(McpError, match="Session terminated"):
                await client.call_tool("list_loans")
        assert (await other.call_tool("renew_loan", {"loan_id": 1})).data["renewals"] == 2
    async with Client(url) as fresh:
        assert (await fresh.call_tool("renew_loan", {"loan_id": 1})).data == EMMA

    health = pool.health()[0]
    assert health.faults == 1


async def test_fastmcp_over_stdio() -> None:
    async with Client(StdioTransport(COMMAND[0], COMMAND[1:], env=VARIABLES, keep_alive=False)) as client:
        assert len(await client.list_tools()) == 7
        assert (await client.call_tool("renew_loan", {"loan_id": 1})).data == EMMA
        with pytest.raises(ToolError, match="no loan 99 of yours"):
            await client.call_tool("renew_loan", {"loan_id": 99})


async def test_the_official_client_over_stdio_is_told_why_every_call_fails() -> None:
    before = descendants()
    async with official_stdio() as session:
        assert len((await session.list_tools()).tools) == 7
        assert (await session.call_tool("renew_loan", {"loan_id": 1})).structuredContent == EMMA
        failed = await session.call_tool("end_worker")
        after = await session.call_tool("list_loans")
        started = descendants() - before

    assert failed.isError and after.isError
    assert failed.content[0].text == after.content[0].text
    assert "this session is over, because its environment failed" in after.content[0].text
    assert len(started) >= 2
    assert gone(started)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_server_leaves_no_process(sign: int) -> None:
    with subprocess.Popen([*COMMAND, "http"], stderr=subprocess.PIPE, text=True, env=VARIABLES) as server:
        assert server.stderr is not None
        address = re.search(r"http://\S+", server.stderr.readline())
        assert address is not None
        started: set[int] = set()

        async def call() -> None:
            async with Client(address.group()) as client:
                await client.call_tool("list_loans")
                started.update(descendants(server.pid))
                server.send_signal(sign)
                await asyncio.sleep(0.2)

        with suppress(McpError, RuntimeError, httpx.HTTPError):  # the server goes away before the client does
            asyncio.run(call())
        assert server.wait(30) == 0
        assert "Traceback" not in server.stderr.read()
    assert len(started) >= 2
    assert gone(started)


def test_web_pages_of_others_are_refused(url: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    assert httpx.post(url, json=body, headers={"host": "evil.example"}).status_code == 421
    assert httpx.post(url, json=body, headers={"origin": "https://evil.example"}).status_code == 403


async def test_all_environments_under_their_own_paths(sandbox: Sandbox, served: Serve) -> None:
    broken = Environment("broken", source="this is no module", snapshot=b"", clock=CLOCK, sandbox=sandbox)
    environments = [library("first", sandbox), library("second", sandbox), broken]
    with Pool(environments, size=1) as pool:
        url = served(all_environments(pool, environments))
        async with Client(f"{url}/first/mcp") as first, Client(f"{url}/second/mcp") as second:
            assert (await first.call_tool("renew_loan", {"loan_id": 1})).data == EMMA
            assert (await second.call_tool("renew_loan", {"loan_id": 1})).data == EMMA
        index = httpx.get(url).json()["environments"]
        missing = httpx.post(f"{url}/third/mcp", json={})
        unusable = httpx.post(f"{url}/broken/mcp", json={})

    assert [entry["path"] for entry in index] == ["/first/mcp", "/second/mcp", "/broken/mcp"]
    assert missing.status_code == 404 and "third" in missing.json()["error"]
    assert unusable.status_code == 503 and "syntax" in unusable.json()["error"]


async def test_no_more_sessions_of_an_environment_that_fails_too_often(environment: Environment, served: Serve) -> None:
    with Pool(environment, size=0, min_episodes=1) as pool:
        url = served(environment_app(mcp_server(environment, pool.episode))) + "/mcp"
        for said in ("ended", "is quarantined"):
            async with Client(url) as client:
                with pytest.raises(ToolError, match=said):
                    await client.call_tool("end_worker")
