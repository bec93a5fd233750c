"""How results, changes and verdicts look on a terminal.

What environments say is untrusted: it is shown as text, never taken for markup or for a terminal's control sequences.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, ConsoleRenderable, Group
from rich.table import Table
from rich.text import Text

from awm.models import Outcome, Task, Verdict

if TYPE_CHECKING:
    from awm.env.results import CallResult, ToolSignature

__all__ = [
    "call_signature",
    "changes",
    "console",
    "counts",
    "failure",
    "harmless",
    "result",
    "task_table",
    "text_table",
    "tool_table",
    "value",
    "verdict",
]

_SCALARS = (str, int, float, bool, type(None))
_STYLES = {
    Outcome.COMPLETED: "bold green",
    Outcome.PARTIALLY_COMPLETED: "bold yellow",
    Outcome.AGENT_ERROR: "bold red",
    Outcome.ENVIRONMENT_ERROR: "bold magenta",
}


def console() -> Console:
    """Return a console on standard output that takes nothing for markup."""
    return Console(markup=False, highlight=False, emoji=False, soft_wrap=False)


def harmless(text: str) -> str:
    """Return text with each character that a terminal might obey, or can't show, written out."""
    return "".join(_written_out(character) for character in text)


def _written_out(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def text_table(*headings: str, rows: Iterable[Sequence[str]], title: str | None = None) -> Table:
    """Return a table of plain texts."""
    table = Table(*headings, title=title)
    for row in rows:
        table.add_row(*(Text(harmless(cell)) for cell in row))
    return table


def call_signature(name: str, schema: Mapping[str, Any]) -> str:
    """Write a tool as `name(needed, [optional])`."""
    required = schema.get("required", [])
    names = [known if known in required else f"[{known}]" for known in schema.get("properties", {})]
    return f"{name}({', '.join(names)})"


def tool_table(tools: Iterable[ToolSignature]) -> Table:
    """Return the tools with their parameters and what they do."""
    rows = [(call_signature(tool.name, tool.parameters), tool.description) for tool in tools]
    return text_table("tool", "description", rows=rows)


def task_table(tasks: Iterable[Task]) -> Table:
    """Return the tasks by number."""
    return text_table("", "kind", "task", rows=[(str(task.number), task.kind.value, task.text) for task in tasks])


def value(given: Any) -> ConsoleRenderable:
    """Show a JSON value: a list of plain records as a table, anything else as JSON."""
    records = given if isinstance(given, list) else [given]
    if records and all(isinstance(record, dict) and record.keys() == records[0].keys() for record in records):
        names = list(records[0])
        cells = [[record[name] for name in names] for record in records]
        if names and all(isinstance(cell, _SCALARS) for row in cells for cell in row):
            return text_table(*map(harmless, names), rows=[[_cell(cell) for cell in row] for row in cells])
    return Text(harmless(json.dumps(given, indent=2, ensure_ascii=False)))


def _cell(given: Any) -> str:
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def failure(called: CallResult) -> str:
    """Say on one line why a call did not succeed, and whose fault that is."""
    where = f" (line {called.line} of the tool module)" if called.line else ""
    fault = "the environment's fault: " if called.is_bug else ""
    return f"{fault}{called.kind}: {' '.join(called.message.split())}{where}"


def result(called: CallResult) -> ConsoleRenderable:
    """Show what a call gave."""
    if not called.ok:
        return Text(harmless(failure(called)), style="magenta" if called.is_bug else "red")
    notes = [Text(harmless(f"note: {note}"), style="yellow") for note in called.notes]
    return Group(value(called.value), *notes)


def changes(diff: Mapping[str, Any]) -> ConsoleRenderable:
    """Show a state diff, one table for each table that changed."""
    if not diff:
        return Text("nothing has changed")
    return Group(*(_table_changes(name, change) for name, change in diff.items()))


def _table_changes(name: str, change: Mapping[str, Any]) -> Table:
    table = Table("", "row", "before", "after", title=Text(harmless(name), style="bold"), title_justify="left")
    for row in change["added"]:
        table.add_row(Text("added", style="green"), "", "", Text(_fields(row)))
    for row in change["removed"]:
        table.add_row(Text("removed", style="red"), "", Text(_fields(row)), "")
    for row in change["changed"]:
        cells = [Text(_fields(row[part])) for part in ("key", "before", "after")]
        table.add_row(Text("changed", style="yellow"), *cells)
    return table


def _fields(row: Mapping[str, Any]) -> str:
    return harmless("\n".join(f"{name}: {_cell(given)}" for name, given in row.items()))


def counts(diff: Mapping[str, Any]) -> str:
    """Say in a line how many rows of which table changed."""
    parts = []
    for name, change in diff.items():
        told = ", ".join(f"{len(rows)} {how}" for how, rows in change.items() if rows)
        parts.append(f"{name}: {told}")
    return harmless("; ".join(parts)) or "nothing"


def verdict(judged: Verdict) -> ConsoleRenderable:
    """Show a verdict with its evidence."""
    return Group(Text(judged.verdict.value, style=_STYLES[judged.verdict]), value(judged.evidence))
