"""`awm import`: bring other people's environments in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from awm.commands import display
from awm.commands.command import AsJson, UsageError, one_line, plain_errors, print_json

__all__ = ["import_environments"]


@plain_errors
def import_environments(
    folder: Annotated[Path, typer.Argument(help="Folder in the layout of AgentWorldModel-1K (gen_*.jsonl).")],
    out: Annotated[Path, typer.Option(help="Folder to write the environments to.")] = Path("imported"),
    only: Annotated[list[str] | None, typer.Option(help="Slug to import; may be given several times.")] = None,
    as_json: AsJson = False,
) -> None:
    """Import environments in the published layout of AgentWorldModel-1K, and say what is wrong with them.

    The exit status is 1 when no environment could be imported.
    """
    from awm.env.errors import MissingExtraError, SandboxUnavailable
    from awm.hub.awm1k import import_awm1k
    from awm.hub.awm1k.reading import PublishedLayoutError

    try:
        report = import_awm1k(folder, out, only=only or ())
    except (MissingExtraError, PublishedLayoutError, SandboxUnavailable, ValueError) as error:
        raise UsageError(str(error)) from None
    if as_json:
        print_json(report.model_dump(mode="json", exclude_none=True))
    else:
        console = display.console()
        rows = [
            (entry.slug, *map(str, (entry.tables, entry.rows, entry.tools, entry.tasks, len(entry.findings))))
            for entry in report.environments
        ]
        console.print(display.text_table("environment", "tables", "rows", "tools", "tasks", "findings", rows=rows))
        for rejected in report.rejected:
            console.print(Text(f"rejected {rejected.slug}: {one_line(rejected.reason)}"))
        console.print(Text(f"What is wrong, and what was done about it: {out / 'import.json'}"))
    if not report.environments:
        raise typer.Exit(1)
