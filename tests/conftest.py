"""What holds for every test: no provider of LLMs, no hub, no telemetry."""

from __future__ import annotations

import os

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["DVC_NO_ANALYTICS"] = "1"


@pytest.fixture(autouse=True)
def without_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own key or endpoint must never be used, or paid for, by a test."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.delenv(name, raising=False)
