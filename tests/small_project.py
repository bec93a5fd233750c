"""A small project as a real Git and DVC repository, and an author that answers its requests; for the tests of
stages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from awm.synth.tools import tool_json
from llm.scripted_server import Body, Reply, ScriptedServer
from synth.library_environment import DATA, MODULE, SCHEMA, TASKS, TOOLSET, VERIFIER

PROJECT = Path(__file__).parents[1]
SMALL: dict[str, dict[str, Any]] = {
    "scenarios": {"count": 1, "per_request": 1, "max_rounds": 1},
    "tasks": {"per_scenario": 2, "min_multi_step": 0, "min_reads": 1, "min_writes": 1, "min_refusals": 0},
    "schemas": {"min_tables": 3, "max_tables": 9},
    "databases": {"min_rows": 9},
    "toolsets": {"min_tools": 3, "max_tools": 9},
    "tools": {"valid_calls": 40},
    "filter": {"min_tasks": 2},
}

WRITE_VERIFIER = """\
from awm.env.verifier import Connection, state_diff


def verify(initial: Connection, final: Connection, answer: str | None) -> dict:
    changed = state_diff(initial, final).get("loans", {}).get("changed", [])
    renewed = [entry["key"]["id"] for entry in changed if "due_on" in entry["after"]]
    return {"verdict": "completed" if renewed == [1] else "agent_error", "evidence": {"renewed": renewed}}
"""


class Author:
    """Answers each step's request for lending libraries; `special` answers first where it returns something."""

    def __init__(self) -> None:
        self.special: Callable[[str, str], str | Reply | None] = lambda step, prompt: None
        self.asked: list[str] = []

    def __call__(self, body: Body) -> str | Reply:
        prompt = str(body["messages"][1]["content"])
        step = self.step_of(prompt)
        self.asked.append(step)
        special = self.special(step, prompt)
        return special if special is not None else self.answer(step, prompt)

    @staticmethod
    def step_of(prompt: str) -> str:
        marks = {
            "Propose ": "scenarios",
            "Decide two things.": "classify",
            "tasks for an assistant": "tasks",
            "Write the schema": "schemas",
            "Write the sample data": "databases",
            "Specify the application's toolset": "toolsets",
            "Write one Python module": "tools",
            "Write a verifier": "verifiers",
        }
        return next(step for mark, step in marks.items() if mark in prompt)

    def answer(self, step: str, prompt: str) -> str:
        match step:
            case "scenarios":
                count = int(prompt.split()[1])
                return json.dumps({"scenarios": [library(number) for number in range(1, count + 1)]})
            case "classify":
                uses = dict.fromkeys(("creates", "reads", "updates", "deletes", "stateful"), True)
                return json.dumps({**uses, "category": "education and learning", "reason": "Loans."})
            case "tasks":
                return json.dumps({"tasks": [task.model_dump(mode="json") for task in TASKS.tasks]})
            case "schemas":
                return f"```sql\n{SCHEMA}```"
            case "databases":
                return f"```sql\n{DATA}```"
            case "toolsets":
                return json.dumps({"tools": [tool_json(tool) for tool in TOOLSET.tools]})
            case "tools":
                return f"```python\n{MODULE}```"
            case _:
                source = VERIFIER if 'kind "read"' in prompt else WRITE_VERIFIER
                return f"```python\n{source}```"


FIELDS = ("novels", "scores", "maps", "tools", "seeds", "toys", "films", "games", "comics")


def library(number: int) -> dict[str, str]:
    """A library whose description shares few words with those of the others."""
    words = [f"{FIELDS[number % 9]}{letter}{number}" for letter in "abcdefghijklmnopqrstuvwxyz"]
    return {"name": f"{FIELDS[number % 9].title()} {number}", "description": " ".join(words * 2)}


@dataclass
class Repository:
    """A copy of the project with small parameters, in a Git and DVC repository of its own."""

    root: Path
    server: ScriptedServer
    author: Author
    environment: dict[str, str] = field(default_factory=dict)

    def params(self, **sections: dict[str, Any]) -> None:
        """Change keys of params.yaml."""
        path = self.root / "params.yaml"
        values = yaml.safe_load(path.read_text())
        for section, change in sections.items():
            values[section].update(change)
        path.write_text(yaml.safe_dump(values, sort_keys=False))

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command in the repository, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.root,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, *command: str, status: int = 0) -> str:
        """Run a command and return what it printed; its exit status must be the one given."""
        process = self.start(*command)
        output, _ = process.communicate(timeout=240)
        assert process.returncode == status, output
        return output

    def repro(self, *arguments: str, status: int = 0) -> str:
        """Run `dvc repro`; the steps that the author was asked for are in `author.asked`, from empty."""
        self.author.asked.clear()
        return self.run("dvc", "repro", *arguments, status=status)

    def read(self, path: str) -> Any:
        """A JSON file of the repository."""
        return json.loads((self.root / path).read_text())


def ran(output: str) -> list[str]:
    """Stages that `dvc repro` ran."""
    return [line.split("'")[1] for line in output.splitlines() if line.startswith("Running stage '")]


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)
