"""Attacks written as they are: a title behind `#:`, and the code of a tool below it."""

from __future__ import annotations

import re
import textwrap

import pytest

__all__ = ["attacks"]


def attacks(text: str) -> pytest.MarkDecorator:
    """Parametrise a test with `code`, one for each attack in the text, under its title."""
    parts = re.split(r"^#: (.+)\n", textwrap.dedent(text), flags=re.MULTILINE)
    titles, codes = parts[1::2], parts[2::2]
    assert not parts[0].strip() and len(set(titles)) == len(titles), "each attack needs a title of its own"
    return pytest.mark.parametrize("code", codes, ids=titles)
