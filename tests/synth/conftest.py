"""Parameters and a sandbox for the tests of `awm.synth`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from awm.config import Params, load_params
from awm.env import Sandbox

PROJECT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with its own caches, as the current folder."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("AWM_CACHE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def make_params() -> Callable[..., Params]:
    """The project's parameters, answered by a server at `base_url`, with sections changed."""

    def make(base_url: str, **sections: dict[str, Any]) -> Params:
        params = load_params(PROJECT / "params.yaml")
        llm = {"provider": "openai", "model": "scripted", "base_url": base_url, "retries": 1}
        changes = {"filter": {"min_tasks": 1}, **sections, "llm": {**llm, **sections.get("llm", {})}}
        values = params.model_dump()
        for section, change in changes.items():
            values[section] = {**values[section], **change}
        return Params.model_validate(values)

    return make


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """One sandbox for all tests; each check gets its own worker from it."""
    with Sandbox() as sandbox:
        yield sandbox
