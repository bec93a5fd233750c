"""`awm env`: look at environments, call their tools, play an episode."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from awm.commands import display
from awm.commands.command import AsJson, UsageError, one_line, plain_errors, print_json
from awm.models import EnvironmentSummary, Scenario, TaskSet, Toolset, ToolSpec
from awm.store import Layout, StoreError

if TYPE_CHECKING:
    from awm.env import Environment

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Look at the environments in data/, call their tools, play an episode.")

Slug = Annotated[str, typer.Argument(help="The environment's slug.")]


@app.command("list")
@plain_errors
def list_environments(as_json: AsJson = False) -> None:
    """List the environments that passed the filter."""
    layout = Layout()
    found = layout.read_models("environments", EnvironmentSummary)
    if as_json:
        print_json([summary.model_dump(mode="json") for summary in found])
        return
    table = Table(title=f"{len(found)} environments")
    table.add_column("environment", overflow="fold")
    table.add_column("category")
    for heading in ("tables", "rows", "tools", "lines", "tasks"):
        table.add_column(heading, justify="right")
    for entry in found:
        figures = (entry.tables, entry.rows, entry.tools, entry.code_lines, len(entry.tasks))
        table.add_row(entry.slug, display.harmless(entry.category), *map(str, figures))
    console = display.console()
    console.print(table)
    if found:
        slug = found[0].slug
        for what, where in (
            ("Look at one:", f"awm env show {slug}"),
            ("Try it:", f"awm env play {slug}"),
            ("Its files:", f"data/{{tasks,databases,tools,verifiers}}/{slug}.*"),
            ("Figures:", "dvc metrics show --json, data/metrics/"),
            ("What was rejected:", "data/rejects/"),
        ):
            console.print(Text(f"{what:<19}{where}"))


@app.command("show")
@plain_errors
def show_environment(slug: Slug, as_json: AsJson = False) -> None:
    """Show an environment: its tasks, tools and tables."""
    layout = Layout()
    known = layout.slugs("environments", ".json")
    if slug not in known:
        raise StoreError(f"no environment {slug!r} in data/environments; there are: {', '.join(known) or 'none'}")
    scenario = layout.read_model("scenarios", slug, Scenario)
    tasks = layout.read_model("tasks", slug, TaskSet)
    toolset = layout.read_model("toolsets", slug, Toolset)
    summary = layout.read_model("environments", slug, EnvironmentSummary)
    if as_json:
        parts = {"scenario": scenario, "tasks": tasks, "toolset": toolset, "summary": summary}
        print_json({name: part.model_dump(mode="json") for name, part in parts.items()})
        return
    console = display.console()
    heading = Text.assemble((display.harmless(scenario.name), "bold"), f" ({display.harmless(scenario.category)})")
    console.print(heading)
    console.print(Text(display.harmless(scenario.description) + "\n"))
    console.print(display.task_table(tasks.tasks))
    console.print(_tables(layout, slug))
    rows = []
    for tool in toolset.tools:
        names = [known.name if known.required else f"[{known.name}]" for known in tool.parameters]
        rows.append((f"{tool.name}({', '.join(names)})", _manner(tool, summary), tool.description))
    console.print(display.text_table("tool", "kind", "description", rows=rows))


def _manner(tool: ToolSpec, summary: EnvironmentSummary) -> str:
    """Whether a tool reads or writes, and whether it never succeeded while it was tried."""
    manner = "reads" if tool.read_only else "writes"
    return f"{manner}, never succeeded" if tool.name in summary.unreached_tools else manner


def _tables(layout: Layout, slug: str) -> Table:
    """Tables of the initial state, with their columns and number of rows."""
    # Here, because it takes a quarter of a second to import and no other command needs it.
    import sqlite_utils

    path = layout.file("databases", slug, ".db")
    if not path.is_file():
        raise StoreError(f"{path}: not found; run `dvc repro databases`")
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        tables = [sqlite_utils.Database(connection)[name] for name in sqlite_utils.Database(connection).table_names()]
        rows = [(t.name, str(t.count), ", ".join(column.name for column in t.columns)) for t in tables]
    return display.text_table("table", "rows", "columns", rows=rows)


@app.command("call")
@plain_errors
def call_tool(
    slug: Slug,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, as a JSON object.")] = "{}",
    as_json: AsJson = False,
) -> None:
    """Call one tool on a fresh copy of an environment, and show its result and what it changed.

    Nothing is kept. The exit status is 1 unless the tool did its work.
    """
    given = parse_arguments(arguments)
    with opened(slug) as environment, environment.episode() as episode:
        called = episode.call(tool, given)
        changed = episode.diff() if called.ok else {}
    if as_json:
        print_json({**result_json(called), "changes": changed})
    elif called.ok:
        console = display.console()
        console.print(display.result(called))
        if changed:
            console.print(display.changes(changed))
    else:
        print(f"awm: {one_line(display.failure(called))}", file=sys.stderr)
    if not called.ok:
        raise typer.Exit(1)


@app.command("play")
@plain_errors
def play(
    slug: Slug,
    task: Annotated[int | None, typer.Option("--task", help="Number of the task to verify.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer each line with one line of JSON.")] = False,
) -> None:
    """Play an episode: call tools, see what changed, start again, ask for the verdict. `help` lists the commands."""
    from awm.commands.play import Play

    with opened(slug) as environment, Play(environment, task, as_json=as_json) as session:
        session.run()


@contextlib.contextmanager
def opened(slug: str) -> Iterator[Environment]:
    """Load an environment of the current project; what keeps it from running is one line for the user."""
    from awm.env import Environment, EnvironmentFault, EpisodeOver, SandboxUnavailable
    from awm.env.errors import MissingExtraError

    data = Layout().data
    if not (data / "environments").is_dir():
        raise StoreError(f"{data / 'environments'}: not found; run `dvc repro environments` first")
    try:
        environment = Environment.load(data, slug)
    except StoreError:
        raise
    except ValueError as error:  # AWM_SANDBOX names no mode
        raise UsageError(str(error)) from error
    with environment:
        try:
            yield environment
        except (EnvironmentFault, EpisodeOver, SandboxUnavailable, MissingExtraError) as error:
            raise UsageError(f"{slug}: {error}") from error


def parse_arguments(text: str) -> Any:
    """Read a tool's arguments as JSON; nothing means none. What they must be, the tool knows best."""
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        example = """'{"order_id": 1}'"""
        raise UsageError(f"the arguments are no JSON ({error}); write an object, such as {example}") from None


def result_json(called: Any) -> dict[str, Any]:
    """Return a call's result as plain data."""
    return {
        "kind": called.kind,
        "value": called.value,
        "message": called.message,
        "line": called.line,
        "notes": list(called.notes),
    }
