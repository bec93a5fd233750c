"""What a call costs through MCP over HTTP, beside FastMCP's own echo tool.

    python benchmarks/mcp_http.py                   # a table; about half a minute
    python benchmarks/mcp_http.py --json mcp.json   # and the figures

Each server has a process of its own, and FastMCP's client calls both in turn, so that what else the machine does meets
both. The echo tool is what FastMCP's users write first: one function, served with its defaults, but without a log of
every request. A call of ours is a light read of the synthetic environment (`benchmarks/synthetic.py`), through its
sandbox. `mcp_http_ms` should be at most `mcp_echo_ms` and the `mcp_direct_ms` of the same read without a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fastmcp import Client, FastMCP

from awm.env.pool import Pool
from awm.serve.http import environment_app
from awm.serve.listening import listen, server_of
from awm.serve.mcp import mcp_server
from benchmarks.synthetic import READ, synthetic_environment

ECHO = ("echo", {"text": "02134"})
ROUNDS, CALLS = 20, 50


def measure_mcp() -> dict[str, float]:
    """Return the median milliseconds of a call: ours, FastMCP's echo, and the read without a server."""
    with _server("environment") as ours, _server("echo") as echo:
        figures = asyncio.run(_through_mcp(ours, echo))
    return {**figures, "mcp_direct_ms": asyncio.run(_direct())}


async def _through_mcp(ours: str, echo: str) -> dict[str, float]:
    calls = {"mcp_http_ms": READ, "mcp_echo_ms": ECHO}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    async with Client(ours) as environment, Client(echo) as other:
        clients = {"mcp_http_ms": environment, "mcp_echo_ms": other}
        for _ in range(ROUNDS + 1):
            for name, client in clients.items():
                taken[name] += await _times(client, *calls[name])
    return {name: median(times[CALLS:]) for name, times in taken.items()}  # without the first round


async def _times(client: Client[Any], tool: str, arguments: dict[str, object]) -> list[float]:
    taken = []
    for _ in range(CALLS):
        start = time.perf_counter()
        await client.call_tool(tool, arguments)
        taken.append((time.perf_counter() - start) * 1000)
    return taken


async def _direct() -> float:
    with synthetic_environment() as environment:
        async with environment.episode() as episode:
            taken = []
            for _ in range(ROUNDS * CALLS):
                start = time.perf_counter()
                await episode.acall(*READ)
                taken.append((time.perf_counter() - start) * 1000)
            return median(taken)


@contextmanager
def _server(kind: str) -> Iterator[str]:
    """Serve in a process of its own; give the address."""
    variables = {**os.environ, "PYTHONPATH": sys.path[0]}
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def serve(kind: str) -> None:
    """Serve until the process is ended; the first line on standard output is the address."""
    listener = listen("127.0.0.1", 0)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    if kind == "echo":
        echo: FastMCP[Any] = FastMCP("echo")
        echo.tool(_echo, name="echo")
        server_of(echo.http_app(path="/mcp")).run(sockets=[listener])
        return
    with synthetic_environment() as environment, Pool(environment, size=1) as pool:
        server_of(environment_app(mcp_server(environment, pool.episode))).run(sockets=[listener])


async def _echo(text: str) -> str:
    """Return the text."""
    return text


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--serve", choices=("environment", "echo"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    figures = measure_mcp()
    for name, value in figures.items():
        print(f"{name:<16} {value:8.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
