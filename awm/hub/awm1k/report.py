"""What an import did: which environments came in, what was mended in them, and what of them was left out, and why."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Action", "Finding", "ImportReport", "ImportedEnvironment", "RejectedEnvironment"]

Action = Literal["repaired", "left out", "kept"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Finding(_Record):
    """Something wrong in the published data."""

    action: Action = Field(
        description="`repaired`: mended where only one reading makes sense; `left out`: not part of the environment; "
        "`kept`: part of it as published, wrong as it is"
    )
    part: Literal["schema", "sample", "tools", "verifier", "record"]
    reason: str
    table: str | None = None
    row: int | None = Field(
        default=None, description="Number of the INSERT among the table's, from 1; the rowid for a dangling reference"
    )
    task: int | None = Field(default=None, description="Number of the task, from 1")
    statement: str | None = Field(default=None, description="The statement as published, its beginning if it is long")


class ImportedEnvironment(_Record):
    """An environment that can be loaded."""

    slug: str
    name: str
    tables: int
    rows: int
    tools: int
    tasks: int
    verifiers: int = Field(description="Tasks whose verifier comes to a verdict")
    evidence: int = Field(description="Tasks whose verifier collects evidence for a judge")
    findings: tuple[Finding, ...] = ()


class RejectedEnvironment(_Record):
    """A scenario that could not be imported."""

    slug: str
    name: str
    reason: str
    findings: tuple[Finding, ...] = ()


class ImportReport(_Record):
    """The result of `import_awm1k`; stored beside the environments as `import.json`."""

    clock: str = Field(description="The environments' frozen time")
    environments: tuple[ImportedEnvironment, ...]
    rejected: tuple[RejectedEnvironment, ...] = ()
    problems: tuple[str, ...] = Field(default=(), description="Lines of the published files that could not be used")
