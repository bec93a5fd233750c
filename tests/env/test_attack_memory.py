"""Code that wants more memory, deeper stacks or more descriptors than it gets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from awm.env import Sandbox, WorkerDied, WorkerTimeout
from env.attacks import attacks
from env.conftest import one_tool

CLOCK = "2025-03-01"


@attacks(
    """
    #: a list
    return [0] * (1 << 40)
    #: a text
    return "x" * (1 << 40)
    #: a number
    return 1 << (1 << 36)
    #: a format
    return f"{1:>99999999999}"
    #: a file without end
    return len(_module("io").open("/dev/zero", "rb").read())
    #: a bomb that is unpacked
    zlib = _module("zlib")
    return len(zlib.decompress(zlib.compress(bytes(1 << 20)), bufsize=1 << 40))
    #: a growing text
    text = "ab"
    while True:
        text += text
    #: a growing dict
    kept = {}
    while True:
        kept[len(kept)] = bytes(1 << 20)
    #: a tree
    tree = []
    while True:
        tree = [tree, tree, bytes(1 << 20)]
    #: numbers in an array
    return _module("array").array("d", bytes(8 << 30))
    #: copies of a large value
    value = bytes(100 << 20)
    return [bytearray(value) for _ in range(50)]
    """
)
def test_memory_is_bounded(run_tool, code):
    result = run_tool(code)
    assert result.kind == "crash"
    assert result.message.startswith("MemoryError"), result.message


@attacks(
    """
    #: a function
    def f(n):
        return f(n + 1) + 1
    f(0)
    #: an attribute
    class A:
        def __getattr__(self, name):
            return getattr(self, name + "x")
    A().a
    #: a comparison
    class A:
        def __eq__(self, other):
            return other == self
    A() == A()
    #: JSON read
    return _module("json").loads("[" * 200000)
    #: a nested value copied
    value = []
    for _ in range(100000):
        value = [value]
    return _module("copy").deepcopy(value)
    #: a nested value written
    value = []
    for _ in range(100000):
        value = [value]
    return _module("json").dumps(value)
    #: a nested value shown
    value = []
    for _ in range(100000):
        value = [value]
    return repr(value)
    #: a circle written
    value = []
    value.append(value)
    return _module("json").dumps(value, check_circular=False)
    #: a regular expression
    return re.compile("(" * 50000 + ")" * 50000)
    """
)
def test_depth_is_an_error_of_the_call(run_tool, code):
    result = run_tool(code)
    assert result.kind == "crash"
    assert result.message.startswith("RecursionError: "), result.message


@attacks(
    """
    #: terminated
    os = _module("os")
    os.kill(os.getpid(), 15)
    _module("time").sleep(5)
    #: killed
    os = _module("os")
    os.kill(os.getpid(), 9)
    #: a wild write
    _module("ctypes").memset(16, 0, 16)
    #: a jump into nothing
    _module("ctypes").CFUNCTYPE(None)(0)()
    #: an illegal instruction
    ctypes = _module("ctypes")
    page = _module("mmap").mmap(-1, 4096, prot=7)
    page.write(bytes.fromhex("0f0b"))
    ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    #: the timer's signal made deadly
    signal = _module("signal")
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        len("")
    #: a fatal error of the interpreter
    _module("ctypes").pythonapi.Py_FatalError(b"x")
    #: an object overwritten
    _module("ctypes").memset(id(db), 0xFF, 64)
    return db.execute("SELECT 1").fetchone()
    """
)
def test_death_is_the_workers_own(run_tool, code):
    with pytest.raises(WorkerDied):
        run_tool(code)
    assert run_tool("return 1").value == 1


def test_an_answer_of_200_mb_is_the_workers_own_loss(run_tool):
    with pytest.raises(WorkerDied):
        run_tool("return 'x' * (200 << 20)")
    assert run_tool("return 1").value == 1


def test_the_c_stack_is_its_own(run_tool):
    """Python 3.11 may crash here; later ones notice."""
    code = "re.enum.sys.setrecursionlimit(10**9)\ndef f(n):\n    return sorted([n], key=lambda n: f(n))\nf(0)"
    try:
        result = run_tool(code)
    except (WorkerDied, WorkerTimeout):
        return
    assert result.kind in ("crash", "timeout")


def test_mappings_are_bounded(run_tool):
    assert run_tool("_module('mmap').mmap(-1, 10 << 30)").message.startswith("OSError: [Errno 12]")


def test_descriptors_are_bounded(run_tool):
    result = run_tool("os = _module('os')\nwhile True:\n    os.pipe()")
    assert result.message == "OSError: [Errno 24] Too many open files"


def test_a_number_of_too_many_digits_is_an_error(run_tool):
    assert run_tool("return str(10 ** 5000)").message.startswith("ValueError: Exceeds the limit (4300 digits)")


def test_a_leak_over_many_calls_is_an_error_in_the_end(sandbox: Sandbox, snapshot: bytes):
    source = """
import re
from awm.env.tool import Connection


def leak(db: Connection):
    '''Leak.'''
    vars(re).setdefault("kept", []).append(bytes(50 << 20))


def fine(db: Connection):
    '''Answer.'''
    return 1
"""
    with sandbox.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, CLOCK)
        results = [worker.call("s", "leak", {}) for _ in range(10)]
        assert results[0].ok
        assert results[-1].message.startswith("MemoryError")
        assert worker.call("s", "fine", {}).value == 1


def test_one_worker_that_spins_does_not_hold_up_another(sandbox: Sandbox, shop: str, snapshot: bytes):
    with sandbox.worker() as spinning, sandbox.worker() as working, ThreadPoolExecutor(1) as pool:
        spinning.load(one_tool("return all(_module('itertools').repeat(1))"))
        spinning.open("s", snapshot, CLOCK)
        working.load(shop)
        working.open("s", snapshot, CLOCK)
        lost = pool.submit(spinning.call, "s", "run", {})
        answered = 0
        while not lost.done():
            assert working.call("s", "get_order", {"order_id": 1}).ok
            answered += 1
        with pytest.raises(WorkerTimeout):
            lost.result()
        assert answered > 1
