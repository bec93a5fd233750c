"""The whole pipeline in a real DVC repository: what runs again after which change, and what survives which accident."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from llm.scripted_server import Reply, error
from small_project import Repository, library, ran

STAGES = ["scenarios", "tasks", "schemas", "databases", "toolsets", "tools", "verifiers", "filter"]


def outputs(root: Path) -> dict[str, bytes]:
    """All files under data/ that stages wrote."""
    skipped = ("recordings", "seeds")
    files = sorted(path for path in (root / "data").rglob("*") if path.is_file())
    named = {path.relative_to(root / "data").as_posix(): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in named.items()
        if not name.startswith(skipped) and ".gitignore" not in name
    }


def test_from_names_to_an_environment_and_what_each_change_runs_again(repository: Repository) -> None:
    first = repository.repro()

    assert ran(first) == STAGES
    assert repository.author.asked.count("verifiers") == 2
    summary = repository.read(environment(repository.root))
    assert (summary["tables"], summary["rows"], summary["tools"], summary["tasks"]) == (3, 9, 3, [1, 2])
    metrics = repository.read("data/metrics/tools.json")
    assert (metrics["items"], metrics["first_try_success"], metrics["mean_attempts"]) == (1, 1.0, 1.0)
    assert "final_success" in repository.run("dvc", "metrics", "show", "--md")
    made = outputs(repository.root)

    # nothing changed
    again = repository.repro()
    assert (ran(again), repository.author.asked) == ([], [])

    # a parameter of the last stage
    repository.params(filter={"min_tasks": 1})
    assert ran(repository.repro()) == ["filter"]
    assert repository.author.asked == []

    # the prompt of one step: its answers are asked for again, and as they come out the same, nothing after it runs
    prompt = repository.root / "awm/synth/prompts/toolsets.md"
    prompt.write_text(prompt.read_text() + "\nMake it a good one.\n")
    output = repository.repro()
    assert ran(output) == ["toolsets"]
    assert repository.author.asked == ["toolsets"]

    # a comment in a module that two steps use: they run, and ask nothing
    module = repository.root / "awm/synth/blocks.py"
    module.write_text(module.read_text() + "\n# a comment\n")
    assert {"schemas", "databases", "tools", "verifiers"} <= set(ran(repository.repro()))
    assert repository.author.asked == []
    assert {name: content for name, content in outputs(repository.root).items() if name.startswith("tools/")} == {
        name: content for name, content in made.items() if name.startswith("tools/")
    }


def environment(root: Path) -> str:
    (path,) = (root / "data/environments").glob("*.json")
    return path.relative_to(root).as_posix()


def test_answers_that_were_paid_for_replay_offline_to_the_same_bytes(repository: Repository) -> None:
    repository.repro()
    made = outputs(repository.root)
    repository.run("awm.cli", "llm", "record")

    repository.params(llm={"provider": "recorded"})
    shutil.rmtree(repository.root / ".awm_cache")
    repository.repro()

    assert repository.author.asked == []
    assert outputs(repository.root) == made


def test_a_stage_that_is_killed_half_way_keeps_what_is_done(repository: Repository) -> None:
    count = 6
    repository.params(
        scenarios={"count": count, "per_request": count, "max_per_category": count}, llm={"concurrency": 1}
    )
    repository.repro("scenarios")
    answered = 0

    def slowly(step: str, _: str) -> str | Reply | None:
        nonlocal answered
        answered += 1
        if answered > 3:
            time.sleep(60)
        return None

    repository.author.special = slowly
    process = repository.start("dvc", "repro", "tasks")
    deadline = time.monotonic() + 60
    while answered < 4 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()  # type: ignore[union-attr]
    assert answered == 4

    repository.author.special = lambda step, prompt: None
    repository.repro("tasks")

    assert len(repository.author.asked) == count - 3, "three were done, and are not asked for again"
    assert len(list((repository.root / "data/tasks").iterdir())) == count
    assert repository.read("data/metrics/tasks.json")["items"] == count


def test_one_item_that_never_passes_is_rejected_and_reaches_no_later_step(repository: Repository) -> None:
    repository.params(scenarios={"count": 2, "per_request": 2, "max_per_category": 2}, repair={"max_attempts": 2})
    bad = library(2)["name"]
    repository.author.special = lambda step, prompt: (
        "```sql\nCREATE TABLE users (id INTEGER PRIMARY KEY\n```" if step == "schemas" and bad in prompt else None
    )

    output = repository.repro()

    assert "schemas: rejected" in output
    assert len(list((repository.root / "data/schemas").iterdir())) == 1
    assert len(list((repository.root / "data/environments").iterdir())) == 1
    assert repository.author.asked.count("schemas") == 3
    assert repository.author.asked.count("databases") == 1
    (reject,) = repository.read("data/rejects/schemas.json")
    assert reject["reason"] in ("unfinished", "sql")
    assert [attempt["attempt"] for attempt in reject["attempts"]] == [1, 2]
    assert [entry["reason"] for entry in repository.read("data/rejects/filter.json")] == ["incomplete"]
    assert repository.read("data/rejects/tasks.json") == []


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (error(401), "OPENAI_API_KEY"),
        (error(402), "402"),
        (error(429, code="insufficient_quota"), "no credit left"),
    ],
)
def test_a_provider_that_refuses_stops_the_stage_with_one_line(repository: Repository, reply: Reply, said: str) -> None:
    repository.author.special = lambda step, prompt: reply

    output = repository.repro("scenarios", status=255)

    assert said in output
    assert "Traceback" not in output


def test_a_bad_key_in_params_is_one_line(repository: Repository) -> None:
    repository.params(scenarios={"cuont": 3})

    output = repository.repro(status=255)

    assert "scenarios: params.yaml: unknown key 'scenarios.cuont'" in output
    assert "Traceback" not in output


def test_a_recording_with_a_truncated_last_line_is_named(repository: Repository) -> None:
    repository.params(llm={"provider": "recorded"})
    path = repository.root / "data/recordings/scenarios/round-01.jsonl"
    path.write_text('{"step": "scenarios", "item": "round-01", "att')

    output = repository.repro(status=255)

    assert "data/recordings/scenarios/round-01.jsonl, line 1: the last line is cut off" in output
    assert "Traceback" not in output


def test_batch_files_stop_the_stage_and_are_picked_up_by_the_next_run(repository: Repository) -> None:
    repository.params(llm={"provider": "batch"})

    output = repository.repro("scenarios", status=255)

    assert "1 requests wait for answers from a batch" in output
    answer_batches(repository)
    output = repository.repro("scenarios", status=255)

    assert "1 requests wait" in output, "the first answer is in, and the classifier's request waits now"
    answer_batches(repository)
    repository.repro("scenarios")

    assert len(list((repository.root / "data/scenarios").iterdir())) == 1
    assert len(list((repository.root / "batches/scenarios").glob("requests-*.index.jsonl"))) == 2
    assert repository.server.requests == [], "nothing was asked over the wire"


def answer_batches(repository: Repository) -> None:
    """Write the answer file of each request file that has none."""
    for requests in (repository.root / "batches/scenarios").glob("requests-*.jsonl"):
        answers = requests.with_name(requests.name.replace("requests", "answers"))
        if "index" not in requests.name and not answers.exists():
            lines = [batch_answer(repository, line) for line in requests.read_text().splitlines()]
            answers.write_text("\n".join(lines) + "\n")


def batch_answer(repository: Repository, line: str) -> str:
    """A line of a batch's output file for a line of its input file."""

    request = json.loads(line)
    content = repository.author(request["body"])
    message = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [message]}
    return json.dumps(
        {"id": "1", "custom_id": request["custom_id"], "response": {"status_code": 200, "body": body}, "error": None}
    )
