"""Objects that do harm when they are looked at: results, errors, models, and modules as they are loaded."""

from __future__ import annotations

import pytest

from awm.env import EnvironmentFault, ModuleError, Sandbox, WorkerDied
from env.attacks import attacks
from env.conftest import one_tool

HEAD = """
builtins, os = re.enum.sys.modules["builtins"], _module("os")
Everything = getattr(builtins, "Base" + "Exception")
steal = lambda *_, **__: _module("io").open("/etc/passwd").read()
"""


@attacks(
    """
    #: a model that reads as it is written
    class A(BaseModel):
        a: int = 1
        @_module("pydantic").model_serializer
        def write(self):
            return {"a": steal()}
    return A()
    #: a field that is computed
    class A(BaseModel):
        @_module("pydantic").computed_field
        @property
        def a(self) -> str:
            return steal()
    return A()
    #: a dict that reads as it is walked
    class A(dict):
        def items(self):
            return steal()
    return A(a=1)
    #: a list that reads as it is walked
    class A(list):
        def __iter__(self):
            return steal()
        def __len__(self):
            return steal()
        def __getitem__(self, index):
            return steal()
    return {"a": A([1])}
    #: a text of another kind
    class A(str):
        def __str__(self):
            return steal()
        def encode(self, *_):
            return steal()
    return A("x")
    #: a number of another kind
    class A(int):
        def __int__(self):
            return steal()
        def __index__(self):
            return steal()
        def __repr__(self):
            return steal()
    return A(5)
    #: a key of another kind
    class A(str):
        def __str__(self):
            return steal()
    return {A("k"): 1}
    #: a date of another kind
    class A(_module("datetime").datetime):
        def isoformat(self, *_):
            return steal()
        def __str__(self):
            return steal()
    return A(2025, 1, 1)
    #: something that says it is another
    class A:
        @property
        def __class__(self):
            return steal()
    return A()
    #: anything with a form of its own
    class A:
        def __iter__(self):
            return steal()
        def keys(self):
            return steal()
        def model_dump(self, **_):
            return steal()
        def __json__(self):
            return steal()
    return [A()]
    #: an error whose words are read from a file
    class E(Exception):
        def __str__(self):
            return steal()
    raise E
    #: an error of many words
    raise ValueError("y" * 10000000)
    #: an error whose class has many words
    raise type("X" * 100000, (Exception,), {})("y")
    """
)
def test_looking_at_it_reads_nothing(run_tool, code):
    result = run_tool(HEAD + code)
    assert result.kind in ("ok", "crash", "unserialisable", "tool_error"), result
    assert "root:" not in str(result)
    assert len(result.message) <= 4000


@attacks(
    """
    #: a coroutine
    async def f():
        return 1
    return f()
    #: the connection
    return db
    #: a class
    return BaseModel
    #: an error
    return ValueError("x")
    #: a module
    return re
    #: a circle
    value = []
    value.append(value)
    return value
    #: a circle of dicts
    value = {}
    value["a"] = {"b": value}
    return value
    #: a memory view
    return {"a": memoryview(b"x")}
    #: Ellipsis
    return ...
    #: a number beyond JSON's
    return 10 ** 400
    """
)
def test_what_has_no_form_is_said_to_have_none(run_tool, code):
    result = run_tool(code)
    assert result.kind == "unserialisable", result


def test_an_iterator_without_end_is_a_lack_of_memory_or_time(run_tool):
    result = run_tool("return _module('itertools').count()")
    assert result.kind == "timeout" or result.message.startswith("MemoryError")


@attacks(
    """
    #: the end of the process
    raise SystemExit(0)
    #: an interrupt
    raise KeyboardInterrupt
    #: the end of a generator
    raise GeneratorExit
    #: the end of an iteration
    raise StopIteration(1)
    #: an error of no kind
    raise Everything("x")
    #: a group of errors
    raise ExceptionGroup("x", [ValueError("y")])
    #: a timeout that is none
    raise _module("awm.env.deadline").SoftTimeout
    #: an invalid argument that is none
    raise _module("awm.env.arguments").InvalidArgumentsError("x")
    #: an error of the sandbox
    raise _module("awm.env.errors").SandboxUnavailable("x")
    #: a fault
    raise _module("awm.env.errors").EnvironmentFault("x")
    #: a module's error
    raise _module("awm.env.errors").ModuleError("syntax", ["x"])
    #: an error of the wire
    raise _module("awm.env.wire").WireError("x")
    #: no error at all
    raise None
    #: an error that can't be made
    class E(Exception):
        def __init__(self):
            raise E
    raise E
    #: a chain without end
    error = ValueError("x")
    raise error from error
    """
)
def test_every_error_is_a_result_of_its_own_call(run_tool, code):
    result = run_tool(HEAD + "db.execute('DELETE FROM orders')\n" + code)
    assert result.kind in ("crash", "timeout", "invalid_arguments", "unserialisable"), result


def test_a_refusal_without_words_is_named_by_its_class_or_the_workers_own_loss(run_tool):
    code = "class E(ToolError):\n    def __str__(self):\n        return steal()\nraise E"
    try:
        result = run_tool(HEAD + code)
    except WorkerDied:
        return
    assert result.kind in ("crash", "tool_error")
    assert "root:" not in result.message


def test_a_refusal_of_many_words_reaches_the_agent_or_fails_as_one(run_tool):
    for size in (1 << 20, 20 << 20):
        try:
            result = run_tool(f"raise ToolError('x' * {size})")
        except EnvironmentFault:
            continue
        assert result.kind == "tool_error"


@attacks(
    """
    #: a class body
    class A:
        x = _module("io").open("/etc/passwd").read()
    #: a decorator
    @_module("functools").partial(_module("io").open, "/etc/passwd")
    def _f():
        pass
    #: a default
    def _f(x=_module("io").open("/etc/passwd")):
        pass
    #: a metaclass
    class M(type):
        def __new__(cls, name, bases, space):
            return _module("os").listdir("/")
    class A(metaclass=M):
        pass
    #: a descriptor
    class D:
        def __set_name__(self, owner, name):
            _module("os").fork()
    class A:
        d = D()
    #: a subclass
    class A:
        def __init_subclass__(cls):
            _module("socket").socket()
    class B(A):
        pass
    #: a constant
    X = _module("os").fork()
    #: memory
    X = bytes(1 << 40)
    #: an exit
    X = re.enum.sys.exit(0)
    #: depth
    def _f():
        return _f()
    X = _f()
    """
)
def test_loading_is_as_locked_down_as_calling(sandbox: Sandbox, code: str):
    with sandbox.worker() as worker, pytest.raises(ModuleError) as caught:
        worker.load(one_tool("return 1") + code)
    assert caught.value.phase in ("import", "lint")
    assert "root:" not in str(caught.value)


@pytest.mark.parametrize(
    "code", ["X = _module('os')._exit(0)\n", "X = _module('os').abort()\n", "X = _module('ctypes').string_at(0)\n"]
)
def test_a_module_that_ends_its_process_is_lost_with_it(sandbox: Sandbox, code: str):
    with sandbox.worker() as worker, pytest.raises((WorkerDied, ModuleError)):
        worker.load(one_tool("return 1") + code.replace("_module('os')._exit", "getattr(_module('os'), '_exit')"))


@attacks(
    """
    #: a validator
    P = Annotated[str, _module("pydantic").AfterValidator(lambda v: _module("io").open(v).read())]
    #: a default that is made
    P = Annotated[str, Field(default_factory=lambda: _module("os").listdir("/"))]
    #: a schema of its own
    class P(str):
        @classmethod
        def __get_pydantic_core_schema__(cls, source, handler):
            read = lambda v: _module("io").open(v).read()
            return _module("pydantic_core").core_schema.no_info_plain_validator_function(read)
        @classmethod
        def __get_pydantic_json_schema__(cls, schema, handler):
            return {"type": "string"}
    """
)
def test_arguments_that_run_code_run_it_inside(sandbox: Sandbox, snapshot: bytes, code: str):
    source = (
        one_tool("return 1")
        .replace("def run", code + "\ndef run")
        .replace("db: Connection)", "db: Connection, path: Annotated[P, Field(description='P')])")
    )
    with sandbox.worker() as worker:
        try:
            worker.load(source)
        except ModuleError as error:
            assert error.phase in ("lint", "signature", "import")
            return
        worker.open("s", snapshot, "2025-03-01")
        result = worker.call("s", "run", {"path": "/etc/passwd"})
        assert not result.ok or result.value == 1
        assert "root:" not in str(result)


def test_what_is_known_to_remain_possible_inside_one_worker(sandbox: Sandbox, snapshot: bytes):
    """A module reaches all that its own process holds: other sessions of that worker, and its replies."""
    source = one_tool(
        """
        gc, sqlite3 = _module("gc"), _module("sqlite3")
        for thing in gc.get_objects():
            if isinstance(thing, sqlite3.Connection) and thing is not db:
                thing.set_authorizer(None)
                thing.execute("DELETE FROM parts")
                thing.execute("UPDATE orders SET status = 'stolen'")
                return "reached"
        return "alone"
        """
    )
    with sandbox.worker() as worker, sandbox.worker() as other:
        worker.load(source)
        worker.open("s", snapshot, "2025-03-01")
        worker.open("neighbour", snapshot, "2025-03-01")
        other.load(source)
        other.open("s", snapshot, "2025-03-01")
        assert worker.call("s", "run", {}).value == "reached"
        assert worker.changed("neighbour")
        assert other.call("s", "run", {}).value == "alone"  # which is why an episode has a process of its own
