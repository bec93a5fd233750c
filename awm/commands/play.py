"""`awm env play`: an episode at the keyboard, or driven line by line through a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from types import TracebackType
from typing import Self

from rich.text import Text

from awm.commands import display
from awm.commands.command import UsageError, one_line, print_json
from awm.commands.env import parse_arguments, result_json
from awm.env import Environment, Episode, EpisodeOver
from awm.models import Task

__all__ = ["Play"]

_PROMPT = "awm> "
_HELP = {
    "tools": "list the tools; `tools NAME` shows the schema of one",
    "call TOOL {...}": "call a tool with a JSON object; `TOOL {...}` does the same",
    "diff": "show what changed since the start",
    "tasks": "list the tasks",
    "task N": "start again, on task N",
    "verify [ANSWER]": "judge the state as it is now, and the answer if there is one",
    "reset": "start again",
    "quit": "leave; so does the end of the input",
}


class Play:
    """One session: an episode, and what the user says about it. Use it as a context manager.

    :param number: The task to begin with; raises UsageError if there is none of that number.
    :param as_json: Answer each line with one line of JSON: `{"command": ..., ...}` or `{"error": ...}`.
    """

    def __init__(self, environment: Environment, number: int | None = None, *, as_json: bool = False) -> None:
        self._environment = environment
        self._as_json = as_json
        self._console = display.console()
        self._task = None if number is None else self._find(number)
        self._episode = self._new()
        self._commands: dict[str, Callable[[str], None]] = {
            "help": self._help,
            "tools": self._tools,
            "call": self._call,
            "diff": self._diff,
            "tasks": self._tasks,
            "task": self._choose,
            "verify": self._verify,
            "reset": self._reset,
        }

    def __enter__(self) -> Self:
        """Start nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the episode."""
        self._episode.close()

    def run(self) -> None:
        """Do what each line of standard input says, until `quit` or its end."""
        self._episode.start()
        if sys.stdin.isatty():
            self._complete_names()
            self._say(f"{self._environment.slug}: {len(self._environment.tools)} tools; `help` lists the commands")
        for line in _lines():
            word, _, rest = line.strip().partition(" ")
            if word in ("quit", "exit"):
                return
            if word:
                self._do(word, rest.strip())

    def _do(self, word: str, rest: str) -> None:
        try:
            if word in self._commands:
                self._commands[word](rest)
            else:
                self._call(f"{word} {rest}")
        except EpisodeOver as over:
            self._fail(f"{over}; `reset` starts a new one")
        except (UsageError, ValueError) as error:  # a task without a verifier, for example
            self._fail(str(error))

    # -- what can be said --------------------------------------------------------------------------------------------

    def _help(self, rest: str) -> None:
        if self._as_json:
            print_json({"command": "help", "commands": _HELP})
        else:
            self._console.print(display.text_table("command", "", rows=list(_HELP.items())))

    def _tools(self, name: str) -> None:
        tools = [tool for tool in self._environment.tools if name in ("", tool.name)]
        if not tools:
            raise UsageError(f"there is no tool {name!r}; `tools` lists them")
        if self._as_json:
            print_json({"command": "tools", "tools": [asdict(tool) for tool in tools]})
            return
        self._console.print(display.tool_table(tools))
        if name:
            self._console.print(display.value(tools[0].parameters))

    def _call(self, rest: str) -> None:
        tool, _, text = rest.partition(" ")
        if not tool:
            raise UsageError("name a tool: `call TOOL {...}`; `tools` lists them")
        called = self._episode.call(tool, parse_arguments(text))
        if self._as_json:
            print_json({"command": "call", "tool": tool, "result": result_json(called)})
            return
        self._console.print(display.result(called))
        if called.kind == "unknown_tool":
            self._say("`help` lists the commands")

    def _diff(self, rest: str) -> None:
        diff = self._episode.diff()
        if self._as_json:
            print_json({"command": "diff", "diff": diff})
        else:
            self._console.print(display.changes(diff))

    def _tasks(self, rest: str) -> None:
        if self._as_json:
            print_json(
                {"command": "tasks", "tasks": [task.model_dump(mode="json") for task in self._environment.tasks]}
            )
        else:
            self._console.print(display.task_table(self._environment.tasks))

    def _choose(self, rest: str) -> None:
        if not rest.isdecimal():
            raise UsageError("name a task by its number: `task 1`; `tasks` lists them")
        self._task = self._find(int(rest))
        self._restart()
        if self._as_json:
            print_json({"command": "task", "task": self._task.model_dump(mode="json")})
        else:
            self._say(f"task {self._task.number}: {self._task.text}")

    def _verify(self, answer: str) -> None:
        if self._task is None:
            raise UsageError("choose a task first: `task N`; `tasks` lists them")
        judged = self._episode.verify(answer or None)
        if self._as_json:
            print_json({"command": "verify", **judged.model_dump(mode="json")})
        else:
            self._console.print(display.verdict(judged))

    def _reset(self, rest: str) -> None:
        if self._episode.over:
            self._restart()
        else:
            self._episode.reset()
        if self._as_json:
            print_json({"command": "reset"})
        else:
            self._say("back at the start")

    # -- the episode -------------------------------------------------------------------------------------------------

    def _find(self, number: int) -> Task:
        try:
            return self._environment.task(number)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def _new(self) -> Episode:
        return self._environment.episode(None if self._task is None else self._task.number)

    def _restart(self) -> None:
        self._episode.close()
        self._episode = self._new().start()

    # -- the terminal ------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._console.print(Text(display.harmless(text)))

    def _fail(self, message: str) -> None:
        if self._as_json:
            print_json({"error": one_line(message)})
        else:
            self._console.print(Text(one_line(message), style="red"))

    def _complete_names(self) -> None:
        """Let the Tab key complete commands and tools, where Python has readline."""
        with suppress(ImportError):
            import readline

            words = sorted({*self._commands, "quit", *(tool.name for tool in self._environment.tools)})

            def complete(start: str, state: int) -> str | None:
                found = [word for word in words if word.startswith(start)]
                return f"{found[state]} " if state < len(found) else None

            readline.set_completer(complete)
            readline.set_completer_delims(" ")
            readline.parse_and_bind("tab: complete")


def _lines() -> Iterator[str]:
    """Lines of standard input, with a prompt where someone types them; Ctrl-C is the end."""
    if not sys.stdin.isatty():
        sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
        yield from sys.stdin
        return
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            yield input(_PROMPT)
    print()
