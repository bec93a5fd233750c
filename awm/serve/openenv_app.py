"""The OpenEnv server as an application: WebSocket sessions at `/ws`, figures at `/stats`."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.types import ConcurrencyConfig

from awm.env.environment import Environment
from awm.env.pool import Pool
from awm.serve.listening import serve
from awm.serve.openenv import Catalog, ScenarioEnvironment
from awm.serve.openenv_models import Observed, ToolAction

__all__ = ["openenv_app", "run_openenv"]

_IDLE_S = 600.0
"""How long a session may do nothing, in seconds: clients that vanish leave theirs behind."""
_STATEFUL = {
    "error": "HTTP mode is not supported",
    "reason": "every HTTP request would start a session of its own, and what the reset did would be lost",
    "solution": "use the WebSocket at /ws, as OpenEnv's clients do",
}


def openenv_app(pool: Pool, environments: Sequence[Environment], *, max_sessions: int = 1000) -> FastAPI:
    """Return the OpenEnv application of these environments.

    :param pool: Has all the environments, and gives the episodes.
    :param max_sessions: Connections at a time; one more is told that the server is full.
    """
    catalog = Catalog(pool, environments)
    sessions: weakref.WeakSet[ScenarioEnvironment] = weakref.WeakSet()

    lock = threading.Lock()

    def session() -> ScenarioEnvironment:
        made = ScenarioEnvironment(catalog)
        with lock:
            sessions.add(made)
        return made

    limits = ConcurrencyConfig(max_concurrent_envs=max_sessions, session_timeout=_IDLE_S)
    app = create_fastapi_app(session, ToolAction, Observed, concurrency_config=limits)
    _refuse_stateless(app)

    @app.get("/stats", tags=["Environment Info"])
    async def stats() -> dict[str, Any]:
        """Tell how many episodes run, and how the environments do."""
        with lock:
            running = Counter(slug for one in sessions if (slug := one.running) is not None)
        health = {entry.slug: asdict(entry) for entry in pool.health()}
        return {"total_sessions": running.total(), "scenarios": dict(running), "environments": health}

    return app


def run_openenv(environments: Sequence[Environment], host: str = "127.0.0.1", port: int = 8000) -> None:
    """Serve environments to OpenEnv's clients until the process is interrupted."""
    with Pool(environments, size=8) as pool:
        serve(openenv_app(pool, environments), host, port, path="")


def _refuse_stateless(app: FastAPI) -> None:
    """Answer OpenEnv's stateless routes with what to use instead."""
    paths = ("/reset", "/step")
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", None) not in paths]

    async def refuse() -> JSONResponse:
        return JSONResponse(_STATEFUL, status_code=400)

    for path in paths:
        app.add_api_route(path, refuse, methods=["POST"], include_in_schema=False)
