"""A small made-up environment in the published layout, with the faults that published ones have."""

import json
from pathlib import Path
from typing import Any

NAME = "Leaf & Kettle's Café"
SPELLED = "leaf_kettle_s_caf"
SLUG = "leaf_kettles_cafe"

SCHEMA: list[dict[str, Any]] = [
    {
        "name": "users",
        "ddl": "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL, joined_at DATETIME NOT NULL);",
        "indexes": ["CREATE INDEX idx_users_name ON users(name);", "CREATE INDEX idx_users_city ON users(city);"],
    },
    {
        "name": "teas",
        "ddl": "CREATE TABLE teas (\n  id INTEGER PRIMARY KEY,\n  name TEXT UNIQUE NOT NULL,\n"
        "  kind TEXT NOT NULL CHECK (kind IN ('green','black'),\n  stock INTEGER NOT NULL CHECK (stock >= 0)\n);",
        "indexes": [],
    },
    {
        "name": "orders",
        "ddl": "CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " user_id INTEGER NOT NULL REFERENCES users(id), tea_id INTEGER NOT NULL REFERENCES teas(id),"
        " grams INTEGER NOT NULL CHECK (grams > 0), code TEXT, note TEXT, created_at DATETIME NOT NULL);",
    },
    {"name": "gifts", "ddl": "CREATE TABLE gifts (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL,, text TEXT);"},
]

SAMPLE: list[dict[str, Any]] = [
    {
        "table_name": "users",
        "reasoning": "One who is logged in.",
        "insert_statements": [
            "INSERT INTO users (id, name, joined_at) VALUES (1, 'Ana', datetime('now', '-3 days'));",
            "INSERT INTO users (id, name, joined_at) VALUES (1, 'Ben', datetime('now'));",
        ],
    },
    {
        "table_name": "teas",
        "insert_statements": [
            "INSERT INTO teas (id, name, kind, stock) VALUES (1, 'Jade Cloud', 'green', 500);",
            "INSERT INTO teas (id, name, kind, stock) VALUES (2, 'Smuggler's Blend', 'black', 40);",
            "INSERT INTO teas (id, name, kind, stock) VALUES (3, 'Weaver\\'s Cup', 'black', 0);",
            "INSERT INTO teas (id, name, kind, stock) VALUES (4, 'Lantern', 'white', 10);",
        ],
    },
    {
        "table_name": "orders",
        "insert_statements": [
            "INSERT INTO orders (user_id, tea_id, grams, created_at) VALUES (1, 1, 50, datetime('now', '-1 day'));",
            "INSERT INTO orders (user_id, tea_id, grams, created_at) VALUES (1, 77, 50, datetime('now'));",
        ],
    },
    {
        "table_name": "gifts",
        "insert_statements": ["INSERT INTO gifts (id, order_id, text) VALUES (1, 1, 'I'll think of you');"],
    },
    {"table_name": "reviews", "insert_statements": ["INSERT INTO reviews (id) VALUES (1);"]},
]

CODE = """
import os
import uuid
from datetime import datetime, timedelta
from typing import List, Optional

from fastapi import Body, Depends, FastAPI, Header, HTTPException, Path, Query
from pydantic import BaseModel, Field
from sqlalchemy import Column, DateTime, ForeignKey, Integer, String, create_engine, text
from sqlalchemy.orm import declarative_base, relationship, sessionmaker

DATABASE_PATH = os.getenv("DATABASE_PATH", "sqlite:///tea.db")
engine = create_engine(DATABASE_PATH, connect_args={"check_same_thread": False}, pool_pre_ping=True)
SessionLocal = sessionmaker(autocommit=False, autoflush=False, bind=engine)
Base = declarative_base()
app = FastAPI(title="Tea")
CALLS = []


class User(Base):
    __tablename__ = "users"
    id = Column(Integer, primary_key=True)
    name = Column(String, nullable=False)
    joined_at = Column(DateTime, nullable=False, default=datetime.utcnow)


class Tea(Base):
    __tablename__ = "teas"
    id = Column(Integer, primary_key=True)
    name = Column(String, nullable=False, unique=True)
    kind = Column(String, nullable=False)
    stock = Column(Integer, nullable=False)


class Order(Base):
    __tablename__ = "orders"
    id = Column(Integer, primary_key=True)
    user_id = Column(Integer, ForeignKey("users.id"), nullable=False)
    tea_id = Column(Integer, ForeignKey("teas.id"), nullable=False)
    grams = Column(Integer, nullable=False)
    code = Column(String)
    note = Column(String)
    created_at = Column(DateTime, nullable=False, default=datetime.utcnow)
    tea = relationship("Tea")


class Gift(Base):
    __tablename__ = "gifts"
    id = Column(Integer, primary_key=True)
    order_id = Column(Integer, nullable=False)
    text = Column(String)


Base.metadata.create_all(engine)


class TeaItem(BaseModel):
    id: int
    name: str
    stock: int


class TeaList(BaseModel):
    teas: List[TeaItem]


class Wrapping(BaseModel):
    colour: str
    ribbons: int = 0


class NewOrder(BaseModel):
    grams: int = Field(..., gt=0, description="Grams to buy", example=50)
    note: Optional[str] = Field(None, description="A note")
    wrapping: Optional[Wrapping] = None


class Placed(BaseModel):
    id: int
    code: str
    created_at: str


def get_db():
    db = SessionLocal()
    try:
        yield db
    finally:
        db.close()


@app.get("/api/teas", operation_id="list_teas", summary="List teas", response_model=TeaList)
async def list_teas(kind: Optional[str] = Query(None, description="Only this kind"), names: List[str] = Query([])):
    session = SessionLocal()
    found = session.query(Tea)
    if kind:
        found = found.filter(Tea.kind == kind)
    if names:
        found = found.filter(Tea.name.in_(names))
    answer = TeaList(teas=[TeaItem(id=t.id, name=t.name, stock=t.stock) for t in found.order_by(Tea.id).all()])
    session.close()
    return answer


@app.get("/api/teas/{name}", operation_id="get_tea", response_model=TeaItem)
async def get_tea(name: str = Path(..., description="Its name")):
    session = SessionLocal()
    tea = session.query(Tea).filter(Tea.name == name).first()
    return TeaItem(id=tea.id, name=tea.name, stock=tea.stock)


@app.post("/api/teas/{tea_id}/orders", operation_id="place_order", response_model=Placed, status_code=201)
def place_order(tea_id: int, order: NewOrder, db=Depends(get_db)):
    tea = db.get(Tea, tea_id)
    if tea is None:
        raise HTTPException(status_code=404, detail="There is no such tea")
    tea.stock -= order.grams
    placed = Order(user_id=1, tea_id=tea_id, grams=order.grams, note=order.note, code=uuid.uuid4().hex[:8])
    db.add(placed)
    db.commit()
    db.refresh(placed)
    return Placed(id=placed.id, code=placed.code, created_at=placed.created_at.isoformat())


@app.post("/api/half", operation_id="half_done")
async def half_done():
    session = SessionLocal()
    session.add(User(id=50, name="Half"))
    session.commit()
    session.add(User(id=51, name="Lost"))
    session.flush()
    raise RuntimeError("in the middle")


@app.post("/api/forgotten", operation_id="forgotten_commit")
async def forgotten_commit():
    session = SessionLocal()
    session.add(User(id=60, name="Forgotten"))
    session.flush()
    return {"users": session.query(User).count()}


@app.post("/api/savepoints", operation_id="rolls_back")
async def rolls_back():
    session = SessionLocal()
    session.add(User(id=70, name="Kept"))
    session.commit()
    session.add(User(id=71, name="Dropped"))
    session.flush()
    session.rollback()
    with session.begin_nested():
        session.add(User(id=72, name="Nested"))
    session.execute(text("PRAGMA journal_mode = WAL"))
    session.commit()
    session.close()
    return {"users": [name for (name,) in SessionLocal().execute(text("SELECT name FROM users ORDER BY id"))]}


@app.get("/api/now", operation_id="tell_time")
async def tell_time():
    session = SessionLocal()
    sql = session.execute(text("SELECT datetime('now')")).scalar()
    recent = session.query(Order).filter(Order.created_at >= datetime.utcnow() - timedelta(days=2)).count()
    session.close()
    CALLS.append(1)
    return {"python": datetime.utcnow().isoformat(), "sql": sql, "recent": recent, "calls": len(CALLS)}


@app.put("/api/rank", operation_id="rank_teas")
async def rank_teas(ranked: List[int] = Body(...), x_reason: Optional[str] = Header(None)):
    return {"ranked": ranked, "reason": x_reason}


@app.get("/api/slow", operation_id="waits")
async def waits():
    import asyncio

    await asyncio.sleep(0.001)
    return {"waited": await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))}


@app.get("/api/broken", operation_id="breaks")
async def breaks():
    raise HTTPException(status_code=500, detail="it broke")


@app.get("/api/forever", operation_id="spins")
async def spins():
    while True:
        pass


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, host=os.getenv("HOST", "127.0.0.1"), port=int(os.getenv("PORT", "8000")))
"""

_READ = """
    import os
    import sqlite3

    def rows(path, query):
        assert os.path.exists(path)
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            return connection.execute(query).fetchall()
"""

VERDICT = f"""def verify_task_completion(initial_db_path: str, final_db_path: str, final_answer=None) -> dict:{_READ}
    query = "SELECT id, grams FROM orders WHERE tea_id = 1"
    new = set(rows(final_db_path, query)) - set(rows(initial_db_path, query))
    done = [grams for _, grams in new] == [100] and "code" in (final_answer or "")
    return {{"result": "complete" if done else "others"}}
"""

EVIDENCE = f"""def verify_task(initial_db_path: str, final_db_path: str) -> dict:{_READ}
    counts = [rows(path, "SELECT count(*) FROM orders")[0][0] for path in (initial_db_path, final_db_path)]
    return {{"orders_before": counts[0], "orders_after": counts[1]}}
"""

ALWAYS = 'def verify_task_completion(initial, final, answer=None):\n    return {"result": "complete"}\n'
CRASHING = "def verify_task_completion(initial, final, answer=None):\n    return undefined\n"

TASKS = ["Order 100 grams of 'Jade Cloud' and tell me the code.", "List all green teas.", "Cancel it.", "Pay."]


def write(folder: Path, **changes: Any) -> Path:
    """Write the environment to a folder; `changes` replace parts by name."""
    parts = {"code": CODE, "schema": SCHEMA, "sample": SAMPLE, "tasks": TASKS} | changes
    verifiers = changes.get("verifiers", [(0, EVIDENCE), (1, EVIDENCE), (2, ALWAYS), (3, CRASHING), (9, ALWAYS)])
    code_verifiers = changes.get("code_verifiers", [(0, VERDICT)])
    files = {
        "gen_scenario.jsonl": [{"name": NAME, "description": "A shop for tea."}],
        "gen_tasks.jsonl": [{"scenario": SPELLED, "tasks": parts["tasks"]}],
        "gen_db.jsonl": [{"scenario": NAME, "db_schema": {"tables": parts["schema"]}, "db_path": "./tea.db"}],
        "gen_sample.jsonl": [{"scenario": NAME, "tables_count": 5, "sample_data": {"tables": parts["sample"]}}],
        "gen_envs.jsonl": [{"scenario": NAME.upper(), "db_path": "./tea.db", "full_code": parts["code"]}],
        "gen_verifier.jsonl": _verifiers(verifiers),
        "gen_verifier.pure_code.jsonl": _verifiers(code_verifiers),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, records in files.items():
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


def _verifiers(sources: list[tuple[int, str]]) -> list[dict[str, Any]]:
    return [
        {"scenario": SPELLED, "task_idx": index, "task": "", "verification": {"code": source, "raw_response": ""}}
        for index, source in sources
    ]
