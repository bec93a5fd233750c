"""What honest tools do all the time, in both modes of the sandbox: nothing of it may be in the way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from awm.env import Limits, Sandbox
from env.attacks import attacks


@pytest.fixture(scope="module", params=["auto", "nofs"])
def honest(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox with the usual limits, as strict as the machine allows and without any file."""
    with Sandbox(Limits(), mode=request.param) as sandbox:
        yield sandbox


@attacks(
    """
    #: dates
    from datetime import date, datetime, timedelta, timezone
    day = date.fromisoformat("2025-02-28") + timedelta(days=2)
    moment = datetime.strptime("Mon, 3 Mar 2025 14:05", "%a, %d %b %Y %H:%M").replace(tzinfo=timezone.utc)
    return [day.isoformat() == "2025-03-02", moment.strftime("%j %A %U") == "062 Monday 09", day.isocalendar()[1] == 9]
    #: calendars
    import calendar
    return [calendar.monthrange(2024, 2)[1] == 29, calendar.month_name[3] == "March"]
    #: decimals
    from decimal import ROUND_HALF_EVEN, Decimal, localcontext
    with localcontext() as context:
        context.prec = 50
        third = Decimal(1) / 3
    return [str(Decimal("2.675").quantize(Decimal("0.01"), ROUND_HALF_EVEN)) == "2.68", len(str(third)) == 52]
    #: fractions and floats
    import math
    from fractions import Fraction
    return [Fraction("0.1") + Fraction(2, 5) == Fraction(1, 2), math.isclose(math.fsum([0.1] * 10), 1), round(2.5) == 2]
    #: statistics
    import statistics
    return [statistics.median([3, 1, 2]) == 2, round(statistics.stdev([2, 4, 4, 4, 5, 5, 7, 9]), 3) == 2.138]
    #: regular expressions
    found = re.findall(r"(?P<user>[\\w.+-]+)@(\\w+(?:\\.\\w+)+)", "ada@example.org, bo.b@mail.example.com")
    return [found == [("ada", "example.org"), ("bo.b", "mail.example.com")], re.sub(r"\\s+", " ", "a \\n b") == "a b"]
    #: JSON
    import json
    value = {"b": [1, 2.5, None, True, "ü\\u2028"], "a": {"c": []}}
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=1)
    return [json.loads(text)["b"][4] == "ü\\u2028", list(json.loads(text)) == ["a", "b"]]
    #: recursion
    known = {}
    def fib(n):
        if n not in known:
            known[n] = n if n < 2 else fib(n - 1) + fib(n - 2)
        return known[n]
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)
    return [fib(90) == 2880067194370816120, depth(900) == 900]
    #: sorts
    words = [f"w{i * 7919 % 100003:06d}" for i in range(100003)]
    words.sort(key=lambda word: (word[-1], word))
    return [words[0] == "w000000", len(set(words)) == 100003]
    #: collections
    from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
    Point = namedtuple("Point", "x y")
    groups = defaultdict(list)
    for word in "one two three four".split():
        groups[len(word)].append(word)
    return [Counter("banana").most_common(1) == [("a", 3)], groups[3] == ["one", "two"], Point(1, 2).y == 2,
            deque([1, 2, 3], maxlen=2)[0] == 2, list(OrderedDict(a=1)) == ["a"]]
    #: iterators
    from itertools import accumulate, groupby, islice, permutations, product
    import heapq, bisect
    return [list(accumulate([1, 2, 3])) == [1, 3, 6], len(list(permutations(range(5)))) == 120,
            heapq.nsmallest(2, [3, 1, 2]) == [1, 2], bisect.bisect([1, 2, 3], 2) == 2,
            [k for k, _ in groupby("aabb")] == ["a", "b"], len(list(islice(product("ab", repeat=3), 5))) == 5]
    #: text
    import string, textwrap, unicodedata, difflib
    return [unicodedata.normalize("NFC", "u\\u0308") == "ü", textwrap.shorten("a b c d", 5) == "[...]",
            string.Template("$a").substitute(a=1) == "1", f"{1234567.891:,.2f}" == "1,234,567.89",
            difflib.get_close_matches("appel", ["ape", "apple"])[0] == "apple", "ß".casefold() == "ss"]
    #: ids and hashes
    import hashlib, uuid, base64
    return [len(str(uuid.uuid4())) == 36, hashlib.md5(b"x").hexdigest()[:4] == "9dd4",
            base64.b64encode(b"x").decode() == "eA==", uuid.uuid5(uuid.NAMESPACE_DNS, "x").version == 5]
    #: random numbers
    import random
    return [0 <= random.random() < 1, len(random.sample(range(10), 3)) == 3, random.choice("ab") in "ab"]
    #: classes
    from dataclasses import asdict, dataclass, field
    from enum import Enum, IntEnum
    class Colour(str, Enum):
        RED = "red"
    @dataclass(order=True)
    class Item:
        price: int
        tags: list = field(default_factory=list)
    return [Colour("red") is Colour.RED, asdict(Item(1)) == {"price": 1, "tags": []}, Item(1) < Item(2)]
    #: models
    from pydantic import BaseModel, ValidationError, field_validator
    class Line(BaseModel):
        sku: str
        count: int = Field(ge=1)
    class Order(BaseModel):
        lines: list[Line]
        note: str | None = None
        @field_validator("note")
        @classmethod
        def short(cls, value):
            return value[:10] if value else value
    order = Order.model_validate({"lines": [{"sku": "a", "count": "2"}], "note": "x" * 20})
    try:
        Order(lines=[{"sku": "a", "count": 0}])
    except ValidationError as error:
        problems = error.error_count()
    schema = Order.model_json_schema()
    return [order.lines[0].count == 2, len(order.note) == 10, problems == 1, schema["required"] == ["lines"]]
    #: errors
    try:
        try:
            db.execute("INSERT INTO orders VALUES (1, 'open', '1')")
        except _module("sqlite3").IntegrityError as error:
            raise ValueError(f"twice: {error}") from error
    except ValueError as error:
        return [str(error) == "twice: UNIQUE constraint failed: orders.id"]
    #: full-text search
    db.execute("INSERT INTO notes(text) VALUES ('the red door'), ('a door, a door')")
    rows = db.execute("SELECT text, bm25(notes), snippet(notes, 0, '[', ']', '...', 3) FROM notes WHERE notes MATCH ? "
                      "ORDER BY rank", ("door NOT ring",)).fetchall()
    return [len(rows) == 3, rows[0][0] == "a door, a door", "[door]" in rows[0][2]]
    #: JSON in SQL
    row = db.execute("SELECT json_group_array(json_object('id', id, 'zip', zip)), json_array_length('[1,2]'), "
                     "json_patch('{}', '{\\"a\\": 1}') FROM orders").fetchone()
    each = db.execute("SELECT key, value FROM json_each('{\\"a\\": [1, 2]}', '$.a')").fetchall()
    return ['"02134"' in row[0], row[1] == 2, row[2] == '{"a":1}', [r["value"] for r in each] == [1, 2]]
    #: recursion in SQL
    rows = db.execute("WITH RECURSIVE t(n, p) AS (SELECT 1, '/1' UNION ALL SELECT n + 1, p || '/' || (n + 1) FROM t "
                      "WHERE n < 50) SELECT max(n), length(max(p)) FROM t").fetchone()
    return [rows[0] == 50]
    #: sorts in SQL
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
    sort = "SELECT count(*) FROM (SELECT DISTINCT hex(i * 7919 % 100003) AS h FROM n ORDER BY h DESC)"
    return [db.execute(numbers + sort).fetchone()[0] == 100000]
    #: windows and groups
    rows = db.execute("SELECT status, count(*) AS n, group_concat(zip, '+'), rank() OVER (ORDER BY count(*) DESC) "
                      "FROM orders GROUP BY status HAVING n > 0 ORDER BY status").fetchall()
    return [rows[1]["n"] == 2, rows[0][3] == 2]
    #: dates in SQL
    row = db.execute("SELECT date('2025-01-31', '+1 month'), strftime('%W', '2025-03-03'), julianday('2025-03-02') - "
                     "julianday('2025-03-01'), datetime('now') > '2025', unixepoch('2025-01-01')").fetchone()
    return [row[0] == "2025-03-03", row[1] == "09", row[2] == 1.0, row[3] == 1, row[4] == 1735689600]
    #: writing in SQL
    db.execute("INSERT INTO orders VALUES (1, 'x', 'y') ON CONFLICT(id) DO UPDATE SET status = excluded.status")
    row = db.execute("UPDATE orders SET zip = upper(zip) || ? WHERE id = ? RETURNING zip", ("!", 1)).fetchone()
    made = db.execute("INSERT INTO parts(order_id, photo) VALUES (?, ?)", (1, b"\\0\\1")).lastrowid
    many = db.executemany("INSERT INTO orders VALUES (?, 'n', 'n')", [(i,) for i in range(100, 1100)]).rowcount
    return [row[0] == "02134!", made == 1, many == 1000, db.total_changes > 1000]
    #: savepoints
    db.execute("SAVEPOINT a")
    db.execute("DELETE FROM orders")
    db.execute("ROLLBACK TO a")
    db.execute("RELEASE a")
    return [db.execute("SELECT count(*) FROM orders").fetchone()[0] == 3]
    #: rows
    row = db.execute("SELECT id, status FROM orders").fetchone()
    cursor = db.cursor()
    cursor.execute("SELECT * FROM orders")
    return [row["id"] == row[0], row.keys() == ["id", "status"], dict(row)["status"] == "open",
            len(cursor.fetchmany(2)) == 2]
    #: looking at the schema
    columns = [row["name"] for row in db.execute("PRAGMA table_info(orders)")]
    return [columns == ["id", "status", "zip"], db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] > 2]
    #: a large answer
    return [True, "x" * (5 << 20)]
    #: printing
    print("to nobody", "ü")
    return [True]
    #: copies
    import copy, operator
    from functools import partial, reduce
    value = {"a": [1, {"b": 2}]}
    other = copy.deepcopy(value)
    other["a"][1]["b"] = 3
    return [value["a"][1]["b"] == 2, reduce(operator.mul, range(1, 6)) == 120, partial(max, 5)(3) == 5]
    #: time
    import time
    from datetime import datetime
    return [time.time() == datetime.now().timestamp(), time.strftime("%Z") == "UTC", time.monotonic() > 0]
    """
)
def test_it_runs(run_tool, honest: Sandbox, code: str):
    result = run_tool(code, sandbox=honest)
    assert result.ok, result.message
    assert all(result.value), result.value
