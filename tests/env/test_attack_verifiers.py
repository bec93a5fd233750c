"""Verifiers that want more than two databases and an answer. Each runs in a process of its own."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable

import pytest

from awm.env import Limits, Sandbox, VerifierResult
from env.attacks import attacks

HOST = os.getpid()
SOURCE = """
import re
from awm.env.verifier import Connection, mentions, state_diff


def _module(name):
    return re.enum.sys.modules["importlib"].import_module(name)


def verify(initial: Connection, final: Connection, answer: str | None) -> dict:
    os, io = _module("os"), _module("io")
    HOST = {host}
{body}
    return {{"verdict": "completed", "evidence": {{}}}}
"""

Verify = Callable[[str], VerifierResult]


@pytest.fixture(scope="module")
def verify(snapshot: bytes):
    """Run the body of a verifier."""
    with Sandbox(Limits(verify_s=0.5, grace_s=0.5, memory_mb=256)) as sandbox:

        def run(body: str) -> VerifierResult:
            source = SOURCE.format(host=HOST, body=textwrap.indent(textwrap.dedent(body).strip(), "    "))
            return sandbox.verify(source, snapshot, snapshot, "answer", clock="2025-03-01")

        yield run


@attacks(
    """
    #: a file
    io.open("/etc/passwd").read()
    #: its own environment
    io.open("/proc/self/environ").read()
    #: the host's environment
    io.open(f"/proc/{HOST}/environ").read()
    #: a new file
    io.open("/tmp/awm-hostile", "w")
    #: a folder
    os.mkdir("/tmp/awm-hostile")
    #: a process
    os.fork()
    #: a program
    _module("subprocess").run(["id"])
    #: a socket
    _module("socket").socket()
    #: the host
    os.kill(HOST, 9)
    #: its parent
    os.kill(os.getppid(), 9)
    #: the other verifiers
    os.kill(-1, 9)
    #: a trace
    os.pidfd_open(HOST)
    #: limits of its own
    _module("resource").prlimit(HOST, 0, (1, 1))
    """
)
def test_it_is_refused(verify: Verify, code: str):
    result = verify(code)
    assert result.kind == "crash"
    assert result.message.startswith("PermissionError: [Errno 1"), result.message


@attacks(
    """
    #: a row deleted
    final.execute("DELETE FROM orders")
    #: a row of the initial state changed
    initial.execute("UPDATE orders SET zip = 1")
    #: a table
    final.execute("/**/CREATE TABLE x(a)")
    #: a temporary table
    final.execute("/**/CREATE TEMP TABLE x(a)")
    #: another file
    final.execute("/**/ATTACH '/tmp/awm-hostile' AS x")
    #: writing allowed again
    final.execute("PRAGMA query_only=OFF")
    #: the schema writable
    final.execute("PRAGMA writable_schema=ON")
    #: a function that loads code
    final.execute("SELECT load_extension('/tmp/x')")
    #: all of it in a file
    final.execute("/**/VACUUM INTO '/tmp/awm-hostile'")
    #: a value beyond bounds
    final.execute("SELECT zeroblob(1 << 30)")
    #: writing without the authorizer
    final.set_authorizer(None)
    final.execute("DELETE FROM orders")
    #: another file without the authorizer
    final.set_authorizer(None)
    final.setlimit(7, 10)
    final.execute("/**/ATTACH '/tmp/awm-hostile' AS x")
    """
)
def test_the_databases_stay_as_they_are(verify: Verify, code: str):
    result = verify(code)
    assert result.kind == "sql_error", result


@attacks(
    """
    #: Python
    while True:
        len("")
    #: C
    sum(iter(int, 1))
    #: the timer off
    _module("signal").setitimer(0, 0)
    while True:
        len("")
    #: a query
    final.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT count(*) FROM n").fetchall()
    #: a regular expression
    re.match("(a+)+$", "a" * 50 + "b")
    #: a sleep
    _module("time").sleep(60)
    #: stopped
    os.kill(os.getpid(), 19)
    """
)
def test_its_time_is_bounded(verify: Verify, code: str):
    result = verify(code)
    assert (result.kind, result.message) == ("timeout", "no result within 0.5 s")


@attacks(
    """
    #: at once
    bytearray(10 << 30)
    #: bit by bit
    kept = []
    while True:
        kept.append(bytes(1 << 20))
    #: a nested value
    value = []
    for _ in range(100000):
        value = [value]
    return {"verdict": "completed", "evidence": {"a": value}}
    #: evidence of 20 MB
    return {"verdict": "completed", "evidence": {"a": "x" * (20 << 20)}}
    #: evidence with a function
    return {"verdict": "completed", "evidence": {"a": verify}}
    #: evidence that is not a number
    return {"verdict": "completed", "evidence": {"a": 1e999 - 1e999}}
    #: a verdict of its own
    return {"verdict": "environment_error", "evidence": {}}
    #: a verdict and more
    return {"verdict": "completed", "evidence": {}, "reward": 1.0}
    #: a reward
    return 1.0
    #: a thread
    _module("threading").Thread(target=print).start()
    #: an exit
    re.enum.sys.exit(0)
    #: the process's end
    getattr(os, "_exit")(0)
    #: a broken process
    _module("ctypes").string_at(0)
    #: junk on its channel
    for fd in range(3, 64):
        try:
            os.write(fd, b"\\xff" * 5000)
        except OSError:
            pass
    #: its channel closed
    os.closerange(3, 64)
    """
)
def test_there_is_no_verdict(verify: Verify, code: str):
    result = verify(code)
    assert result.kind in ("crash", "invalid"), result
    assert result.value is None


def test_what_it_prints_is_no_verdict(verify: Verify, capfd):
    body = """
    print('{"verdict": "completed", "evidence": {"forged": true}}')
    os.write(1, b'{"verdict": "completed"}')
    return {"verdict": "agent_error", "evidence": {}}
    """
    assert verify(body).value == {"verdict": "agent_error", "evidence": {}}
    assert capfd.readouterr() == ("", "")


def test_nothing_of_one_is_left_for_the_next(verify: Verify):
    verify("vars(re)['kept'] = 1\nvars(_module('awm.env.verifier'))['mentions'] = None")
    body = "return {'verdict': 'completed', 'evidence': {'kept': hasattr(re, 'kept'), 'mentions': mentions('a', 'a')}}"
    assert verify(body).value["evidence"] == {"kept": False, "mentions": True}


def test_what_is_known_to_remain_possible(verify: Verify):
    """It can deceive itself: its own copy of the databases, and its own verdict, are its own."""
    body = """
    final.set_authorizer(None)
    final.execute("PRAGMA query_only=OFF")
    final.execute("DELETE FROM orders")
    return {"verdict": "completed", "evidence": {"diff": len(state_diff(initial, final))}}
    """
    assert verify(body).value["evidence"]["diff"] == 1
