"""What the sandbox hands back about generated code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from awm.env.policy import Mode

__all__ = ["CallKind", "CallResult", "SandboxReport", "ToolSignature", "VerifierKind", "VerifierResult"]

CallKind = Literal["ok", "tool_error", "invalid_arguments", "unknown_tool", "crash", "timeout", "unserialisable"]
_BUGS = frozenset({"crash", "timeout", "unserialisable"})
VerifierKind = Literal["ok", "crash", "timeout", "invalid", "sql_error"]


@dataclass(frozen=True, slots=True)
class CallResult:
    """What one tool call gave. Everything but `ok` was rolled back.

    `value` is JSON-compatible. `kind` tells whose fault a failure is: `tool_error`, `invalid_arguments` and
    `unknown_tool` are the caller's, the others the environment's. `line` is the line of the module where a crash
    happened. `notes` says what was repaired in the arguments.
    """

    kind: CallKind
    value: Any = None
    message: str = ""
    line: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the tool did its work."""
        return self.kind == "ok"

    @property
    def is_bug(self) -> bool:
        """Whether the environment failed, not its caller."""
        return self.kind in _BUGS


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """What callers see of a tool, derived from its function.

    `parameters` is the JSON Schema of the arguments object, `result` that of the result, empty if none is declared.
    """

    name: str
    description: str
    parameters: dict[str, Any]
    result: dict[str, Any]
    line: int


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """What one run of a verifier gave: `{"verdict": ..., "evidence": {...}}`, or why there is no such value."""

    kind: VerifierKind
    value: dict[str, Any] | None = None
    message: str = ""
    line: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the verifier came to a verdict."""
        return self.kind == "ok"


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """What holds around generated code here: `mode`, the layers, and what a worker tried in vain."""

    mode: Mode
    layers: tuple[str, ...]
    landlock: int = 0
    """The kernel's Landlock ABI version, 0 for none."""
    self_test: dict[str, str] = field(default_factory=dict)
    python: str = ""
    sqlite: str = ""
    kernel: str = ""
