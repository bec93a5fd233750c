"""What a module must be to be loaded, and all the reasons it is not."""

from __future__ import annotations

import re

import pytest

from awm.env import ModuleError, Sandbox
from awm.env.module import load_module

HEAD = "from typing import Annotated\nfrom pydantic import Field\nfrom awm.env.tool import Connection, ToolError\n"
TOOL = "def run(db: Connection):\n    '''Run.'''\n"
VERIFY = (
    "from awm.env.verifier import Connection\n"
    "def verify(initial: Connection, final: Connection, answer: str | None) -> dict:\n"
)


@pytest.fixture(scope="module")
def lint(sandbox: Sandbox):
    """Load tool modules in one worker; return the problems."""
    with sandbox.worker() as worker:

        def problems(source: str) -> tuple[str, tuple[str, ...]]:
            try:
                worker.load(source)
            except ModuleError as error:
                return error.phase, error.problems
            return "ok", ()

        yield problems


ANYWHERE = [
    ("import os\n", "line 4: import of 'os' is not allowed"),
    ("import os.path\n", "line 4: import of 'os.path' is not allowed"),
    ("from subprocess import run as go\n", "line 4: import of 'subprocess' is not allowed"),
    ("from math import *\n", "line 4: 'from math import *' is not allowed"),
    ("from . import x\n", "line 4: relative imports are not allowed"),
    ("from awm.env.tool import sqlite3\n", "line 4: 'awm.env.tool' offers Connection, ToolError, not 'sqlite3'"),
    ("from awm.env.verifier import mentions\n", "line 4: import of 'awm.env.verifier' is not allowed"),
    ("from functools import lru_cache\n", "line 4: 'lru_cache' is not allowed: results kept between calls"),
    ("from uuid import uuid1\n", "line 4: 'uuid1' is not allowed"),
    ("cache = {}\n", "line 4: 'cache' is a mutable object at the module's level"),
    ("cache: list[int] = []\n", "line 4: 'cache' is a mutable object"),
    ("import collections\nseen = collections.defaultdict(list)\n", "line 5: 'seen' is a mutable object"),
    ("print('hello')\n", "line 4: only imports, definitions and constants may stand at the module's level"),
    ("import json\njson.dumps = lambda value: ''\n", "line 5: only names may be assigned at the module's level"),
    ("import json\nJ = json\nJ.dumps = None\n", "line 6: only names may be assigned"),
    ("import json\nX, json.x = 1, 2\n", "line 5: only names may be assigned"),
    ("import json\njson.x: int = 1\n", "line 5: only names may be assigned"),
    ("import json\njson.x += 1\n", "line 5: only imports, definitions and constants"),
    ("LIMITS = {}\nLIMITS['a'] = 1\n", "line 5: only names may be assigned"),
    ("import json\nclass A:\n    json.dumps = None\n", "line 6: 'json' was imported and may not be changed"),
    ("for x in range(3):\n    pass\n", "line 4: only imports, definitions and constants"),
    ("if __name__ == '__main__':\n    pass\n", "line 4: only imports, definitions and constants"),
]


@pytest.mark.parametrize(("code", "problem"), ANYWHERE, ids=[code.strip() for code, _ in ANYWHERE])
def test_what_may_not_stand_in_a_module(lint, code, problem):
    phase, problems = lint(HEAD + code + TOOL)
    assert phase == "lint"
    assert any(found.startswith(problem) for found in problems), problems


INSIDE = [
    ("import socket", "import of 'socket'"),
    ("eval('1')", "'eval' is not allowed"),
    ("exec('1')", "'exec' is not allowed"),
    ("compile('1', '', 'exec')", "'compile' is not allowed"),
    ("__import__('os')", "'__import__' is not allowed"),
    ("open('x')", "'open' is not allowed"),
    ("getattr(db, '__class__')", "'getattr' of '__class__' is not allowed"),
    ("db.__class__", "the attribute '__class__' is not allowed"),
    ("__builtins__", "'__builtins__' is not allowed"),
    ("global x", "'global x' keeps state between calls"),
    ("LIMITS['a'] = 1", "'LIMITS' is changed inside a function"),
    ("LIMITS.update(a=1)", "'LIMITS' is changed inside a function"),
    ("run.calls = 1", "'run' is changed inside a function"),
    ("del LIMITS['a']", "'LIMITS' is changed inside a function"),
    ("import json; json.dumps = None", "'json' was imported and may not be changed"),
    ("import json as j; j.decoder.x = None", "'j' was imported and may not be changed"),
    ("from json import decoder; del decoder.x", "'decoder' was imported and may not be changed"),
    ("import json; setattr(json, 'dumps', None)", "'json' was imported and may not be changed"),
    ("import json\n    for json.x in (): pass", "'json' was imported and may not be changed"),
    ("db.close()", "'db.close()' is not allowed: the connection stays open"),
    ("db.commit()", "'.commit()' is not allowed: each call runs in one transaction"),
    ("db.rollback()", "'.rollback()' is not allowed"),
    ("db.executescript('')", "'.executescript()' is not allowed"),
    ("db.execute('BEGIN')", "BEGIN is not allowed: each call runs in one transaction already"),
    ("db.execute(' drop table x')", "DROP is not allowed: the schema is fixed"),
    ("db.execute(f'CREATE TABLE {db}')", "CREATE is not allowed: the schema is fixed"),
    ("try:\n        pass\n    except:\n        pass", "a bare 'except' hides errors"),
    ("try:\n        pass\n    except BaseException:\n        pass", "'except BaseException' hides errors"),
    ("def inner(x=[]):\n        pass", "'inner' has a mutable default"),
    ("import time; time.sleep(1)", "'time.sleep' is not allowed: waiting"),
    ("import sqlite3; sqlite3.connect('x')", "'sqlite3.connect' is not allowed"),
]


@pytest.mark.parametrize(("code", "problem"), INSIDE, ids=[code for code, _ in INSIDE])
def test_what_may_not_stand_in_a_function(lint, code, problem):
    phase, problems = lint(HEAD + "LIMITS = {'a': 1}\n" + TOOL + f"    {code}\n")
    assert phase == "lint"
    assert any(problem in found for found in problems), problems


DESCRIBED = 'x: Annotated[int, Field(description="X")]'
SIGNATURES = [
    ("def list_tools(db: Connection):\n    '''L.'''\n", "line 4: 'list_tools' is a reserved name"),
    ("def verify(db: Connection):\n    '''L.'''\n", "line 4: 'verify' is a reserved name"),
    ("def runIt(db: Connection):\n    '''L.'''\n", "line 4: 'runIt' is no name for a tool"),
    ("def run(db: Connection):\n    pass\n", "line 4: 'run' has no docstring"),
    ("def run():\n    '''L.'''\n", "line 4: 'run' needs the database as its first parameter"),
    (f"def run({DESCRIBED}):\n    '''L.'''\n", "line 4: the first parameter of 'run' is the database"),
    ("def run(db: Connection = None):\n    '''L.'''\n", "line 4: the first parameter of 'run' is always passed"),
    ("def run(db: Connection, x):\n    '''L.'''\n", "line 4: parameter 'x' of 'run' needs a type and a description"),
    ("def run(db: Connection, x: int):\n    '''L.'''\n", "line 4: parameter 'x' of 'run' needs"),
    (
        "def run(db: Connection, x: Annotated[int, Field(ge=1)]):\n    '''L.'''\n",
        "line 4: parameter 'x' of 'run' needs",
    ),
    ("def run(db: Connection, x: int = Field(1, description='X')):\n    '''L.'''\n", "line 4: parameter 'x' of 'run'"),
    ("def run(db: Connection, *x):\n    '''L.'''\n", "line 4: 'run' may not use *args"),
    ("async def run(db: Connection):\n    '''L.'''\n", "line 4: 'run' is async"),
    ("def run(db: Connection):\n    '''L.'''\n    yield 1\n", "line 4: 'run' is a generator"),
    ("@staticmethod\ndef run(db: Connection):\n    '''L.'''\n", "'run' has a decorator"),
    ("def _run(db: Connection):\n    pass\n", "line 1: the module defines no tool"),
]


@pytest.mark.parametrize(("code", "problem"), SIGNATURES, ids=[problem for _, problem in SIGNATURES])
def test_what_a_tool_must_declare(lint, code, problem):
    phase, problems = lint(HEAD + code)
    assert phase == "lint"
    assert any(problem in found for found in problems), problems


GOOD = [
    HEAD
    + """
LIMITS = {"a": [1]}
_NAMES = ("x",)
OrderId = Annotated[int, Field(description="Order")]
def run(db: Connection, order_id: OrderId, *, more: "OrderId" = 1):
    '''Run.'''
    local = {}
    local["a"] = LIMITS["a"]
""",
    '"""What it is."""\nfrom __future__ import annotations\nimport sqlite3\n'
    + HEAD
    + TOOL
    + """
    try:
        db.execute("SELECT 1")
    except sqlite3.IntegrityError as error:
        raise ToolError(str(error)) from error
""",
    HEAD
    + TOOL
    + """
def _helper(rows):
    LIMITS = {}
    LIMITS["x"] = 1
    return type(rows).__name__
""",
    "import json, operator\nfrom datetime import date\n"
    + HEAD
    + TOOL
    + """
    cursor = db.execute("SELECT 1")
    cursor.close()
    date = {}
    date["x"] = operator.add(1, 2)
    return json.dumps(date)
""",
    HEAD
    + """
from pydantic import BaseModel
class Tree(BaseModel):
    kids: list["Tree"] = []
    def __init__(self, **values):
        super().__init__(**values)
Tree.model_rebuild()
"""
    + TOOL,
]


@pytest.mark.parametrize("source", GOOD, ids=["constants", "handlers", "local names", "own names", "models"])
def test_plain_modules_pass(lint, source):
    assert lint(source) == ("ok", ())


def test_all_problems_come_at_once_in_the_order_of_lines(lint):
    _, problems = lint(HEAD + "import os\nstate = []\ndef run(db: Connection, x):\n    eval('1')\n    db.commit()\n")
    lines = [int(re.match(r"line (\d+): ", problem).group(1)) for problem in problems]
    assert lines == [4, 5, 6, 6, 7, 8]


@pytest.mark.parametrize(
    ("source", "phase", "problem"),
    [
        ("def run(:\n", "syntax", "line 1: "),
        ("x = 1\n  y = 2\n", "syntax", "line 2: unexpected indent"),
        ("x = '\0'", "syntax", "line 1: "),
        ("x = '\ud800'", "syntax", "line 1: the source is no Unicode text"),
        ("-" * 200_000 + "1", "syntax", "line 1: "),
        (HEAD + "X = 1 / 0\n" + TOOL, "import", "line 4: ZeroDivisionError: division by zero"),
        (HEAD + "from math import nothing\n" + TOOL, "import", "line 4: ImportError: cannot import name 'nothing'"),
        (
            HEAD + "X = [x for x in iter(int, 1) if x]\n" + TOOL,
            "import",
            "the module did not load within 2 s",
        ),
        (
            HEAD + "def run(db: Connection, x: Annotated['Nowhere', Field(description='X')]):\n    '''Run.'''\n",
            "signature",
            "line 4: the signature of 'run': NameError: name 'Nowhere' is not defined",
        ),
        (
            HEAD + "def run(db: Connection, x: Annotated[Connection, Field(description='X')]):\n    '''Run.'''\n",
            "signature",
            "line 4: the signature of 'run': PydanticSchemaGenerationError: ",
        ),
    ],
    ids=["syntax", "indent", "null", "surrogate", "deep", "import", "name", "endless", "type", "schema"],
)
def test_the_phase_tells_how_far_a_module_came(lint, source, phase, problem):
    found, problems = lint(source)
    assert found == phase
    assert problems[0].startswith(problem), problems
    assert "http" not in problems[0]


HOSTILE = {
    "minuses": "X = " + "-" * 100_000 + "1\n" + HEAD + TOOL,
    "attributes": HEAD + "X = a" + ".b" * 20_000 + "\n" + TOOL,
    "additions": HEAD + TOOL + "    return 1" + " + 1" * 20_000 + "\n",
    "brackets": HEAD + "X = " + "(" * 1000 + ")" * 1000 + "\n" + TOOL,
    "a nul": HEAD + TOOL + "\0",
    "a surrogate": HEAD + TOOL + "    return '\ud800'\n",
    "nonlocal": HEAD + TOOL + "    nonlocal x\n",
    "a long number": HEAD + "X = " + "1" * 5000 + "\n" + TOOL,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_source_that_cannot_be_compiled_is_a_syntax_problem(lint, name):
    phase, problems = lint(HOSTILE[name])
    assert phase == "syntax"
    assert re.match(r"line \d+: \S", problems[0])
    with pytest.raises(ModuleError) as caught:
        load_module(HOSTILE[name], "tools")
    assert caught.value.phase == "syntax"


def deep(length: int) -> str:
    return "a" + ".b" * length


@pytest.mark.parametrize("length", [300, 500, 900, 980, 2000, 3000])
def test_depth_is_a_problem_of_the_module_wherever_it_stands(lint, length):
    for source in (
        HEAD + f"def run(db: {deep(length)}):\n    '''R.'''\n",
        HEAD + f"def run(db: Connection, x: {deep(length)}):\n    '''R.'''\n",
        HEAD + f"def run(db: Connection, x: '{deep(length)}'):\n    '''R.'''\n",
        HEAD + TOOL + f"    try:\n        pass\n    except {deep(length)}:\n        pass\n",
        HEAD + TOOL + "    return 1" + "+1" * length + "\n",
    ):
        assert lint(source)[0] in ("ok", "lint", "syntax")


@pytest.mark.parametrize("text", ["-" * 100_000 + "1", "a\\0b", "\\ud800"], ids=["deep", "nul", "surrogate"])
def test_text_that_is_no_type_is_a_problem_of_its_parameter(lint, text):
    phase, problems = lint(HEAD + f"def run(db: Connection, x: '{text}'):\n    '''R.'''\n")
    assert (phase, problems[0][:25]) == ("lint", "line 4: parameter 'x' of ")


def test_problems_that_cannot_be_written_are_cleaned(lint):
    phase, problems = lint(HEAD + TOOL + "    getattr(db, '__\\ud800__')\n")
    assert (phase, problems) == ("lint", ("line 6: 'getattr' of '__?__' is not allowed",))
    phase, problems = lint(HEAD + TOOL + "    eval('1')\n" * 5000)
    assert (phase, len(problems)) == ("lint", 100)


def test_a_module_that_was_checked_once_is_loaded_without_its_lint(sandbox: Sandbox, shop):
    with sandbox.worker() as first, sandbox.worker() as second:
        assert first.load(shop) == second.load(shop)


def verifier_problems(sandbox: Sandbox, snapshot: bytes, source: str) -> str:
    with pytest.raises(ModuleError) as caught:
        sandbox.verify(source, snapshot, snapshot, None, clock="2025-03-01")
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (
            VERIFY + "    try:\n        pass\n    except Exception:\n        pass\n",
            "line 5: 'except Exception' hides errors",
        ),
        (VERIFY + "    try:\n        pass\n    except:\n        pass\n", "line 5: a bare 'except' hides errors"),
        (
            "import sqlite3\n"
            + VERIFY
            + "    try:\n        pass\n    except (KeyError, sqlite3.Error):\n        pass\n",
            "line 6: 'except sqlite3.Error' hides database errors",
        ),
        ("def check(): pass\n", "line 1: there must be a function verify(initial"),
        ("def verify(a, b, c): pass\n", "line 1: the parameters of 'verify' are initial, final, answer"),
        ("from awm.env.tool import ToolError\n" + VERIFY + "    pass\n", "import of 'awm.env.tool' is not allowed"),
        (VERIFY + "    open('x')\n", "line 3: 'open' is not allowed"),
        ("def verify(:\n", "syntax: line 1: "),
        (VERIFY + "    pass\nX = 1 / 0\n", "import: line 4: ZeroDivisionError"),
    ],
)
def test_a_source_that_is_no_verifier_is_refused(sandbox, snapshot, source, problem):
    assert problem in verifier_problems(sandbox, snapshot, source)
