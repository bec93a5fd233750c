"""`awm doctor`: whether generated code can be run safely on this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from awm.commands import display
from awm.commands.command import AsJson, plain_errors, print_json

if TYPE_CHECKING:
    from awm.env.doctor import Diagnosis

__all__ = ["doctor"]

_STYLES = {"ok": "green", "limited": "yellow", "missing": "bold red"}


@plain_errors
def doctor(as_json: AsJson = False) -> None:
    """Tell what holds on this machine, and what to do about what doesn't.

    The exit status is 1 if generated code can't be isolated, or something that is needed is missing.
    """
    from awm.env.doctor import diagnose

    diagnosis = diagnose()
    if as_json:
        checks = [asdict(check) for check in diagnosis.checks]
        parts = {"ok": diagnosis.ok, "isolated": diagnosis.isolated, "mode": diagnosis.mode, "checks": checks}
        print_json(parts)
    else:
        _show(diagnosis)
    if not diagnosis.ok:
        raise typer.Exit(1)


def _show(diagnosis: Diagnosis) -> None:
    console = display.console()
    table = Table("", "", "found", show_header=False)
    for check in diagnosis.checks:
        found = Text(display.harmless(check.found))
        table.add_row(Text(check.state, style=_STYLES[check.state]), check.name, found)
    console.print(table)
    for check in diagnosis.checks:
        if check.advice:
            console.print(Text.assemble((f"{check.name}: ", _STYLES[check.state]), check.advice))
    if not diagnosis.isolated:
        console.print(Text("generated code is not isolated on this machine", style="bold red"))
    elif diagnosis.ok:
        console.print(Text("generated code is isolated on this machine", style="bold green"))
    else:
        console.print(Text("generated code is isolated on this machine, but something is missing", style="bold yellow"))
