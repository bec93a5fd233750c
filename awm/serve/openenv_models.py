"""What goes over the wire between an OpenEnv server of environments and OpenEnv's Agent World Model client.

The fields and their names are that client's: it refuses an observation with any other.
"""

from __future__ import annotations

from typing import Annotated, Any

from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction, ListToolsObservation
from openenv.core.env_server.types import Action, Observation
from pydantic import Field, TypeAdapter

__all__ = ["ListedTools", "Observed", "ToolAction"]

_ACTIONS: TypeAdapter[Action] = TypeAdapter(Annotated[ListToolsAction | CallToolAction, Field(discriminator="type")])


class ToolAction(Action):
    """What a client may send: a request to list the tools, or to call one. Validation gives one or the other."""

    @classmethod
    def model_validate(cls, obj: Any, **options: Any) -> Action:  # type: ignore[override]
        """Return a ListToolsAction or a CallToolAction; raise ValidationError for anything else."""
        return _ACTIONS.validate_python(obj, **options)

    @classmethod
    def model_json_schema(cls, *arguments: Any, **options: Any) -> dict[str, Any]:
        """Return the JSON Schema of both."""
        return _ACTIONS.json_schema(*arguments, **options)


class Observed(Observation):
    """What a client sees after a reset or a step. What is None is left out on the wire."""

    reward_type: str | None = Field(default=None, description="What happened, in one word")
    scenario: str | None = Field(default=None, description="Slug of the environment")
    task: str | None = Field(default=None, description="The task's text")
    task_idx: int | None = Field(default=None, description="Position of the task, from 0")
    has_verifier: dict[str, bool] | None = Field(default=None, description="Which modes of `verify` the task has")
    num_tools: int | None = Field(default=None, description="Number of the environment's tools")
    tool_name: str | None = Field(default=None, description="The tool that was called")
    tool_result: Any = Field(default=None, description="What the tool returned, as JSON text")
    error: str | None = Field(default=None, description="What went wrong, for the agent to read")
    warning: str | None = Field(default=None, description="What may go wrong")
    verify_result: dict[str, Any] | None = Field(default=None, description="What the verifier reported")
    steps_taken: int | None = Field(default=None, description="Steps of the episode so far")
    scenarios: list[dict[str, Any]] | None = Field(default=None, description="All environments with their tasks")
    total: int | None = Field(default=None, description="Number of environments")
    trajectory_path: str | None = Field(default=None, description="Where the episode's record is, on the server")
    session_dir: str | None = Field(default=None, description="Folder with all that was kept of the episode")

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the fields that say something."""
        return super().model_dump(**{"exclude_none": True, **options})


class ListedTools(ListToolsObservation):
    """The tools of the environment; none and an error before a reset."""

    error: str | None = Field(default=None, description="Why there are no tools")
