"""Templates: processes that episodes are copied from. They fork when the host orders it; their module may not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from awm.env import EnvironmentFault, ModuleError, Sandbox, WorkerDied
from awm.env.template import Template

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

CLOCK = "2026-02-01 12:00:00"

APP = """
import os, signal, threading
from fastapi import FastAPI

app = FastAPI()
loaded_in = os.getpid()
seen = []
{extra}

def attempt(action):
    try:
        return str(action())
    except BaseException as error:
        return type(error).__name__

@app.get("/who", operation_id="who")
async def who():
    seen.append(1)
    return {{"pid": os.getpid(), "loaded_in": loaded_in, "seen": len(seen), "parent": os.getppid()}}

@app.get("/fork", operation_id="fork")
async def fork():
    return attempt(os.fork)

@app.get("/thread", operation_id="thread")
async def thread():
    return attempt(threading.Thread(target=int).start)

@app.get("/system", operation_id="system")
async def system():
    return attempt(lambda: os.posix_spawn("/bin/true", ["true"], {{}}))

@app.get("/kill_parent", operation_id="kill_parent")
async def kill_parent():
    return attempt(lambda: os.kill(os.getppid(), signal.SIGKILL))

@app.get("/kill_group", operation_id="kill_group")
async def kill_group():
    return attempt(lambda: os.kill(0, signal.SIGKILL))

@app.get("/read", operation_id="read")
async def read():
    return attempt(lambda: open("/etc/passwd").read())

@app.get("/undo", operation_id="undo")
async def undo():
    import ctypes
    return str(ctypes.CDLL(None).prctl(1, 0, 0, 0, 0))

@app.get("/listen", operation_id="listen")
async def listen():
    import ctypes
    return str(ctypes.CDLL(None).syscall(317, 1, 8, 0))

@app.get("/leave", operation_id="leave")
async def leave():
    os._exit(3)
"""


def snapshot() -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    return connection.serialize()


def template(sandbox: Sandbox, extra: str = "") -> Template:
    return sandbox.template(APP.format(extra=extra), snapshot(), CLOCK, session="s")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def gone(pid: int) -> bool:
    """Tell whether a process ends within a moment."""
    for _ in range(500):
        stat = Path(f"/proc/{pid}/stat")
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_workers_are_copies_of_one_process_that_loaded_the_module(sandbox: Sandbox) -> None:
    with template(sandbox) as made, made.worker() as one, made.worker() as other:
        first, second = one.call("s", "who", {}).value, other.call("s", "who", {}).value

        assert first["pid"] == one.pid != second["pid"] == other.pid
        assert first["loaded_in"] == second["loaded_in"] == first["parent"] == second["parent"]
        assert first["seen"] == second["seen"] == 1


@pytest.mark.parametrize(
    ("tool", "outcome"),
    [
        ("fork", "PermissionError"),
        ("thread", "RuntimeError"),
        ("system", "PermissionError"),
        ("kill_parent", "PermissionError"),
        ("kill_group", "PermissionError"),
        ("read", "PermissionError"),
        ("undo", "-1"),
        ("listen", "-1"),
    ],
)
def test_a_copy_is_locked_down(sandbox: Sandbox, tool: str, outcome: str) -> None:
    with template(sandbox) as made, made.worker() as worker:
        assert worker.call("s", tool, {}).value == outcome
        assert made.worker().call("s", "who", {}).ok


@pytest.mark.parametrize(
    "extra",
    [
        "os.fork()",
        "import subprocess; subprocess.run(['true'])",
        "threading.Thread(target=int).start()",
        "open('/etc/passwd')",
        "os.kill(os.getppid(), 9)",
    ],
)
def test_a_module_can_do_nothing_of_that_as_it_is_loaded(sandbox: Sandbox, extra: str) -> None:
    with template(sandbox, extra) as made, pytest.raises(ModuleError, match=r"import: .*Error"):
        made.worker()


def test_a_process_that_the_module_smuggles_in_ends_with_the_template(sandbox: Sandbox) -> None:
    """One that forks in a collection, right before the template does, uses the host's order up and gains nothing."""
    extra = """
import gc
def smuggle(phase, info):
    if not seen:
        seen.append(1)
        try:
            if os.fork() == 0:
                while True:
                    pass
        except PermissionError:
            seen.clear()
gc.callbacks.append(smuggle)
"""
    made = template(sandbox, extra)
    with pytest.raises(EnvironmentFault):
        made.worker()
    assert made._process is not None
    group = made._process.pid
    assert len(members(group)) == 2
    made.close()

    assert all(gone(pid) for pid in members(group))


def members(group: int) -> list[int]:
    """Return the processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            pid, _, rest = stat.read_text().partition(" ")
            if int(rest.rpartition(")")[2].split()[2]) == group:
                found.append(int(pid))
    return found


def test_a_copy_that_ends_disturbs_no_other(sandbox: Sandbox) -> None:
    with template(sandbox) as made, made.worker() as one, made.worker() as other:
        with pytest.raises(WorkerDied):
            one.call("s", "leave", {})
        assert other.call("s", "who", {}).ok
        with made.worker() as third:
            assert third.call("s", "who", {}).ok


def test_closing_ends_the_template_and_its_copies(sandbox: Sandbox) -> None:
    made = template(sandbox)
    worker = made.worker()
    loaded_in = worker.call("s", "who", {}).value["loaded_in"]
    made.close()

    assert gone(loaded_in) and gone(worker.pid)


def test_a_template_that_was_killed_is_replaced(sandbox: Sandbox) -> None:
    with template(sandbox) as made:
        loaded_in = made.worker().call("s", "who", {}).value["loaded_in"]
        os.kill(loaded_in, signal.SIGKILL)
        assert gone(loaded_in)

        value = made.worker().call("s", "who", {}).value

        assert value["loaded_in"] != loaded_in


def test_closing_the_sandbox_ends_all(sandbox: Sandbox) -> None:
    with Sandbox() as own:
        made = template(own)
        worker = made.worker()
        loaded_in = worker.call("s", "who", {}).value["loaded_in"]

    assert gone(loaded_in) and gone(worker.pid)


def test_many_copies_leave_nothing_behind(sandbox: Sandbox) -> None:
    with template(sandbox) as made:
        made.worker().kill()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(30):
            with made.worker() as worker:
                assert worker.call("s", "who", {}).value["seen"] == 1

        assert len(os.listdir("/proc/self/fd")) == before
        assert gone(worker.pid)


SUPERVISED = """
import struct, sys
from awm.env import Sandbox
from awm.env.linux import forbid_new_privileges
from awm.env.seccomp import Filter
import test_template

forbid_new_privileges()
Filter(struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000), (), asks=True).install(0)
with Sandbox() as sandbox, test_template.template(sandbox) as made, made.worker() as worker:
    value = worker.call("s", "who", {}).value
    print(made._process.can_fork, value["loaded_in"] == value["pid"], worker.call("s", "fork", {}).value)
"""


def test_where_another_supervisor_listens_each_worker_loads_the_module() -> None:
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", SUPERVISED]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["False", "True", "PermissionError"], done.stderr
