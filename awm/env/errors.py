"""What can go wrong around generated code, apart from what its own results say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

__all__ = [
    "EnvironmentFault",
    "MissingExtraError",
    "ModuleError",
    "ModulePhase",
    "SandboxUnavailable",
    "WorkerDied",
    "WorkerTimeout",
]

ModulePhase = Literal["syntax", "lint", "import", "signature"]


class SandboxUnavailable(RuntimeError):
    """The machine cannot isolate generated code; the message names the layer and the way out."""


class MissingExtraError(ImportError):
    """Packages that only some environments need are not installed; the message names the install command."""


class EnvironmentFault(RuntimeError):
    """The environment failed, not the agent: its code, its database or its process."""


class WorkerDied(EnvironmentFault):
    """The process that ran generated code ended or broke the protocol; it is gone with all it held."""


class WorkerTimeout(EnvironmentFault):
    """The process that ran generated code passed its hard deadline and was killed."""


class ModuleError(EnvironmentFault):
    """Generated source that cannot be used.

    `phase` says how far it came, `problems` lists all that was found as `line N: what is wrong`, and `line` is the
    first problem's line, if it has one.
    """

    def __init__(self, phase: ModulePhase, problems: Sequence[str], line: int | None = None) -> None:
        super().__init__(f"{phase}: " + "; ".join(problems))
        self.phase = phase
        self.problems = tuple(problems)
        self.line = line
