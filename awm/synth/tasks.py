"""Tasks: what the logged-in user (user id 1) asks for, in a mix of kinds, each one complete in itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from awm.config import TasksConfig
from awm.llm.parsing import parse_model
from awm.models import Scenario, Task, TaskKind, TaskSet
from awm.synth.answers import TaskAnswer, TasksAnswer
from awm.synth.loop.step import Item, Problem
from awm.synth.similarity import TfidfEmbedder, near_duplicates

__all__ = ["TasksStep", "task_items"]

MIN_CHARACTERS, MAX_CHARACTERS = 30, 1200

_INTERFACE = re.compile(
    r"\b(click|double-click|tap|scroll|swipe|hover|drag|drop-?down|button|web ?page|home ?page|screen|screenshot|"
    r"log ?in|sign ?in|password|upload|browser)\b",
    re.IGNORECASE,
)
_NOT_ALONE = re.compile(
    r"\b(previous|above|earlier|last|preceding) (task|request)|\bsame as (task|before)|\btask (number )?\d",
    re.IGNORECASE,
)


class TasksStep:
    """Asks for the tasks of one scenario."""

    name = "tasks"
    prompt = "tasks"
    answer_model = TasksAnswer

    def __init__(self, config: TasksConfig, today: str) -> None:
        self.config = config
        self.today = today

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        return {
            "scenario": item.subject,
            "count": self.config.per_scenario,
            "min_reads": self.config.min_reads,
            "min_writes": self.config.min_writes,
            "min_multi_step": self.config.min_multi_step,
            "min_refusals": self.config.min_refusals,
            "today": self.today,
        }

    def read(self, content: str, item: Item, previous: TasksAnswer | None) -> TasksAnswer:
        """The tasks by number; a repair replaces those of the same number."""
        answer = parse_model(content, TasksAnswer)
        numbers = Counter(task.number for task in answer.tasks)
        merged = {task.number: task for task in (*(previous.tasks if previous else ()), *answer.tasks)}
        for number in answer.remove:
            merged.pop(number, None)
        twice = [number for number, count in numbers.items() if count > 1]
        tasks = [merged[number] for number in sorted(merged)]
        if twice:  # keep both, so that the check can say it
            tasks += [task for task in answer.tasks if task.number in twice and task is not merged[task.number]]
        return TasksAnswer(tasks=tuple(tasks))

    def check(self, answer: TasksAnswer, item: Item) -> list[Problem]:
        """Number, kinds, wording and distinctness."""
        return [
            *self._numbers(answer.tasks),
            *self._kinds(answer.tasks),
            *(problem for task in answer.tasks for problem in _wording(task)),
            *self._duplicates(answer.tasks),
        ]

    def excerpt(self, answer: TasksAnswer, parts: Sequence[str]) -> str:
        """The named tasks as JSON."""
        kept = tuple(task for task in answer.tasks if not parts or str(task.number) in parts)
        return TasksAnswer(tasks=kept).model_dump_json(exclude_defaults=True)

    def artifact(self, answer: TasksAnswer, item: Item) -> TaskSet:
        """The tasks in the order of their numbers."""
        tasks = sorted(answer.tasks, key=lambda task: task.number)
        return TaskSet(
            slug=item.id, tasks=tuple(Task(number=task.number, kind=task.kind, text=task.text) for task in tasks)
        )

    def _numbers(self, tasks: Sequence[TaskAnswer]) -> list[Problem]:
        wanted = list(range(1, self.config.per_scenario + 1))
        numbers = sorted(task.number for task in tasks)
        if numbers == wanted:
            return []
        return [Problem("count", f"the tasks must be numbered 1 to {wanted[-1]}, each number once; found {numbers}")]

    def _kinds(self, tasks: Sequence[TaskAnswer]) -> list[Problem]:
        found = Counter(task.kind for task in tasks)
        minimum = {
            TaskKind.READ: self.config.min_reads,
            TaskKind.WRITE: self.config.min_writes,
            TaskKind.MULTI_STEP: self.config.min_multi_step,
            TaskKind.REFUSE: self.config.min_refusals,
        }
        return [
            Problem("kinds", f"at least {count} tasks of kind {kind.value!r} are wanted, there are {found[kind]}")
            for kind, count in minimum.items()
            if found[kind] < count
        ]

    def _duplicates(self, tasks: Sequence[TaskAnswer]) -> list[Problem]:
        texts = [task.text for task in tasks]
        matches = near_duplicates(TfidfEmbedder(), [], texts, self.config.duplicate_threshold)
        return [
            Problem("duplicate", f"says nearly the same as task {tasks[match[0]].number}", str(task.number))
            for task, match in zip(tasks, matches, strict=True)
            if match
        ]


def _wording(task: TaskAnswer) -> list[Problem]:
    part = str(task.number)
    problems = []
    if not MIN_CHARACTERS <= len(task.text) <= MAX_CHARACTERS:
        problems.append(
            Problem(
                "length", f"has {len(task.text)} characters; {MIN_CHARACTERS} to {MAX_CHARACTERS} are allowed", part
            )
        )
    if found := _INTERFACE.search(task.text):
        problems.append(
            Problem("interface", f"mentions {found.group()!r}; a task must be doable by API calls alone", part)
        )
    if found := _NOT_ALONE.search(task.text):
        problems.append(Problem("not_self_contained", f"refers to another task ({found.group()!r})", part))
    return problems


def task_items(scenarios: Sequence[Scenario], step: TasksStep) -> list[Item]:
    """One item per scenario."""
    return [
        Item(scenario.slug, scenario, [scenario.model_dump(), step.config.model_dump(), step.today])
        for scenario in scenarios
    ]
