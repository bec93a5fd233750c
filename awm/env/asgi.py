"""A FastAPI application called in process: no server, no port, no thread.

Each endpoint is a tool (`AppTool`) that stands where a tool module's function would: it checks the arguments, speaks
ASGI to the application, and turns the response into a value, a ToolError (status 4xx) or a crash (5xx).
"""

from __future__ import annotations

import asyncio
import json
import types
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from awm.env.arguments import InvalidArgumentsError, as_object, describe_errors
from awm.env.openapi import Operation, Request, operations
from awm.env.tool import ToolError

__all__ = ["AppResponseError", "AppTool", "Application", "find_app"]

_Work = Coroutine[Any, Any, tuple[int, bytes]]

_MAX_DETAIL = 2000
_SCOPE = {
    "type": "http",
    "asgi": {"version": "3.0", "spec_version": "2.4"},
    "http_version": "1.1",
    "scheme": "http",
    "server": ("localhost", 80),
    "client": ("127.0.0.1", 1),
    "root_path": "",
}


class AppResponseError(Exception):
    """The application answered that it failed."""


class Application:
    """A loaded application and what it needs to be called.

    :param plain: Whether nothing in it needs a task of an event loop. Requests then run without one, which saves a
        tenth of the time; one that waits all the same is finished in a loop.
    """

    def __init__(self, app: Any, *, plain: bool = False) -> None:
        self.app = app
        self._plain = plain and not getattr(app, "user_middleware", ())
        self.document: dict[str, Any] = app.openapi()
        self.routes = _Routes(app.router.routes)
        app.router.routes = self.routes
        self._loop: asyncio.AbstractEventLoop | None = None

    def tools(self, around: Callable[[Any], Any]) -> dict[str, AppTool]:
        """Return the endpoints as tools, by name.

        :param around: Called with the session's connection; gives a context manager for one request.
        """
        return {operation.name: AppTool(self, operation, around) for operation in operations(self.document)}

    def start(self) -> None:
        """Run what the application does when a server starts it; raises whatever that raises."""
        asyncio.run(self._start())

    async def _start(self) -> None:
        given = iter([{"type": "lifespan.startup"}])
        failed: list[str] = []
        started = asyncio.Event()

        async def receive() -> dict[str, Any]:
            try:
                return next(given)
            except StopIteration:
                started.set()
                await asyncio.Event().wait()  # it is never told to shut down
                raise AssertionError from None

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "lifespan.startup.failed":
                failed.append(message.get("message", ""))
            started.set()

        task = asyncio.ensure_future(self.app({"type": "lifespan", "asgi": _SCOPE["asgi"], "state": {}}, receive, send))
        await asyncio.wait({task, asyncio.ensure_future(started.wait())}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        if failed:
            raise AppResponseError(f"the application did not start: {failed[0].strip()[-_MAX_DETAIL:]}")

    def request(self, request: Request, route: Any = None) -> tuple[int, bytes]:
        """Send a request and return the status and the body; raises what the application raises.

        :param route: The one that it is for, where that is known.
        """
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        self.routes.only = route
        try:
            if self._plain:
                return self._run_plainly(self._loop, self._request(request))
            return self._loop.run_until_complete(self._request(request))
        except Exception:
            raise
        except BaseException:  # the time is up: the loop may be in any state
            self._drop_loop()
            raise

    def _drop_loop(self) -> None:
        loop, self._loop = self._loop, None
        asyncio._set_running_loop(None)
        if loop is not None and not loop.is_running():
            loop.close()

    def _run_plainly(self, loop: asyncio.AbstractEventLoop, work: _Work) -> tuple[int, bytes]:
        """Run a coroutine to its end, in a loop only if it waits for something."""
        asyncio._set_running_loop(loop)
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        finally:
            asyncio._set_running_loop(None)
        return loop.run_until_complete(_rest(work, waits_for))

    async def _request(self, request: Request) -> tuple[int, bytes]:
        body = json.dumps(request.body).encode() if request.has_body else b""
        headers = [(name.encode("latin-1", "replace"), value.encode("utf-8")) for name, value in request.headers]
        if request.has_body:
            headers += [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        status, parts, sent = 500, [], False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        scope = _SCOPE | {
            "method": request.method,
            "path": request.path,
            "raw_path": quote(request.path).encode(),
            "query_string": request.query.encode(),
            "headers": headers,
        }
        await self.app(scope, receive, send)
        return status, b"".join(parts)


@types.coroutine
def _rest(work: _Work, waits_for: Any) -> Generator[Any, Any, tuple[int, bytes]]:
    """Go on with a coroutine that has begun to wait."""
    try:
        while True:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = work.throw(error)
            else:
                waits_for = work.send(value)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class _Routes(list[Any]):
    """The application's routes. Where the one for a request is known, the router need not look at the others."""

    only: Any = None

    def named(self, operation: str) -> Any:
        """Return the route with this operation id; None if there is none, or more than one."""
        found = [route for route in self if getattr(route, "operation_id", None) == operation]
        return found[0] if len(found) == 1 else None

    def __iter__(self) -> Iterator[Any]:
        return super().__iter__() if self.only is None else iter((self.only,))


class AppTool:
    """One endpoint. Has what the worker asks of a tool: a name, a check of arguments, a function."""

    def __init__(self, application: Application, operation: Operation, around: Callable[[Any], Any]) -> None:
        self.name = operation.name
        self.operation = operation
        self._route = application.routes.named(operation.name)
        self.line = _first_line(self._route)
        self._application = application
        self._around = around

    @property
    def arguments(self) -> AppTool:
        """What checks the arguments: the tool itself."""
        return self

    def signature(self) -> dict[str, Any]:
        """Describe the tool as plain data."""
        return {
            "name": self.name,
            "description": self.operation.description,
            "parameters": self.operation.schema,
            "result": self.operation.result,
            "line": self.line,
        }

    def validate(self, arguments: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return the request for these arguments, and notes on what was repaired; raise InvalidArgumentsError.

        Names are checked here, values by the application itself.
        """
        given, noted = as_object(arguments)
        if given is None:
            raise InvalidArgumentsError(f"the arguments must be an object with the keys: {self.operation.known}")
        problems = [f"unknown argument '{name}'" for name in given if name not in self.operation.places]
        required = self.operation.schema.get("required", [])
        problems += [f"argument '{name}' is missing" for name in required if name not in given]
        if problems:
            raise InvalidArgumentsError(f"{'; '.join(problems)}; this tool takes: {self.operation.known}")
        given, notes = dict(given), list(noted)
        for name, value in given.items():
            if isinstance(value, str) and (kind := _wanted_json(self.operation.schema, name)):
                given[name], note = _parsed(name, value, kind)
                notes += note
        return {"request": self.operation.request(given)}, tuple(notes)

    def function(self, connection: Any, *, request: Request) -> Any:
        """Call the endpoint on a database."""
        with self._around(connection):
            status, body = self._application.request(request, self._route)
        return _value(status, body)


def find_app(namespace: Mapping[str, Any]) -> Any:
    """Return the module's FastAPI application; raise LookupError if it has none."""
    from fastapi import FastAPI

    found = [value for value in namespace.values() if isinstance(value, FastAPI)]
    app = namespace.get("app")
    if isinstance(app, FastAPI):
        return app
    if not found:
        raise LookupError("the module defines no FastAPI application named 'app'")
    return found[0]


def _first_line(route: Any) -> int:
    code = getattr(getattr(route, "endpoint", None), "__code__", None)
    return 0 if code is None else int(code.co_firstlineno)


def _value(status: int, body: bytes) -> Any:
    """Return what a response says, or raise what its status means."""
    try:
        content = json.loads(body) if body else None
    except ValueError:
        content = body.decode("utf-8", "replace")
    if status < 400:
        return content
    detail = content.get("detail", content) if isinstance(content, dict) else content
    if status == 422 and isinstance(detail, list) and _is_validation(detail):
        raise InvalidArgumentsError(describe_errors(_own_locations(detail)))
    text = detail if isinstance(detail, str) else json.dumps(detail, ensure_ascii=False)
    text = f"{text[:_MAX_DETAIL]} (status {status})"
    raise ToolError(text) if status < 500 else AppResponseError(text)


def _is_validation(detail: list[Any]) -> bool:
    keys = {"loc", "msg", "type"}
    return bool(detail) and all(isinstance(d, dict) and keys <= d.keys() for d in detail)


def _own_locations(detail: list[dict[str, Any]]) -> list[Any]:
    """Drop the place (`body`, `query`, ...) from each location: agents know only names."""
    return [{"input": None, **one, "loc": tuple(one["loc"][1:]) or tuple(one["loc"])} for one in detail]


def _wanted_json(schema: dict[str, Any], name: str) -> str:
    """Tell whether an argument must be an object or an array, and so can't be text."""
    found = schema["properties"][name]
    options = found.get("anyOf", [found])
    kinds = set()
    for option in options:
        if "$ref" in option:
            option = schema.get("$defs", {}).get(option["$ref"].rpartition("/")[2], {})
        kinds.add(option.get("type", "any"))
    kinds.discard("null")
    return kinds.pop() if len(kinds) == 1 and kinds <= {"object", "array"} else ""


def _parsed(name: str, text: str, kind: str) -> tuple[Any, list[str]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text, []
    if not isinstance(value, dict if kind == "object" else list):
        return text, []
    what = "object" if kind == "object" else "list"
    return value, [f"argument '{name}' was JSON text and was parsed; give the {what} itself"]
