"""An environment: what is loaded once, and what every episode of it starts from."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from awm.env.cells import split_cells
from awm.env.episode import SESSION, Episode
from awm.env.errors import EnvironmentFault
from awm.env.host import Sandbox
from awm.env.policy import Limits
from awm.env.published import published_evidence, published_verdict
from awm.env.results import ToolSignature
from awm.env.template import Template
from awm.env.toolworker import ToolWorker
from awm.env.verdict import code_verdict, failed_verdict
from awm.models import DatabaseSummary, EnvironmentKind, EnvironmentSummary, Scenario, Task, TaskSet, Toolset, Verdict
from awm.store import StoreError, parse_stored

__all__ = ["Environment", "environment_slugs"]

M = TypeVar("M", bound=BaseModel)


class Environment:
    """A scenario with its initial state, tools, tasks and verifiers, ready to be run.

    Use it as a context manager, or close it, to leave no process behind. Any thread may start episodes.

    :param slug: The scenario's key.
    :param source: The tool module.
    :param snapshot: The initial state: the bytes of a SQLite database.
    :param clock: The frozen time that episodes start at, `YYYY-MM-DD HH:MM:SS`.
    :param kind: What the source is: a tool module, or a published FastAPI + SQLAlchemy module.
    :param tasks: What agents are asked; their numbers are what `episode` takes.
    :param verifiers: Sources of verifiers, by the number of their task.
    :param sandbox: Where generated code runs; without one the environment makes its own, and closes it.
    :param limits: Bounds on time and memory of a sandbox of its own.
    """

    def __init__(
        self,
        slug: str,
        *,
        source: str,
        snapshot: bytes,
        clock: str,
        kind: EnvironmentKind = "module",
        scenario: Scenario | None = None,
        tasks: Sequence[Task] = (),
        verifiers: Mapping[int, str] | None = None,
        toolset: Toolset | None = None,
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.slug = slug
        self.source = source
        self.snapshot = snapshot
        self.clock = clock
        self.kind = kind
        self.scenario = scenario or Scenario(slug=slug, name=slug, description="", category="")
        self.tasks = tuple(tasks)
        self.verifiers: dict[int, str] = dict(verifiers or {})
        self.toolset = toolset
        self.sandbox = sandbox or Sandbox(limits)
        self._owns_sandbox = sandbox is None
        self._tools: tuple[ToolSignature, ...] | None = None
        self._published: Template | None = None
        self._lock = threading.Lock()

    @classmethod
    def load(cls, data: Path | str, slug: str, *, sandbox: Sandbox | None = None, limits: Limits | None = None) -> Self:
        """Load an environment that the pipeline built; raise StoreError for a file that is missing or damaged.

        :param data: The pipeline's folder `data`.
        :param slug: The scenario's key. One that the filter rejected can be loaded too, with all of its tasks; of one
            that it kept, only the tasks that passed.
        """
        folder = Path(data)
        if not (folder / "scenarios" / f"{slug}.json").is_file():
            known = ", ".join(environment_slugs(folder)) or "none"
            raise StoreError(f"no environment {slug!r} in {folder}; there are: {known}")
        source = _read(folder, "tools", slug, ".py").decode()
        summary = _model(folder, "databases", slug, DatabaseSummary)
        tasks = _model(folder, "tasks", slug, TaskSet).tasks
        cells = _verifiers(folder, slug)
        kind: EnvironmentKind = "module"
        if (folder / "environments" / f"{slug}.json").is_file():
            kept = _model(folder, "environments", slug, EnvironmentSummary)
            _check_kept(folder, kept, source, summary)
            kind = kept.kind
            tasks = tuple(task for task in tasks if task.number in kept.tasks)
        return cls(
            slug,
            source=source,
            snapshot=_read(folder, "databases", slug, ".db"),
            clock=summary.clock,
            kind=kind,
            scenario=_model(folder, "scenarios", slug, Scenario),
            tasks=tasks,
            verifiers={number: text for number, text in cells.items() if any(t.number == number for t in tasks)},
            toolset=_model(folder, "toolsets", slug, Toolset),
            sandbox=sandbox,
            limits=limits,
        )

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Start nothing yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __repr__(self) -> str:
        return f"<Environment {self.slug}: {len(self.tasks)} tasks>"

    @property
    def tools(self) -> tuple[ToolSignature, ...]:
        """What callers see of the tools, in the order of their lines; the first time, the module is loaded for it.

        Raises ModuleError for a module that can't be used.
        """
        if self._tools is None and self.kind == "fastapi":
            self._tools = tuple(self._template().tools)
        if self._tools is None:
            with self.sandbox.worker() as worker:
                self._tools = tuple(worker.load(self.source))
        return self._tools

    def task(self, number: int) -> Task:
        """Return a task by its number; raise ValueError if there is none."""
        for task in self.tasks:
            if task.number == number:
                return task
        numbers = ", ".join(str(task.number) for task in self.tasks) or "none"
        raise ValueError(f"{self.slug} has no task {number}; it has: {numbers}")

    def episode(self, task: int | None = None, *, record: bool = False) -> Episode:
        """Return a new episode. Its process starts with `with`, with `start`, or with what is first asked of it.

        :param task: Number of the task to verify; without one the episode can be played, not verified.
        :param record: Keep every call with its result in `Episode.steps`.
        """
        return Episode(self, None if task is None else self.task(task), record=record)

    def start_worker(self) -> ToolWorker:
        """Return a fresh process with the tools loaded and the initial state open, for one episode."""
        if self.kind == "fastapi":
            return self._template().worker()
        worker = self.sandbox.worker()
        try:
            worker.load(self.source)
            worker.open(SESSION, self.snapshot, self.clock)
        except BaseException:
            worker.kill()
            raise
        return worker

    def verify(self, task: int, final: bytes, answer: str | None = None) -> Verdict:
        """Judge a final state, and the answer if there is one, with the task's verifier.

        What keeps a verifier from a verdict is the environment's failure and gives `environment_error`; raises
        ValueError for a task without a verifier, and NoVerdictError for one that only collects evidence.
        """
        source = self.verifiers.get(self.task(task).number)
        if source is None:
            raise ValueError(f"task {task} of {self.slug} has no verifier")
        try:
            if self.kind == "fastapi":
                arguments = (source, self.snapshot, final, answer)
                return published_verdict(self.sandbox.verify_published(*arguments, clock=self.clock))
            return code_verdict(self.sandbox, source, self.snapshot, final, answer, clock=self.clock)
        except EnvironmentFault as fault:
            return failed_verdict(fault)

    def evidence(self, task: int, final: bytes, answer: str | None = None) -> dict[str, Any]:
        """Return what a published verifier collects about a final state, for a judge; `{"error": ...}` if it fails."""
        source = self.verifiers.get(self.task(task).number)
        if source is None or self.kind != "fastapi":
            raise ValueError(f"task {task} of {self.slug} has no verifier that collects evidence")
        result = self.sandbox.verify_published(source, self.snapshot, final, answer, clock=self.clock)
        return published_evidence(result)

    def _template(self) -> Template:
        """Return the published module, loaded once, that episodes are copied from."""
        with self._lock:
            if self._published is None:
                self._published = self.sandbox.template(self.source, self.snapshot, self.clock, session=SESSION)
            return self._published

    def close(self) -> None:
        """End the sandbox, if it is the environment's own, with every process in it."""
        with self._lock:
            if self._published is not None:
                self._published.close()
            self._published = None
        if self._owns_sandbox:
            self.sandbox.close()


def environment_slugs(data: Path | str) -> list[str]:
    """Return the slugs of the environments that passed the pipeline's filter, sorted."""
    return sorted(path.stem for path in (Path(data) / "environments").glob("*.json"))


def _read(folder: Path, step: str, slug: str, suffix: str) -> bytes:
    path = folder / step / f"{slug}{suffix}"
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise StoreError(f"{path}: not found; run `dvc repro {step}`") from None


def _model(folder: Path, step: str, slug: str, model: type[M]) -> M:
    return parse_stored(folder / step / f"{slug}.json", _read(folder, step, slug, ".json").decode(), model, step)


def _verifiers(folder: Path, slug: str) -> dict[int, str]:
    """Return the sources of the verifiers by task; none where the step has not run."""
    path = folder / "verifiers" / f"{slug}.py"
    if not path.is_file():
        return {}
    try:
        return {int(title): source for title, source in split_cells(path.read_text(encoding="utf-8")).items()}
    except ValueError as error:
        raise StoreError(f"{path}: {error}; run `dvc repro -f verifiers`") from None


def _check_kept(folder: Path, kept: EnvironmentSummary, source: str, summary: DatabaseSummary) -> None:
    """Refuse parts that are not those the filter saw."""
    same_tools = hashlib.sha256(source.encode()).hexdigest() == kept.tools_sha256
    if not same_tools or summary.content_hash != kept.content_hash:
        what = "database" if same_tools else "tool module"
        raise StoreError(f"{folder}: the {what} of {kept.slug} changed after the filter ran; run `dvc repro filter`")
