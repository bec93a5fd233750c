"""Files of cells: several Python sources in one file, each behind a line `# %% <title>`, as editors know them."""

from __future__ import annotations

import re

__all__ = ["join_cells", "split_cells"]

_CELL = re.compile(r"^# %%(?:[ \t]+(.*?))?[ \t]*$", re.MULTILINE)


def split_cells(text: str) -> dict[str, str]:
    """Split a file of cells (each starts with a line `# %% <title>`) into sources by title.

    The reverse of `join_cells`. Raises ValueError for text before the first cell, a cell without a title, and a title
    that occurs twice.
    """
    marks = list(_CELL.finditer(text))
    before = text[: marks[0].start()] if marks else text
    if before.strip():
        raise ValueError("line 1: there is text before the first line '# %% <title>'")
    cells: dict[str, str] = {}
    for index, mark in enumerate(marks):
        title = mark.group(1)
        line = text.count("\n", 0, mark.start()) + 1
        if not title:
            raise ValueError(f"line {line}: this cell has no title: write '# %% <title>'")
        if title in cells:
            raise ValueError(f"line {line}: a second cell has the title {title!r}")
        end = marks[index + 1].start() if index + 1 < len(marks) else len(text)
        cells[title] = text[mark.end() + 1 : end].removesuffix("\n")
    return cells


def join_cells(cells: dict[str, str]) -> str:
    """Write sources into one text that `split_cells` cuts up again: `# %% <title>` before and a line end behind each.

    Raises ValueError for a source that has such a line itself, and for a title that is empty, spans lines, or starts or
    ends with a space.
    """
    for title, source in cells.items():
        if not re.fullmatch(r"\S(?:.*\S)?", title):
            raise ValueError(f"{title!r} can't be the title of a cell: it must be one line without outer spaces")
        if mark := _CELL.search(source):
            line = source.count("\n", 0, mark.start()) + 1
            raise ValueError(f"{title}, line {line}: a source in a cell can't have a line that starts with '# %%'")
    return "".join(f"# %% {title}\n{source}\n" for title, source in cells.items())
