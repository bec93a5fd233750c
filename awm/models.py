"""The artifacts of the pipeline as pydantic models, and nothing else.

Every model is frozen and refuses unknown keys: what is stored is what is described here.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

__all__ = [
    "DatabaseSummary",
    "EnvironmentKind",
    "EnvironmentSummary",
    "ModuleSummary",
    "Outcome",
    "Parameter",
    "Rejection",
    "Scenario",
    "Task",
    "TaskKind",
    "TaskSet",
    "ToolSpec",
    "Toolset",
    "Verdict",
]


class Artifact(BaseModel):
    """Base of everything the pipeline stores."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Outcome(StrEnum):
    """How an episode ended."""

    COMPLETED = "completed"
    PARTIALLY_COMPLETED = "partially_completed"
    AGENT_ERROR = "agent_error"
    ENVIRONMENT_ERROR = "environment_error"


class Scenario(Artifact):
    """Name and description of a stateful application."""

    slug: str = Field(description="The scenario's one key: lower-case ASCII letters, digits and single underscores")
    name: str
    description: str
    category: str


class TaskKind(StrEnum):
    """What a task asks of the environment."""

    READ = "read"
    WRITE = "write"
    MULTI_STEP = "multi_step"
    REFUSE = "refuse"
    """The state forbids what is asked: the right thing is to change nothing and to say why."""


class Task(Artifact):
    """One request in natural language, made by the logged-in user (user id 1)."""

    number: int = Field(ge=1, description="Position in its scenario, from 1")
    kind: TaskKind
    text: str


class TaskSet(Artifact):
    """The tasks of one scenario."""

    slug: str
    tasks: tuple[Task, ...]


class Parameter(Artifact):
    """One argument of a tool."""

    name: str
    description: str
    json_schema: dict[str, Any] = Field(description="JSON Schema of the value")
    required: bool
    column: str | None = Field(
        default=None, description="`table.column` that valid values come from, when the value names an existing row"
    )
    example: Any = Field(default=None, description="A valid value, for parameters without a column")


class ToolSpec(Artifact):
    """What a tool does, before there is code for it."""

    name: str
    description: str
    read_only: bool
    parameters: tuple[Parameter, ...]
    result: str = Field(description="Shape and fields of the result, in words")


class Toolset(Artifact):
    """The specification of a scenario's tools."""

    slug: str
    tools: tuple[ToolSpec, ...]


class ModuleSummary(Artifact):
    """What trying a tool module showed; the module itself is in `<slug>.py`."""

    slug: str
    unreached: tuple[str, ...] = Field(description="Tools that never succeeded: no state that they accept was reached")


class DatabaseSummary(Artifact):
    """Figures of an initial state; the rows themselves are in `<slug>.sql` and `<slug>.db`."""

    slug: str
    clock: str = Field(description="The environment's frozen time, `YYYY-MM-DD HH:MM:SS`")
    tables: dict[str, int] = Field(description="Rows per table, by table name")
    content_hash: str = Field(description="SHA-256 of schema and rows, equal for equal content under any SQLite")


class Verdict(Artifact):
    """What a verifier reports about one pair of databases and an answer."""

    verdict: Outcome
    evidence: dict[str, Any]


EnvironmentKind = Literal["module", "fastapi"]
"""What implements the tools: a tool module of ours, or a published FastAPI + SQLAlchemy module."""


class EnvironmentSummary(Artifact):
    """One environment that passed the filter; the parts are in the steps' own directories."""

    slug: str
    name: str
    category: str
    tables: int
    rows: int
    tools: int
    read_only_tools: int
    code_lines: int
    tasks: tuple[int, ...] = Field(description="Numbers of the tasks that have a verifier")
    task_kinds: dict[TaskKind, int]
    unreached_tools: tuple[str, ...] = Field(description="Tools that no call succeeded for while they were tried")
    clock: str
    content_hash: str
    tools_sha256: str
    kind: EnvironmentKind = "module"

    @model_serializer(mode="wrap")
    def _without_usual_kind(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = serialise(self)
        return data if self.kind != "module" else {key: value for key, value in data.items() if key != "kind"}


class Rejection(Artifact):
    """An item that did not pass its step, with everything that was tried."""

    step: str
    item: str
    reason: str = Field(description="Class of the failure, one word")
    detail: str
    attempts: tuple[RejectedAttempt, ...] = ()


class RejectedAttempt(Artifact):
    """One answer of the LLM that did not pass, and what the check said."""

    attempt: int
    kind: Literal["answer", "check"]
    problems: tuple[str, ...]
    content: str


Rejection.model_rebuild()
