"""What every command shares: a user's mistake is one line, and JSON for programs."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, ParamSpec, TypeVar

import typer

from awm.commands.display import harmless
from awm.config import ConfigError
from awm.env.errors import SandboxUnavailable
from awm.llm.errors import LLMError
from awm.store import StoreError

__all__ = ["AsJson", "UsageError", "one_line", "plain_errors", "print_json"]

P = ParamSpec("P")
R = TypeVar("R")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class UsageError(ValueError):
    """What the user asked for can't be done; the message says why."""


def plain_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a user's mistake into one line on standard error and exit status 1."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ConfigError, StoreError, LLMError, SandboxUnavailable, UsageError, sqlite3.Error) as error:
            print(f"awm: {one_line(error)}", file=sys.stderr)
        except OSError as error:
            print(f"awm: {one_line(error.filename)}: {error.strerror}", file=sys.stderr)
        raise typer.Exit(1)

    return wrapped


def one_line(error: object) -> str:
    """Return a message on one line, safe to show on a terminal."""
    return harmless(" ".join(str(error).split()))


def print_json(value: Any) -> None:
    """Print a value as one line of JSON: ASCII, so that neither terminals nor encodings can be upset by it."""
    print(json.dumps(value), flush=True)
