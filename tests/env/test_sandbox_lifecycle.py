"""Processes come, hold what they report, and go."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import awm
from awm.env import Limits, Sandbox, SandboxUnavailable, WorkerDied

CLOCK = "2025-03-01 10:00:00"
ROOT = Path(awm.__file__).resolve().parent.parent
IMPORTABLE = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, buried or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def wait_until_gone(*pids: int) -> bool:
    for _ in range(500):
        if all(map(is_gone, pids)):
            return True
        time.sleep(0.01)
    return False


def test_the_report_says_what_a_worker_tried_in_vain(sandbox: Sandbox):
    report = sandbox.report
    assert report.mode in ("strict", "nofs")
    assert report.layers[-1] == "seccomp"
    assert set(report.self_test) == {"socket", "fork", "exec", "write", "signal", "read", "proc", "memory"}
    assert set(report.self_test.values()) <= {"EPERM", "EACCES", "ENOMEM"}
    assert report.python == ".".join(map(str, sys.version_info[:3]))
    assert report.kernel.startswith("Linux ")


def test_closing_leaves_no_process(shop):
    with Sandbox() as sandbox:
        workers = [sandbox.worker() for _ in range(3)]
        workers[0].load(shop)
        zygote = sandbox._zygote._process.pid
        pids = [worker.pid for worker in workers]
        assert not any(map(is_gone, pids))
    assert all(map(is_gone, [zygote, *pids]))
    with pytest.raises(WorkerDied):
        workers[0].load(shop)


def test_a_closed_sandbox_starts_again():
    sandbox = Sandbox()
    sandbox.worker().kill()
    sandbox.close()
    sandbox.close()
    with sandbox, sandbox.worker() as worker:
        assert not is_gone(worker.pid)


def test_killed_workers_are_buried(sandbox: Sandbox):
    workers = [sandbox.worker() for _ in range(5)]
    for worker in workers:
        worker.kill()
        worker.kill()
    assert wait_until_gone(*(worker.pid for worker in workers))


def test_a_dropped_worker_is_killed(sandbox: Sandbox):
    worker = sandbox.worker()
    pid = worker.pid
    del worker
    assert wait_until_gone(pid)


def test_a_worker_killed_from_outside_is_noticed_and_replaced(sandbox: Sandbox, shop, snapshot):
    with sandbox.worker() as worker:
        worker.load(shop)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="ended by itself"):
            worker.open("s", snapshot, CLOCK)
    with sandbox.worker() as worker:
        assert len(worker.load(shop)) == 3


def test_a_killed_zygote_takes_its_workers_along_and_is_replaced(shop):
    with Sandbox() as sandbox:
        worker = sandbox.worker()
        os.kill(sandbox._zygote._process.pid, signal.SIGKILL)
        assert wait_until_gone(worker.pid)
        with pytest.raises(WorkerDied):
            worker.load(shop)
        with sandbox.worker() as other:
            assert len(other.load(shop)) == 3


def test_a_killed_host_leaves_no_process():
    script = """
        import sys, time
        from awm.env import Sandbox
        sandbox = Sandbox()
        worker = sandbox.worker()
        print(sandbox._zygote._process.pid, worker.pid, flush=True)
        time.sleep(60)
    """
    environment = os.environ | IMPORTABLE
    command = [sys.executable, "-c", textwrap.dedent(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as host:
        pids = [int(pid) for pid in host.stdout.readline().split()]
        host.kill()
    assert len(pids) == 2
    assert wait_until_gone(*pids)


def test_threads_share_a_sandbox(sandbox: Sandbox, shop, snapshot):
    def play(number: int) -> str:
        with sandbox.worker() as worker:
            worker.load(shop)
            worker.open("s", snapshot, CLOCK)
            worker.call("s", "set_status", {"order_id": 1, "status": f"n{number}"})
            return worker.call("s", "get_order", {"order_id": 1}).value["status"]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(play, range(24))) == [f"n{number}" for number in range(24)]


def test_a_forked_process_has_its_own_zygote_and_harms_no_worker(shop):
    with Sandbox() as sandbox:
        worker = sandbox.worker()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                worker.kill()
                with sandbox.worker() as own:
                    os.write(writer, str(len(own.load(shop))).encode())
                sandbox.close()
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(pid, 0)
        with os.fdopen(reader) as answer:
            assert answer.read() == "3"
        assert len(worker.load(shop)) == 3


def test_nothing_is_readable_but_libraries(run_tool):
    code = """
        os = _module("os")
        def readable(path):
            try:
                os.close(os.open(path, os.O_RDONLY))
            except PermissionError:
                return False
            return True
        return [readable(path) for path in paths]
    """
    import pydantic

    paths = [awm.__file__, str(ROOT), pytest.__file__, sys.executable, "/", os.__file__, pydantic.__file__]
    result = run_tool(code, {"paths": paths}, 'paths: Annotated[list[str], Field(description="P")]')
    assert result.value == [False, False, False, False, False, True, True]


PROBES = {
    "time zones": "return str(_module('zoneinfo').ZoneInfo('Europe/Paris'))",
    "asyncio": "async def f():\n    return 'x'\nreturn _module('asyncio').run(f())",
    "a module nobody imported": "return _module('colorsys').__name__",
    "full text": "return [r[0] for r in db.execute(\"SELECT text FROM notes WHERE notes MATCH 'door'\")]",
    "JSON": "return db.execute(\"SELECT json_extract('{\\\"a\\\": 2}', '$.a')\").fetchone()[0]",
    "windows": "return db.execute('SELECT sum(id) OVER (ORDER BY id) FROM orders').fetchall()",
    "big sorts": "return db.execute('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 50000) "
    "SELECT count(*) FROM (SELECT DISTINCT hex(i * 7919 % 50021) FROM n ORDER BY 1)').fetchone()[0]",
    "hashes": "return _module('hashlib').sha256(b'x').hexdigest()",
    "statistics": "return _module('statistics').stdev([1, 2, 4])",
    "dates": "return _module('datetime').datetime.strptime('3 Mar 2025', '%d %b %Y')",
    "models": "class M(BaseModel):\n    a: int | None = None\nreturn M.model_validate_json('{\"a\": 3}')",
    "savepoints": "db.execute('SAVEPOINT a')\ndb.execute('DELETE FROM notes')\ndb.execute('ROLLBACK TO a')\n"
    "return db.execute('SELECT count(*) FROM notes').fetchone()[0]",
    "printing": "print('x' * 10000)\nreturn 1",
    "local time": "return _module('time').strftime('%Z', _module('time').localtime()) == 'UTC'",
    "probing": "_module('platform').platform()\n_module('uuid').uuid1()\nreturn 1",
}


@pytest.fixture(scope="module")
def without_files():
    with Sandbox(Limits(call_s=2.0), mode="nofs") as sandbox:
        yield sandbox


@pytest.mark.parametrize("code", PROBES.values(), ids=PROBES)
def test_ordinary_code_runs(run_tool, code):
    result = run_tool(code)
    assert result.ok, result.message
    assert result.value


@pytest.mark.parametrize("name", [name for name in PROBES if name not in ("time zones", "a module nobody imported")])
def test_ordinary_code_runs_without_file_access(run_tool, without_files, name):
    result = run_tool(PROBES[name], sandbox=without_files)
    assert result.ok, result.message


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("_module('io').open('/dev/null')", "PermissionError"),
        ("_module('os').stat('/')", "PermissionError"),
        ("_module('os').listdir('/')", "PermissionError"),
        ("_module('os').readlink('/proc/self/exe')", "PermissionError"),
        ("_module('colorsys')", "ModuleNotFoundError: No module named 'colorsys'"),
        (PROBES["time zones"], "ZoneInfoNotFoundError"),
    ],
)
def test_without_file_access_no_path_can_be_used(run_tool, without_files, code, message):
    assert without_files.report.mode == "nofs"
    assert run_tool(code, sandbox=without_files).message.startswith(message)


def under_outer_filter(refused: int, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script where the kernel refuses one system call, as in a container with a strict profile."""
    code = b"".join(
        struct.pack("=HBBI", *step)
        for step in ((0x20, 0, 0, 0), (0x15, 0, 1, refused), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7FFF0000))
    )
    prelude = f"""
        from awm.env import linux, seccomp
        linux.forbid_new_privileges()
        seccomp.Filter({code!r}, ()).install(0)
        from awm.env import Sandbox, SandboxUnavailable
    """
    source = textwrap.dedent(prelude) + textwrap.dedent(script)
    environment = os.environ | IMPORTABLE | environment
    return subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, timeout=60)


LANDLOCK_CREATE_RULESET = 444
REPORT_TWICE = """
with Sandbox() as sandbox, Sandbox() as other:
    print(sandbox.report.mode, other.report.mode, sandbox.report.landlock)
"""


def test_without_landlock_files_are_closed_and_a_warning_says_so():
    done = under_outer_filter(LANDLOCK_CREATE_RULESET, REPORT_TWICE)
    assert done.stdout.split() == ["nofs", "nofs", "0"]
    assert done.stderr == "awm: Landlock is not available: generated code gets no file access at all\n"


def test_strict_mode_demands_landlock():
    done = under_outer_filter(LANDLOCK_CREATE_RULESET, "Sandbox(mode='strict').worker()")
    assert "Landlock is not available" in done.stderr.splitlines()[-1]
    assert "AWM_SANDBOX=off" in done.stderr.splitlines()[-1]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of seccomp(2) on x86_64")
def test_without_seccomp_nothing_runs_unless_told_to():
    script = """
        try:
            Sandbox().worker()
        except SandboxUnavailable as error:
            print(error)
    """
    refused = under_outer_filter(317, script).stdout
    assert refused.startswith("cannot isolate generated code: seccomp filters are not available")
    assert "AWM_SANDBOX=off" in refused
    done = under_outer_filter(317, REPORT_TWICE, AWM_SANDBOX="off")
    assert done.stdout.split() == ["off", "off", "0"]
    assert done.stderr == "awm: the sandbox is off: generated code runs with your own rights\n"


def test_off_is_recorded(monkeypatch, run_tool, capsys):
    monkeypatch.setenv("AWM_SANDBOX", "off")
    with Sandbox(mode="strict") as sandbox:
        assert (sandbox.report.mode, sandbox.report.layers, sandbox.report.self_test) == ("off", (), {})
        assert run_tool("return len(_module('os').listdir('/')) > 0", sandbox=sandbox).value is True


def test_an_unknown_mode_is_refused(monkeypatch):
    monkeypatch.setenv("AWM_SANDBOX", "on")
    with pytest.raises(
        SandboxUnavailable, match="AWM_SANDBOX=on is no mode of the sandbox; take one of auto, strict, nofs, off"
    ):
        Sandbox()


@pytest.mark.parametrize("value", ["OFF", "Off", " off "])
def test_a_mode_may_be_written_in_any_case(monkeypatch, value):
    monkeypatch.setenv("AWM_SANDBOX", value)
    with Sandbox(mode="strict") as sandbox:
        assert sandbox.report.mode == "off"


def test_a_zygote_that_does_not_start_says_why(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SandboxUnavailable, match="did not start"):
        Sandbox().worker()
