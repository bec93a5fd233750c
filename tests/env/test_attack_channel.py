"""The worker's end of the channel in hostile hands: what it sends is checked, and at worst it loses its own episode."""

from __future__ import annotations

import pytest

from awm.env import EnvironmentFault, ModuleError, Sandbox, WorkerDied, WorkerTimeout
from awm.models import Outcome
from env.attacks import attacks
from env.conftest import one_tool
from library import library_environment

CLOCK = "2025-03-01"
HEAD = """
os, msgpack = _module("os"), _module("msgpack")
def is_socket(fd):
    try:
        return os.fstat(fd).st_mode >> 12 == 0o14
    except OSError:
        return False
channel = next(fd for fd in range(64) if is_socket(fd))
def send(data):
    while data:
        data = data[os.write(channel, data):]
def question():
    sys = re.enum.sys
    step = getattr(sys, "_get" + "frame")()
    while "number" not in step.f_locals or "operation" not in step.f_locals:
        step = step.f_back
    return step.f_locals["number"]
n = question()
def frame(value, packed=None):
    packed = msgpack.packb(value) if packed is None else packed
    send(len(packed).to_bytes(4, "little") + packed)
"""


@attacks(
    """
    #: noise
    send(bytes(range(256)) * 100)
    #: a flood of noise
    while True:
        send(b"\\xff" * (1 << 20))
    #: a flood of frames
    while True:
        frame([n, "ok", None])
    #: a length of 4 GB
    send(b"\\xff\\xff\\xff\\xff")
    #: one byte more than a message may have
    send(((16 << 20) + 1).to_bytes(4, "little"))
    #: an empty frame
    send(bytes(4))
    #: a pickle
    frame(None, b"cos\\nsystem\\n(S'touch /tmp/awm-hostile'\\ntR.")
    #: a Python object's own form
    frame(None, b"\\x80\\x04\\x95\\x10\\0\\0\\0\\0\\0\\0\\0.")
    #: an extension type
    frame([n, "ok", msgpack.ExtType(42, b"x")])
    #: a time
    frame([n, "ok", msgpack.Timestamp(0, 0)])
    #: a list that claims four thousand million items
    frame(None, b"\\xdd\\xff\\xff\\xff\\xff")
    #: a map that claims four thousand million items
    frame(None, b"\\xdf\\xff\\xff\\xff\\xff")
    #: a text that claims 4 GB
    frame(None, b"\\xdb\\xff\\xff\\xff\\xff")
    #: nested without end
    frame(None, b"\\x91" * 1000000)
    #: text that is no text
    frame(None, b"\\xa2\\xff\\xff")
    #: a frame and more
    frame(None, msgpack.packb([n, "ok", None]) + b"x")
    #: no list
    frame({"id": n})
    #: too short
    frame([n, "ok"])
    #: too long
    frame([n, "ok", None, None])
    #: an answer to another question
    frame([n + 1, "ok", ["ok", b"1", "", None, []]])
    #: an answer to an old question
    frame([n - 1, "ok", ["ok", b"1", "", None, []]])
    #: the number as text
    frame([str(n), "ok", ["ok", b"1", "", None, []]])
    #: an unknown status
    frame([n, "done", ["ok", b"1", "", None, []]])
    #: a fault of another shape
    frame([n, "fault", {"a": 1}])
    #: a module error of another shape
    frame([n, "module", ["syntax"]])
    #: a phase that does not exist
    frame([n, "module", ["hack", [], None]])
    #: no result
    frame([n, "ok", None])
    #: a result that is too short
    frame([n, "ok", ["ok", b"1"]])
    #: a result that is too long
    frame([n, "ok", ["ok", b"1", "", None, [], 1]])
    #: a kind that does not exist
    frame([n, "ok", ["fine", b"1", "", None, []]])
    #: a kind that is no text
    frame([n, "ok", [["ok"], b"1", "", None, []]])
    #: success without a value
    frame([n, "ok", ["ok", None, "", None, []]])
    #: failure with a value
    frame([n, "ok", ["tool_error", b"1", "", None, []]])
    #: a value that is no JSON
    frame([n, "ok", ["ok", b"{", "", None, []]])
    #: a value that is not a number
    frame([n, "ok", ["ok", b"NaN", "", None, []]])
    #: a value that is not finite
    frame([n, "ok", ["ok", b"[-Infinity]", "", None, []]])
    #: a value that is no UTF-8
    frame([n, "ok", ["ok", b'"\\xff"', "", None, []]])
    #: a value nested without end
    frame([n, "ok", ["ok", b"[" * 100000 + b"]" * 100000, "", None, []]])
    #: a message that is no text
    frame([n, "ok", ["tool_error", None, 5, None, []]])
    #: a line that is no number
    frame([n, "ok", ["crash", None, "", "5", []]])
    #: a line that is true
    frame([n, "ok", ["crash", None, "", True, []]])
    #: notes that are no list
    frame([n, "ok", ["ok", b"1", "", None, "note"]])
    """
)
def test_a_broken_protocol_ends_the_worker_and_nothing_else(run_tool, code):
    with pytest.raises(WorkerDied, match="it broke the protocol: "):
        run_tool(HEAD + code + "\nos._exit(0)\n")
    assert run_tool("return 1").value == 1


@attacks(
    """
    #: the channel closed
    os.close(channel)
    #: everything closed
    os.closerange(0, 256)
    #: the channel shut for writing
    _module("socket").socket(fileno=channel).shutdown(1)
    #: the null device in its place
    os.dup2(1, channel)
    #: a pipe in its place
    os.dup2(os.pipe()[1], channel)
    """
)
def test_a_lost_channel_ends_the_worker_and_nothing_else(run_tool, code):
    with pytest.raises((WorkerDied, WorkerTimeout)):
        run_tool(HEAD + code)
    assert run_tool("return 1").value == 1


@attacks(
    """
    #: half a length
    send(b"\\x05\\x00")
    #: half a message
    send(b"\\x05\\x00\\x00\\x00ab")
    #: a letter from time to time
    for _ in range(1000):
        send(b"\\x00\\x00\\x10\\x00"[:1])
        _module("time").sleep(0.05)
    """
)
def test_half_a_message_is_waited_for_no_longer_than_for_none(run_tool, code):
    with pytest.raises((WorkerTimeout, WorkerDied)):
        run_tool(HEAD + code + "\nwhile True:\n    _module('signal').setitimer(0, 0)\n    sum(iter(int, 1))\n")


def test_deep_values_are_told_apart_from_broken_ones(run_tool):
    """A nesting that the host's parser takes is data; it can't be so deep that the host would fail over it."""
    code = HEAD + "frame([n, 'ok', ['ok', b'[' * 150 + b']' * 150, '', None, []]])\nos._exit(0)"
    assert run_tool(code).ok


def test_a_module_that_describes_itself_wrongly_is_ended(sandbox: Sandbox):
    """The signatures, made from hostile annotations, are checked as results are."""
    for patch in (
        "wire.pack = lambda value: msgpack.packb([1, 'ok', [[{'name': 5}], b'']])",
        "wire.pack = lambda value: msgpack.packb([1, 'ok', [[{'name': 'a', 'extra': 1}], b'x']])",
        "wire.pack = lambda value: msgpack.packb([1, 'ok', [[1], b'x']])",
        "wire.pack = lambda value: msgpack.packb([1, 'ok', 7])",
        "wire.pack = lambda value: msgpack.packb([1, 'ok', [[], 'text']])",
    ):
        source = one_tool("return 1") + (
            "class Patch:\n"
            '    msgpack, wire = _module("msgpack"), _module("awm.env.wire")\n'
            f"    vars(wire).update(pack={patch.partition(' = ')[2]})\n"
        ).replace("msgpack.packb", '_module("msgpack").packb')
        with sandbox.worker() as worker, pytest.raises(WorkerDied, match="of another shape"):
            worker.load(source)


FORGED = """

def forge(db: Connection, what: Annotated[str, Field(description="State to report")]):
    '''Report another state from now on.'''
    answers = {"junk": b"no database", "none": None, "huge": bytes(17 << 20), "text": "x", "empty": b""}
    setattr(_module("awm.env.session").Session, "dump", lambda self: answers[what])
    return 1
"""


@pytest.mark.parametrize("what", ["junk", "none", "huge", "text"])
def test_a_forged_final_state_gives_no_verdict_but_an_error(sandbox: Sandbox, what: str):
    """Known to succeed: a tool can replace the state that is judged, because it holds it."""
    environment = library_environment(sandbox, source=one_tool("return 1") + FORGED)
    with environment.episode(task=1) as episode:
        assert episode.call("forge", {"what": what}).value == 1
        assert episode.verify("Dracula").verdict is Outcome.ENVIRONMENT_ERROR


def test_replies_about_databases_are_checked(sandbox: Sandbox, snapshot: bytes):
    source = one_tool(
        """
        Session = _module("awm.env.session").Session
        setattr(Session, "diff", lambda self: [1])
        setattr(Session, "dump", lambda self: "text")
        return 1
        """
    )
    for ask in ("diff", "dump"):
        with sandbox.worker() as worker:
            worker.load(source)
            worker.open("s", snapshot, CLOCK)
            assert worker.call("s", "run", {}).value == 1
            with pytest.raises(WorkerDied, match="of another"):
                getattr(worker, ask)("s")


def test_a_broken_snapshot_is_a_fault_or_an_error_of_the_call(sandbox: Sandbox, shop: str, snapshot: bytes):
    """Databases are data, and may be damaged or made to harm: SQLite's reading of them happens in workers only."""
    worker = sandbox.worker()
    worker.load(shop)
    for offset in range(0, len(snapshot), 97):
        broken = bytearray(snapshot)
        broken[offset : offset + 8] = b"\xff" * 8
        try:
            worker.open("s", bytes(broken), CLOCK)
            result = worker.call("s", "get_order", {"order_id": 1})
            assert result.kind in ("ok", "tool_error", "crash"), result
        except WorkerDied:  # SQLite itself may crash on such a file
            worker = sandbox.worker()
            worker.load(shop)
        except EnvironmentFault:
            continue
    worker.kill()


def test_what_a_worker_says_of_its_module_stays_with_that_module(sandbox: Sandbox, snapshot: bytes):
    """Compiled code that a worker returned is kept under its source: another source never runs it."""
    with sandbox.worker() as worker, pytest.raises((ModuleError, WorkerDied)):
        worker.load("from awm.env.tool import Connection\nX = 1 / 0\n")
    with sandbox.worker() as worker:
        worker.load(one_tool("return 2"))
        worker.open("s", snapshot, CLOCK)
        assert worker.call("s", "run", {}).value == 2
