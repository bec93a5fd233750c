"""Code that wants more time than it gets: what the timer stops, and what only the host can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from awm.env import Limits, Sandbox, WorkerTimeout
from env.attacks import attacks

HEAD = "Everything = getattr(re.enum.sys.modules['builtins'], 'Base' + 'Exception')\n"
HEAD += "rows = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i FROM n) SELECT i FROM n'\n"


@pytest.fixture(scope="module")
def hasty() -> Iterator[Sandbox]:
    """A sandbox for code that has no end: it need not wait long to know."""
    with Sandbox(Limits(call_s=0.3, load_s=10.0, verify_s=0.3, grace_s=0.3, memory_mb=256)) as sandbox:
        yield sandbox


@attacks(
    """
    #: a swallowed timeout
    while True:
        try:
            while True:
                len("")
        except Everything:
            pass
    #: a timeout swallowed by a context
    contextlib = _module("contextlib")
    while True:
        with contextlib.suppress(Everything):
            while True:
                len("")
    #: an answer in spite of a timeout
    try:
        while True:
            len("")
    except Everything:
        return "forged"
    #: at the end of an object
    class A:
        def __del__(self):
            while True:
                len("")
    A()
    while True:
        len("")
    #: at the very end
    try:
        while True:
            len("")
    finally:
        while True:
            len("")
    #: a generator that will not close
    def g():
        while True:
            try:
                yield
            except Everything:
                pass
    for _ in g():
        pass
    #: a comparison in a sort
    class A:
        def __lt__(self, other):
            while True:
                len("")
    sorted([A(), A()])
    #: a text that a result is asked for
    class A(BaseModel):
        def __repr__(self):
            while True:
                len("")
    return str(A()) + f"{A()!r}"
    #: the words of an error
    class E(ToolError):
        def __str__(self):
            while True:
                len("")
    raise E
    #: a result that never ends
    def g():
        while True:
            yield 1
    return sum(g())
    #: a wait for nothing
    _module("select").select([], [], [])
    #: a pause
    while True:
        _module("signal").pause()
    #: a pipe that nobody writes to
    os = _module("os")
    os.read(os.pipe()[0], 1)
    #: a lock held twice
    lock = _module("threading").Lock()
    lock.acquire()
    lock.acquire()
    #: an empty queue
    _module("queue").Queue().get()
    #: an event loop
    asyncio = _module("asyncio")
    asyncio.run(asyncio.sleep(60))
    #: a sum without end
    return sum(iter(int, 1))
    #: a sleep in C
    libc = _module("ctypes").CDLL(None)
    while True:
        libc.sleep(60)
    #: many digits
    decimal = _module("decimal")
    decimal.getcontext().prec = 10**7
    return str(decimal.Decimal(2).sqrt())
    #: a large exponent
    return int(_module("decimal").Decimal("1E+99999999"))
    #: prime factors
    n, i = (1 << 89) - 1, 3
    while n % i:
        i += 2
    return i
    #: colliding keys
    return len({i * ((1 << 61) - 1): 0 for i in range(10**6)})
    #: a regular expression that backtracks
    return re.search("(x+x+)+y", "x" * 60)
    #: a replacement that backtracks
    return re.sub("(.*)*,", "", "x" * 60)
    #: a query without end
    db.execute(rows).fetchall() if False else db.execute("SELECT count(*) FROM (" + rows + ")").fetchall()
    #: rows without end, read one by one
    for row in db.execute(rows):
        pass
    #: a join of everything
    db.execute("SELECT count(*) FROM (" + rows + " LIMIT 5000) a, (" + rows + " LIMIT 5000) b, orders").fetchall()
    #: a pattern in SQL
    db.execute("SELECT count(*) FROM (" + rows + ") WHERE hex(zeroblob(i * 2000)) LIKE '%0%0%0%0%0%1'").fetchall()
    #: a text that SQLite writes letter by letter
    db.execute("SELECT printf('%.*c', 1 << 30, 'x')").fetchall()
    #: an update that computes
    db.execute("UPDATE orders SET zip = (SELECT count(*) FROM (" + rows + "))")
    #: a search of one letter, everywhere
    db.execute("SELECT count(*) FROM notes, (" + rows + ") WHERE notes MATCH 'door'").fetchall()
    #: the deadline forgotten by its own object
    for thing in _module("gc").get_objects():
        if type(thing).__name__ == "Deadline":
            thing.disarm()
    while True:
        len("")
    """
)
def test_endless_work_ends(run_tool, hasty, code):
    try:
        result = run_tool(HEAD + "db.execute('DELETE FROM parts')\n" + code, sandbox=hasty)
    except WorkerTimeout:
        return
    assert (result.kind, result.message) == ("timeout", "no result within 0.3 s")


@attacks(
    """
    #: the signal ignored
    signal = _module("signal")
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    while True:
        len("")
    #: the signal blocked
    signal = _module("signal")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    while True:
        len("")
    #: the signal handled
    signal = _module("signal")
    signal.signal(signal.SIGALRM, lambda *_: None)
    while True:
        len("")
    #: the deadline put off
    signal = _module("signal")
    getattr(signal.getsignal(signal.SIGALRM), "__se" + "lf__").arm(1e9)
    while True:
        len("")
    #: stopped
    os = _module("os")
    os.kill(os.getpid(), 19)
    while True:
        len("")
    #: a test of everything in C
    return any(_module("itertools").repeat(0))
    #: a maximum in C
    return max(_module("itertools").count())
    #: a search in C
    return 1 in _module("itertools").repeat(0)
    #: the channel read by the tool itself
    os = _module("os")
    for fd in range(3, 64):
        try:
            if os.fstat(fd).st_mode >> 12 == 0o14:
                while True:
                    try:
                        os.read(fd, 1)
                    except Everything:
                        pass
        except OSError:
            pass
    """
)
def test_what_hides_from_the_timer_is_killed(run_tool, hasty, code):
    with pytest.raises(WorkerTimeout):
        run_tool(HEAD + code, sandbox=hasty)


def test_a_swallowed_timeout_takes_nothing_from_the_next_call(hasty: Sandbox, snapshot: bytes):
    source = f"""
import re
from awm.env.tool import Connection

{HEAD.splitlines()[0]}

def swallow(db: Connection):
    '''Swallow.'''
    try:
        db.execute("DELETE FROM orders")
        while True:
            len("")
    except Everything as error:
        return str(error)


def fine(db: Connection):
    '''Answer.'''
    return db.execute("SELECT count(*) FROM orders").fetchone()[0]
"""
    with hasty.worker() as worker:
        worker.load(source)
        worker.open("s", snapshot, "2025-03-01")
        assert worker.call("s", "swallow", {}).kind == "timeout"
        assert worker.call("s", "fine", {}).value == 3
