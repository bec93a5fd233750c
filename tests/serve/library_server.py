"""The lending library, with tools that fail in every way, as a server of its own process; and what a process holds.

`python -m serve.library_server` serves it over MCP: over stdio, or over HTTP at a free port with the argument `http`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from awm.env.environment import Environment
from awm.env.host import Sandbox
from awm.env.policy import Limits
from awm.synth.databases import initial_state
from synth.library_environment import CLOCK, DATA, MODULE, SCENARIO, SCHEMA, TASKS, TOOLSET, VERIFIER

COMMAND = [sys.executable, "-m", "serve.library_server"]
TESTS = Path(__file__).parents[1]
VARIABLES = {**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent}"}
LIMITS = Limits(call_s=2.0, load_s=5.0, verify_s=5.0, grace_s=0.5, memory_mb=256)

BROKEN_TOOLS = '''

def count_days(db: Connection, loan_id: Annotated[int, Field(description="Loan")]) -> int:
    """Divide by what is not there."""
    return loan_id // len([])


def take_time(db: Connection) -> int:
    """Count for a while."""
    return sum(1 for _ in range(5_000_000))


def end_worker(db: Connection) -> None:
    """End the process."""
    import re

    re.enum.sys.modules["os"]._exit(3)


def echo_zip(
    db: Connection,
    zip_code: Annotated[str, Field(description="Zip code")],
    options: Annotated[dict | None, Field(description="Whatever")] = None,
) -> str:
    """Return the zip code."""
    return zip_code
'''

WRITE_VERIFIER = """\
from awm.env.verifier import Connection, state_diff


def verify(initial: Connection, final: Connection, answer: str | None) -> dict:
    changed = state_diff(initial, final).get("loans", {}).get("changed", [])
    renewed = [entry["key"]["id"] for entry in changed if "due_on" in entry["after"]]
    verdict = "completed" if renewed == [1] else "partially_completed" if renewed else "agent_error"
    return {"verdict": verdict, "evidence": {"renewed": renewed}}
"""


def library(slug: str = "lending_library", sandbox: Sandbox | None = None) -> Environment:
    """Return the environment, with tools that fail in every way."""
    return Environment(
        slug,
        source=MODULE + BROKEN_TOOLS,
        snapshot=initial_state(SCHEMA, DATA, CLOCK),
        clock=CLOCK,
        scenario=SCENARIO.model_copy(update={"slug": slug}),
        tasks=TASKS.tasks,
        verifiers={1: VERIFIER, 2: WRITE_VERIFIER},
        toolset=TOOLSET,
        sandbox=sandbox,
    )


def open_files() -> list[str]:
    """Return what the descriptors of this process lead to."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sorted(found)


def processes() -> dict[int, int]:
    """Return the processes of this machine that have not ended, each with its parent."""
    found: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if state != "Z":
                found[int(path.name)] = int(parent)
    return found


def descendants(ancestor: int | None = None) -> set[int]:
    """Return the processes below one, below this one by default."""
    parents = processes()
    found: set[int] = set()
    fresh = {ancestor or os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        found |= fresh
    return found


def gone(pids: set[int]) -> bool:
    """Whether processes end within ten seconds."""
    end = time.monotonic() + 10
    while (left := pids & set(processes())) and time.monotonic() < end:
        time.sleep(0.05)
    return not left


if __name__ == "__main__":
    from awm.serve.mcp import run_mcp

    with Sandbox(LIMITS) as own_sandbox:
        run_mcp(library(sandbox=own_sandbox), "http" if sys.argv[1:] == ["http"] else "stdio", port=0)
