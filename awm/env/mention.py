"""Does a free-form answer state a value? What `mentions` promises is in its docstring."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal

from awm.env.written_time import WrittenTime, find_moments, states_date, states_moment, states_time

__all__ = ["mentions"]

_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"))

# What a value given as text may be besides text
_DATE_TEXT = re.compile(r"\d{4}-\d{2}-\d{2}")
_DATETIME_TEXT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2})?)(?:\.\d+)?\s*(?:Z|UTC|[+-]\d{2}:?\d{2})?")
_TIME_TEXT = re.compile(r"\d{2}:\d{2}(?::\d{2})?")
_NUMBER_TEXT = re.compile(r"-?[$€£¥]?(?:0|[1-9]\d*|[1-9]\d{0,2}(?:,\d{3})+)(?:\.\d+)?%?")

_CURRENCY = r"(?:[$€£¥₹]|USD|EUR|GBP|JPY|CAD|AUD|CHF|INR|Rs\.?)"
_NUMBER = re.compile(
    r"""(?P<number> (?P<european> (?: [1-9]\d{0,2} (?:\.\d{3})+
                | (?<![\w.,:/#])(?<![^\W_]-) [1-9]\d{0,2} (?:[ ]\d{3})+ ) ,\d{2} (?!,?\d) )
          | (?: \d{1,3} (?:,\d{2,3})* ,\d{3} (?!\d) | \d+ ) (?:\.\d+)? (?: e[+-]?\d{1,3} \b )?
          | (?<![\w.]) \.\d+ )""",
    re.VERBOSE | re.IGNORECASE,
)
_BEFORE = re.compile(
    rf"(?P<minus>(?:(?<![^\W_])-|\b(?:minus|negative)\s+)?)(?:{_CURRENCY}\s*)?(?P<late_minus>-?)\Z", re.I
)
_PART_BEFORE = re.compile(r"(?:\d[.:/]|[^\W_]-|\w)\Z")
_PART_AFTER = re.compile(r"\.\d|:\d|-\d|-[^\W\d_](?![^\W_])|/(?!(?:5|10|100)(?![\d/]))\d|\w*\d")
_SUFFIX = re.compile(r"[^\W\d_]+")
_ORDINALS = frozenset({"st", "nd", "rd", "th"})
_UNITS = frozenset("gmlhsxdwyc")
_SCALES = {"k": 3, "K": 3, "M": 6, "mn": 6, "B": 9, "bn": 9}
_SCALE_WORD = re.compile(r"\s+(hundred|thousand|million|billion|trillion|dozen)\b", re.IGNORECASE)
_SCALE_WORDS = {
    "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12
}  # fmt: skip

_WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
_FRACTIONS = "half|halves|thirds?|quarters?|fourths?|fifths?|sixths?|sevenths?|eighths?|ninths?|tenths?"
_WORD_NUMBER = re.compile(
    rf"(?P<before>\b(?:minus|negative|{_TENS}|hundred|thousand|no|any|every|each|this|that|which|another|the|point)[\s-]+)?"
    rf"\b(?P<word>{'|'.join(_WORDS)})\b"
    rf"(?P<after>[\s-]+(?:hundred|thousand|million|billion|dozen|point|{_FRACTIONS})\b)?",
    re.IGNORECASE,
)
_PRONOUN_BEFORE = frozenset({"no", "any", "every", "each", "this", "that", "which", "another", "the"})

_YES_OR_NO = re.compile(r"\b(?:(?P<yes>yes|true)|no|false|not|\w+n't)\b", re.IGNORECASE)
_TEXT_TOKEN = re.compile(r"[^\W_]+(?:(?<=\d)[.,:](?=\d)[^\W_]+)*[+#]*")
_GROUPING = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def mentions(answer: str | None, value: object) -> bool:
    """Tell whether a free-form answer states a value.

    Made for verifiers: `mentions(answer, 25)` holds for "That's $25.00 in total." and not for "I ordered 125".
    It finds the value somewhere in the answer; it does not understand negation, nor what the value is said of.

    - **Numbers** (int, float, Decimal): the same number, however written: `25`, `25.0`, `$25.00`, `25%`, `1,250.50`,
      `1.250,50`, `1 250,50`, `25kg`, `1.5 million`, `25k`; the words zero to twelve. Not inside another number, date,
      time, range, phone number or code (`125`, `25.5`, `2026-03-25`, `10-25`, `ORD-25`), nor ordinals (`25th`), nor
      with leading zeros. The sign counts. Currency and percent signs don't, and nothing is converted: 0.25 is not
      `25%`. A value with more than two decimals may be rounded to two or more. In `4/5`, `8/10` and `90/100` the number
      before the slash counts. A point before three digits is a decimal point (`1.250`), unless a comma and two digits
      follow upon them.
    - **Dates** (date, or text `YYYY-MM-DD`): `2026-03-05`, `March 5, 2026`, `Mar 5`, `5th of March`, `03/05/2026`,
      `05.03.2026`. A year may be left out but not be another one.
    - **Times** (time, or text `HH:MM[:SS]`): `14:30`, `2:30 PM`, `2pm`, `noon`. Seconds may be left out.
    - **Moments** (datetime, or text `YYYY-MM-DD HH:MM[:SS]`): the date with the time beside it; at midnight the date is
      enough. Time zones are not converted.
    - **Booleans**: the first of yes, true, no, false, not, or a word in n't decides.
    - **Other text**: as whole words, whatever the case, spacing, punctuation and Unicode form. A code or address (no
      spaces, with a digit or @) must stand there as it is, and not as part of a longer one. Text that is a number is
      taken as that number.
    - **Lists, tuples, sets, rows**: every item is mentioned. An empty one is not mentioned.

    False if the answer is None, or the value is None or empty text. Raises TypeError for other types of value.
    """
    if answer is None or value is None:
        return False
    text = _normalised(answer)
    if isinstance(value, list | tuple | set | frozenset | sqlite3.Row):
        return len(value) > 0 and all(mentions(answer, item) for item in value)
    if isinstance(value, bool):
        return _states_boolean(text, value)
    if isinstance(value, int | float | Decimal):
        return _states_number(text, value)
    if isinstance(value, datetime):
        return _states_datetime(text, value.date(), value.time())
    if isinstance(value, date):
        return states_date(text, value)
    if isinstance(value, time):
        return states_time(text, value)
    if isinstance(value, str):
        return _states_string(text, _normalised(value).strip())
    raise TypeError(
        f"mentions() can't look for a {type(value).__name__}; give text, a number, a date or a list of them"
    )


def _normalised(text: str) -> str:
    return unicodedata.normalize("NFKC", text).translate(_DASHES)


def _states_string(text: str, value: str) -> bool:
    try:
        if _DATE_TEXT.fullmatch(value):
            return states_date(text, date.fromisoformat(value))
        if _TIME_TEXT.fullmatch(value):
            return states_time(text, time.fromisoformat(value))
        if match := _DATETIME_TEXT.fullmatch(value):
            return _states_datetime(text, date.fromisoformat(match[1]), time.fromisoformat(match[2]))
    except ValueError:  # such as February 30
        return _states_text(text, value)
    if _NUMBER_TEXT.fullmatch(value):
        return _states_number(text, Decimal(re.sub("[$€£¥,%]", "", value)))
    return _states_text(text, value)


def _states_datetime(text: str, day: date, clock_time: time) -> bool:
    if clock_time == time(0):
        return states_date(text, day)
    return states_moment(text, day, clock_time)


def _states_boolean(text: str, value: bool) -> bool:
    first = _YES_OR_NO.search(text.replace("\u2019", "'"))
    return first is not None and bool(first["yes"]) == value


def _states_text(text: str, value: str) -> bool:
    value, text = value.casefold(), text.casefold()
    if not any(character.isalnum() for character in value):
        return value != "" and value in text
    if not re.search(r"\s", value) and re.search(r"[\d@]", value):
        part = r"[-_/.@]"
        code = rf"(?<![^\W_])(?<![^\W_]{part}){re.escape(value)}(?![^\W_])(?!{part}[^\W_])"
        return re.search(code, text) is not None
    words = " ".join(_TEXT_TOKEN.findall(_GROUPING.sub("", value)))
    return f" {words} " in f" {' '.join(_TEXT_TOKEN.findall(_GROUPING.sub('', text)))} "


def _states_number(text: str, value: int | float | Decimal) -> bool:
    wanted = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not wanted.is_finite():
        return False
    plain = _without_moments(text)
    return any(_same_number(found, wanted) for found in _numbers(plain))


def _same_number(found: Decimal, wanted: Decimal) -> bool:
    if found == wanted:
        return True
    decimals, wanted_decimals = _decimals(found), _decimals(wanted)
    if wanted_decimals > 2 and 2 <= decimals < wanted_decimals:
        return abs(found - wanted) * 2 <= Decimal(1).scaleb(-decimals)
    # The noise of binary fractions, as in 0.30000000000000004
    return max(decimals, wanted_decimals) > 9 and abs(found - wanted) <= Decimal("1e-9")


def _decimals(number: Decimal) -> int:
    exponent = number.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _without_moments(text: str) -> str:
    """Blank out dates and times, whose digits are not numbers."""
    kept, position = [], 0
    for moment in find_moments(text):
        if isinstance(moment, WrittenTime) or moment.certain:
            kept += [text[position : moment.start], " " * (moment.end - moment.start)]
            position = moment.end
    return "".join(kept) + text[position:]


def _numbers(text: str) -> Iterator[Decimal]:
    for match in _NUMBER.finditer(text):
        number = _read_digits(text, match)
        if number is not None:
            yield number
    for match in _WORD_NUMBER.finditer(text):
        number = _read_word(match)
        if number is not None:
            yield number


def _read_digits(text: str, match: re.Match[str]) -> Decimal | None:
    """Return the number that these digits state, or None if they are part of something else."""
    digits = match["number"].replace(",", "")
    if match["european"]:
        digits = re.sub("[. ]", "", match["number"]).replace(",", ".")
    if len(digits) > 1 and digits[0] == "0" and digits[1].isdigit():
        return None
    before = text[max(0, match.start() - 20) : match.start()]
    lead = _BEFORE.search(before)
    assert lead is not None  # it matches the empty string too
    if _PART_BEFORE.search(before[: lead.start()] if lead.group() else before):
        return None
    if _PART_AFTER.match(text, match.end()):
        return None
    factor = _factor(text, match.end())
    if factor is None:
        return None
    number = Decimal(digits) if factor == 1 else Decimal(digits) * factor  # a product has 28 digits at most
    return -number if lead["minus"] or lead["late_minus"] else number


def _factor(text: str, end: int) -> int | None:
    """Return what a number is multiplied by through what follows it; None if that makes it no number."""
    if suffix := _SUFFIX.match(text, end):
        letters = suffix.group()
        if letters in _SCALES:
            return int(10 ** _SCALES[letters])
        is_unit = letters.lower() not in _ORDINALS and (len(letters) > 1 or letters in _UNITS)
        return 1 if is_unit else None
    scale = _SCALE_WORD.match(text, end)
    return _SCALE_WORDS[scale[1].lower()] if scale else 1


def _read_word(match: re.Match[str]) -> Decimal | None:
    word = match["word"].lower()
    before = (match["before"] or "").strip(" -\n\t").lower()
    if match["after"]:
        return None
    if before in ("minus", "negative"):
        return Decimal(-_WORDS.index(word))
    if before and (before not in _PRONOUN_BEFORE or word == "one"):
        return None
    return Decimal(_WORDS.index(word))
