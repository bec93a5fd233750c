"""The command `awm`: look at what the pipeline has built, and keep what was paid for."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Callable
from functools import wraps
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from awm.config import ConfigError, load_params
from awm.llm.errors import LLMError
from awm.llm.recording import Recording, RecordingEntry, write_entries
from awm.models import EnvironmentSummary, Scenario, TaskSet, Toolset, ToolSpec
from awm.store import Layout, StoreError

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Executable environments for tool-using agents.")
env = typer.Typer(no_args_is_help=True, help="Look at the environments in data/.")
llm = typer.Typer(no_args_is_help=True, help="Keep and replay the answers of LLMs.")
app.add_typer(env, name="env")
app.add_typer(llm, name="llm")

P = ParamSpec("P")
R = TypeVar("R")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def plain_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn a user's mistake into one line on standard error and exit status 1."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (ConfigError, StoreError, LLMError, sqlite3.Error) as error:
            print(f"awm: {error}", file=sys.stderr)
        except OSError as error:
            print(f"awm: {error.filename}: {error.strerror}", file=sys.stderr)
        raise typer.Exit(1)

    return wrapped


@app.command("params")
@plain_errors
def check_params() -> None:
    """Check params.yaml: an unknown or ill-typed key is one line and exit status 1."""
    load_params()


@env.command("list")
@plain_errors
def list_environments(as_json: AsJson = False) -> None:
    """List the environments that passed the filter."""
    layout = Layout()
    found = layout.read_models("environments", EnvironmentSummary)
    if as_json:
        print(json.dumps([summary.model_dump(mode="json") for summary in found], ensure_ascii=False))
        return
    table = Table(title=f"{len(found)} environments")
    table.add_column("environment", overflow="fold")
    table.add_column("category")
    for heading in ("tables", "rows", "tools", "lines", "tasks"):
        table.add_column(heading, justify="right")
    for entry in found:
        figures = (entry.tables, entry.rows, entry.tools, entry.code_lines, len(entry.tasks))
        table.add_row(entry.slug, escape(entry.category), *map(str, figures))
    console = Console()
    console.print(table)
    if found:
        slug = found[0].slug
        console.print(f"Look at one:       awm env show {slug}", markup=False)
        console.print(f"Its files:         data/{{tasks,databases,tools,verifiers}}/{slug}.*", markup=False)
        console.print("Figures:           dvc metrics show --json, data/metrics/", markup=False)
        console.print("What was rejected: data/rejects/", markup=False)


@env.command("show")
@plain_errors
def show_environment(
    slug: Annotated[str, typer.Argument(help="The environment's slug.")], as_json: AsJson = False
) -> None:
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
        print(json.dumps({name: part.model_dump(mode="json") for name, part in parts.items()}, ensure_ascii=False))
        return
    console = Console()
    console.print(f"{scenario.name} ({scenario.category})", markup=False, style="bold")
    console.print(f"{scenario.description}\n", markup=False, highlight=False)
    table = Table("", "kind", "task")
    for task in tasks.tasks:
        table.add_row(str(task.number), task.kind.value, escape(task.text))
    console.print(table)
    console.print(_tables(layout, slug))
    table = Table("tool", "kind", "description")
    for tool in toolset.tools:
        names = ", ".join(
            parameter.name if parameter.required else f"[{parameter.name}]" for parameter in tool.parameters
        )
        table.add_row(escape(f"{tool.name}({names})"), _manner(tool, summary), escape(tool.description))
    console.print(table)


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
    table = Table("table", "rows", "columns")
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        database = sqlite_utils.Database(connection)
        for name in database.table_names():
            table.add_row(name, str(database[name].count), ", ".join(column.name for column in database[name].columns))
    return table


@llm.command("record")
@plain_errors
def record() -> None:
    """Copy the answers that the last run used (data/llm) into data/recordings, so that anyone can replay it offline."""
    layout = Layout()
    root = layout.data / "llm"
    if not root.is_dir():
        raise StoreError(f"{root}: not found; run `dvc repro` first")
    total = 0
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        by_scenario: dict[str, list[RecordingEntry]] = {}
        for entry in Recording.load(folder).entries():
            by_scenario.setdefault(entry.item.split("/")[0], []).append(entry)
        for scenario, entries in by_scenario.items():
            write_entries(layout.data / "recordings" / folder.name / f"{scenario}.jsonl", entries)
            total += len(entries)
    print(f"{total} answers written to {layout.data / 'recordings'}; set llm.provider to 'recorded' to replay them")


if __name__ == "__main__":
    app()
