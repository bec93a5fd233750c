"""What a verifier may rely on: `mentions` in tables of cases, and the names it imports."""

import sqlite3
from datetime import date, datetime, time
from decimal import Decimal

import pytest

from awm.env import diff, tool, verifier
from awm.env.verifier import mentions


def test_verifiers_and_tools_share_the_connection_type() -> None:
    assert verifier.Connection is tool.Connection is sqlite3.Connection
    assert verifier.state_diff is diff.state_diff


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("25", 25),
        ("It costs 25.0 today.", 25),
        ("That's $25.00 in total.", 25),
        ("**25**", 25),
        ("25%", 25),
        ("id=25, and", 25),
        ("Order #25", 25),
        ("total:25", 25),
        ("(25)", 25),
        ("1,2,25,30", 25),
        ("25, 26 and 27", 25),
        ("We have 25.", 25),
        ("Order no.25", 25),
        ("25kg", 25),
        ("a 25-day trip", 25),
        ("$25/month", 25),
        ("USD 25", 25),
        ("USD25", 25),
        ("25 EUR", 25),
        ("25€", 25),
        ("\uff12\uff15 items", 25),
        ("25\u00a0items", 25),
        ("1,250.50", 1250.5),
        ("$1,250.50.", 1250.5),
        ("1250.5", Decimal("1250.50")),
        ("1,250,000", 1_250_000),
        ("12,50,000", 1_250_000),
        ("1.25 million", 1_250_000),
        ("1.098,00", 1098),
        ("1.098,50 EUR", 1098.5),
        ("\u20ac1.098,00.", 1098),
        ("-1.098,00 \u20ac", -1098),
        ("12.345.678,90", 12_345_678.9),
        ("10.250,00, 3 items", 10_250),
        ("1 098,00", 1098),
        ("1\u00a0098,00 \u20ac", 1098),
        ("1\u202f234\u202f567,89", 1_234_567.89),
        ("-1 098,00", -1098),
        ("(1 098,00)", 1098),
        ("1.098,00", "1098"),
        ("1.098", 1.098),
        ("1.098, 00", 1.098),
        ("1.098,001", 1.098),
        ("1,098.00", 1098),
        ("ORD-12 150,00 EUR", 150),
        ("#12 150,00 EUR", 150),
        ("2026-03-12 150,00 EUR", 150),
        ("25k", 25_000),
        ("2 dozen", 24),
        ("1e3", 1000),
        (".5", 0.5),
        ("0", 0),
        ("-25", -25),
        ("\u221225", -25),
        ("-$25.00", -25),
        ("$-25", -25),
        ("minus 25", -25),
        ("0.3", 0.1 + 0.2),
        ("0.30000000000000004", 0.3),
        ("4.33", 13 / 3),
        ("4.333 on average", 13 / 3),
        ("2.67", 2.675),
        ("2.68", 2.675),
        ("rated 4.5/5", 4.5),
        ("8/10", 8),
        ("You have three orders.", 3),
        ("Twelve", 12),
        ("zero", 0),
        ("minus five", -5),
        ("a five-star hotel", 5),
        ("the two of them", 2),
        ("one order", 1),
        ("In 2026 we sold more.", 2026),
        ("March 2026", 2026),
        ("Order 5 may be late.", 5),
        ("On March 5 you ordered 7 items", 7),
        ("at 14:30, 7 people", 7),
        ("25", "25"),
        ("$25", "25.00"),
        ("25 dollars", "$25.00"),
        ("1250", "1,250"),
    ],
)
def test_states_number(answer: str, value: object) -> None:
    assert mentions(answer, value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("125", 25),
        ("250", 25),
        ("25.5", 25),
        ("25.05", 25),
        ("1.25", 25),
        ("1,025", 25),
        ("1.098", 1098),
        ("1.098,00", 1.098),
        ("1.098,00", 1),
        ("1.098,00", 98),
        ("1.098,00", 109_800),
        ("1.098,000", 1098),
        ("1.098,0", 1098),
        ("1.98,00", 198),
        ("0.098,25", 98.25),
        ("01.098,00", 1098),
        ("1.0980,00", 10_980),
        ("3.1.098,00", 1098),
        ("v1.098,00", 1098),
        ("1.098,00,50", 1098),
        ("1 098,00", 98),
        ("1 098,00", 1),
        ("1  098,00", 1098),
        ("1 98,00", 198),
        ("11 098,00", 1098),
        ("1.098 098,00", 1_098_098),
        ("1.098,00k", 1098),
        ("25,000", 25),
        ("0.25", 25),
        ("25%", 0.25),
        ("2026-03-25", 25),
        ("03/25/2026", 25),
        ("March 25", 25),
        ("March 25, 2026", 2026),
        ("25 March 2026", 25),
        ("on the 25th", 25),
        ("12:25", 25),
        ("25:30", 25),
        ("5 PM", 5),
        ("5pm", 5),
        ("2026-03-05T14:25:00Z", 25),
        ("10-25", 10),
        ("10-25", 25),
        ("10\u201325", 25),
        ("555-0125", 125),
        ("ORD-25", 25),
        ("A25", 25),
        ("25A", 25),
        ("25-B", 25),
        ("v1.25.3", 25),
        ("192.168.1.25", 25),
        ("1920x1080", 1920),
        ("007", 7),
        ("03/25", 25),
        ("25k", 25),
        ("25 million", 25),
        ("-25", 25),
        ("minus 25", 25),
        ("25", -25),
        ("item_25", 25),
        ("4.3", 13 / 3),
        ("4.34", 13 / 3),
        ("25", 25.456),
        ("1234567890124", 1234567890123),
        ("twenty-five", 5),
        ("twenty five", 5),
        ("five hundred", 5),
        ("two-thirds", 2),
        ("No one was found", 1),
        ("this one", 1),
        ("someone", 1),
        ("often", 10),
        ("minus five", 5),
        ("third", 3),
        ("", 25),
        ("nothing", 0),
        ("inf", float("inf")),
        ("nan", float("nan")),
        ("7", "007"),
    ],
)
def test_does_not_state_number(answer: str, value: object) -> None:
    assert not mentions(answer, value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("2026-03-05", "2026-03-05"),
        ("2026/3/5", "2026-03-05"),
        ("It is due on March 5, 2026.", "2026-03-05"),
        ("March 5,2026", "2026-03-05"),
        ("march 5", "2026-03-05"),
        ("5 March 2026", "2026-03-05"),
        ("5-Mar-2026", "2026-03-05"),
        ("the 5th of March", "2026-03-05"),
        ("Thursday, March 5th", "2026-03-05"),
        ("Mar 5", "2026-03-05"),
        ("Mar. 5", "2026-03-05"),
        ("Sept 5", "2026-09-05"),
        ("03/05/2026", "2026-03-05"),
        ("3/5/26", "2026-03-05"),
        ("25/03/2026", "2026-03-25"),
        ("05.03.2026", "2026-03-05"),
        ("2026-03-05 14:30", "2026-03-05"),
        ("2026-03-05T14:30:00Z", date(2026, 3, 5)),
        ("March 5 at 2:30 PM", "2026-03-05 14:30:00"),
        ("2026-03-05T14:30", "2026-03-05T14:30:00Z"),
        ("2026-03-05 14:30:00", datetime(2026, 3, 5, 14, 30)),
        ("14:30 on March 5", "2026-03-05 14:30:00"),
        ("Mar 5, 2026, 2:30\u202fp.m.", "2026-03-05 14:30"),
        ("March 5 from 13:00 to 14:30", "2026-03-05 14:30"),
        ("March 4 at 9:00 and March 5 at 14:30", "2026-03-05 14:30"),
        ("March 5", "2026-03-05 00:00:00"),
        ("March 5 at noon", "2026-03-05 12:00:00"),
        ("at 14:30", "14:30"),
        ("at 14:30", time(14, 30)),
        ("2:30 pm", "14:30:00"),
        ("2 PM", "14:00"),
        ("2pm", "14:00"),
        ("12 AM", "00:00"),
        ("12:15 am", "00:15"),
        ("midnight", "00:00"),
        ("2026-02-30", "2026-02-30"),
    ],
)
def test_states_moment(answer: str, value: object) -> None:
    assert mentions(answer, value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("2026-03-06", "2026-03-05"),
        ("March 5, 2025", "2026-03-05"),
        ("March 15", "2026-03-05"),
        ("March 50", "2026-03-05"),
        ("March 5.5", "2026-03-05"),
        ("April 5", "2026-03-05"),
        ("05/03/2026", "2026-03-05"),
        ("03.05.2026", "2026-03-05"),
        ("5", "2026-03-05"),
        ("12026-03-05", "2026-03-05"),
        ("March 5", "2026-03-05 14:30:00"),
        ("14:30", "2026-03-05 14:30:00"),
        ("March 5 at 2:30 AM", "2026-03-05 14:30:00"),
        ("2026-03-05 14:30:05", "2026-03-05 14:30:00"),
        ("2026-03-05 14:30; 2026-03-06 09:00", "2026-03-05 09:00:00"),
        ("2026-03-05 14:30; 2026-03-06 09:00", "2026-03-06 14:30:00"),
        ("114:30", "14:30"),
        ("14:305", "14:30"),
        ("2:30", "14:30"),
        ("14:30:15", "14:30"),
        ("March 5", "2026-02-30"),
    ],
)
def test_does_not_state_moment(answer: str, value: object) -> None:
    assert not mentions(answer, value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Your order is SHIPPED.", "shipped"),
        ("It is in progress", "in_progress"),
        ("a t-shirt, blue", "T-Shirt"),
        ("Joe\u2019s   Pizza", "Joe's Pizza"),
        ("Alice's order", "Alice"),
        ("STRASSE", "stra\u00dfe"),
        ("Cafe\u0301 Central", "Caf\u00e9 Central"),
        ("\u201cThe Great Gatsby\u201d", "The Great Gatsby"),
        ("The\nGreat\tGatsby", "the great gatsby"),
        ("written in C++.", "C++"),
        ("C# and Go", "c#"),
        ("1,250 units sold", "1250 units"),
        ("Code: ord-100.", "ORD-100"),
        ("ORD\u2011100", "ORD-100"),
        ("Mail bob@example.com.", "bob@example.com"),
        ("call 555-0101", "555-0101"),
        ("\u6771\u4eac is it", "\u6771\u4eac"),
        ("rated \u2605\u2605", "\u2605\u2605"),
        ("Room 5.", "Room 5"),
    ],
)
def test_states_text(answer: str, value: str) -> None:
    assert mentions(answer, value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("pending", "pen"),
        ("inactive", "active"),
        ("C++", "C"),
        ("C", "C++"),
        ("Room 5.5", "Room 5"),
        ("Room 55", "Room 5"),
        ("Slot 14:30", "Slot 14"),
        ("ORD-1001", "ORD-100"),
        ("ORD-100-B", "ORD-100"),
        ("XORD-100", "ORD-100"),
        ("jim-bob@example.com", "bob@example.com"),
        ("555-01012", "555-0101"),
        ("The Gatsby Great", "The Great Gatsby"),
        ("anything", ""),
        ("anything", "   "),
        ("anything", "-"),
        ("", "x"),
    ],
)
def test_does_not_state_text(answer: str, value: str) -> None:
    assert not mentions(answer, value)


@pytest.mark.parametrize(
    ("answer", "value", "stated"),
    [
        ("Yes, it is.", True, True),
        ("Yes, it is.", False, False),
        ("No.", False, True),
        ("True", True, True),
        ("It is not available", False, True),
        ("It isn\u2019t available", False, True),
        ("Yes, there are no conflicts", True, True),
        ("No, that is not true", True, False),
        ("eyes", True, False),
        ("nothing", False, False),
        ("1", True, False),
    ],
)
def test_booleans(answer: str, value: bool, stated: bool) -> None:
    assert mentions(answer, value) is stated


@pytest.mark.parametrize(
    ("answer", "value", "stated"),
    [
        ("Pens (3) and paper (25)", ["pens", "paper", 25], True),
        ("Pens (3)", ["pens", "paper"], False),
        ("Pens", ("pens",), True),
        ("Pens", {"pens"}, True),
        ("Pens 3", [["pens"], [3]], True),
        ("Pens", [], False),
        ("Pens", ["pens", None], False),
        (None, 25, False),
        (None, [], False),
        ("None", None, False),
    ],
)
def test_lists_and_nothing(answer: str | None, value: object, stated: bool) -> None:
    assert mentions(answer, value) is stated


def test_rows_count_as_lists() -> None:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    row = connection.execute("SELECT 'pens', 3").fetchone()
    assert mentions("3 pens", row)
    assert not mentions("4 pens", row)


@pytest.mark.parametrize("value", [b"25", {"a": 1}, object()])
def test_other_types_are_refused(value: object) -> None:
    with pytest.raises(TypeError, match="can't look for a"):
        mentions("25", value)
