"""One environment, always the same calls, and what they leave behind: for comparing Pythons, processes and machines.

Run it to see what this Python makes of them: `python tests/env/same_state.py`. `across_pythons.py` compares several.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sqlite3
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CLOCK = "2025-03-01 10:00:00"

SCHEMA = """
CREATE TABLE items (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL NOT NULL, made TEXT DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE carts (id TEXT PRIMARY KEY, total REAL, taxed REAL GENERATED ALWAYS AS (round(total * 1.19, 2)) STORED);
CREATE TABLE log (line TEXT, at TEXT DEFAULT (datetime('now')), lucky INTEGER DEFAULT (random()));
CREATE VIRTUAL TABLE search USING fts5(body);
CREATE TRIGGER items_log AFTER UPDATE ON items BEGIN INSERT INTO log(line) VALUES (old.name || ' -> ' || new.name); END;
INSERT INTO items (id, name, price) VALUES
    (1, 'tea', 0.1), (2, 'rum', 0.2), (3, 'ale', 0.3), (4, 'sake', 1e16), (5, 'gin', 1);
INSERT INTO search VALUES ('tea and rum'), ('ale');
"""

MODULE = '''
import base64
import calendar
import copy
import difflib
import hashlib
import heapq
import itertools
import json
import math
import random
import re
import statistics
import string
import textwrap
import unicodedata
import uuid
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field

from awm.env.tool import Connection, ToolError


class Colour(str, Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Mood(StrEnum):
    GOOD = "good"


@dataclass
class Point:
    x: float
    y: float


class Cart(BaseModel):
    id: uuid.UUID
    total: float
    made: datetime


def _keep(db, **facts):
    for key, value in facts.items():
        text = json.dumps(value, default=str, sort_keys=True)
        db.execute("INSERT INTO facts VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value", (key, text))


def numbers(db: Connection) -> dict[str, Any]:
    """Add, multiply and round."""
    prices = [row["price"] for row in db.execute("SELECT price FROM items ORDER BY id")]
    found = {
        "sum": sum(prices[:3] * 5),
        "sum_from": sum(prices, 0.5),
        "sum_mixed": sum([1, 0.1, True, 0.2, 10**16, -(10**16)]),
        "sum_generator": sum(price * 3 for price in prices),
        "fsum": math.fsum(prices),
        "product": math.prod(prices),
        "round": [round(2.675, 2), round(0.5), round(1.5), round(-7.45, 1)],
        "mean": statistics.fmean(prices[:3]),
        "spread": statistics.stdev(prices[:3]),
        "shares": statistics.quantiles([1, 5, 7, 8, 9.5], n=4),
        "decimal": str(sum([Decimal("0.1")] * 3, Decimal(0)) / 7),
        "fraction": str(sum([Fraction(1, 3), Fraction(1, 6)])),
        "text": [f"{prices[3]:,.2f}", f"{1 / 3:.3e}", repr(0.1 + 0.2), str(1e22), f"{12345.678:>12_.1f}"],
        "root": [math.sqrt(2), math.hypot(3, 4.5), math.isqrt(10**20)],
    }
    _keep(db, **found)
    db.execute("INSERT INTO carts(id, total) VALUES (?, ?)", (str(uuid.uuid4()), found["sum"]))
    return found


def chance(db: Connection) -> list[Any]:
    """Draw."""
    deck = list(range(20))
    random.shuffle(deck)
    found = [
        random.random(), random.randint(1, 10**9), random.sample(range(100), 5), random.choices("abc", [1, 2, 3], k=5),
        random.triangular(0, 1), random.getrandbits(60), random.uniform(1, 2), random.randbytes(4).hex(), deck,
        str(uuid.uuid4()), db.execute("SELECT random(), hex(randomblob(4))").fetchone()[0],
    ]
    _keep(db, chance=found)
    return found


def order(db: Connection) -> dict[str, Any]:
    """Walk through sets and dicts."""
    words = "the quick brown fox jumps over the lazy dog and runs away".split()
    groups = defaultdict(set)
    for word in words:
        groups[len(word)].add(word)
    found = {
        "set": list(set(words)),
        "frozen": list(frozenset("determinism")),
        "pairs": list({(len(word), word) for word in words}),
        "numbers": list({7, 1000003, -5, 2**40, 12345678901}),
        "groups": {str(size): list(members) for size, members in groups.items()},
        "common": Counter(words).most_common(3),
        "union": list({"a", "b"} | {"c", "d"} ^ {"a", "e"}),
        "keys": list({word: None for word in words}),
        "enums": sorted(map(str, {Colour.RED, Level.LOW, Mood.GOOD})),
    }
    _keep(db, **{f"order_{key}": value for key, value in found.items()})
    return found


def words(db: Connection, text: Annotated[str, Field(description="Text")]) -> dict[str, Any]:
    """Take text apart."""
    found = {
        "enums": [str(Colour.RED), f"{Colour.RED}", str(Level.LOW), f"{Level.LOW}", str(Mood.GOOD), Colour.RED.value],
        "json": json.dumps({"colour": Colour.RED, "level": Level.LOW, "text": text}, ensure_ascii=False, indent=1),
        "split": re.split(r"(\\W+)", text),
        "swap": re.sub(r"(?P<a>\\w)(?P<b>\\w)", r"\\g<b>\\g<a>", text),
        "wrapped": textwrap.wrap(text * 4, 30),
        "title": [string.capwords(text), text.title(), text.casefold(), text.encode().hex()],
        "normal": unicodedata.normalize("NFKD", text),
        "near": difflib.get_close_matches("tee", ["tea", "tree", "te"], cutoff=0.1),
        "hash": hashlib.sha256(text.encode()).hexdigest(),
        "base": base64.b85encode(text.encode()).decode(),
        "repr": [repr(Point(1, 2.5)), repr(text), ascii(text), repr({"a": (1,)}), repr(date(2025, 3, 1))],
        "point": asdict(copy.deepcopy(Point(0.1, 1e-7))),
    }
    _keep(db, **{f"words_{key}": value for key, value in found.items()})
    db.execute("INSERT INTO search(body) VALUES (?)", (text,))
    return found


def times(db: Connection) -> dict[str, Any]:
    """Tell the time in every way."""
    now = datetime.now()
    found = {
        "now": [now, datetime.now(timezone.utc), date.today(), now.timestamp()],
        "shown": now.strftime("%A %d %B %Y %I:%M %p %j %U %W %G-%V %y"),
        "parsed": [datetime.strptime("3 Mar 2025", "%d %b %Y"), datetime.fromisoformat("2025-03-01T10:00:00+02:00")],
        "there": datetime(2025, 7, 1, 12, tzinfo=ZoneInfo("Europe/Paris")).astimezone(timezone.utc).isoformat(),
        "later": [now + timedelta(days=30, hours=5), (date(2025, 12, 24) - now.date()).days, now.isocalendar()[1]],
        "month": calendar.monthrange(2024, 2)[1],
        "sql": list(db.execute("SELECT datetime('now'), date('now', '+1 month'), strftime('%s', 'now')").fetchone()),
    }
    _keep(db, **{f"times_{key}": value for key, value in found.items()})
    return found


def change(db: Connection, item_id: Annotated[int, Field(description="Item")]) -> Cart:
    """Rename an item, and put it in a cart."""
    row = db.execute("SELECT * FROM items WHERE id = ?", (item_id,)).fetchone()
    if row is None:
        raise ToolError(f"there is no item {item_id}")
    db.execute("UPDATE items SET name = upper(name), price = price * 1.1 WHERE id = ?", (item_id,))
    cart = Cart(id=uuid.uuid4(), total=row["price"] * 3, made=datetime.now())
    db.execute("INSERT INTO carts(id, total) VALUES (?, ?)", (str(cart.id), cart.total))
    return cart


def sort(db: Connection) -> list[Any]:
    """Sort and merge."""
    rows = db.execute("SELECT name, price FROM items ORDER BY price DESC, name").fetchall()
    ranked = sorted(rows, key=lambda row: (-len(row["name"]), row["price"]))
    merged = list(heapq.merge([1, 4], [2, 3])) + [len(list(group)) for _, group in itertools.groupby("aabbb")]
    found = [[row["name"] for row in ranked], merged, heapq.nlargest(2, [row["price"] for row in rows])]
    _keep(db, sort=found)
    return found


def fail(db: Connection) -> None:
    """Write, and fail: nothing of it may stay."""
    db.execute("DELETE FROM items")
    random.random()
    raise ToolError(f"not today, {datetime.now():%H:%M:%S}")


def crash(db: Connection) -> None:
    """Write, and crash."""
    db.execute("DELETE FROM search")
    return {}["missing"]
'''

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("numbers", {}),
    ("chance", {}),
    ("order", {}),
    ("words", {"text": "Straße, naïve café – 東京 №5 ½ '\"\\ tab\t"}),
    ("times", {}),
    ("change", {"item_id": 1}),
    ("fail", {}),
    ("change", {"item_id": "2"}),
    ("change", {"item_id": 99}),
    ("crash", {}),
    ("change", {}),
    ("no_such_tool", {}),
    ("sort", {}),
    ("chance", {}),
    ("numbers", {}),
    ("times", {}),
]


def final_state() -> dict[str, Any]:
    """Play the calls, twice in one episode and once in another; return what is to be compared."""
    from awm.env import Environment
    from awm.env.clock import FrozenClock
    from awm.env.database import build, content_hash
    from awm.env.sql import split_statements

    snapshot = build(split_statements(SCHEMA), FrozenClock(CLOCK))
    with Environment("same_state", source=MODULE, snapshot=snapshot, clock=CLOCK) as environment:
        with environment.episode() as episode:
            results = [[result.kind, result.value, result.message] for result in episode.call_many(CALLS)]
            state, content = episode.snapshot(), episode.content_hash()
            episode.reset()
            again = [[result.kind, result.value, result.message] for result in episode.call_many(CALLS)]
            assert (again, episode.snapshot()) == (results, state), "a second run of one episode differs"
        with environment.episode() as episode:
            one_by_one = [episode.call(*call) for call in CALLS]
            assert [[result.kind, result.value, result.message] for result in one_by_one] == results
            assert episode.snapshot() == state, "another process differs"
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "initial": content_hash(snapshot),
        "final": content,
        "results": hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest(),
        "initial_bytes": hashlib.sha256(snapshot).hexdigest(),
        "final_bytes": hashlib.sha256(state).hexdigest(),
        "outcomes": [kind for kind, _, _ in results],
        "values": results,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    print(json.dumps(final_state()))
