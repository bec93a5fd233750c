"""What a step of the pipeline is: a prompt, a way to read the answer, and a check that runs it.

`repair.py` turns a step into the propose-check-repair loop, `runner.py` runs it over many items.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from awm.models import Artifact

__all__ = ["CheckFailure", "Item", "Problem", "Step"]

I_contra = TypeVar("I_contra", contravariant=True)
A = TypeVar("A")


@dataclass(frozen=True)
class Item:
    """One unit of work of a step.

    `id` is the scenario's slug, or `slug/part` where a step has several items per scenario. `inputs` is
    JSON-compatible data or models and goes into the item's key; `subject` is what the step itself works on.
    """

    id: str
    subject: Any
    inputs: Any


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an answer.

    `reason` is one word for the metrics, `message` is for the LLM and for people, `part` names the part of the answer
    (a table, a tool, a function, a task number) that it concerns.
    """

    reason: str
    message: str
    part: str | None = None


class CheckFailure(Exception):
    """Raised where a check can't go on; carries the problems found so far."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(problem.message for problem in problems))
        self.problems = list(problems)


class Step(Protocol[A]):
    """One step for one kind of item. `A` is the answer as the step reads it; it is made of named parts."""

    @property
    def name(self) -> str:
        """The step's name, which is its stage's."""
        ...

    @property
    def prompt(self) -> str:
        """Name of the prompt file."""
        ...

    @property
    def answer_model(self) -> type[BaseModel] | None:
        """Model of a JSON answer, sent to the server as the wanted structure; None for code."""
        ...

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        ...

    def read(self, content: str, item: Item, previous: A | None) -> A:
        """The answer in its parts. A repair is laid over `previous`. Raises MalformedAnswer."""
        ...

    def check(self, answer: A, item: Item) -> list[Problem]:
        """Run the answer; an empty list when it holds. May take seconds; called in a thread."""
        ...

    def excerpt(self, answer: A, parts: Sequence[str]) -> str:
        """The named parts of an answer, as the LLM wrote them; the whole when no part is named."""
        ...

    def artifact(self, answer: A, item: Item) -> Artifact:
        """What is stored for an answer that passed."""
        ...
