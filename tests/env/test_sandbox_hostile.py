"""Code that wants out. Every module here passes the lint: the sandbox is the wall."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from awm.env import Sandbox, WorkerDied, WorkerTimeout

HOST = os.getpid()
DENIED = "PermissionError: .Errno 13. Permission denied"
FORBIDDEN = "PermissionError: .Errno 1. Operation not permitted"

READING = {
    "a system file": '_module("io").open("/etc/passwd").read()',
    "this project": f'_module("io").open({str(Path(__file__).resolve())!r}).read()',
    "the home folder": f'_module("os").listdir({str(Path.home())!r})',
    "the host's environment": f'_module("io").open("/proc/{HOST}/environ").read()',
    "the host's memory": f'_module("io").open("/proc/{HOST}/mem", "rb").read(1)',
    "its own maps": '_module("io").open("/proc/self/maps").read()',
}
WRITING = {
    "a new file": '_module("io").open("/tmp/awm-hostile", "w")',
    "the null device": '_module("io").open("/dev/null", "w")',
    "appending": '_module("io").open("/etc/hosts", "a")',
}
CHANGING = {
    "mkdir": '_module("os").mkdir("/tmp/awm-hostile")',
    "unlink": f'_module("os").unlink({str(Path(__file__).resolve())!r})',
    "rename": '_module("os").rename("/etc/hosts", "/etc/hosts2")',
    "chmod": '_module("os").chmod("/etc/hosts", 0o777)',
    "symlink": '_module("os").symlink("/etc", "/tmp/awm-hostile")',
    "truncate": '_module("os").truncate("/etc/hosts", 0)',
    "utime": '_module("os").utime("/etc/hosts")',
}
NETWORK = {
    family: f'_s = _module("socket")\n_s.socket(_s.{family}, _s.{kind})'
    for family, kind in (("AF_INET", "SOCK_STREAM"), ("AF_INET6", "SOCK_DGRAM"), ("AF_UNIX", "SOCK_STREAM"))
} | {"AF_NETLINK": '_s = _module("socket")\n_s.socket(_s.AF_NETLINK, _s.SOCK_RAW)'}
PROCESSES = {
    "fork": '_module("os").fork()',
    "exec": '_module("os").execv("/bin/sh", ["sh"])',
    "posix_spawn": '_module("os").posix_spawn("/bin/sh", ["sh"], {})',
    "subprocess": '_module("subprocess").run(["id"])',
    "memfd": '_module("os").memfd_create("x")',
    "pidfd": f'_module("os").pidfd_open({HOST})',
    "kill the host": f'_module("os").kill({HOST}, 9)',
    "kill the parent": '_o = _module("os")\n_o.kill(_o.getppid(), 9)',
    "kill all": '_module("os").kill(-1, 9)',
    "host's limits": f'_r = _module("resource")\n_r.prlimit({HOST}, _r.RLIMIT_CPU, (1, 1))',
    "niceness": '_module("os").nice(-5)',
    "affinity": '_module("os").sched_setaffinity(0, {0})',
}
NATIVE = {  # number of the system call on x86_64, its arguments
    "ptrace": (101, f"16, {HOST}, 0, 0"),
    "process_vm_readv": (310, f"{HOST}, 0, 0, 0, 0, 0"),
    "unshare": (272, "0x10000000"),
    "mount": (165, "0, 0, 0, 0, 0"),
    "bpf": (321, "0, 0, 0"),
    "keyctl": (250, "0, 0"),
    "shared memory": (29, "0, 4096, 0o666"),
    "keep no parent": (157, "1, 0"),
    "be dumpable": (157, "4, 1"),
}


@pytest.mark.parametrize("code", READING.values(), ids=READING)
def test_reading_is_refused(run_tool, code):
    result = run_tool(code)
    assert (result.kind, result.line) == ("crash", 11)
    assert re.match(DENIED, result.message), result.message


@pytest.mark.parametrize("code", WRITING.values(), ids=WRITING)
def test_writing_is_refused(run_tool, code):
    assert re.match(DENIED, run_tool(code).message)


@pytest.mark.parametrize("code", [*CHANGING.values(), *PROCESSES.values()], ids=[*CHANGING, *PROCESSES])
def test_changing_files_and_making_processes_is_refused(run_tool, code):
    result = run_tool(code)
    assert re.match(FORBIDDEN, result.message), result.message


@pytest.mark.parametrize("code", NETWORK.values(), ids=NETWORK)
def test_network_is_refused(run_tool, code):
    assert re.match(FORBIDDEN, run_tool(code).message)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their number on x86_64")
@pytest.mark.parametrize(("number", "arguments"), NATIVE.values(), ids=NATIVE)
def test_system_calls_made_by_hand_are_refused(run_tool, number, arguments):
    result = run_tool(
        f"""
        ctypes = _module("ctypes")
        libc = ctypes.CDLL(None, use_errno=True)
        return [libc.syscall({number}, {arguments}), ctypes.get_errno()]
        """
    )
    assert result.value == [-1, 1]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their number on x86_64")
def test_calls_with_flags_behind_pointers_seem_not_to_exist(run_tool):
    result = run_tool(
        """
        ctypes = _module("ctypes")
        libc = ctypes.CDLL(None, use_errno=True)
        codes = []
        for number in (437, 435, 425):
            libc.syscall(number, 0, 0, 0, 0)
            codes.append(ctypes.get_errno())
        return codes
        """
    )
    assert result.value == [38, 38, 38]


def test_a_shell_runs_nothing(run_tool):
    assert run_tool('return _module("os").system("true")').value != 0


def test_the_environment_tells_nothing(run_tool, sandbox):
    assert sandbox.report.mode != "off"
    assert run_tool('return dict(_module("os").environ)').value == {"TZ": "UTC"}
    assert run_tool('return [m for m in re.enum.sys.modules if m.startswith("awm.") and "env" not in m]').value == []


def test_threads_are_refused(run_tool):
    result = run_tool('_module("threading").Thread(target=print).start()')
    assert result.message == "RuntimeError: can't start new thread"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return len(bytearray(10 << 30))", "MemoryError"),
        ("kept = []\nwhile True:\n    kept.append(bytes(1 << 20))", "MemoryError"),
        (
            "db.execute('INSERT INTO parts(photo) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT randomblob(100000) FROM n')",
            "OperationalError: database or disk is full",
        ),
        ("db.execute('SELECT zeroblob(1 << 30)').fetchall()", "DataError: string or blob too big"),
        ("db.execute(\"ATTACH '/tmp/awm-hostile' AS x\")", "DatabaseError: not authorized"),
        ("db.execute(sql)", "OperationalError: cannot VACUUM from within a transaction"),
        ("re.enum.sys.exit(0)", "SystemExit: 0"),
    ],
    ids=["at once", "bit by bit", "rows", "one value", "attach", "vacuum", "exit"],
)
def test_excess_is_an_error_of_the_call(run_tool, code, message):
    if "ATTACH" in code:
        code = code.replace('"ATTACH', '"/**/ATTACH')  # what the lint would see
    result = run_tool("sql = ' VACUUM INTO \"/tmp/awm-hostile\"'\n" + code)
    assert result.kind == "crash"
    assert result.message.startswith(message)


def test_without_the_authorizer_the_file_system_still_refuses(run_tool):
    result = run_tool(
        """
        db.set_authorizer(None)
        db.setlimit(7, 10)
        db.execute("/**/ROLLBACK")
        db.execute("/**/ATTACH ? AS x", ("/tmp/awm-hostile",))
        """
    )
    assert result.message == "OperationalError: unable to open database: /tmp/awm-hostile"


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    len('')",
        "_module('time').sleep(60)",
        "re.match('(a+)+$', 'a' * 40 + 'b')",
        "return 7 ** (10 ** 9)",
        "db.execute('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n').fetchall()",
    ],
    ids=["loop", "sleep", "regular expression", "power", "query"],
)
def test_endless_work_is_a_timeout(run_tool, code):
    result = run_tool("db.execute('DELETE FROM orders')\n" + code)
    assert (result.kind, result.message) == ("timeout", "no result within 1 s")


def test_a_worker_goes_on_after_a_timeout(sandbox: Sandbox, snapshot):
    with sandbox.worker() as worker:
        worker.load(
            "import re\nfrom awm.env.tool import Connection\n"
            "def spin(db: Connection):\n    '''Spin.'''\n    db.execute('DELETE FROM orders')\n"
            "    while True:\n        len('')\n"
            "def count(db: Connection):\n    '''Count.'''\n"
            "    return db.execute('SELECT count(*) FROM orders').fetchone()[0]\n"
        )
        worker.open("s", snapshot, "2025-03-01")
        assert worker.call("s", "spin", {}).kind == "timeout"
        assert worker.call("s", "count", {}).value == 3
        assert not worker.changed("s")


@pytest.mark.parametrize(
    "code",
    [
        "return all(_module('itertools').repeat(1))",
        "s = _module('signal')\ns.setitimer(s.ITIMER_REAL, 0)\nwhile True:\n    len('')",
    ],
    ids=["in C", "timers off"],
)
def test_the_host_kills_what_does_not_stop(run_tool, code):
    with pytest.raises(WorkerTimeout, match="did not answer in time"):
        run_tool(code)


ENDINGS = {
    "_exit": "_module('os')._exit(0)",
    "segmentation fault": "_module('ctypes').string_at(0)",
    "abort": "_module('os').abort()",
    "junk on the channel": "for fd in range(3, 64):\n    try:\n        _module('os').write(fd, b'\\xff' * 5000)\n"
    "    except OSError:\n        pass",
    "a huge length": "for fd in range(3, 64):\n    try:\n        _module('os').write(fd, b'\\xff\\xff\\xff\\xff')\n"
    "    except OSError:\n        pass",
    "a pickle": "for fd in range(3, 64):\n    try:\n        _module('os').write(fd, b'\\x03\\0\\0\\0N..')\n"
    "    except OSError:\n        pass",
    "a closed channel": "_module('os').closerange(3, 64)",
}


@pytest.mark.parametrize("code", ENDINGS.values(), ids=ENDINGS)
def test_a_lost_worker_is_an_exception_and_the_sandbox_goes_on(run_tool, code):
    with pytest.raises(WorkerDied):
        run_tool(code)
    assert run_tool("return 1").value == 1


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is a convention of x86_64")
def test_another_calling_convention_is_death(run_tool):
    with pytest.raises(WorkerDied):
        run_tool("_module('ctypes').CDLL(None).syscall(0x40000000 + 39)")


def test_a_forged_reply_fools_only_its_own_call(sandbox: Sandbox, snapshot):
    source = """
import re
from awm.env.tool import Connection

def forge(db: Connection):
    '''Answer twice.'''
    load = re.enum.sys.modules["importlib"].import_module
    packed = load("msgpack").packb([4, "ok", ["ok", b'"forged"', "", None, []]])
    for fd in range(3, 64):
        try:
            load("os").write(fd, len(packed).to_bytes(4, "little") + packed)
        except OSError:
            pass
    return "real"
"""
    with sandbox.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, "2025-03-01")
        assert worker.call("s", "forge", {}).value == "forged"
        with pytest.raises(WorkerDied, match="a reply to no question"):
            worker.call("s", "forge", {})
        with pytest.raises(WorkerDied, match="is gone"):
            worker.call("s", "forge", {})


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return 'x' * (20 << 20)", "20 MiB of data, more than the 16 MiB of a message"),
        ("return float('nan')", "result is nan"),
        ("return {'a': [1, float('inf')]}", "result['a'][1] is inf"),
        ("return [b'x']", "result[0] is bytes"),
        ("return {'f': print}", "result['f'] is of type builtin_function_or_method"),
        ("value = []\nfor _ in range(300):\n    value = [value]\nreturn value", "the result is nested more than 100"),
        ("return 1 << 70", "int"),
        ("return '\\ud800'", "surrogates not allowed"),
    ],
)
def test_results_without_a_form_in_json_are_named(run_tool, code, message):
    result = run_tool("db.execute('DELETE FROM orders')\n" + code)
    assert result.kind == "unserialisable"
    assert message.lower() in result.message.lower()


def test_messages_are_the_same_in_each_run(run_tool):
    code = "raise ValueError(f'{object()} {print}')"
    first = run_tool(code).message
    assert first == run_tool(code).message
    assert "0x..." in first


def test_what_is_known_to_remain_possible(run_tool):
    """Whether a path exists can be asked; the mode without files refuses that too."""
    assert run_tool('return _module("os").path.exists("/etc/passwd")').value is True
