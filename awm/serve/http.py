"""MCP over HTTP: one environment at `/mcp`, or each under its own path, and sessions that end after a last answer."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from fastmcp import FastMCP
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from awm.env.errors import EnvironmentFault, MissingExtraError, SandboxUnavailable

__all__ = ["ALL_PATH", "AllEnvironments", "end_after_answer", "environment_app"]

ALL_PATH = "/<slug>/mcp"
_LAST = "awm.last"
_SESSION = b"mcp-session-id"
_REMEMBERED = 1000


class EndSessions:
    """ASGI middleware that ends sessions once their last answer is on its way; see `end_after_answer`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._ended: deque[bytes] = deque(maxlen=_REMEMBERED)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request, then end the session that asked for it."""
        name = dict(scope.get("headers", ())).get(_SESSION)
        if name in self._ended:  # the MCP server may still be taking the session down, and would answer 500
            await JSONResponse({"error": "this session is over"}, 404)(scope, receive, send)
            return
        last: list[anyio.CancelScope] = []
        scope[_LAST] = last
        try:
            await self._app(scope, receive, send)
        finally:
            if last and name is not None:
                self._ended.append(name)
            for session in last:
                session.cancel()


def end_after_answer(request: Any, session: anyio.CancelScope) -> None:
    """End an MCP session after the answer to this request is sent; what comes later is told that it is gone (404).

    Over stdio, where there is no request, the session stays open, so that the client can be told why every call fails.

    :param request: The HTTP request, as the MCP server hands it to its tools.
    :param session: The scope around what the server does for the session.
    """
    if isinstance(request, Request) and _LAST in request.scope:
        request.scope[_LAST].append(session)


def environment_app(server: FastMCP[Any], *, path: str = "/mcp") -> Starlette:
    """Return the ASGI application of one environment's server.

    On a loopback address, requests for other hosts or from other sites are refused, so that a web page can't reach the
    server through the browser of whoever runs it.
    """
    return server.http_app(
        path=path,
        middleware=[Middleware(EndSessions)],
        json_response=True,  # nothing is sent before the result, so a stream of events would only cost time
        stateless_http=False,
        host_origin_protection="auto",
    )


class AllEnvironments:
    """ASGI application that serves each environment at `/<slug>/mcp`, from its first request on; `/` lists them.

    :param described: The environments: their slugs, with descriptions.
    :param build: Makes the server of a slug; it may take its time, and raise what loading an environment raises.
    """

    def __init__(self, described: Mapping[str, str], build: Callable[[str], FastMCP[Any]]) -> None:
        self._described = dict(described)
        self._build = build
        self._running: dict[str, Starlette] = {}
        self._starting: dict[str, anyio.Lock] = {}
        self._tasks: TaskGroup | None = None
        routes = [Route("/", self._index), Mount("/{slug}", app=self._environment)]
        self._app = Starlette(routes=routes, lifespan=self._lifespan)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        await self._app(scope, receive, send)

    async def _index(self, request: Request) -> JSONResponse:
        entries = [
            {"slug": slug, "description": text, "path": ALL_PATH.replace("<slug>", slug)}
            for slug, text in self._described.items()
        ]
        return JSONResponse({"environments": entries})

    async def _environment(self, scope: Scope, receive: Receive, send: Send) -> None:
        slug = scope["path_params"]["slug"]
        try:
            app: ASGIApp = await self._started(slug)
        except KeyError:
            app = JSONResponse({"error": f"there is no environment {slug!r}; / lists them"}, 404)
        except (EnvironmentFault, SandboxUnavailable, MissingExtraError) as error:
            app = JSONResponse({"error": f"{slug} can't be served: {error}"}, 503)
        await app(scope, receive, send)

    async def _started(self, slug: str) -> Starlette:
        if slug in self._running:
            return self._running[slug]
        if slug not in self._described:
            raise KeyError(slug)
        async with self._starting.setdefault(slug, anyio.Lock()):
            if slug not in self._running:
                server = await anyio.to_thread.run_sync(self._build, slug)
                app = environment_app(server)
                assert self._tasks is not None, "the application's lifespan has not begun"
                await self._tasks.start(self._run, app)
                self._running[slug] = app
            return self._running[slug]

    @staticmethod
    async def _run(app: Starlette, *, task_status: TaskStatus[None]) -> None:
        async with app.router.lifespan_context(app):
            task_status.started()
            await anyio.sleep_forever()

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            try:
                yield
            finally:
                tasks.cancel_scope.cancel()
                self._running.clear()
