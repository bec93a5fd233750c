"""`awm serve`: offer environments to others, over MCP or as an OpenEnv server."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from awm.commands.command import UsageError, plain_errors
from awm.env.environment import Environment, environment_slugs
from awm.env.errors import EnvironmentFault, MissingExtraError, SandboxUnavailable
from awm.env.host import Sandbox

__all__ = ["serve"]

_DATA = Path("data")


class Transport(StrEnum):
    """How MCP clients connect."""

    STDIO = "stdio"
    HTTP = "http"


@plain_errors
def serve(
    slug: Annotated[str | None, typer.Argument(help="The environment's slug.", show_default=False)] = None,
    every: Annotated[bool, typer.Option("--all", help="All environments, each at /SLUG/mcp.")] = False,
    openenv: Annotated[bool, typer.Option("--openenv", help="For OpenEnv's Agent World Model client.")] = False,
    transport: Annotated[Transport, typer.Option(help="How MCP clients connect.")] = Transport.HTTP,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen at; 0 takes a free one.")] = 8000,
) -> None:
    """Offer environments to agents and trainers. Every session is an episode of its own.

    `awm serve SLUG` is an MCP server at http://127.0.0.1:8000/mcp; with `--transport stdio` one that its client starts.
    `awm serve --all` offers all environments, `awm serve --openenv` does so to OpenEnv's clients.
    """
    if (slug is None) != every and not (openenv and slug is None):
        raise UsageError("name one environment, or say --all")
    if transport is Transport.STDIO and (every or openenv):
        raise UsageError("over stdio one environment is served, to MCP clients: name it, without --all and --openenv")
    _require(*(("openenv", "openenv") if openenv else ("fastmcp", "serve")))
    slugs = environment_slugs(_DATA) if slug is None else [slug]
    if not slugs:
        raise UsageError(f"there are no environments in {_DATA}; run `dvc repro` or `awm import` first")
    try:
        with ExitStack() as stack:
            sandbox = stack.enter_context(Sandbox())
            loaded = [stack.enter_context(Environment.load(_DATA, name, sandbox=sandbox)) for name in slugs]
            _run(loaded, every=every, openenv=openenv, transport=transport, host=host, port=port)
    except (EnvironmentFault, SandboxUnavailable, MissingExtraError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"can't serve at {host}:{port}: {error.strerror or error}") from None


def _run(
    environments: Sequence[Environment], *, every: bool, openenv: bool, transport: Transport, host: str, port: int
) -> None:
    if openenv:
        from awm.serve.openenv_app import run_openenv

        run_openenv(environments, host, port)
        return
    from awm.serve.mcp import run_all, run_mcp

    if every:
        run_all(environments, host, port)
    else:
        run_mcp(environments[0], "http" if transport is Transport.HTTP else "stdio", host, port)


def _require(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UsageError(f"this needs the package {package}: pip install 'awm[{extra}]'")
