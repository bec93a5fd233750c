"""Ways to the file system: by Python's many doors, through handles, links, SQLite and the loader."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

HOST = os.getpid()
HERE = str(Path(__file__).resolve())
PROJECT = str(Path(__file__).resolve().parents[2])
DENIED = "PermissionError: [Errno 13] Permission denied"
FORBIDDEN = "PermissionError: [Errno 1] Operation not permitted"

READING = {
    "its own environment": "io.open('/proc/self/environ').read()",
    "its own memory": "io.open('/proc/self/mem', 'rb').read(1)",
    "its own command line": "io.open('/proc/self/cmdline').read()",
    "the root by way of proc": "io.open('/proc/self/root/etc/passwd').read()",
    "another thread's view": "io.open('/proc/thread-self/environ').read()",
    "the first process": "io.open('/proc/1/environ').read()",
    "the host's files": f"os.listdir('/proc/{HOST}/fd')",
    "all processes": "os.listdir('/proc')",
    "passwords": "io.open('/etc/shadow').read()",
    "the kernel's memory": "io.open('/proc/kallsyms').read(1)",
    "the kernel's log": "io.open('/dev/kmsg').read(1)",
    "a block device": "os.listdir('/dev')",
    "the machine": "os.listdir('/sys')",
    "the temporary folder": "os.listdir('/tmp')",
    "the folder it stands in": "os.listdir('.')",
    "the project": f"os.listdir({PROJECT!r})",
    "the project's data": f"io.open({PROJECT + '/params.yaml'!r}).read()",
    "up from the library": "io.open(LIBRARY + '/../../../../../../../../../etc/passwd')",
    "a second library": "io.open('/usr/lib/os-release').read()",
    "a terminal": "io.open('/dev/tty')",
    "a directory handle": "os.open('etc/passwd', os.O_RDONLY, dir_fd=os.open('/', os.O_PATH))",
    "a handle opened again": "os.open('.', os.O_RDONLY, dir_fd=os.open('/etc', os.O_PATH))",
    "a scan": "next(os.scandir('/home'))",
    "as source": "_module('tokenize').open('/etc/passwd')",
    "as a module": f"u = _module('importlib.util')\ns = u.spec_from_file_location('x', {HERE!r})\n"
    "s.loader.exec_module(u.module_from_spec(s))",
    "as a script": f"_module('runpy').run_path({HERE!r})",
    "as numbers": "a = _module('array').array('b')\na.fromfile(_module('io').open('/etc/passwd', 'rb'), 10)",
    "a copy": "_module('shutil').copy('/etc/passwd', '/tmp/awm-hostile')",
    "an archive": "_module('tarfile').open('/etc/passwd')",
    "through a pathlib path": "_module('pathlib').Path('/etc/passwd').read_text()",
    "through file input": "next(_module('fileinput').input('/etc/passwd'))",
    "through a URL": "_module('urllib.request').FileHandler().file_open(_module('urllib.request').Request('file:///etc/passwd'))",
    "the project's code": f"import_path({PROJECT!r})\n_module('awm.store')",
}
WRITING = {
    "reading and writing": "io.open('/etc/hosts', 'r+')",
    "only new": "io.open('/tmp/awm-hostile', 'x')",
    "the shared memory folder": "io.open('/dev/shm/awm-hostile', 'w')",
    "the library": "io.open(LIBRARY + '/os.py', 'a')",
    "its own memory": "io.open('/proc/self/mem', 'r+b')",
    "its own score": "io.open('/proc/self/oom_score_adj', 'w')",
    "a nameless file": "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
    "by a directory handle": "os.open('x', os.O_CREAT | os.O_WRONLY, dir_fd=os.open('/tmp', os.O_PATH))",
    "what the host writes to": f"io.open('/proc/{HOST}/fd/1', 'w')",
    "what it has as standard output": "io.open('/proc/self/fd/1', 'w')",
    "a log": "_module('logging').FileHandler('/tmp/awm-hostile')",
    "a trace": "_module('tracemalloc').start()\n_module('tracemalloc').take_snapshot().dump('/tmp/awm-hostile')",
    "a shelf": "_module('zipfile').ZipFile('/tmp/awm-hostile', 'w')",
}
CHANGING = {
    "a hard link": "os.link('/etc/hosts', '/tmp/awm-hostile')",
    "rmdir": "os.rmdir('/tmp')",
    "a fifo": "os.mkfifo('/tmp/awm-hostile')",
    "a device": "os.mknod('/tmp/awm-hostile', 0o600 | 0o020000, os.makedev(1, 3))",
    "chown": "os.chown('/etc/hosts', 65534, 65534)",
    "chroot": "os.chroot('/tmp')",
    "chdir": "os.chdir('/tmp')",
    "an attribute": "os.setxattr('/etc/hosts', 'user.awm', b'x')",
    "replace": "os.replace('/etc/hosts', '/etc/hosts2')",
    "its output's rights": "os.fchmod(1, 0o777)",
    "its channel cut off": "os.ftruncate(3, 0)",
}
FAILING = {
    "a temporary file": ("_module('tempfile').TemporaryFile()", "FileNotFoundError: [Errno 2] No usable temporary"),
    "a database file": ("_module('sqlite3').connect('/tmp/awm-hostile')", "OperationalError: unable to open database"),
    "a database to read": (
        "_module('sqlite3').connect('file:/etc/passwd?mode=ro&immutable=1', uri=True).execute('SELECT 1 FROM x')",
        "OperationalError: unable to open database file",
    ),
    "a library to load": ("_module('ctypes').CDLL('/tmp/awm-hostile.so')", "OSError: /tmp/awm-hostile.so: cannot open"),
    "this test": (
        f"import_path({str(Path(__file__).parent)!r})\n_module('conftest')",
        "ModuleNotFoundError: No module",
    ),
    "a profile": ("_module('cProfile').run('1', '/tmp/awm-hostile')", "PermissionError: [Errno 13]"),
}
HEAD = f"LIBRARY = {os.path.dirname(os.__file__)!r}\n"
HEAD += "os, io = _module('os'), _module('io')\ndef import_path(path):\n    re.enum.sys.path.insert(0, path)\n"


@pytest.mark.parametrize("code", READING.values(), ids=READING)
def test_reading_is_denied(run_tool, code):
    result = run_tool(HEAD + code)
    assert result.kind == "crash"
    assert DENIED.partition(": ")[2] in result.message, result.message


@pytest.mark.parametrize("code", WRITING.values(), ids=WRITING)
def test_writing_is_denied(run_tool, code):
    result = run_tool(HEAD + code)
    assert result.message.startswith(DENIED), result.message


@pytest.mark.parametrize("code", CHANGING.values(), ids=CHANGING)
def test_changing_is_not_permitted(run_tool, code):
    result = run_tool(HEAD + code)
    assert result.message.startswith(FORBIDDEN), result.message


@pytest.mark.parametrize(("code", "message"), FAILING.values(), ids=FAILING)
def test_what_opens_files_itself_fails_cleanly(run_tool, code, message):
    result = run_tool(HEAD + code)
    assert result.kind == "crash"
    assert result.message.startswith(message), result.message


def test_no_file_was_made():
    assert not list(Path("/tmp").glob("awm-hostile*"))


def test_it_holds_nothing_but_its_channel_and_what_it_was_given(run_tool):
    code = """
        found = {"sockets": 0, "null": 0, "sealed": 0}
        for fd in range(1024):
            try:
                kind = os.fstat(fd).st_mode >> 12
            except OSError:
                continue
            if kind == 0o14:
                found["sockets"] += 1
            elif kind == 0o02 and os.fstat(fd).st_rdev == os.makedev(1, 3):
                found["null"] += 1
            else:  # the snapshot, in memory that it shares with other workers
                try:
                    os.write(fd, b"x")
                except OSError:
                    found["sealed"] += 1
        return found
    """
    found = run_tool(HEAD + textwrap.dedent(code)).value
    assert (found["sockets"], found["null"]) == (1, 3)
    assert found["sealed"] <= 1


def test_the_shared_snapshot_cannot_be_changed(run_tool, sandbox, snapshot):
    code = """
        mmap, fcntl = _module("mmap"), _module("fcntl")
        done = []
        def attempt(what, work):
            try:
                work()
            except (OSError, ValueError):
                return
            done.append(what)
        for fd in range(3, 1024):
            try:
                os.fstat(fd)
            except OSError:
                continue
            attempt("write", lambda: os.fstat(fd).st_mode >> 12 == 0o10 and os.write(fd, b"x") or int("x"))
            attempt("shared", lambda: mmap.mmap(fd, 4096, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE))
            attempt("shrink", lambda: os.ftruncate(fd, 0))
            attempt("by name", lambda: os.open(f"/proc/self/fd/{fd}", os.O_RDWR))
            attempt("unseal", lambda: fcntl.fcntl(fd, 1033, 0))
        return done
    """
    assert run_tool(HEAD + textwrap.dedent(code)).value == []
    with sandbox.worker() as worker:
        worker.open("s", snapshot, "2025-03-01")
        assert worker.dump("s") == snapshot


def test_what_it_prints_reaches_nobody(run_tool, capfd):
    code = "print('printed')\nfor fd in (1, 2):\n    os.write(fd, b'printed')\nreturn os.read(0, 10).hex()"
    assert run_tool(HEAD + code).value == ""
    assert "printed" not in "".join(capfd.readouterr())
