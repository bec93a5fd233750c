"""Python 3.12's `sum` for Python 3.11: floats are added with compensation, so that both give the same total.

Without it the same call would leave another total in the database under Python 3.11: `sum([0.1] * 10)` is
0.9999999999999999 there, and 1.0 since.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import isfinite
from typing import Any

__all__ = ["compensated_sum", "install_sum"]

_plain_sum = builtins.sum
_CHUNK = 1000  # so many are added in C before Python can be interrupted
_LONG = 1 << 63


def install_sum() -> None:
    """Replace this process's `sum` where it is the older one."""
    if sys.version_info < (3, 12):
        builtins.sum = compensated_sum


def compensated_sum(iterable: Iterable[Any], /, start: Any = 0) -> Any:
    """Return what `sum` returns since Python 3.12."""
    values = iter(iterable)
    _plain_sum((), start)  # refuses text
    if type(start) is float:
        return _add_floats(values, start)
    total = start
    while type(total) is int and _is_long(total):
        chunk = list(islice(values, _CHUNK))
        if not chunk:
            return total
        after = _plain_sum(chunk, total)
        if type(after) is not int:
            return _add_mixed(chain(chunk, values), total)
        total = after
    return _add(values, total)


def _add_mixed(values: Iterator[Any], total: Any) -> Any:
    """Add whole numbers until there is another, which decides how the rest is added."""
    for value in values:
        whole = type(value) in (int, bool) and _is_long(value)
        total = total + value
        if not whole or not _is_long(total):
            break
    return _add_floats(values, total) if type(total) is float else _add(values, total)


def _add_floats(values: Iterator[Any], total: float) -> Any:
    """Add with Neumaier's variant of Kahan's algorithm, which keeps the digits that each addition loses."""
    lost = 0.0
    for value in values:
        if type(value) is float:
            new = total + value
            lost += (total - new) + value if abs(total) >= abs(value) else (value - new) + total
            total = new
        elif isinstance(value, int) and _is_long(value):
            total += float(value)
        else:
            return _add(values, _with(total, lost) + value)
    return _with(total, lost)


def _add(values: Iterator[Any], total: Any) -> Any:
    for value in values:
        total = total + value
    return total


def _is_long(value: int) -> bool:
    return -_LONG <= value < _LONG


def _with(total: float, lost: float) -> float:
    return total + lost if lost and isfinite(lost) else total
