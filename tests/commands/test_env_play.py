"""`awm env play`: a session, through a pipe and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands.conftest import ROOT

SLUG = "lending_library"


def play(run_awm, *lines: str, slug: str = SLUG, options: tuple[str, ...] = ()) -> list[dict]:
    """Say lines; return the answers."""
    said = "".join(f"{line}\n" for line in lines)
    done = run_awm("env", "play", slug, "--json", *options, said=said)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_whole_session(run_awm):
    tools, tasks, called, diff, reset, clean, wrong, right = play(
        run_awm,
        "tools",
        "tasks",
        'renew_loan {"loan_id": 1}',
        "diff",
        "reset",
        "diff",
        "verify Emma",
        "verify It is Dracula.",
        "quit",
        "tools",
        options=("--task", "1"),
    )
    assert [tool["name"] for tool in tools["tools"]] == ["list_loans", "renew_loan", "return_loan"]
    assert [task["number"] for task in tasks["tasks"]] == [1, 2]
    assert called["result"]["value"]["renewals"] == 1
    assert diff["diff"]["loans"]["changed"][0]["key"] == {"id": 1}
    assert reset == {"command": "reset"}
    assert clean["diff"] == {}
    assert wrong["verdict"] == "agent_error"
    assert (right["verdict"], right["evidence"]) == ("completed", {"expected": "Dracula"})


def test_a_task_can_be_chosen_and_starts_again(run_awm):
    unasked, chosen, _, diff, no_verifier, none = play(
        run_awm, "verify x", "task 2", 'call return_loan {"loan_id": 1}', "diff", "verify", "task 9"
    )
    assert unasked == {"error": "choose a task first: `task N`; `tasks` lists them"}
    assert chosen["task"]["text"].startswith("Renew my loan")
    assert set(diff["diff"]) == {"books", "loans"}
    assert no_verifier == {"error": "task 2 of lending_library has no verifier"}
    assert none == {"error": "lending_library has no task 9; it has: 1, 2"}


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        ("list_loans", "ok", ""),
        ("  list_loans   {}  ", "ok", ""),
        ('renew_loan {"loan_id": 2}', "tool_error", "loan 2 can't be renewed"),
        ("renew_loan", "invalid_arguments", "argument 'loan_id' is missing"),
        ("renew_loan 3", "invalid_arguments", "the arguments must be an object"),
        ("frobnicate", "unknown_tool", "unknown tool 'frobnicate'"),
    ],
)
def test_a_call_answers_with_its_result(run_awm, line, kind, message):
    [answer] = play(run_awm, line)
    assert answer["result"]["kind"] == kind
    assert answer["result"]["message"].startswith(message)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("call", "name a tool: `call TOOL {...}`; `tools` lists them"),
        ("call renew_loan {", "the arguments are no JSON (Expecting property name"),
        ("tools burn_book", "there is no tool 'burn_book'; `tools` lists them"),
        ("task one", "name a task by its number: `task 1`; `tasks` lists them"),
        ("task", "name a task by its number"),
    ],
)
def test_a_mistake_is_one_line_and_the_session_goes_on(run_awm, line, error):
    mistake, after = play(run_awm, line, "diff")
    assert mistake["error"].startswith(error)
    assert after == {"command": "diff", "diff": {}}


def test_a_dead_environment_is_told_and_reset_starts_a_new_one(run_awm):
    died, again, verdict, _, fine = play(
        run_awm, "die", "fine", "verify", "reset", "fine", slug="faulty", options=("--task", "1")
    )
    assert died["error"].startswith("the episode is over, because its environment failed: the process of the")
    assert died["error"].endswith("; `reset` starts a new one")
    assert again == died
    assert verdict == {"error": "task 1 of faulty has no verifier"}
    assert fine["result"]["value"] == "fine"


def test_the_same_for_people(run_awm):
    said = 'help\ntools renew_loan\nrenew_loan {"loan_id": 1}\ndiff\nreset\ndiff\ntask 1\nverify Dracula\nnonsense\n'
    output = run_awm("env", "play", SLUG, said=said).stdout
    for part in (
        "judge the state as it is now",
        "renew_loan(loan_id, [weeks])",
        '"description": "Loan to renew"',
        "due_on: 2026-03-23",
        "back at the start",
        "nothing has changed",
        "task 1: Tell me the title",
        "completed",
        "unknown_tool: unknown tool 'nonsense'",
        "`help` lists the commands",
    ):
        assert part in output, output


def test_what_keeps_it_from_starting_is_one_line(run_awm):
    for arguments, said in (
        (("no_such",), "awm: no environment 'no_such' in data; there are: lending_library\n"),
        ((SLUG, "--task", "9"), "awm: lending_library has no task 9; it has: 1, 2\n"),
    ):
        done = run_awm("env", "play", *arguments, said="tools\n", status=1)
        assert (done.stdout, done.stderr) == ("", said)


def test_nothing_said_is_nothing_answered(run_awm):
    assert play(run_awm) == []
    assert play(run_awm, "", "   ", "\udce4".encode("utf-8", "surrogateescape").decode("latin-1"))[0]["result"]


def test_at_a_terminal_there_is_a_prompt(project: Path):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "COLUMNS": "120"}
    command = [sys.executable, "-m", "awm.cli", "env", "play", SLUG]
    with subprocess.Popen(command, cwd=project, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        screen = wait_for(ours, b"awm> ")
        assert b"3 tools; `help` lists the commands" in screen
        os.write(ours, b"list_lo\t\n")
        assert b"Dracula" in wait_for(ours, b"awm> ", after=b"list_loans")
        os.write(ours, b"\x04")
        assert process.wait(20) == 0
    os.close(ours)


def wait_for(terminal: int, what: bytes, after: bytes = b"") -> bytes:
    """Read until something appears behind something else."""
    seen = b""
    end = time.monotonic() + 30
    while what not in seen.partition(after)[2] if after else what not in seen:
        assert time.monotonic() < end, seen
        seen += os.read(terminal, 1 << 16)
    return seen
