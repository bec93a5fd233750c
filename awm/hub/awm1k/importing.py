"""Turn a folder in the published layout into environments of ours.

For each scenario: build the database, start the module on it in the sandbox, list its tools, run every verifier once on
the untouched state. What works is stored as the pipeline stores its own environments, so that `Environment.load` runs
it; the module stays as it was published.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from awm.env.cells import join_cells
from awm.env.clock import FrozenClock
from awm.env.database import content_hash, open_database, table_counts
from awm.env.errors import EnvironmentFault
from awm.env.host import Sandbox
from awm.env.results import ToolSignature
from awm.env.template import require_extra
from awm.hub.awm1k.conversion import guessed_kind, toolset
from awm.hub.awm1k.database import PublishedDatabase
from awm.hub.awm1k.reading import PublishedScenario, read_published
from awm.hub.awm1k.report import Finding, ImportedEnvironment, ImportReport, RejectedEnvironment
from awm.models import DatabaseSummary, EnvironmentSummary, Scenario, Task, TaskSet, Toolset
from awm.store import Layout, pretty_json, write_atomic

__all__ = ["CLOCK", "import_awm1k"]

CLOCK = "2026-02-01 12:00:00"
"""Frozen time of imported environments: their rows are written relative to it, and their tasks name days around it."""

_SESSION = "import"
_CATEGORY = "AgentWorldModel-1K"
Progress = Callable[[ImportedEnvironment | RejectedEnvironment], None]


def import_awm1k(
    folder: Path | str,
    out: Path | str,
    *,
    only: Iterable[str] = (),
    clock: str = CLOCK,
    sandbox: Sandbox | None = None,
    progress: Progress | None = None,
) -> ImportReport:
    """Import the environments of a folder and return what was done; it is stored as `import.json` too.

    A scenario that can't be imported is rejected with its reason, and stops no other. What is broken in one that can is
    in its findings. Importing the same folder twice gives the same files.

    :param folder: Holds the published `gen_*.jsonl`.
    :param out: Folder for the environments: what `Environment.load` takes.
    :param only: Slugs to import; all by default.
    :param clock: The environments' frozen time.
    :param sandbox: Where the published code runs; one of its own by default.
    :param progress: Told about each scenario when it is done.

    Raises PublishedLayoutError for a folder without that layout, ValueError for a slug that is not in it, and
    MissingExtraError where FastAPI or SQLAlchemy are not installed.
    """
    require_extra()
    published = read_published(Path(folder))
    chosen = _chosen(published.scenarios, set(only), Path(folder))
    layout = Layout(Path(out))
    layout.data = Path(out)
    imported: list[ImportedEnvironment] = []
    rejected: list[RejectedEnvironment] = []
    own = sandbox is None
    sandbox = sandbox or Sandbox()
    try:
        for scenario in chosen:
            result = _Import(scenario, clock, sandbox, layout).run()
            if isinstance(result, ImportedEnvironment):
                imported.append(result)
            else:
                rejected.append(result)
            if progress is not None:
                progress(result)
    finally:
        if own:
            sandbox.close()
    report = ImportReport(
        clock=clock, environments=tuple(imported), rejected=tuple(rejected), problems=tuple(published.problems)
    )
    write_atomic(layout.data / "import.json", pretty_json(report.model_dump(mode="json", exclude_none=True)))
    return report


def _chosen(scenarios: list[PublishedScenario], only: set[str], folder: Path) -> list[PublishedScenario]:
    unknown = only - {scenario.slug for scenario in scenarios}
    if unknown:
        raise ValueError(f"{folder} has no scenario {', '.join(sorted(unknown))}")
    return [scenario for scenario in scenarios if not only or scenario.slug in only]


class _NotImportableError(Exception):
    pass


@dataclass
class _Import:
    """The import of one scenario."""

    published: PublishedScenario
    clock: str
    sandbox: Sandbox
    layout: Layout
    findings: list[Finding] = field(default_factory=list)
    verdicts: dict[int, str] = field(default_factory=dict)
    evidence: dict[int, str] = field(default_factory=dict)

    def run(self) -> ImportedEnvironment | RejectedEnvironment:
        """Import, or say why that can't be."""
        slug, name = self.published.slug, self.published.name
        try:
            source = self._source()
            snapshot = self._database(source)
            tools = self._tools(source, snapshot)
        except (_NotImportableError, EnvironmentFault) as error:
            return RejectedEnvironment(slug=slug, name=name, reason=str(error), findings=tuple(self.findings))
        self._try_verifiers(snapshot)
        return self._store(source, snapshot, tools)

    def _source(self) -> str:
        if not self.published.full_code:
            raise _NotImportableError("no module is published for it")
        if self.published.schema is None:
            raise _NotImportableError("no schema is published for it")
        return self.published.full_code

    def _database(self, source: str) -> bytes:
        """Build the database and start the module on it."""
        database = PublishedDatabase(FrozenClock(self.clock), self.findings)
        database.create(self.published.schema or [])
        sample = self.published.sample or []
        if database.lacks(sample):
            database.adopt(self._started(source, database.snapshot()))
        database.insert(sample)
        built = database.finish()
        started = self._started(source, built)
        if content_hash(started) == content_hash(built):
            return built
        self.findings.append(
            Finding(
                action="kept",
                part="tools",
                reason=f"the module changes the database as it starts: {_difference(built, started)}",
            )
        )
        return started

    def _started(self, source: str, snapshot: bytes) -> bytes:
        with self.sandbox.template(source, snapshot, self.clock, session=_SESSION) as template:
            return template.initial_state()

    def _tools(self, source: str, snapshot: bytes) -> list[ToolSignature]:
        with self.sandbox.template(source, snapshot, self.clock, session=_SESSION) as template:
            tools = template.tools
        if not tools:
            raise _NotImportableError("the module has no endpoint that could be a tool")
        return tools

    # -- verifiers ---------------------------------------------------------------------------------------------------

    def _try_verifiers(self, snapshot: bytes) -> None:
        """Run each verifier on the untouched state, and sort out those that can't be run."""
        tasks = len(self.published.tasks or [])
        for number, sources in sorted(self.published.verifiers.items()):
            if number > tasks:
                self._note("left out", "there is no such task", number)
                continue
            for source in sources:
                self._try_verifier(number, source, snapshot)

    def _try_verifier(self, number: int, source: str, snapshot: bytes) -> None:
        try:
            join_cells({str(number): source})
            result = self.sandbox.verify_published(source, snapshot, snapshot, None, clock=self.clock)
        except (EnvironmentFault, ValueError) as problem:
            self._note("left out", str(problem), number)
            return
        if not result.ok:
            self._note("left out", f"on the untouched state: {result.kind}: {result.message}", number)
            return
        value = result.value or {}
        is_verdict = value.get("form") == "completion"
        (self.verdicts if is_verdict else self.evidence)[number] = source
        if is_verdict and value.get("result") == {"result": "complete"}:
            self._note("kept", "it says 'complete' on the untouched state", number)

    def _note(self, action: str, reason: str, task: int) -> None:
        values = {"action": action, "part": "verifier", "reason": reason, "task": task}
        self.findings.append(Finding.model_validate(values))

    # -- what is stored ----------------------------------------------------------------------------------------------

    def _store(self, source: str, snapshot: bytes, tools: list[ToolSignature]) -> ImportedEnvironment:
        slug = self.published.slug
        tasks = tuple(
            Task(number=number, kind=guessed_kind(text), text=text)
            for number, text in enumerate(self.published.tasks or [], 1)
        )
        with closing(open_database(snapshot, read_only=True)) as connection:
            counts = table_counts(connection)
            schema = connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid").fetchall()
            summary = DatabaseSummary(slug=slug, clock=self.clock, tables=counts, content_hash=content_hash(connection))
        scenario = Scenario(
            slug=slug, name=self.published.name, description=self.published.description, category=_CATEGORY
        )
        layout, specification = self.layout, toolset(slug, tools, source)
        layout.write_model("scenarios", slug, scenario)
        layout.write_model("tasks", slug, TaskSet(slug=slug, tasks=tasks))
        write_atomic(layout.file("schemas", slug, ".sql"), "".join(f"{sql};\n\n" for (sql,) in map(tuple, schema)))
        write_atomic(layout.file("databases", slug, ".db"), snapshot)
        layout.write_model("databases", slug, summary)
        layout.write_model("toolsets", slug, specification)
        write_atomic(layout.file("tools", slug, ".py"), source)
        self._store_cells("verifiers", {**self.evidence, **self.verdicts})
        self._store_cells("evidence", self.evidence)
        layout.write_model("environments", slug, self._summary(scenario, summary, tasks, specification, source))
        return ImportedEnvironment(
            slug=slug,
            name=scenario.name,
            tables=len(counts),
            rows=sum(counts.values()),
            tools=len(tools),
            tasks=len(tasks),
            verifiers=len(self.verdicts),
            evidence=len(self.evidence),
            findings=tuple(self.findings),
        )

    def _store_cells(self, step: str, sources: dict[int, str]) -> None:
        path = self.layout.file(step, self.published.slug, ".py")
        if sources:
            write_atomic(path, join_cells({f"{number:02}": source for number, source in sorted(sources.items())}))
        else:
            path.unlink(missing_ok=True)

    def _summary(
        self, scenario: Scenario, summary: DatabaseSummary, tasks: tuple[Task, ...], tools: Toolset, source: str
    ) -> EnvironmentSummary:
        return EnvironmentSummary(
            slug=scenario.slug,
            name=scenario.name,
            category=scenario.category,
            tables=len(summary.tables),
            rows=sum(summary.tables.values()),
            tools=len(tools.tools),
            read_only_tools=sum(tool.read_only for tool in tools.tools),
            code_lines=len(source.splitlines()),
            tasks=tuple(task.number for task in tasks),
            task_kinds=dict(sorted(Counter(task.kind for task in tasks).items())),
            unreached_tools=(),
            clock=summary.clock,
            content_hash=summary.content_hash,
            tools_sha256=hashlib.sha256(source.encode()).hexdigest(),
            kind="fastapi",
        )


def _difference(before: bytes, after: bytes) -> str:
    """Say in a few words which tables grew or came in."""
    with (
        closing(open_database(before, read_only=True)) as old,
        closing(open_database(after, read_only=True)) as new,
    ):
        old_counts, new_counts = table_counts(old), table_counts(new)
    changed = [
        f"{name}: {old_counts.get(name)} to {count} rows"
        for name, count in new_counts.items()
        if old_counts.get(name) != count and name in old_counts
    ]
    added = [f"{name}: new, {count} rows" for name, count in new_counts.items() if name not in old_counts]
    return "; ".join(added + changed) or "rows differ"
