"""A configuration and requests for the tests of `awm.llm`, and a cache folder of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from awm.config import LLMConfig
from awm.llm import LLMRequest, Message


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with its own response cache."""
    monkeypatch.setenv("DVC_ROOT", str(tmp_path))
    monkeypatch.delenv("AWM_CACHE_DIR", raising=False)
    return tmp_path


def _config(**changes: Any) -> LLMConfig:
    settings: dict[str, Any] = {
        "provider": "openai",
        "model": "scripted",
        "temperature": 0.5,
        "max_output_tokens": 1000,
        "structured_output": "json_schema",
        "concurrency": 4,
        "timeout_s": 30,
        "retries": 2,
        "prices": {"scripted": {"input": 2.0, "cached_input": 0.5, "output": 8.0}},
    }
    return LLMConfig(**{**settings, **changes})


def _request(text: str = "hello", *, item: str = "shop", attempt: int = 1, **changes: Any) -> LLMRequest:
    messages = (Message(role="system", content="You write."), Message(role="user", content=text))
    return LLMRequest(**{"step": "tasks", "item": item, "attempt": attempt, "messages": messages, **changes})


@pytest.fixture
def config() -> Callable[..., LLMConfig]:
    """Make a configuration, with changes by keyword."""
    return _config


@pytest.fixture
def request_for() -> Callable[..., LLMRequest]:
    """Make a request."""
    return _request
