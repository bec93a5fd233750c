"""What is known of an application once its schema stands: the subject of sample data and of the toolset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from awm.models import Scenario, TaskSet
from awm.synth.loop.step import Item

__all__ = ["Design", "design_items"]


@dataclass(frozen=True)
class Design:
    """A scenario with its tasks and its schema."""

    scenario: Scenario
    tasks: TaskSet
    schema: str

    def variables(self) -> dict[str, Any]:
        """Values for a prompt file."""
        return {"scenario": self.scenario, "tasks": self.tasks.tasks, "schema": self.schema.strip()}


def design_items(
    scenarios: Sequence[Scenario],
    tasks: Mapping[str, TaskSet],
    schemas: Mapping[str, str],
    config: BaseModel,
    clock: str,
) -> list[Item]:
    """One item per scenario that has a schema."""
    designs = [
        Design(scenario, tasks[scenario.slug], schemas[scenario.slug])
        for scenario in scenarios
        if scenario.slug in schemas
    ]
    return [
        Item(
            design.scenario.slug,
            design,
            [
                design.scenario.model_dump(),
                design.tasks.model_dump(mode="json"),
                design.schema,
                config.model_dump(),
                clock,
            ],
        )
        for design in designs
    ]
