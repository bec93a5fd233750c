"""One `sum` for all Pythons."""

from __future__ import annotations

import builtins
import math
import sys
from decimal import Decimal
from fractions import Fraction

import pytest

from awm.env.summing import compensated_sum

CASES = [
    ([], 0, 0),
    ([1, 2, 3], 0, 6),
    ([0.1] * 10, 0, 1.0),
    ([0.1] * 10, 0.0, 1.0),
    ([0.1] * 10, 0.5, 1.5),
    ([1e16, 1.0, -1e16], 0, 1.0),
    ([1, 0.1, True, 0.2, 10**16, -(10**16)], 0, 1.9999999999999998),
    ([1e308, 1e308, -1e308], 0, math.inf),
    ([math.inf, 1.0], 0, math.inf),
    ([-0.0, -0.0], -0.0, -0.0),
    ([2**62, 2**62, 0.5], 0, 2.0**63),
    ([Decimal("0.1")] * 3, 0, Decimal("0.3")),
    ([0.5, Fraction(1, 2), 0.25], 0, 1.25),
    ([[1], [2]], [], [1, 2]),
    ([1, 1j], 0, 1 + 1j),
    (range(5000), 7, 12497507),
    ([1] * 5000 + [0.1] * 10, 0, 5001.0),
]


@pytest.mark.parametrize(("values", "start", "total"), CASES)
def test_a_total_is_that_of_later_pythons(values, start, total):
    found = compensated_sum(iter(values), start)
    assert (type(found), repr(found)) == (type(total), repr(total))
    if sys.version_info >= (3, 12):
        assert repr(builtins.sum(values, start)) == repr(found)


def test_its_errors_are_the_usual_ones():
    for call in (
        lambda f: f(5),
        lambda f: f(["a"]),
        lambda f: f([], "x"),
        lambda f: f([1], b""),
        lambda f: f([0.1, None]),
    ):
        with pytest.raises(TypeError) as usual:
            call(builtins.sum)
        with pytest.raises(TypeError) as ours:
            call(compensated_sum)
        assert str(ours.value) == str(usual.value)


def test_start_may_be_named():
    assert compensated_sum([0.1], start=1) == 1.1


def test_workers_have_it(run_tool):
    assert run_tool("return [sum([0.1] * 10), sum(x for x in (0.1, 0.2, 0.3)), sum([1, 2])]").value == [1.0, 0.6, 3]
