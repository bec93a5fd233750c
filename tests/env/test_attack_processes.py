"""Ways to other processes and to the network, by the library's own doors."""

from __future__ import annotations

import os
import socket
import textwrap
import threading

import pytest

HOST = os.getpid()
FORBIDDEN = "PermissionError: [Errno 1] Operation not permitted"
NO_THREAD = "RuntimeError: can't start new thread"

PROCESSES = {
    "popen": "os.popen('id').read()",
    "spawn": "os.spawnv(os.P_WAIT, '/bin/sh', ['sh'])",
    "a shell": "_module('subprocess').run('id', shell=True)",
    "a pipe from a command": "_module('subprocess').Popen(['cat'], stdin=-1)",
    "multiprocessing": "_module('multiprocessing').get_context('fork').Process(target=print).start()",
    "asyncio": "a = _module('asyncio')\na.run(a.create_subprocess_exec('id'))",
    "kill by group": f"os.killpg({os.getpgid(0)}, 9)",
    "kill the init process": "os.kill(1, 9)",
    "probe the host": f"os.kill({HOST}, 0)",
    "stop the parent": "os.kill(os.getppid(), 19)",
    "become another user": "os.setuid(65534)",
    "become another group": "os.setgroups([0])",
    "a session of its own": "os.setsid()",
    "real time": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))",
    "priority": "os.setpriority(os.PRIO_PROCESS, 0, -20)",
    "the clock": "_module('time').clock_settime(0, 0)",
    "the host's name": "_module('socket').sethostname('x')",
    "namespaces by libc": "c = _module('ctypes').CDLL(None, use_errno=True)\n"
    "if c.unshare(0x10000000):\n    raise PermissionError(_module('ctypes').get_errno(), 'Operation not permitted')",
}
THREADS = {
    "a thread": "_module('threading').Thread(target=print).start()",
    "a bare thread": "_module('_thread').start_new_thread(print, ())",
    "a pool": "_module('concurrent.futures').ThreadPoolExecutor().submit(print).result()",
    "a timer that outlives its call": "_module('threading').Timer(0, print).start()",
    "a bomb": "t = _module('threading')\nfor _ in range(1000):\n    t.Thread(target=print).start()",
    "asyncio's own": "a = _module('asyncio')\nasync def f():\n    await a.to_thread(print)\na.run(f())",
}
NETWORK = {
    "connect": "socket.create_connection(('127.0.0.1', PORT))",
    "listen": "socket.create_server(('127.0.0.1', 0))",
    "datagram": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)",
    "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)",
    "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "an abstract name": "socket.socket(socket.AF_UNIX).connect('\\0awm')",
    "the container's engine": "socket.socket(socket.AF_UNIX).connect('/var/run/docker.sock')",
    "a virtual machine's": "socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)",
    "bluetooth": "socket.socket(socket.AF_BLUETOOTH, socket.SOCK_STREAM, socket.BTPROTO_RFCOMM)"
    if hasattr(socket, "AF_BLUETOOTH") and hasattr(socket, "BTPROTO_RFCOMM")
    else "socket.socket(31, socket.SOCK_STREAM)",
    "kernel cryptography": "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
    "a pair": "socket.socketpair(socket.AF_INET)",
    "HTTP": "_module('http.client').HTTPConnection('127.0.0.1', PORT).request('GET', '/')",
    "mail": "_module('smtplib').SMTP('127.0.0.1', PORT)",
    "asyncio": "a = _module('asyncio')\na.run(a.open_connection('127.0.0.1', PORT))",
    "its channel, bound anew": "socket.socket(fileno=os.dup(CHANNEL)).bind('/tmp/awm-hostile')",
    "its channel, connected anew": "socket.socket(fileno=os.dup(CHANNEL)).connect('/tmp/awm-hostile')",
}
HEAD = """\
os, socket = _module("os"), _module("socket")
def _is_socket(fd):
    try:
        return os.fstat(fd).st_mode >> 12 == 0o14
    except OSError:
        return False
CHANNEL = next(fd for fd in range(64) if _is_socket(fd))
"""


@pytest.fixture(scope="module")
def port():
    """A port of this machine where someone listens, and tells if anything came."""
    came: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        stop = threading.Event()

        def listen() -> None:
            while not stop.is_set():
                try:
                    came.append(server.accept())
                except TimeoutError:
                    continue

        thread = threading.Thread(target=listen)
        thread.start()
        yield server.getsockname()[1]
        stop.set()
        thread.join()
    assert came == []


@pytest.mark.parametrize("code", PROCESSES.values(), ids=PROCESSES)
def test_other_processes_are_out_of_reach(run_tool, code):
    assert run_tool(HEAD + code).message.startswith(FORBIDDEN), run_tool(HEAD + code).message


@pytest.mark.parametrize("code", THREADS.values(), ids=THREADS)
def test_there_is_one_thread(run_tool, code):
    assert run_tool(HEAD + code).message == NO_THREAD


@pytest.mark.parametrize("code", NETWORK.values(), ids=NETWORK)
def test_there_is_no_network(run_tool, port, code):
    result = run_tool(HEAD + f"PORT = {port}\n" + code)
    assert result.message.startswith(FORBIDDEN), result.message


@pytest.mark.parametrize(
    "code", ["os.forkpty()", "_module('pty').fork()", "_module('pty').spawn('/bin/sh')", "os.openpty()"]
)
def test_there_is_no_terminal(run_tool, code):
    result = run_tool(HEAD + code)
    assert result.message.startswith(("PermissionError: [Errno 13]", "OSError: out of pty devices")), result.message


def test_names_are_not_resolved(run_tool):
    result = run_tool(HEAD + "return socket.getaddrinfo('example.org', 80)")
    assert result.message.startswith("gaierror: "), result.message


def test_limits_stay_where_they_are(run_tool):
    code = "r = _module('resource')\nr.setrlimit(r.{0}, {1})"
    for which, values in (("RLIMIT_AS", (-1, -1)), ("RLIMIT_NOFILE", (4096, 4096)), ("RLIMIT_FSIZE", (1, 1))):
        result = run_tool(code.format(which, values))
        assert result.kind == "crash"
        assert result.message.startswith(("ValueError: not allowed to raise", "PermissionError")), result.message


def test_it_has_no_privilege_left(run_tool):
    code = """
        os, ctypes = _module("os"), _module("ctypes")
        libc = ctypes.CDLL(None, use_errno=True)
        header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        asked = libc.syscall(ctypes.c_long(125), header, data)
        return [asked, list(data), os.getresuid()[0]]
    """
    asked, sets, user = run_tool(code).value
    assert asked == -1 or sets == [0] * 6  # the filter refuses even the question
    assert user == os.getuid()


def test_descriptors_sent_to_the_host_do_not_arrive(run_tool):
    """A worker may put descriptors beside its bytes; the host reads bytes only."""
    code = """
        reader, writer = os.pipe()
        for _ in range(60):
            socket.send_fds(socket.socket(fileno=os.dup(CHANNEL)), [b""], [reader])
        return "sent"
    """
    before = len(os.listdir("/proc/self/fd"))
    result = run_tool(HEAD + textwrap.dedent(code))
    assert result.value == "sent" or result.kind == "crash"
    assert len(os.listdir("/proc/self/fd")) <= before
