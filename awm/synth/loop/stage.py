"""How a stage script runs: a user's or a provider's failure is one line and a non-zero exit, never a traceback."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from awm.config import ConfigError, Params, load_params
from awm.env.errors import SandboxUnavailable
from awm.llm.errors import LLMError
from awm.store import Layout, StoreError
from awm.synth.loop.report import StageFailed

__all__ = ["run_stage"]


def run_stage(stage: Callable[[Params, Layout], Coroutine[Any, Any, None]]) -> None:
    """Load the parameters, run a stage in the current folder, and exit.

    Exit status 0: done, rejects included. 1: the stage could not be done; the last line on standard error says why.
    """
    try:
        asyncio.run(stage(load_params(), Layout()))
    except (ConfigError, StoreError, LLMError, SandboxUnavailable, StageFailed) as error:
        _stop(str(error))
    except OSError as error:
        _stop(f"{error.strerror or type(error).__name__}: {error.filename or 'no file named'}; mend this and run again")
    except sqlite3.Error as error:
        _stop(f"a database failed ({error}); run the same command again, or delete .awm_cache if it fails again")
    except KeyboardInterrupt:
        _stop("interrupted; finished items are kept, run the same command again")


def _stop(message: str) -> None:
    stage = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    print(f"{stage}: {message}", file=sys.stderr)
    sys.exit(1)
