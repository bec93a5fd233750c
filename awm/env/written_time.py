"""Dates and times of day as people write them, found in running text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, time

__all__ = ["WrittenDate", "WrittenTime", "find_moments", "states_date", "states_moment", "states_time"]

_MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october"]
_MONTHS += ["november", "december"]
_MONTH = "|".join([*_MONTHS, *(month[:3] for month in _MONTHS), "sept"])
_ALSO_WORDS = frozenset({"may", "march", "mar"})  # months only with a capital, unless a year follows

_MOMENT = re.compile(
    rf"""
    (?<![\w-]) (?P<iso_year>\d{{4}}) (?P<iso>[-/.]) (?P<iso_month>\d{{1,2}}) (?P=iso) (?P<iso_day>\d{{1,2}}) (?!\d)
  | (?<![\w/-]) (?P<first>\d{{1,2}}) (?P<mark>[-/.]) (?P<second>\d{{1,2}}) (?P=mark) (?P<last_year>\d{{4}}) (?![\w/-])
  | (?<![\w/-]) (?P<short_month>\d{{1,2}}) / (?P<short_day>\d{{1,2}}) / (?P<short_year>\d{{2}}) (?![\w/-])
  | \b (?P<month>{_MONTH}) \b \.? \s+ (?P<day>\d{{1,2}}) (?:st|nd|rd|th)? (?!\w | [.:]\d | ,\d{{3}}\b)
        (?: (?:,\s*|\s+) (?P<year>\d{{4}}) (?!\w) )?
  | (?<![\w.,-]) (?P<lead_day>\d{{1,2}}) (?:st|nd|rd|th)? (?:\s+of)? [\s-]+ (?P<lead_month>{_MONTH}) \b \.?
        (?: [,\s-]+ (?P<lead_year>\d{{4}}) (?!\w) )?
  | (?<![^\WTt]) (?<![:.]) (?P<hour>\d{{1,2}}) : (?P<minute>\d{{2}}) (?: : (?P<second_of>\d{{2}}) (?:\.\d+)? )?
        (?!\d|:\d) (?: \s* (?P<half>[ap]) \.? m \b \.? )?
  | (?<![\w:.,-]) (?P<full_hour>\d{{1,2}}) \s* (?P<full_half>[ap]) \.? m \b
  | \b (?P<named>noon|midnight) \b
    """,
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True)
class WrittenDate:
    """A day in a text. `year` is None where none is given; `certain` is false for what may not be a date at all."""

    start: int
    end: int
    year: int | None
    month: int
    day: int
    certain: bool = True

    def matches(self, value: date) -> bool:
        """Tell whether this is that day, as far as it says."""
        return (self.month, self.day) == (value.month, value.day) and self.year in (None, value.year)


@dataclass(frozen=True)
class WrittenTime:
    """A time of day in a text. `second` is None where none is given."""

    start: int
    end: int
    hour: int
    minute: int
    second: int | None

    def matches(self, value: time) -> bool:
        """Tell whether this is that time, as far as it says."""
        return (self.hour, self.minute) == (value.hour, value.minute) and self.second in (None, value.second)


def find_moments(text: str) -> list[WrittenDate | WrittenTime]:
    """Return the dates and times of day in a text, in its order.

    Numeric dates are year first, or month first with slashes and hyphens (day first if the first number is above 12),
    or day first with dots.
    """
    found = (_read(match) for match in _MOMENT.finditer(text))
    return [moment for moment in found if moment is not None]


def states_date(text: str, value: date) -> bool:
    """Tell whether a text names this day, with its year or without one."""
    return any(isinstance(moment, WrittenDate) and moment.matches(value) for moment in find_moments(text))


def states_time(text: str, value: time) -> bool:
    """Tell whether a text names this time of day, with its seconds or without."""
    return any(isinstance(moment, WrittenTime) and moment.matches(value) for moment in find_moments(text))


def states_moment(text: str, day: date, value: time) -> bool:
    """Tell whether a text names this time on this day.

    A date goes with the times after it, up to the next date; with those before it if none follows.
    """
    moments = find_moments(text)
    for position, moment in enumerate(moments):
        if isinstance(moment, WrittenDate) and moment.matches(day):
            after, before = range(position + 1, len(moments)), range(position - 1, -1, -1)
            times = _leading_times(moments, after) or _leading_times(moments, before)
            if any(written.matches(value) for written in times):
                return True
    return False


def _leading_times(moments: list[WrittenDate | WrittenTime], positions: range) -> list[WrittenTime]:
    """Return the times at these positions, up to the first date."""
    times = []
    for position in positions:
        moment = moments[position]
        if not isinstance(moment, WrittenTime):
            break
        times.append(moment)
    return times


def _read(match: re.Match[str]) -> WrittenDate | WrittenTime | None:
    part = match.groupdict()
    if part["iso_year"]:
        return _date(match, part["iso_year"], part["iso_month"], part["iso_day"])
    if part["first"]:
        day_first = part["mark"] == "." or int(part["first"]) > 12
        month, day = ("second", "first") if day_first else ("first", "second")
        return _date(match, part["last_year"], part[month], part[day])
    if part["short_year"]:
        return _date(match, f"20{part['short_year']}", part["short_month"], part["short_day"])
    name = part["month"] or part["lead_month"]
    if name:
        year = part["year"] or part["lead_year"]
        number = 1 + [month[:3] for month in _MONTHS].index(name[:3].lower())
        certain = bool(year) or name.lower() not in _ALSO_WORDS or name[0].isupper()
        return _date(match, year, number, part["day"] or part["lead_day"], certain)
    if part["named"]:
        return WrittenTime(*match.span(), 12 if part["named"].lower() == "noon" else 0, 0, None)
    return _time(
        match, part["hour"] or part["full_hour"], part["minute"], part["second_of"], part["half"] or part["full_half"]
    )


def _date(
    match: re.Match[str], year: str | None, month: str | int, day: str, certain: bool = True
) -> WrittenDate | None:
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return None
    return WrittenDate(*match.span(), int(year) if year else None, int(month), int(day), certain)


def _time(
    match: re.Match[str], hour_text: str, minute: str | None, second: str | None, half: str | None
) -> WrittenTime | None:
    hour = int(hour_text)
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half in "pP" else 0)
    if hour > 23 or int(minute or 0) > 59:
        return None
    return WrittenTime(*match.span(), hour, int(minute or 0), int(second) if second else None)
