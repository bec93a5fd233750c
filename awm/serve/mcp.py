"""Environments as MCP servers: the same tools as an episode has, and each MCP session is an episode of its own."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import anyio
from fastmcp import FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool, ToolResult
from mcp.types import TextContent, ToolAnnotations

import awm
from awm.env.environment import Environment
from awm.env.pool import Pool
from awm.env.results import CallResult, ToolSignature
from awm.serve.http import ALL_PATH, AllEnvironments, end_after_answer, environment_app
from awm.serve.listening import serve
from awm.serve.session import OpenEpisode, Session, SessionOver
from awm.serve.text import as_text

__all__ = ["Transport", "all_environments", "mcp_server", "run_all", "run_mcp"]

Transport = Literal["stdio", "http"]


@dataclass(frozen=True, slots=True)
class _Connection:
    """What a tool finds of the session that it is called in."""

    session: Session
    scope: anyio.CancelScope
    """Around everything that the server does for the session: cancelled, the session ends."""


class EnvironmentTool(Tool):
    """A tool of an environment, described as its signature describes it."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Call the tool in the session's episode."""
        request = get_context().request_context
        if request is None:
            raise ToolError("tools of an environment are called in an MCP session: connect a client to the server")
        connection: _Connection = request.lifespan_context
        try:
            return tool_result(await connection.session.call(self.name, arguments))
        except SessionOver as over:
            end_after_answer(request.request, connection.scope)
            return failure(str(over))


def mcp_server(environment: Environment, open_episode: OpenEpisode | None = None) -> FastMCP[Any]:
    """Return a FastMCP server of an environment's tools; raise ModuleError if they can't be loaded.

    :param open_episode: Gives the episode of each session, from a pool for example; by default the environment does.
    """
    specs = {} if environment.toolset is None else {spec.name: spec for spec in environment.toolset.tools}
    server: FastMCP[Any] = FastMCP(
        environment.scenario.name,
        instructions=environment.scenario.description or None,
        version=awm.__version__,
        dereference_schemas=False,
    )
    for signature in environment.tools:
        spec = specs.get(signature.name)
        server.add_tool(_tool(signature, None if spec is None else spec.read_only))
    # FastMCP's own lifespan spans the server. That of the server below it spans one session, however it ends.
    server._mcp_server.lifespan = _session_lifespan(open_episode or environment.episode)
    return server


def run_mcp(
    environment: Environment, transport: Transport = "stdio", host: str = "127.0.0.1", port: int = 8000
) -> None:
    """Serve one environment until the client leaves (stdio) or the process is interrupted (HTTP, at `/mcp`).

    :param port: 0 takes a free one; the address is printed on standard error.
    """
    if transport == "stdio":
        server = mcp_server(environment)
        # Reading standard input can't be interrupted, so Ctrl-C ends the process, and what runs below it goes with it.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.run("stdio", show_banner=False, log_level="WARNING")
        return
    with Pool(environment, size=2) as pool:
        app = environment_app(mcp_server(environment, pool.episode))
        serve(app, host, port, path="/mcp")


def run_all(environments: Sequence[Environment], host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve each environment under its own path, `/<slug>/mcp`; `/` lists them."""
    with Pool(environments, size=4) as pool:
        serve(all_environments(pool, environments), host, port, path=ALL_PATH)


def all_environments(pool: Pool, environments: Sequence[Environment]) -> AllEnvironments:
    """Return the ASGI application that `run_all` serves. An environment's tools are loaded when it is first asked for.

    :param pool: Has all the environments, and gives the episodes.
    """
    by_slug = {environment.slug: environment for environment in environments}

    def build(slug: str) -> FastMCP[Any]:
        return mcp_server(by_slug[slug], lambda: pool.episode(slug))

    described = {slug: environment.scenario.description for slug, environment in by_slug.items()}
    return AllEnvironments(described, build)


def tool_result(result: CallResult) -> ToolResult:
    """Return what the agent reads: text, and the same as structured content; a failure is a tool error."""
    if not result.ok:
        return failure(result.message)
    value = result.value
    wrapped = not isinstance(value, dict)
    meta: dict[str, Any] = {"fastmcp": {"wrap_result": True}} if wrapped else {}
    if result.notes:
        meta["awm"] = {"notes": list(result.notes)}
    return ToolResult.model_construct(
        content=[TextContent(type="text", text=as_text(value))],
        structured_content={"result": value} if wrapped else value,
        meta=meta or None,
        is_error=False,
    )


def failure(message: str) -> ToolResult:
    """Return a tool error that the agent can read."""
    return ToolResult.model_construct(
        content=[TextContent(type="text", text=message)], structured_content=None, meta=None, is_error=True
    )


def _tool(signature: ToolSignature, read_only: bool | None) -> EnvironmentTool:
    """Return the tool as MCP describes it.

    The result's schema stays out: nobody checks that a tool keeps to it, and a client that does would throw away what
    the agent should read.
    """
    return EnvironmentTool(
        name=signature.name,
        description=signature.description,
        parameters=signature.parameters,
        annotations=None if read_only is None else ToolAnnotations(readOnlyHint=read_only),
    )


def _session_lifespan(open_episode: OpenEpisode) -> Callable[[Any], AbstractAsyncContextManager[_Connection]]:
    @asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[_Connection]:
        session = Session(open_episode)
        try:
            with anyio.CancelScope() as scope:
                yield _Connection(session, scope)
        finally:
            session.close()

    return lifespan
