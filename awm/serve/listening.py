"""An ASGI application on a port."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio
import uvicorn
from starlette.types import ASGIApp

__all__ = ["listen", "serve", "server_of"]


def serve(app: ASGIApp, host: str, port: int, *, path: str) -> None:
    """Serve an ASGI application until the process is interrupted; raise OSError if the port is taken.

    :param path: What to print behind the address.
    """
    with listen(host, port) as listener:
        address, bound = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"awm: serving at http://{shown}:{bound}{path} (Ctrl-C ends it)", file=sys.stderr, flush=True)
        with suppress(KeyboardInterrupt), _terminable():
            server_of(app).run(sockets=[listener])


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the server as Ctrl-C does: it stops, and then what is around it is closed."""
    try:
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    except ValueError:  # not in the main thread, which signals would interrupt
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        # An answer is written in two parts. Without this the second waits 40 ms for the first to be acknowledged.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


def server_of(app: ASGIApp) -> uvicorn.Server:
    """Return the HTTP server for an application, quiet about what goes well."""
    logging.getLogger("mcp.server.streamable_http").addFilter(_worth_logging)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", timeout_graceful_shutdown=2, ws="websockets-sansio"
    )
    return uvicorn.Server(config)


def _worth_logging(record: logging.LogRecord) -> bool:
    """Whether a message of the MCP server is news: that a stream is closed when its session ends is not."""
    return not (record.exc_info and isinstance(record.exc_info[1], anyio.ClosedResourceError))
