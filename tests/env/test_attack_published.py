"""The same doors, tried from a published FastAPI module: while it is called, and while its template loads it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from awm.env import EnvironmentFault, Limits, ModuleError, Sandbox, WorkerDied, WorkerTimeout
from awm.env.template import Template
from env.test_attack_files import CHANGING, READING, WRITING
from env.test_attack_processes import NETWORK, PROCESSES, THREADS

CLOCK = "2026-02-01 12:00:00"
APP = """
import io, os, re, socket, sqlite3
from importlib import import_module as _module
from fastapi import FastAPI
from pydantic import BaseModel

app = FastAPI()
LIBRARY = os.path.dirname(os.__file__)
PORT = 9
CHANNEL = 3

def import_path(path):
    import sys
    sys.path.insert(0, path)

class Code(BaseModel):
    code: str

def attempt(code):
    try:
        exec(code, globals())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done"

@app.post("/attempt", operation_id="attempt")
async def attempt_code(given: Code):
    return attempt(given.code)

@app.post("/sync", operation_id="sync")
def attempt_code_without_async(given: Code):
    return attempt(given.code)
"""


@pytest.fixture(scope="module")
def database() -> bytes:
    """A database with one table."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    return connection.serialize()


@pytest.fixture(scope="module")
def published() -> Iterator[Sandbox]:
    """A sandbox with short limits."""
    with Sandbox(Limits(call_s=1.0, load_s=20.0, grace_s=0.5, memory_mb=256)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def template(published: Sandbox, database: bytes) -> Iterator[Template]:
    """The module, loaded once."""
    with published.template(APP, database, CLOCK, session="s") as made:
        yield made


def attempt(template: Template, code: str, tool: str = "attempt") -> str:
    with template.worker() as worker:
        result = worker.call("s", tool, {"code": code})
    return str(result.value if result.ok else result.message)


INSIDE_A_LOOP = ("asyncio", "asyncio's own")  # a second event loop is refused before anything is tried
REFUSED = {n: c for n, c in (READING | WRITING | CHANGING | PROCESSES).items() if n not in INSIDE_A_LOOP}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_files_and_processes_are_refused(template: Template, code: str):
    assert "[Errno 1" in attempt(template, code)


@pytest.mark.parametrize("name", [n for n in NETWORK if n not in INSIDE_A_LOOP and not n.startswith("its channel")])
def test_the_network_is_refused(template: Template, name: str):
    assert "Operation not permitted" in attempt(template, NETWORK[name])


@pytest.mark.parametrize("name", [name for name in THREADS if name not in INSIDE_A_LOOP])
def test_threads_are_refused(template: Template, name: str):
    assert attempt(template, THREADS[name]) == "RuntimeError: can't start new thread"


def test_an_endpoint_without_async_is_no_way_to_a_thread(template: Template):
    code = "t = _module('threading')\nassert t.current_thread() is t.main_thread()"
    assert attempt(template, code, "sync") == "done"


ENDLESS = (
    *("while True:\n    len('')", "_module('time').sleep(60)", "sum(iter(int, 1))"),
    "re.match('(a+)+$', 'a' * 40 + 'b')",
)


@pytest.mark.parametrize("code", ENDLESS)
def test_time_is_bounded(template: Template, code: str):
    with template.worker() as worker:
        try:
            result = worker.call("s", "attempt", {"code": code})
        except WorkerTimeout:
            return
    assert result.kind == "timeout"


@pytest.mark.parametrize("code", ["bytearray(10 << 30)", "kept = []\nwhile True:\n    kept.append(bytes(1 << 20))"])
def test_memory_is_bounded(template: Template, code: str):
    assert attempt(template, code).startswith("MemoryError")


@pytest.mark.parametrize("code", ["os._exit(0)", "_module('ctypes').string_at(0)", "os.closerange(3, 64)"])
def test_a_lost_copy_is_only_its_own_loss(template: Template, code: str):
    with template.worker() as worker, pytest.raises(WorkerDied):
        worker.call("s", "attempt", {"code": code})
    assert attempt(template, "pass") == "done"


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd')",
        "os.listdir('/home')",
        "open('/tmp/awm-hostile', 'w')",
        "socket.socket()",
        "os.fork()",
        "os.execv('/bin/sh', ['sh'])",
        "os.kill(os.getppid(), 9)",
        "os.setsid()",
        "os.setpgid(0, 0)",
        "_module('subprocess').run(['id'])",
        "_module('threading').Thread(target=print).start()",
        "bytearray(10 << 30)",
        "raise SystemExit(0)",
    ],
)
def test_a_template_is_as_locked_down_as_its_copies(published: Sandbox, database: bytes, code: str):
    made = published.template(APP + code, database, CLOCK, session="s")
    with made, pytest.raises(ModuleError, match="import"):
        made.worker()


ENDINGS = {
    "its end": "os._exit(0)",
    "a broken process": "_module('ctypes').string_at(0)",
    "its channel closed": "os.closerange(3, 64)",
    "junk on its channel": "for fd in range(3, 16):\n    try:\n        os.write(fd, b'\\xff' * 100)\n"
    "    except OSError:\n        pass",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_a_template_that_is_lost_gives_no_copies(published: Sandbox, database: bytes, code: str):
    with published.template(APP + code, database, CLOCK, session="s") as made, pytest.raises(EnvironmentFault):
        made.worker()


VERIFIER = """
import os, sqlite3
def verify_task_completion(initial_db_path, final_db_path, final_answer):
    try:
        {code}
    except Exception as error:
        return {{"result": "others", "error": f"{{type(error).__name__}}: {{error}}"}}
    return {{"result": "complete"}}
"""


@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd')",
        "open(initial_db_path)",
        "open(final_db_path, 'w')",
        "os.fork()",
        "os.kill(os.getppid(), 9)",
        "__import__('socket').socket()",
        "sqlite3.connect('/tmp/awm-hostile')",
        "sqlite3.connect('file:/etc/passwd?mode=ro', uri=True).execute('SELECT * FROM x')",
        "sqlite3.connect(final_db_path).execute('DELETE FROM t')",
        "sqlite3.connect(initial_db_path).execute(\"ATTACH '/tmp/awm-hostile' AS x\")",
    ],
)
def test_a_published_verifier_reaches_its_databases_only(published: Sandbox, database: bytes, code: str):
    source = VERIFIER.format(code=code)
    result = published.verify_published(source, database, database, "answer", clock=CLOCK)
    assert result.value is not None
    assert result.value["result"]["result"] == "others"
    assert result.value["result"]["error"].startswith(
        ("PermissionError", "OperationalError", "DatabaseError", "FileNot")
    )
