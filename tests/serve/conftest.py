"""The lending library as a server, on free ports of this machine."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from awm.env.environment import Environment
from awm.env.host import Sandbox
from serve.library_server import LIMITS, library

if importlib.util.find_spec("fastmcp") is None:  # the extra `serve` is not installed
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    """A sandbox with short limits."""
    with Sandbox(LIMITS) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def environment(sandbox: Sandbox) -> Environment:
    """The library."""
    return library(sandbox=sandbox)


Serve = Callable[[Any], str]


@pytest.fixture
def served() -> Iterator[Serve]:
    """Serve applications, each on a port of its own, until the test ends; a call returns the address."""
    from awm.serve.listening import listen, server_of

    running: list[Callable[[], None]] = []

    def serve(app: Any) -> str:
        listener = listen("127.0.0.1", 0)
        server = server_of(app)
        thread = threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True)
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(30)
            listener.close()
            assert not thread.is_alive()

        running.append(stop)
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield serve
    for stop in running:
        stop()
