"""Trying a tool module in the sandbox: every tool is called well, with unknown ids and with malformed values.

What must hold, for every call:
* nothing crashes, hangs or returns something that isn't JSON;
* a call that fails, and every call of a read-only tool, leaves the database byte-identical;
* no row ever refers to a row that isn't there;
* an unknown id is a tool error that the agent can read;
* two episodes that run interleaved see what two separate ones see.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from awm.env.database import integrity_problems, open_database
from awm.env.errors import EnvironmentFault
from awm.env.host import Sandbox, ToolWorker
from awm.env.results import CallResult
from awm.models import Toolset, ToolSpec
from awm.synth.arguments import Rows, draw_arguments, malformed_arguments, missing_id_arguments
from awm.synth.loop.step import Problem

__all__ = ["Call", "Trial", "try_module"]

SESSION = "trial"
ROUNDS = 40
_FAULTS = {"crash", "timeout", "unserialisable"}


@dataclass(frozen=True)
class Call:
    """A tool call."""

    tool: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        """The call as text, long values cut."""
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.arguments.items())
        return f"{self.tool}({shown})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"<{len(text)} characters>"


@dataclass
class Trial:
    """One module on one initial state, in a worker that is replaced when it dies."""

    sandbox: Sandbox
    source: str
    snapshot: bytes
    clock: str
    worker: ToolWorker | None = None
    problems: list[Problem] = field(default_factory=list)

    def call(self, call: Call, *, must_fail: str = "", read_only: bool = False) -> CallResult | None:
        """One call on the initial state, with all that must hold after any call; None when the worker died of it.

        `must_fail` says why the call has to be refused.
        """
        worker = self._fresh()
        try:
            result = worker.call(SESSION, call.tool, call.arguments)
            changed = worker.changed(SESSION)
            broken = integrity_problems_of(worker.dump(SESSION)) if changed else []
        except EnvironmentFault as fault:
            self._drop()
            self._report("crash", call, f"the process ended: {fault}")
            return None
        if result.kind in _FAULTS:
            where = f" (line {result.line})" if result.line else ""
            self._report(result.kind, call, f"{result.message}{where}; expected failures raise ToolError")
        elif must_fail and result.ok:
            self._report("accepted", call, f"succeeded, but {must_fail}: raise ToolError")
        if changed and (read_only or not result.ok):
            what = "a read-only tool" if read_only else "a failing call"
            self._report("wrote", call, f"{what} changed the database")
        for message in broken[:2]:
            self._report("orphan", call, f"left the database broken: {message}")
        return result

    def changed(self) -> bool:
        """Whether the last call changed the database."""
        return self.worker is not None and self.worker.changed(SESSION)

    def close(self) -> None:
        """End the worker."""
        self._drop()

    def _fresh(self) -> ToolWorker:
        if self.worker is None:
            self.worker = start_worker(self.sandbox, self.source)
            self.worker.open(SESSION, self.snapshot, self.clock)
        else:
            self.worker.reset(SESSION)
        return self.worker

    def _drop(self) -> None:
        if self.worker is not None:
            self.worker.kill()
            self.worker = None

    def _report(self, reason: str, call: Call, message: str) -> None:
        self.problems.append(Problem(reason, f"{call}: {message}", call.tool))


def start_worker(sandbox: Sandbox, source: str) -> ToolWorker:
    """A worker with the module loaded; ModuleError when it can't be."""
    worker = sandbox.worker()
    try:
        worker.load(source)
    except BaseException:
        worker.kill()
        raise
    return worker


def integrity_problems_of(snapshot: bytes) -> list[str]:
    """Integrity problems of a database given as bytes."""
    connection = open_database(snapshot)
    try:
        return integrity_problems(connection)
    finally:
        connection.close()


def try_module(
    sandbox: Sandbox, source: str, toolset: Toolset, snapshot: bytes, clock: str, *, valid_calls: int, seed: int
) -> list[Problem]:
    """Try every tool of a module; at most three problems are reported for each."""
    trial = Trial(sandbox, source, snapshot, clock)
    rows = Rows(snapshot)
    good: list[Call] = []
    try:
        for tool in toolset.tools:
            if (valid := _try_valid(trial, tool, rows, valid_calls, seed)) is not None:
                good.append(valid)
                _try_bad(trial, tool, rows, valid.arguments)
    finally:
        trial.close()
    problems = [problem for tool in toolset.tools for problem in _first_of(trial.problems, tool.name)]
    return problems or _try_interleaved(sandbox, source, snapshot, clock, good)


def _first_of(problems: Sequence[Problem], tool: str) -> list[Problem]:
    return list({problem.message: problem for problem in problems if problem.part == tool}.values())[:3]


def _try_valid(trial: Trial, tool: ToolSpec, rows: Rows, attempts: int, seed: int) -> Call | None:
    """Call a tool with arguments from real rows until it succeeds, and, where it writes, until it changes something.

    The first `ROUNDS` different calls are made in any case: many bugs show only in some states of a row.
    """
    refusals: dict[str, str] = {}
    succeeded: Call | None = None
    good: Call | None = None
    for turn, call in enumerate(_different_calls(tool, rows, attempts, seed)):
        if good is not None and turn >= ROUNDS:
            break
        before = len(trial.problems)
        result = trial.call(call, read_only=tool.read_only)
        if len(trial.problems) > before or result is None:
            return None
        if not result.ok:
            refusals.setdefault(result.message, str(call))
            continue
        succeeded = succeeded or call
        if tool.read_only or trial.changed():
            good = good or call
    if good is None:
        trial.problems.append(_no_success(tool, succeeded, attempts, refusals))
    return good


def _different_calls(tool: ToolSpec, rows: Rows, attempts: int, seed: int) -> Iterator[Call]:
    """Valid calls, none of them twice."""
    seen: set[str] = set()
    for arguments in islice(draw_arguments(tool, rows, str(seed)), attempts):
        key = repr(arguments)
        if key not in seen:
            seen.add(key)
            yield Call(tool.name, arguments)


def _no_success(tool: ToolSpec, succeeded: Call | None, attempts: int, refusals: dict[str, str]) -> Problem:
    if succeeded is not None:
        message = f"{succeeded}: succeeds, but no valid call changed the database, and read_only is false"
        return Problem("no_effect", message, tool.name)
    shown = "; ".join(f"{call}: {message}" for message, call in list(refusals.items())[:3])
    message = f"none of {attempts} calls with arguments from real rows succeeded: {shown}"
    return Problem("never_succeeds", message, tool.name)


def _try_bad(trial: Trial, tool: ToolSpec, rows: Rows, valid: dict[str, Any]) -> None:
    """Unknown ids, wrong types and odd values, one parameter at a time."""
    for parameter, arguments in missing_id_arguments(tool, rows, valid):
        reason = f"{parameter.name} names no {parameter.column}"
        trial.call(Call(tool.name, arguments), must_fail=reason, read_only=tool.read_only)
    for what, refused, arguments in malformed_arguments(tool, valid):
        reason = f"{what} does not fit the toolset" if refused else ""
        trial.call(Call(tool.name, arguments), must_fail=reason, read_only=tool.read_only)


def _try_interleaved(
    sandbox: Sandbox, source: str, snapshot: bytes, clock: str, calls: Sequence[Call]
) -> list[Problem]:
    """Two episodes with the same calls in opposite order, first each alone, then interleaved in one process."""
    forward, backward = list(calls), list(reversed(calls))
    alone = [_run_alone(sandbox, source, snapshot, clock, order) for order in (forward, backward)]
    worker = start_worker(sandbox, source)
    together: tuple[list[Any], list[Any]] = ([], [])
    try:
        for session in ("a", "b"):
            worker.open(session, snapshot, clock)
        for first, second in zip(forward, backward, strict=True):
            together[0].append(_comparable(worker.call("a", first.tool, first.arguments)))
            together[1].append(_comparable(worker.call("b", second.tool, second.arguments)))
        hashes = [worker.content_hash(session) for session in ("a", "b")]
    finally:
        worker.kill()
    problems = []
    for order, (results, final), mixed, mixed_final in zip((forward, backward), alone, together, hashes, strict=True):
        for call, expected, found in zip(order, results, mixed, strict=True):
            if expected != found:
                message = f"{call}: gives another result when another episode runs in between; the module keeps state"
                problems.append(Problem("state", message, call.tool))
        if not problems and final != mixed_final:
            problems.append(Problem("state", "two interleaved episodes end in other databases than two separate ones"))
    return problems[:3]


def _run_alone(
    sandbox: Sandbox, source: str, snapshot: bytes, clock: str, calls: Sequence[Call]
) -> tuple[list[Any], str]:
    worker = start_worker(sandbox, source)
    try:
        worker.open(SESSION, snapshot, clock)
        results = [_comparable(worker.call(SESSION, call.tool, call.arguments)) for call in calls]
        return results, worker.content_hash(SESSION)
    finally:
        worker.kill()


def _comparable(result: CallResult) -> Any:
    return [result.kind, result.value, result.message]
