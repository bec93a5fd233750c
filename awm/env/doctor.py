"""What this machine offers for running generated code, found by trying, and what to do about what it lacks."""

from __future__ import annotations

import importlib.util
import os
import platform
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

from awm.env import landlock, seccomp
from awm.env.errors import EnvironmentFault, SandboxUnavailable
from awm.env.host import Sandbox
from awm.env.policy import OVERRIDE, Limits
from awm.env.results import SandboxReport

__all__ = ["Check", "Diagnosis", "State", "diagnose"]

State = Literal["ok", "limited", "missing"]
"""`limited`: works, with less than could be; `missing`: does not work."""

_PYTHONS = ((3, 11), (3, 14))
_OLDEST_SQLITE = (3, 37)
_RESTRICTED = {
    "socket": "open a socket",
    "fork": "make a process",
    "exec": "start a program",
    "write": "write to a file",
    "signal": "signal its parent",
    "read": "list the file system",
    "proc": "read about processes",
    "memory": "take 64 GiB of memory",
}
_FEATURES: dict[str, str] = {
    "full-text search (FTS5)": "CREATE VIRTUAL TABLE f USING fts5(a)",
    "JSON functions": "SELECT json_extract('[1]', '$[0]'), value FROM json_each('[1]')",
    "window functions": "SELECT sum(1) OVER ()",
    "recursive queries": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT i FROM n",
    "generated columns": "CREATE TABLE g(a, b GENERATED ALWAYS AS (a + 1) STORED)",
    "strict tables": "CREATE TABLE s(a INTEGER) STRICT",
    "upsert and RETURNING": "INSERT INTO u VALUES (1) ON CONFLICT(a) DO UPDATE SET a = 2 RETURNING a",
    "mathematical functions": "SELECT sqrt(2), ceil(1.5)",
}
_OPTIONAL = {"mathematical functions", "strict tables"}
_MODULE = '''
from awm.env.tool import Connection


def answer(db: Connection) -> int:
    """Answer."""
    return db.execute("SELECT a FROM t").fetchone()[0]
'''
_VERIFIER = """
from awm.env.verifier import Connection


def verify(initial: Connection, final: Connection, answer: str | None) -> dict:
    return {"verdict": "completed", "evidence": {}}
"""
_CLOCK = "2025-01-01 00:00:00"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at: what was found, and what to do if it is not all it could be."""

    name: str
    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was looked at. `isolated` tells whether generated code can be run here without trusting it."""

    isolated: bool
    mode: str | None
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether generated code is isolated and nothing is missing."""
        return self.isolated and all(check.state != "missing" for check in self.checks)


def diagnose() -> Diagnosis:
    """Look at this machine as it is, with the sandbox in the mode that AWM_SANDBOX names, or `auto`."""
    checks = [_python(), *_sqlite(), _kernel(), _landlock(), _seccomp(), _identity()]
    try:
        with Sandbox(Limits(memory_mb=256)) as sandbox:
            report = sandbox.report
            checks += [_mode(report), *_self_test(report), *_trials(sandbox)]
    except (SandboxUnavailable, OSError, ValueError) as error:
        checks.append(Check("sandbox", "missing", str(error), _sandbox_advice()))
        report = None
    checks.append(_imported())
    isolated = report is not None and report.mode != "off"
    return Diagnosis(isolated, report.mode if report else None, tuple(checks))


def _python() -> Check:
    low, high = _PYTHONS
    fits = low <= sys.version_info[:2] < high
    found = f"{platform.python_implementation()} {platform.python_version()}"
    return Check("Python", "ok" if fits else "missing", found, "" if fits else "use Python 3.11, 3.12 or 3.13")


def _sqlite() -> Iterator[Check]:
    advice = "use a Python whose sqlite3 module is linked to SQLite 3.37 or later, with its usual extensions"
    new_enough = sqlite3.sqlite_version_info >= _OLDEST_SQLITE
    yield Check("SQLite", "ok" if new_enough else "missing", sqlite3.sqlite_version, "" if new_enough else advice)
    for name, statement in _FEATURES.items():
        error = _failure(lambda statement=statement: _run(statement))  # type: ignore[misc]
        state: State = "ok" if error is None else "limited" if name in _OPTIONAL else "missing"
        yield Check(f"SQLite: {name}", state, error or "works", advice if error else "")
    error = _failure(_restore)
    yield Check("SQLite: databases as bytes", "missing" if error else "ok", error or "works", advice if error else "")


def _run(statement: str) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE u(a UNIQUE)")
        connection.execute(statement).fetchall()


def _restore() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(_database())
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.execute("SELECT a FROM t").fetchall()


def _database() -> bytes:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript("CREATE TABLE t(a); INSERT INTO t VALUES (42)")
        return connection.serialize()


def _failure(attempt: Callable[[], None]) -> str | None:
    """What went wrong in an attempt; None if nothing did."""
    try:
        attempt()
    except (sqlite3.Error, AttributeError) as error:
        return str(error)
    return None


def _kernel() -> Check:
    found = f"{platform.system()} {platform.release()} {platform.machine()}"
    if sys.platform != "linux":
        return Check("kernel", "missing", found, "isolation needs Linux: use a container or a virtual machine")
    return Check("kernel", "ok", found)


def _landlock() -> Check:
    abi = landlock.abi_version() if sys.platform == "linux" else 0
    if not abi:
        advice = (
            "not needed: generated code gets no file access at all instead. For it: a kernel from 5.13 with landlock "
            "in its list of security modules (the boot option lsm=), and a container that allows its system calls"
        )
        return Check("Landlock", "limited", "not available", advice)
    return Check("Landlock", "ok", f"ABI {abi}")


def _seccomp() -> Check:
    if sys.platform == "linux" and seccomp.is_available():
        return Check("seccomp", "ok", "filters are taken")
    advice = (
        "needed: a kernel with CONFIG_SECCOMP_FILTER on x86_64 or aarch64, and a container that allows seccomp(2), as "
        "Docker's own profile does"
    )
    return Check("seccomp", "missing", "not available", advice)


def _identity() -> Check:
    if not hasattr(os, "geteuid"):
        return Check("user", "ok", "unknown")
    user = "root; workers drop all capabilities" if os.geteuid() == 0 else f"user id {os.geteuid()}, as good as root"
    return Check("user", "ok", user)


def _mode(report: SandboxReport) -> Check:
    layers = ", ".join(report.layers)
    if report.mode == "off":
        advice = f"unset {OVERRIDE} to isolate generated code"
        return Check("sandbox", "missing", "off: generated code runs with your own rights", advice)
    if report.mode == "nofs":
        return Check("sandbox", "limited", f"nofs: {layers}", "works; only late imports and time zones by name fail")
    return Check("sandbox", "ok", f"{report.mode}: {layers}")


def _self_test(report: SandboxReport) -> Iterator[Check]:
    for name, outcome in report.self_test.items():
        yield Check(f"a worker may not {_RESTRICTED.get(name, name)}", "ok", f"refused ({outcome})")


def _trials(sandbox: Sandbox) -> Iterator[Check]:
    """Run one tool and one verifier, all the way."""
    yield _trial("a tool call", lambda: _call(sandbox))
    yield _trial("a verification", lambda: _verify(sandbox))


def _trial(name: str, attempt: Callable[[], str]) -> Check:
    try:
        found = attempt()
    except (EnvironmentFault, SandboxUnavailable) as error:
        found = str(error)
    advice = "" if found == "works" else "a worker has too little of something: look at `ulimit -a` and free memory"
    return Check(name, "ok" if found == "works" else "missing", found, advice)


def _call(sandbox: Sandbox) -> str:
    with sandbox.worker() as worker:
        worker.load(_MODULE)
        worker.open("doctor", _database(), _CLOCK)
        result = worker.call("doctor", "answer", {})
    return "works" if result.value == 42 else f"{result.kind}: {result.message}"


def _verify(sandbox: Sandbox) -> str:
    result = sandbox.verify(_VERIFIER, _database(), _database(), None, clock=_CLOCK)
    return "works" if result.ok else f"{result.kind}: {result.message}"


def _imported() -> Check:
    missing = [name for name in ("fastapi", "sqlalchemy") if importlib.util.find_spec(name) is None]
    if not missing:
        return Check("environments of AgentWorldModel-1K", "ok", "can run")
    advice = "only for such environments: pip install 'awm[awm1k]'"
    return Check("environments of AgentWorldModel-1K", "limited", f"need {' and '.join(missing)}", advice)


def _sandbox_advice() -> str:
    if os.environ.get(OVERRIDE):
        return f"unset {OVERRIDE}, or give it one of the modes"
    return "the message names the layer; a container or virtual machine with a current Linux kernel has all of them"
