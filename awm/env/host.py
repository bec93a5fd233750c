"""The trusted side of the sandbox: start the zygote, ask it for workers, talk to them, kill them.

What a worker says is untrusted: sizes, shapes and times are checked, and a worker that breaks a rule is killed. It can
forge its own answers, but reach nothing else.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar, get_args

from awm.env.channel import Worker
from awm.env.errors import EnvironmentFault, SandboxUnavailable, WorkerDied, WorkerTimeout
from awm.env.launch import Zygote, ZygoteGoneError
from awm.env.lockdown import not_refused
from awm.env.policy import MODES, OVERRIDE, Limits, Mode, Runtime
from awm.env.results import SandboxReport, VerifierKind, VerifierResult
from awm.env.shared import SharedBytes
from awm.env.template import Template, require_extra
from awm.env.toolworker import DATABASE_S, LoadedModule, ToolWorker, checked_reply, source_key

__all__ = ["Sandbox", "ToolWorker"]

W = TypeVar("W", bound=Worker)

_START_S = 10.0
_VERIFIER_KINDS = frozenset(get_args(VerifierKind))
_warned: set[str] = set()


class Sandbox:
    """Processes for generated code, each locked down and tested before it sees any.

    The first worker starts the zygote. Workers may be made from any thread; a forked process gets a zygote of its own.
    Close it, or use it as a context manager, to leave no process behind.

    :param limits: Bounds on time and memory.
    :param mode: `auto` takes the strictest that this machine has; `strict` demands Landlock; `nofs` gives no file
        access at all; `off` runs generated code with your own rights. The environment variable AWM_SANDBOX overrides.
    """

    _runtime: Runtime = "module"

    def __init__(self, limits: Limits | None = None, mode: Mode = "auto") -> None:
        self.limits = limits or Limits()
        self._apps: AppSandbox | None = None
        self._mode = _chosen_mode(mode)
        self._lock = threading.Lock()
        self._zygote: Zygote | None = None
        self._owner = os.getpid()
        self._plan: SandboxReport | None = None
        self._report: SandboxReport | None = None
        self._modules: dict[str, LoadedModule] = {}
        self._verifiers: dict[str, bytes] = {}
        self._files = SharedBytes()

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    @property
    def report(self) -> SandboxReport:
        """What holds around generated code here, as a worker found by trying."""
        if self._report is None:
            self._spawn(b"t").kill()
        assert self._report is not None
        return self._report

    def worker(self) -> ToolWorker:
        """Return a process of its own for one tool module; raise SandboxUnavailable where none can be isolated."""
        return ToolWorker(self._spawn(b"t"), self.limits, self._modules, self._files)

    def verify(self, source: str, initial: bytes, final: bytes, answer: str | None, *, clock: str) -> VerifierResult:
        """Run a verifier once, in a process of its own, on two read-only databases.

        :param initial: Snapshot that the episode started from.
        :param final: Database at the end of the episode.
        :param answer: The agent's final answer, if it gave one.
        :param clock: The environment's frozen time, `YYYY-MM-DD HH:MM:SS`.

        Raises ModuleError for a source that is no verifier, and EnvironmentFault for databases that can't be opened.
        """
        key = source_key(source)
        arguments = (source, _plain(answer), clock, self._verifiers.get(key))
        return self._verify("verify", initial, final, arguments, key)

    def verify_published(
        self, source: str, initial: bytes, final: bytes, answer: str | None, *, clock: str
    ) -> VerifierResult:
        """Run a verifier of AgentWorldModel-1K once, as `verify` does; its function's name tells its form.

        The value is `{"form": "completion" | "evidence", "result": <what the function gave>}`.
        """
        source_key(source)
        return self._verify("verify_published", initial, final, (source, _plain(answer), clock))

    def template(self, source: str, snapshot: bytes, clock: str, *, session: str) -> Template:
        """Return a published FastAPI + SQLAlchemy module, to be copied for each episode, with a session open.

        :param session: Name of the session that each copy starts with.

        Raises MissingExtraError where FastAPI or SQLAlchemy are not installed.
        """
        require_extra()
        with self._lock:
            if self._apps is None:
                self._apps = AppSandbox(self.limits, self._mode)
        return Template(self._apps.fork, self._apps.admit, self.limits, source, snapshot, clock, session)

    def _verify(
        self, operation: str, initial: bytes, final: bytes, arguments: tuple[Any, ...], key: str | None = None
    ) -> VerifierResult:
        """Run a verifier; keep its compiled code under the key, if there is one, for the next time."""
        limits = self.limits
        worker = self._spawn(b"v")
        try:
            worker.hand_over("initial", initial, self._files, within=DATABASE_S)
            worker.request("keep", "final", final, within=DATABASE_S)
            reply = worker.request(operation, *arguments, within=limits.verify_s + limits.grace_s)
            kind, value, message, line, _ = checked_reply(worker, reply, _VERIFIER_KINDS)
            if key is not None and key not in self._verifiers and kind == "ok":
                code = worker.request("compiled", within=limits.grace_s)
                if not isinstance(code, bytes):
                    raise worker.broken("compiled code of another type")
                self._verifiers[key] = code
        except WorkerTimeout:
            return VerifierResult("timeout", message=f"no result within {limits.verify_s:g} s")
        except WorkerDied:
            return VerifierResult("crash", message="the verifier ended its process")
        finally:
            worker.kill()
        return VerifierResult(kind, value, message, line)

    def close(self) -> None:
        """End the zygote and every worker; wait until they are gone."""
        self._files.close()
        with self._lock:
            if self._apps is not None:
                self._apps.close()
            self._apps = None
            if self._zygote is not None and self._owner == os.getpid():
                self._zygote.close()
            self._zygote = None

    def _spawn(self, role: bytes) -> Worker:
        for last in (
            False,
            True,
        ):  # a machine short of memory may lose a worker; a sandbox that can't be had fails twice
            worker = self.fork(role, Worker)
            try:
                return self.admit(worker, worker.greeting(_START_S))
            except EnvironmentFault as error:
                worker.kill()
                if last:
                    raise SandboxUnavailable(_no_worker(str(error))) from None
        raise AssertionError

    def fork(self, role: bytes, make: type[W]) -> W:
        """Return a process of a role, whose greeting is still to be read and admitted."""
        with self._lock:
            if self._owner != os.getpid():  # a forked process must not use its parent's zygote
                self._zygote, self._owner = None, os.getpid()
            if self._zygote is not None:
                try:
                    return self._zygote.fork(role, make)
                except ZygoteGoneError:
                    self._zygote = None
            self._zygote = Zygote(self._mode, self.limits, self._runtime)
            self._plan = self._zygote.report
            return self._zygote.fork(role, make)

    def admit(self, worker: W, tested: Any) -> W:
        """Refuse a worker that could do what it must not."""
        assert self._plan is not None
        report = self._plan
        allowed = not_refused(report.mode, tested if isinstance(tested, dict) else {})
        if allowed:
            worker.kill()
            raise SandboxUnavailable(_no_worker(f"a locked-down worker could still do this: {', '.join(allowed)}"))
        if self._report is None:
            self._report = replace(report, self_test=tested)
            _warn(report)
        return worker


class AppSandbox(Sandbox):
    """Processes for published modules, from a zygote that has FastAPI and SQLAlchemy in it."""

    _runtime = "fastapi"


def _plain(answer: str | None) -> str | None:
    """Return the answer as text that can be sent: an agent may write half a surrogate pair."""
    return None if answer is None else answer.encode("utf-8", "replace").decode()


def _chosen_mode(mode: str) -> Mode:
    override = os.environ.get(OVERRIDE, "").strip()
    chosen = (override or mode).lower()
    if chosen not in MODES:
        named = f"{OVERRIDE}={override}" if override else repr(mode)
        raise SandboxUnavailable(f"{named} is no mode of the sandbox; take one of {', '.join(MODES)}")
    return chosen  # type: ignore[return-value]


def _no_worker(why: str) -> str:
    return f"cannot isolate generated code: {why}; set {OVERRIDE}=off to run it with your own rights"


def _warn(report: SandboxReport) -> None:
    """Say once per process when less holds than could."""
    if report.mode in _warned:
        return
    if report.mode == "off":
        text = "the sandbox is off: generated code runs with your own rights"
    elif report.mode == "nofs" and not report.landlock:
        text = "Landlock is not available: generated code gets no file access at all"
    else:
        return
    _warned.add(report.mode)
    print(f"awm: {text}", file=sys.stderr)
