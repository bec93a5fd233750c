"""Trying a tool module in the sandbox: every tool is called well, with unknown ids and with malformed values.

What must hold, for every call:
* nothing crashes, hangs or returns something that isn't JSON;
* a call that fails, and every call of a read-only tool, leaves the database byte-identical;
* no row ever refers to a row that isn't there;
* an unknown id is a tool error that the agent can read;
* two episodes that run interleaved see what two separate ones see.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from awm.env.database import integrity_problems, open_database
from awm.env.errors import EnvironmentFault
from awm.env.host import Sandbox, ToolWorker
from awm.env.results import CallResult
from awm.models import Toolset, ToolSpec
from awm.synth.arguments import Rows, changed_rows, draw_arguments, malformed_arguments, missing_id_arguments
from awm.synth.loop.step import Problem

__all__ = ["Call", "Trial", "try_module"]

SESSION = "trial"
ROUNDS = 40
ROUNDS_AFTER = 10
KEPT_WRITES = 6
LOOKED_THROUGH = 10
DEPTH = 3
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


@dataclass(frozen=True)
class Tried:
    """What a call gave, and the database after it."""

    result: CallResult
    state: bytes
    changed: bool


@dataclass
class Trial:
    """One module on one initial state, in a worker that is replaced when it dies."""

    sandbox: Sandbox
    source: str
    snapshot: bytes
    clock: str
    worker: ToolWorker | None = None
    problems: list[Problem] = field(default_factory=list)
    moved: bool = False
    """Whether the worker's database is no longer the initial state."""
    looked_through: Counter[str] = field(default_factory=Counter)

    def call(
        self, call: Call, *, after: Sequence[Call] = (), must_fail: str = "", read_only: bool = False
    ) -> Tried | None:
        """One call, on the initial state or after other calls, with all that must hold after any call.

        `must_fail` says why the call has to be refused. None when the worker died of it.
        """
        worker = self._fresh()
        try:
            for earlier in after:
                worker.call(SESSION, earlier.tool, earlier.arguments)
            before = worker.dump(SESSION) if after else self.snapshot
            result = worker.call(SESSION, call.tool, call.arguments)
            self.moved = bool(after) or worker.changed(SESSION)
            final = worker.dump(SESSION) if self.moved else self.snapshot
        except EnvironmentFault as fault:
            self._drop()
            self._report("crash", call, f"the process ended: {fault}")
            return None
        tried = Tried(result, final, changed=final != before)
        self._judge(call, tried, must_fail=must_fail, read_only=read_only)
        return tried

    def state_after(self, calls: Sequence[Call]) -> bytes:
        """The database after some calls on the initial state."""
        worker = self._fresh()
        self.moved = True
        for call in calls:
            worker.call(SESSION, call.tool, call.arguments)
        return worker.dump(SESSION)

    def close(self) -> None:
        """End the worker."""
        self._drop()

    def _judge(self, call: Call, tried: Tried, *, must_fail: str, read_only: bool) -> None:
        """Book what a call should not have done."""
        result = tried.result
        if result.kind in _FAULTS:
            where = f" (line {result.line})" if result.line else ""
            self._report(result.kind, call, f"{result.message}{where}; expected failures raise ToolError")
        elif must_fail and result.ok:
            self._report("accepted", call, f"succeeded, but {must_fail}: raise ToolError")
        if tried.changed and (read_only or not result.ok):
            what = "a read-only tool" if read_only else "a failing call"
            self._report("wrote", call, f"{what} changed the database")
        if tried.changed and self.looked_through[call.tool] < LOOKED_THROUGH:
            self.looked_through[call.tool] += 1
            for message in integrity_problems_of(tried.state)[:2]:
                self._report("orphan", call, f"left the database broken: {message}")

    def _fresh(self) -> ToolWorker:
        if self.worker is None:
            self.worker = start_worker(self.sandbox, self.source)
            self.worker.open(SESSION, self.snapshot, self.clock)
        elif self.moved:
            self.worker.reset(SESSION)
        self.moved = False
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


@dataclass(frozen=True)
class Trials:
    """What trying a module gave: its problems, at most three a tool, and the tools that no call succeeded for.

    A tool that never succeeds is no problem by itself: the sample data may hold no row in the state that it needs.
    """

    problems: list[Problem]
    unreached: list[Problem]


def try_module(
    sandbox: Sandbox, source: str, toolset: Toolset, snapshot: bytes, clock: str, *, valid_calls: int, seed: int
) -> Trials:
    """Try every tool of a module."""
    trial = Trial(sandbox, source, snapshot, clock)
    search = Search(trial, valid_calls, seed)
    try:
        for tool in toolset.tools:
            search.on_initial_state(tool)
        search.after_other_tools(toolset.tools)
        for tool in toolset.tools:
            if tool.name in search.found:
                _try_bad(trial, tool, search.found[tool.name])
            elif search.is_unreached(tool):
                _try_bad(trial, tool, Found(search.plain_call(tool)))
    finally:
        trial.close()
    problems = [problem for tool in toolset.tools for problem in _first_of(trial.problems, tool.name)]
    calls = [found.call for found in search.found.values() if not found.after]
    problems = problems or _try_interleaved(sandbox, source, snapshot, clock, calls)
    return Trials(problems, [search.no_success(tool) for tool in toolset.tools if search.is_unreached(tool)])


def _first_of(problems: Sequence[Problem], tool: str) -> list[Problem]:
    return list({problem.message: problem for problem in problems if problem.part == tool}.values())[:3]


@dataclass(frozen=True)
class Found:
    """A call that works: it succeeds and, where its tool writes, changes something; `after` other calls, if need be."""

    call: Call
    after: tuple[Call, ...] = ()


class Search:
    """Looks for a call of each tool that works.

    Some tools work only in a state that no sample row is in, but that another tool leads to (schedule what was
    approved): they are tried after calls of other tools, up to `DEPTH` of them.
    """

    def __init__(self, trial: Trial, attempts: int, seed: int) -> None:
        self.trial = trial
        self.attempts = attempts
        self.seed = seed
        self.rows = Rows(trial.snapshot)
        self.found: dict[str, Found] = {}
        self.writes: list[Found] = []
        self.refusals: dict[str, dict[str, str]] = {}
        self.without_effect: dict[str, Call] = {}

    def on_initial_state(self, tool: ToolSpec) -> None:
        """Call a tool with arguments from real rows until a call works.

        The first `ROUNDS` different calls are made in any case: many bugs show only in some states of a row.
        """
        changes = 0
        for turn, call in enumerate(_different_calls(tool, self.rows, self.attempts, self.seed)):
            if tool.name in self.found and turn >= ROUNDS:
                break
            before = len(self.trial.problems)
            works = self._works(tool, call, ())
            if len(self.trial.problems) > before:
                self.found.pop(tool.name, None)
                return
            if works:
                self.found.setdefault(tool.name, Found(call))
                if not tool.read_only and changes < KEPT_WRITES:
                    changes += 1
                    self.writes.append(Found(call))

    def after_other_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Try the tools that no call was found for after calls that are known to change something."""
        waiting = [tool for tool in tools if tool.name not in self.found and not self._is_broken(tool)]
        prefixes = list(self.writes)
        for _ in range(DEPTH):
            fresh: list[Found] = []
            for prefix in prefixes if waiting else []:
                calls = (*prefix.after, prefix.call)
                rows = Rows(self.trial.state_after(calls))
                changed = changed_rows(self.rows, rows)
                for tool in [tool for tool in waiting if _tables(tool, rows) & changed.keys()]:
                    works = self._first_that_works(tool, rows, changed, calls)
                    if works is not None:
                        self.found[tool.name] = works
                        fresh.append(works)
                    if works is not None or self._is_broken(tool):
                        waiting.remove(tool)
            prefixes = fresh

    def is_unreached(self, tool: ToolSpec) -> bool:
        """Whether every call of a tool was refused, or changed nothing though it should, and nothing else is wrong."""
        return tool.name not in self.found and not self._is_broken(tool)

    def plain_call(self, tool: ToolSpec) -> Call:
        """A call with all arguments from real rows, whether it works or not."""
        calls = islice(draw_arguments(tool, self.rows, str(self.seed)), 2)
        return Call(tool.name, list(calls)[-1])

    def no_success(self, tool: ToolSpec) -> Problem:
        """What to say of a tool that no call was found for."""
        if (call := self.without_effect.get(tool.name)) is not None:
            message = f"{call}: succeeds, but no valid call changed the database, and read_only is false"
            return Problem("no_effect", message, tool.name)
        refusals = self.refusals.get(tool.name, {})
        shown = "; ".join(f"{call}: {message}" for message, call in list(refusals.items())[:3])
        message = f"no call with arguments from real rows succeeded, also not after calls of other tools: {shown}"
        return Problem("never_succeeds", message, tool.name)

    def _first_that_works(
        self, tool: ToolSpec, rows: Rows, changed: dict[str, dict[str, Any]], after: tuple[Call, ...]
    ) -> Found | None:
        """A call that works on the rows which the earlier calls changed."""
        for call in _different_calls(tool, rows, ROUNDS_AFTER, self.seed, changed):
            if self._works(tool, call, after):
                return Found(call, after)
        return None

    def _works(self, tool: ToolSpec, call: Call, after: tuple[Call, ...]) -> bool:
        tried = self.trial.call(call, after=after, read_only=tool.read_only)
        if tried is None:
            return False
        if not tried.result.ok:
            self.refusals.setdefault(tool.name, {}).setdefault(tried.result.message, str(call))
            return False
        if not tool.read_only and not tried.changed:
            self.without_effect.setdefault(tool.name, call)
            return False
        return True

    def _is_broken(self, tool: ToolSpec) -> bool:
        return any(problem.part == tool.name for problem in self.trial.problems)


def _tables(tool: ToolSpec, rows: Rows) -> set[str]:
    """Tables that a tool's arguments name rows of."""
    return {rows.source(parameter.column)[0] for parameter in tool.parameters if parameter.column}


def _different_calls(
    tool: ToolSpec, rows: Rows, attempts: int, seed: int, pinned: dict[str, dict[str, Any]] | None = None
) -> Iterator[Call]:
    """Valid calls, none of them twice."""
    seen: set[str] = set()
    for arguments in islice(draw_arguments(tool, rows, str(seed), pinned), attempts):
        key = repr(arguments)
        if key not in seen:
            seen.add(key)
            yield Call(tool.name, arguments)


def _try_bad(trial: Trial, tool: ToolSpec, found: Found) -> None:
    """Unknown ids, wrong types and odd values, one parameter at a time."""
    rows = Rows(trial.state_after(found.after)) if found.after else Rows(trial.snapshot)
    valid = found.call.arguments
    for parameter, arguments in missing_id_arguments(tool, rows, valid):
        reason = f"{parameter.name} names no {parameter.column}"
        call = Call(tool.name, arguments)
        trial.call(call, after=found.after, must_fail=reason, read_only=tool.read_only)
    for what, refused, arguments in malformed_arguments(tool, valid):
        reason = f"{what} does not fit the toolset" if refused else ""
        call = Call(tool.name, arguments)
        trial.call(call, after=found.after, must_fail=reason, read_only=tool.read_only)


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
