"""Results of tools as text."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["as_text"]


def as_text(value: Any, *, quoted: bool = False) -> str:
    """Return a JSON-compatible value as text: JSON, but text as it is unless it shall be quoted."""
    if isinstance(value, str) and not quoted:
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
