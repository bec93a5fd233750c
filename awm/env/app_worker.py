"""The process that runs a published FastAPI + SQLAlchemy module: a worker whose tools are the module's endpoints.

Foreign keys are off unless the module itself turns them on, as where these modules were written for: their tasks count
on it. Everything else is as for other tool modules: one transaction for each call, the frozen clock, no file, no
network, no thread (what would run in one runs at once).
"""

from __future__ import annotations

import os
import random
import re
import sqlite3
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from types import ModuleType
from typing import Any

from awm.env.asgi import Application, AppTool, find_app
from awm.env.authorizer import authorize_build
from awm.env.clock import FrozenClock
from awm.env.database import open_database
from awm.env.deadline import SoftTimeout
from awm.env.errors import ModuleError
from awm.env.module import describe_exception, line_of, load_module
from awm.env.session import Session, timestamp
from awm.env.sqlalchemy_binding import Binding, bind_engines
from awm.env.worker import Blob, Worker

__all__ = ["READABLE_PACKAGES", "AppWorker", "warm_up"]

READABLE_PACKAGES = (
    *(
        "annotated_doc",
        "anyio",
        "dns",
        "email_validator",
        "fastapi",
        "greenlet",
        "idna",
        "multipart",
        "python_multipart",
    ),
    *("sniffio", "sqlalchemy", "starlette"),
)
"""Installed packages that a published module's worker may read, because they load parts of themselves late."""

_PACKAGES = ("fastapi.middleware.cors", "fastapi.responses", "sqlalchemy.dialects.sqlite", "sqlalchemy.orm")
_WAITING = re.compile(r"\b(?:asyncio|anyio|trio|StreamingResponse|BackgroundTasks?)\b")
_RANDOM = re.compile(r"random|uuid|secrets")
_OPTIONAL = ("email_validator", "multipart", "sqlalchemy.ext.asyncio")


class AppSession(Session):
    """A session on a database as SQLAlchemy knows it: plain rows, foreign keys as the module has them."""

    def __init__(
        self, snapshot: Blob, clock: str, *, max_mb: int, deadline: Callable[[], float], foreign_keys: bool
    ) -> None:
        self._foreign_keys = foreign_keys
        super().__init__(snapshot, clock, max_mb=max_mb, deadline=deadline)

    def _open(self) -> sqlite3.Connection:
        connection = super()._open()
        connection.row_factory = None
        connection.set_authorizer(None)
        connection.execute(f"PRAGMA foreign_keys={'ON' if self._foreign_keys else 'OFF'}")
        connection.set_authorizer(self._authorize)
        return connection


class AppWorker(Worker):
    """Answers the host's requests on a published module."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._operations["load_app"] = self._load_app
        self._binding = Binding()
        self._foreign_keys = False

    def _load_app(self, source: str, snapshot: bytes, clock: str, want_state: bool) -> list[Any]:
        """Load the module on a database of its own; return its tools, and with `want_state` that database.

        What the module does to the database as it starts is in there, and so are the tables of its models that were
        missing.
        """
        frozen = FrozenClock(clock)
        self._world.move_to(timestamp(frozen))
        self._seeded = _RANDOM.search(source) is not None
        connection = open_database(
            snapshot, clock=frozen, max_mb=self._limits.database_mb, deadline=self._deadline.moment
        )
        with closing(connection):
            connection.row_factory = None
            connection.set_authorizer(None)
            connection.execute("PRAGMA foreign_keys=OFF")
            connection.set_authorizer(authorize_build)
            self._binding.enter(connection, loading=True)
            self._deadline.arm(self._limits.load_s)
            try:
                tools = self._start(source)
            except SoftTimeout:
                raise ModuleError("import", [f"the module did not load within {self._limits.load_s:g} s"]) from None
            finally:
                self._deadline.disarm()
            self._binding.leave()
            [self._foreign_keys] = connection.execute("PRAGMA foreign_keys").fetchone()
            return [[tool.signature() for tool in tools.values()], connection.serialize() if want_state else None]

    def _start(self, source: str) -> dict[str, AppTool]:
        from sqlalchemy.orm import configure_mappers

        bind_engines(self._binding)
        self._module = load_module(source, "tools", checked=True)
        try:
            application = Application(find_app(vars(self._module)), plain=not _WAITING.search(source))
            application.start()
            _create_missing_tables(vars(self._module))
            configure_mappers()
        except SoftTimeout:
            raise
        except BaseException as error:
            line = line_of(error, self._module)
            raise ModuleError("import", [describe_exception(error)], line) from None
        tools = application.tools(self._within_binding)
        self._tools = tools  # type: ignore[assignment]
        return tools

    def _open(self, name: str, snapshot: Blob, clock: str) -> None:
        session = AppSession(
            snapshot,
            clock,
            max_mb=self._limits.database_mb,
            deadline=self._deadline.moment,
            foreign_keys=bool(self._foreign_keys),
        )
        if name in self._sessions:
            self._sessions[name].close()
        self._sessions[name] = session

    @contextmanager
    def _within_binding(self, connection: sqlite3.Connection) -> Iterator[None]:
        self._binding.enter(connection)
        try:
            yield
        finally:
            self._binding.leave()


def warm_up() -> None:
    """Import what published modules use, and take out what a locked-down process can't have."""
    import importlib

    warnings.simplefilter("ignore")  # nobody reads them here, and showing one costs a file access
    for name in _PACKAGES:
        importlib.import_module(name)
    for name in _OPTIONAL:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    _run_threads_in_line()
    _seed_entropy()
    sys.modules.setdefault("uvicorn", _no_server())
    _load_sample()


def _run_threads_in_line() -> None:
    """Run at once what FastAPI would give to a thread: plain functions as endpoints and dependencies."""
    from anyio import to_thread

    async def run_sync(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
        return function(*arguments)

    to_thread.run_sync = run_sync  # type: ignore[assignment]


def _seed_entropy() -> None:
    """Make `secrets` and its kind draw from the seeded numbers, so that an episode can be repeated."""
    os.urandom = random.randbytes
    random._urandom = random.randbytes  # type: ignore[attr-defined]


def _no_server() -> ModuleType:
    """Stand in for uvicorn: modules import it, and start it only as a script."""
    module = ModuleType("uvicorn")

    def run(*_: Any, **__: Any) -> None:
        raise RuntimeError("there is no server here: the application is called in process")

    module.run = run  # type: ignore[attr-defined]
    return module


def _create_missing_tables(namespace: Mapping[str, Any]) -> None:
    """Make the tables of the module's models that the database lacks, as most modules do themselves."""
    from sqlalchemy import MetaData
    from sqlalchemy.engine import Engine

    values = list(namespace.values())
    engines = [value for value in values if isinstance(value, Engine)]
    found = [getattr(value, "metadata", value) for value in values]
    for metadata in {id(one): one for one in found if isinstance(one, MetaData)}.values():
        for engine in engines[:1]:
            metadata.create_all(engine)


_SAMPLE = """
from typing import List, Optional
from datetime import datetime
from fastapi import Body, Depends, FastAPI, HTTPException, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import CheckConstraint, Boolean, Column, DateTime, Date, Float, ForeignKey, Integer, String, Text
from sqlalchemy import UniqueConstraint, create_engine, func, or_
from sqlalchemy.orm import declarative_base, relationship, sessionmaker, joinedload

engine = create_engine("sqlite:///sample.db", connect_args={"check_same_thread": False})
SessionLocal = sessionmaker(autocommit=False, autoflush=False, bind=engine)
Base = declarative_base()
app = FastAPI(title="Sample")

class Parent(Base):
    __tablename__ = "parents"
    id = Column(Integer, primary_key=True)
    name = Column(String, nullable=False, unique=True)
    price = Column(Float, default=1.0)
    open = Column(Boolean, default=True)
    made = Column(DateTime, default=datetime.utcnow)
    day = Column(Date)
    children = relationship("Child", back_populates="parent")

class Child(Base):
    __tablename__ = "children"
    __table_args__ = (UniqueConstraint("parent_id", "text"), CheckConstraint("text <> ''"))
    id = Column(Integer, primary_key=True)
    parent_id = Column(Integer, ForeignKey("parents.id"), nullable=False)
    text = Column(Text)
    parent = relationship("Parent", back_populates="children")

Base.metadata.create_all(engine)

class Item(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    id: int = Field(..., description="Id")
    name: str
    made: Optional[datetime] = None

class Answer(BaseModel):
    items: List[Item] = []

class Wanted(BaseModel):
    name: str = Field(..., min_length=1)
    price: Optional[float] = Field(None, ge=0)

def get_db():
    db = SessionLocal()
    try:
        yield db
    finally:
        db.close()

@app.get("/items/{item_id}", operation_id="get_items", response_model=Answer)
async def get_items(item_id: int = Path(..., ge=1), text: Optional[str] = Query(None), limit: int = Query(5)):
    session = SessionLocal()
    query = session.query(Parent).filter(Parent.id >= item_id, or_(Parent.name == text, Parent.price > 0))
    found = query.options(joinedload(Parent.children)).order_by(Parent.name.asc()).limit(limit).all()
    items = [Item(id=p.id, name=p.name, made=p.made) for p in found]
    session.query(func.count(Child.id)).join(Parent).filter(Parent.id.in_([1, 2])).scalar()
    session.close()
    return Answer(items=items)

@app.post("/items", operation_id="make_item", response_model=Item)
def make_item(wanted: Wanted = Body(...), db=Depends(get_db)):
    if wanted.name == "none":
        raise HTTPException(status_code=404, detail="none")
    parent = Parent(name=wanted.name, price=wanted.price)
    db.add(parent)
    db.flush()
    db.add(Child(parent_id=parent.id, text="x"))
    db.commit()
    db.refresh(parent)
    parent.price = 2.0
    db.commit()
    return parent
"""


def _load_sample() -> None:
    """Use every part once, so that it is built before the first fork."""
    binding = Binding()
    bind_engines(binding)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        binding.enter(connection, loading=True)
        module = load_module(_SAMPLE, "tools", checked=True)
        application = Application(find_app(vars(module)))
        application.start()

        @contextmanager
        def within(_: Any) -> Iterator[None]:
            yield

        tools = application.tools(within)
        for name, arguments in (("make_item", {"name": "a"}), ("get_items", {"item_id": 1}), ("make_item", {})):
            _call_sample(tools[name], arguments)
        binding.leave()
    del sys.modules["tools"]


def _call_sample(tool: AppTool, arguments: dict[str, Any]) -> None:
    from awm.env.arguments import InvalidArgumentsError

    try:
        keywords, _ = tool.validate(arguments)
        tool.function(None, **keywords)
    except InvalidArgumentsError:
        return
