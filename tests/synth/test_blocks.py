"""Sources made of parts: splitting, merging a repair, and cells."""

import ast
import random

import pytest

from awm.env.cells import join_cells, split_cells
from awm.synth.blocks import merge_python, merge_sql, outline, part_source, split_python

MODULE = '''"""Tools of a shop."""

from __future__ import annotations

import re
from typing import Annotated

from awm.env.tool import Connection, ToolError

LIMIT = 3
NAMES: dict[str, int] = {}

# One row of `orders`.
class Order(BaseModel):
    id: int
    total: float = 0.0


def _row(db: Connection, order_id: int):
    return db.execute("SELECT 1").fetchone()

@checked
@also(1)
def get_order(db: Connection, order_id: Annotated[int, "id"]) -> Order:
    """Return an order.

# %% no cell
    """
    return _row(db, order_id)  # the row


async def cancel_order(db: Connection, *, order_id: int = 1) -> None:
    if re.match("a", "b"):
        raise ToolError("no")
# The end.
'''


def test_split():
    parts = split_python(MODULE)
    assert list(parts.definitions) == ["Order", "_row", "get_order", "cancel_order"]
    assert parts.header.startswith('"""Tools of a shop."""\n\nfrom __future__')
    assert parts.header.endswith("NAMES: dict[str, int] = {}\n# The end.\n")
    assert parts.definitions["Order"].startswith("\n# One row of `orders`.\nclass Order")
    assert parts.definitions["get_order"].startswith("\n@checked\n@also(1)\ndef get_order")
    assert sorted(parts.header + "".join(parts.definitions.values())) == sorted(MODULE)


@pytest.mark.parametrize(
    ("name", "start", "end"),
    [
        ("Order", "# One row of `orders`.\nclass Order", "total: float = 0.0\n"),
        ("get_order", "@checked\n@also(1)\ndef get_order", "# the row\n"),
        ("cancel_order", "async def cancel_order", 'raise ToolError("no")\n'),
        ("LIMIT", "LIMIT = 3", "LIMIT = 3\n"),
    ],
)
def test_part(name, start, end):
    source = part_source(MODULE, name)
    assert source.startswith(start)
    assert source.endswith(end)


@pytest.mark.parametrize(("source", "name"), [(MODULE, "nothing"), (MODULE, "re"), ("def f(:", "f"), ("", "f")])
def test_no_part(source, name):
    assert part_source(source, name) == ""


def test_outline():
    assert outline(MODULE) == (
        "LIMIT\n"
        "NAMES\n"
        "class Order(BaseModel): id, total\n"
        "def _row(db: Connection, order_id: int)\n"
        "def get_order(db: Connection, order_id: Annotated[int, 'id']) -> Order\n"
        "async def cancel_order(db: Connection, *, order_id: int=1) -> None\n"
    )
    assert outline("") == ""
    assert outline("class A: pass\nx = y = 1; z = 2\ndef f(:\n    def g(): pass") == "class A: pass\ndef f(:\n"


A, B, C = "def a():\n    return 1\n", "def b():\n    return 2\n", "def c():\n    return 3\n"
A2, B2, N, M = (
    "def a():\n    return 11\n",
    "def b():\n    return 22\n",
    "def n():\n    return 0\n",
    "def m():\n    return 9\n",
)


def module(*parts):
    return "\n\n".join(parts)


PYTHON = {
    "nothing new": (module(A, B), "", module(A, B)),
    "replaced in its place": (module(A, B, C), B2, module(A, B2, C)),
    "all replaced": (module(A, B), module(B2, A2), module(B2, A2)),
    "all replaced, verbatim": (A, f"# x\n\n\n\n{A2}y = 1 ; z = 2\n", f"# x\n\n\n\n{A2}y = 1 ; z = 2\n"),
    "new, alone": (module(A, B), N, module(A, B, N)),
    "new, before its successor": (module(A, B, C), module(N, B2), module(A, N, B2, C)),
    "new, behind": (module(A, B, C), module(B2, N), module(A, B2, C, N)),
    "two new before one": (module(A, B, C), module(N, M, B2), module(A, N, M, B2, C)),
    "two new at the end": (module(A, B, C), module(A2, N, M), module(A2, B, C, N, M)),
    "new between": (module(A, B, C), module(A2, N, C), module(A2, B, N, C)),
    "a class for a function": (module(A, B), "class a:\n    pass\n", module("class a:\n    pass\n", B)),
    "decorators and comments": (
        module(f"# old\n@old\n{A}", B),
        f"# new\n@new\n{A2}",
        module(f"# new\n@new\n{A2}", B),
    ),
    "comments stay with what stays": (module(f"# about a\n{A}", f"# about b\n{B}"), A2, module(A2, f"# about b\n{B}")),
    "constants": (f"X = 1\nY: int = 2\n\n\n{A}", "Y = 3\nZ = 4\n", f"X = 1\nY = 3\n\n\n{A}\n\nZ = 4\n"),
    "new constant before its user": (module(A, B), f"X = 1\n\n\n{B2}", f"{A}\n\nX = 1\n\n\n{B2}"),
    "tuple of constants": (f"X, Y = 1, 2\n\n\n{A}", "X, Y = 3, 4\n", f"X, Y = 3, 4\n\n\n{A}"),
    "entry of a table": (f"D = {{}}\nD['a'] = 1\n\n\n{A}", 'D["a"] = 2\n', f'D = {{}}\nD["a"] = 2\n\n\n{A}'),
    "defined twice before": (module(A, A2, B), A, module(A, B)),
    "defined twice in the patch": (module(A, B), module(A, A2), module(A, A2, B)),
    "two statements on a line": (f"X = 1; Y = 2\n\n\n{A}", "X = 3; Y = 4", f"X = 3; Y = 4\n\n\n{A}"),
    "elided": (module(A, B, C), module("def a():\n    ...\n", B2, "def c(): ...  # unchanged\n"), module(A, B2, C)),
    "elided behind a docstring": (module(A, B), module('def a():\n    """Same."""\n    ...\n', B2), module(A, B2)),
    "new and empty": (A, "class E(Exception): ...\n", module(A, "class E(Exception): ...\n")),
    "docstring": (f'"""Old."""\n\n\n{A}\n\n{B}', f'"""New."""\n\n\n{A2}', f'"""New."""\n\n\n{A2}\n\n{B}'),
    "docstring stays": (f'"""Old."""\n\n\n{A}\n\n{B}', A2, f'"""Old."""\n\n\n{A2}\n\n{B}'),
    "other statements stay": (module(A, "if a():\n    X = 1\n", B), A2, f"{A2}\n\nif a():\n    X = 1\n\n\n{B}"),
    "the same other statement": (
        f"if True:\n    X = 1\n\n\n{A}",
        "if  True:\n    X = 1\n",
        f"if  True:\n    X = 1\n\n\n{A}",
    ),
    "no end of line": ("def a():\n    return 1", N.rstrip(), module(A, N)),
    "previous does not compile": ("def a(:\n", B, B),
    "previous is empty": ("", A, A),
    "comment at the end": (f"{A}# end\n", N, f"{A}\n\n{N}# end\n"),
    "form feed and line separator in strings": ("X = '\u2028'\nY = '\x0c'\n", "X = 1\n", "X = 1\nY = '\x0c'\n"),
}


@pytest.mark.parametrize(("previous", "patch", "expected"), PYTHON.values(), ids=PYTHON.keys())
def test_merge_python(previous, patch, expected):
    assert merge_python(previous, patch) == expected


USE = "def a():\n    return re, json, Connection\n\n\n"
IMPORTS = {
    "kept": ("import re\nimport json\n", "", "re json", ["import re", "import json"]),
    "new": ("import re\n", "import json\n", "re json", ["import re", "import json"]),
    "once": ("import re\n", "import re, json\n", "re json", ["import re", "import json"]),
    "name of a module once": (
        "from awm.env.tool import Connection\n",
        "from awm.env.tool import Connection, ToolError\n",
        "Connection",
        ["from awm.env.tool import Connection", "from awm.env.tool import ToolError"],
    ),
    "no longer used": ("import os\nfrom m import re, x\n", "", "re", ["from m import re"]),
    "used in a quoted annotation": ("from m import Order\n", "", "'list[Order]'", ["from m import Order"]),
    "of a submodule": ("import p.b\nimport p.c\n", "import p.c\n", "p", ["import p.b", "import p.c"]),
    "bound to something else now": ("from m import x\n", "from n import x\n", "x", ["from n import x"]),
    "future first": (
        "import re\n",
        "from __future__ import annotations\n",
        "re",
        ["from __future__ import annotations", "import re"],
    ),
    "star": ("from m import *\n", "", "1", ["from m import *"]),
    "renamed": ("import json as j\n", "import json as k\n", "(j, k)", ["import json as j", "import json as k"]),
}


@pytest.mark.parametrize(("old", "new", "used", "expected"), IMPORTS.values(), ids=IMPORTS.keys())
def test_imports(old, new, used, expected):
    used = used if used.startswith(("'", "(")) else f"({', '.join(used.split())})"
    previous = f"{old}\n\n{A}\n\n{B}"
    merged = merge_python(previous, f"{new}\n\ndef b():\n    return {used}\n")
    lines = [ast.unparse(node) for node in ast.parse(merged).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert lines == expected
    assert merge_python(previous, f"{new}\n\n{A2}\n\ndef b():\n    return {used}\n").count("import") >= len(lines) - 1


def test_a_full_replacement_takes_over_the_imports_that_it_lacks():
    previous = f"import os\nimport re\nfrom m import Connection, verdict\n\n\n{A}"
    patch = "def a(db: Connection):\n    return re.sub('a', 'b', 'c')\n"
    assert merge_python(previous, patch) == f"import re\nfrom m import Connection\n\n\n{patch}"


def test_a_definition_replaces_an_import():
    assert merge_python(f"from m import n\n\n\n{A}\n\n{B}", module(N, "def b():\n    return n()\n")) == module(
        A, N, "def b():\n    return n()\n"
    )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def f(:\n", "line 1: "),
        ("x = 1\nif True\n", "line 2: expected ':'"),
        ("x = 1\n  y = 2\n", "line 2: unexpected indent"),
    ],
)
def test_syntax_errors_name_the_line(source, message):
    with pytest.raises(ValueError, match=message):
        merge_python(A, source)
    with pytest.raises(ValueError, match=message):
        split_python(source)


def test_merging_a_module_with_itself_or_its_parts_changes_no_code():
    rng = random.Random(7)
    names = ["LIMIT", "NAMES", "Order", "_row", "get_order", "cancel_order"]
    for _ in range(50):
        patch = "\n".join(
            part_source(MODULE, name) for name in sorted(rng.sample(names, rng.randint(0, 5)), key=names.index)
        )
        assert ast.dump(ast.parse(merge_python(MODULE, patch))) == ast.dump(ast.parse(MODULE))
    assert merge_python(MODULE, MODULE) == MODULE


AX, BX, CX, NX = (f"CREATE TABLE {table} (x);\n" for table in "abcn")
AY, BY = (f"CREATE TABLE {table} (y);\n" for table in "ab")
A1, A3, B1 = "INSERT INTO a VALUES (1);\n", "INSERT INTO a VALUES (3);\n", "INSERT INTO b VALUES (1);\n"
INDEX, TRIGGER = "CREATE INDEX i ON a (x);\n", "CREATE TRIGGER t AFTER INSERT ON a BEGIN SELECT 1; END;\n"
V1, V2, W1 = (
    "CREATE VIEW v AS SELECT 1;\n",
    "CREATE VIEW IF NOT EXISTS V AS SELECT 2;\n",
    "CREATE VIEW w AS SELECT 1;\n",
)
A_TEXT, B_TEXT = "INSERT INTO a VALUES ('x; INSERT INTO b');\n", "INSERT INTO b VALUES ('; -- ');\n"

SQL = {
    "nothing new": (AX, "", AX),
    "empty": ("", AX, AX),
    "replaced in its place": (AX + BX + CX, BY, AX + BY + CX),
    "all statements of a table": (AX + BX + INDEX + A1 + B1, AY + A3 + A3, AY + A3 + A3 + BX + B1),
    "names in any spelling": ('CREATE TABLE "A" (x);\n' + BX, "create table [a] (y);", "create table [a] (y);\n" + BX),
    "new before its successor": (AX + BX, NX + BY, AX + NX + BY),
    "new at the end": (AX + BX, AY + NX, AY + BX + NX),
    "all tables": (AX + BX, BY + AY, BY + AY),
    "strings with semicolons": (A_TEXT + B1, B_TEXT, A_TEXT + B_TEXT),
    "trigger": (AX + TRIGGER + BX, AY, AY + BX),
    "views by name": (AX + V1 + W1, V2, AX + V2 + W1),
    "pragma once": (f"PRAGMA x = 1;\n{AX}{BX}", f"PRAGMA x  =  1;\n{BY}", f"PRAGMA x  =  1;\n{AX}{BY}"),
    "no semicolon at the end": (AX + BX, "CREATE TABLE n (x)", AX + BX + NX),
    "comment behind the last": (AX + "CREATE TABLE b (x) -- end", AY, AY + "CREATE TABLE b (x) -- end\n;\n"),
}


@pytest.mark.parametrize(("previous", "patch", "expected"), SQL.values(), ids=SQL.keys())
def test_merge_sql(previous, patch, expected):
    assert merge_sql(previous, patch) == expected


def test_sql_that_is_cut_off():
    with pytest.raises(ValueError, match=r"line 2: the statement is cut off: INSERT INTO b"):
        merge_sql("CREATE TABLE a (x);", "INSERT INTO a VALUES (1);\nINSERT INTO b VALUES ('x")


CELLS = {
    "none": {},
    "one": {"1": "x = 1\n"},
    "several": {"task 1": "x = 1\n", "task 2": "y = 2\n\n\n", "a % b": "z"},
    "empty": {"a": "", "b": "\n", "c": "\n\n"},
    "nearly a mark": {"a": " # %% x\nx = '# %%'\n#%% y\n# %%z\n"},
    "odd line ends": {"a": "x = 1\r\ny = 2\r\n", "b": "\x0c\u2028# %% c"},
}


@pytest.mark.parametrize("cells", CELLS.values(), ids=CELLS.keys())
def test_cells_come_back(cells):
    text = join_cells(cells)
    assert split_cells(text) == cells
    assert list(split_cells(text)) == list(cells)
    assert join_cells(split_cells(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n\n# %% a\nx\n", {"a": "x"}),
        ("# %% a\nx\n# %% b  \ny", {"a": "x", "b": "y"}),
        ("# %%\ta\n# %% b", {"a": "", "b": ""}),
    ],
)
def test_cells_written_by_hand(text, expected):
    assert split_cells(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n# %% a\n", "text before the first"),
        ("x = 1\n", "text before the first"),
        ("# %% a\n\n# %% a\n", "line 3: a second cell has the title 'a'"),
        ("# %% a\n# %%  \n", "line 2: this cell has no title"),
    ],
)
def test_text_that_is_no_file_of_cells(text, message):
    with pytest.raises(ValueError, match=message):
        split_cells(text)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({"a": "x = 1\n# %% b\n"}, "a, line 2: a source in a cell"),
        ({"a": "# %%"}, "a, line 1"),
        ({"": "x"}, "can't be the title"),
        ({" a": "x"}, "can't be the title"),
        ({"a\nb": "x"}, "can't be the title"),
        ({"a\r": "x"}, "can't be the title"),
    ],
)
def test_cells_that_would_not_come_back(cells, message):
    with pytest.raises(ValueError, match=message):
        join_cells(cells)
