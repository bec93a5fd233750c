"""The repair loop and the runner, against a real server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from awm.config import Params
from awm.llm.errors import ProviderError
from awm.llm.recording import Recording, write_shards
from awm.models import Scenario, TaskSet
from awm.synth.loop.runner import ItemRecord, Runner
from awm.synth.tasks import TasksStep, task_items
from llm.scripted_server import Body, Reply, ScriptedServer, answer, cut, error, truncated
from synth.library_environment import SCENARIO

GOOD = [
    {"number": 1, "kind": "read", "text": "Which of my loans is due first, and on what day is it due?"},
    {"number": 2, "kind": "write", "text": "Renew my loan of the novel 'Emma' by exactly two weeks."},
    {"number": 3, "kind": "multi_step", "text": "Return every book of mine that is overdue, then borrow 'Dracula'."},
]
SMALL = {"per_scenario": 3, "min_reads": 1, "min_writes": 1, "min_multi_step": 1, "min_refusals": 0}

Make = Callable[..., Params]


def text(tasks: Sequence[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"tasks": list(tasks), **more})


def run(params: Params, scenarios: Sequence[Scenario] = (SCENARIO,)) -> list[ItemRecord]:
    """The tasks step over scenarios."""

    async def main() -> list[ItemRecord]:
        step = TasksStep(params.tasks, today="2026-03-02")
        async with Runner.create(params, "tasks") as runner:
            return await runner.run(step, task_items(scenarios, step))

    return asyncio.run(main())


def scenarios(count: int) -> list[Scenario]:
    return [
        SCENARIO.model_copy(update={"slug": f"library_{number}", "name": f"Library {number}"})
        for number in range(count)
    ]


def slug_of(body: Body) -> str:
    return str(body["messages"][1]["content"])


def test_a_good_first_answer_passes_at_once(make_params: Make) -> None:
    with ScriptedServer([text(GOOD)]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL))

    assert record.status == "passed"
    assert len(TaskSet.model_validate(record.artifact).tasks) == 3
    assert [(attempt.attempt, attempt.problems, attempt.input_tokens) for attempt in record.attempts] == [(1, (), 100)]


def test_a_repair_shows_the_problem_and_the_part_and_takes_back_only_that_part(make_params: Make) -> None:
    bad = [GOOD[0], {**GOOD[1], "text": "Click the button to renew 'Emma' by two weeks."}, GOOD[2]]
    with ScriptedServer([text(bad), text([GOOD[1]])]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL))

    assert record.status == "passed"
    assert [task.text for task in TaskSet.model_validate(record.artifact).tasks] == [task["text"] for task in GOOD]
    assert record.attempts[0].reasons == ("interface",)
    first, second = (request["messages"] for request in server.requests)
    assert second[:2] == first, "the prefix stays the same, so that a server can reuse it"
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert "Click the button" in second[2]["content"]
    assert "due first" not in second[2]["content"], "parts without a problem are not sent again"
    assert "[2] mentions 'Click'" in second[3]["content"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I can't help you with that, sorry.", "malformed"),
        ('{"tasks": [{"number": 1, "kind": "read"', "malformed"),
        ('{"tasks": [{"number": "one", "kind": "read", "text": "x"}]}', "malformed"),
        (truncated(text(GOOD)[:60]), "truncated"),
        (answer(""), "empty"),
        (answer(None, refusal="No."), "refused"),
        (text(GOOD[:2]), "count"),
        (text([*GOOD[:2], {**GOOD[1], "number": 3}]), "kinds"),
        (text([*GOOD, {**GOOD[0], "number": 1, "text": GOOD[0]["text"] + " Please."}]), "count"),
        (text([GOOD[0], GOOD[1], {**GOOD[1], "number": 3, "kind": "multi_step"}]), "duplicate"),
        (
            text([GOOD[0], GOOD[1], {**GOOD[2], "text": "As in task 1, but for the next book."}]),
            "not_self_contained",
        ),
    ],
)
def test_every_kind_of_bad_answer_is_asked_for_again(make_params: Make, reply: Reply | str, reason: str) -> None:
    with ScriptedServer([reply, text(GOOD)]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL))

    assert record.status == "passed"
    assert len(record.attempts) == 2
    assert reason in record.attempts[0].reasons


@pytest.mark.parametrize(
    "reply",
    [
        '<think>Let me see: {"tasks": []}</think>\n' + text(GOOD),
        "Here they are:\n```json\n" + text(GOOD) + "\n```\nTell me if you need more.",
        text(GOOD)[:-1] + ",}",
        text(GOOD) + "}",
        str({"tasks": GOOD}),
        text([{**GOOD[0], "text": GOOD[0]["text"] + " Answer in ```backticks```."}, *GOOD[1:]]),
    ],
    ids=["think", "fence and prose", "trailing comma", "extra brace", "single quotes", "backticks"],
)
def test_answers_that_are_only_badly_wrapped_pass_at_once(make_params: Make, reply: str) -> None:
    with ScriptedServer([reply]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL))

    assert (record.status, len(record.attempts)) == ("passed", 1)


def test_what_never_passes_is_rejected_with_its_reason_and_all_attempts(make_params: Make) -> None:
    with ScriptedServer(lambda _: text(GOOD[:2])) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL, repair={"max_attempts": 3}))

    assert len(server.requests) == 3
    rejection = record.rejection("tasks")
    assert (rejection.item, rejection.reason) == ("lending_library", "count")
    assert "each number once; found [1, 2]" in rejection.detail
    assert [attempt.attempt for attempt in rejection.attempts] == [1, 2, 3]


def test_an_unreadable_repair_leaves_the_earlier_answer_and_its_problems(make_params: Make) -> None:
    bad = [GOOD[0], {**GOOD[1], "text": "Click to renew the loan of 'Emma' by two weeks."}, GOOD[2]]
    with ScriptedServer([text(bad), "sorry?", text([GOOD[1]])]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL))

    assert record.status == "passed"
    assert record.attempts[1].reasons == ("malformed", "interface")
    assert "Click to renew" in server.requests[2]["messages"][2]["content"]


def test_a_second_run_asks_nothing(make_params: Make) -> None:
    with ScriptedServer(lambda _: text(GOOD)) as server:
        params = make_params(server.base_url, tasks=SMALL)
        first = run(params, scenarios(4))
        asked = len(server.requests)
        assert run(params, scenarios(4)) == first

    assert asked == len(server.requests) == 4


def test_one_more_scenario_asks_for_that_one(make_params: Make) -> None:
    with ScriptedServer(lambda _: text(GOOD)) as server:
        params = make_params(server.base_url, tasks=SMALL)
        run(params, scenarios(3))
        run(params, [*scenarios(3), SCENARIO])

        assert len(server.requests) == 4


def test_results_are_in_the_order_of_the_items_not_of_the_answers(make_params: Make) -> None:
    waits = iter([0.2, 0.1, 0.0])

    def late_first(_: Body) -> Reply | str:
        import time

        time.sleep(next(waits))
        return text(GOOD)

    with ScriptedServer(late_first) as server:
        records = run(make_params(server.base_url, tasks=SMALL), scenarios(3))

    assert [record.item for record in records] == ["library_0", "library_1", "library_2"]


@pytest.mark.parametrize("status", [401, 402, 403])
def test_a_refused_key_stops_the_run_and_keeps_what_is_done(make_params: Make, status: int) -> None:
    replies = iter([text(GOOD), error(status)])

    def script(_: Body) -> Reply | str:
        return next(replies, error(status))

    with ScriptedServer(script) as server:
        params = make_params(server.base_url, tasks=SMALL, llm={"concurrency": 1})
        with pytest.raises(ProviderError, match=r"OPENAI_API_KEY|credit|paid|allowed"):
            run(params, scenarios(3))
    with ScriptedServer(lambda _: text(GOOD)) as server:
        records = run(make_params(server.base_url, tasks=SMALL), scenarios(3))

        assert len(server.requests) == 2, "the finished item is not asked for again"
    assert [record.status for record in records] == ["passed"] * 3


def test_an_unreachable_server_stops_the_run(make_params: Make) -> None:
    with ScriptedServer([]) as server:
        closed = server.base_url
    with pytest.raises(ProviderError, match=closed.split("//")[1].split("/")[0]):
        run(make_params(closed, tasks=SMALL, llm={"retries": 0}))


def test_a_provider_that_fails_for_one_item_rejects_that_one_and_forgets_it(make_params: Make) -> None:
    def script(body: Body) -> Reply | str:
        return error(500) if "Unlucky" in slug_of(body) else text(GOOD)

    unlucky = SCENARIO.model_copy(update={"slug": "unlucky", "name": "Unlucky"})
    with ScriptedServer(script) as server:
        records = run(make_params(server.base_url, tasks=SMALL), [*scenarios(2), unlucky])
    assert [record.status for record in records] == ["passed", "passed", "rejected"]
    assert records[2].reason == "provider"

    with ScriptedServer(lambda _: text(GOOD)) as server:
        records = run(make_params(server.base_url, tasks=SMALL), [*scenarios(2), unlucky])
        assert len(server.requests) == 1, "the next run tries again, and only that item"
    assert [record.status for record in records] == ["passed"] * 3


def test_a_provider_that_fails_for_all_items_is_an_outage(make_params: Make) -> None:
    with (
        ScriptedServer(lambda _: error(500)) as server,
        pytest.raises(ProviderError, match="no item could be answered"),
    ):
        run(make_params(server.base_url, tasks=SMALL), scenarios(2))


def test_overload_and_a_cut_connection_are_tried_again(make_params: Make) -> None:
    with ScriptedServer([error(429), error(503), cut(), text(GOOD)]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL, llm={"retries": 4}))

    assert record.status == "passed"


def test_a_replay_under_a_changed_prompt_is_counted(make_params: Make, project: Path) -> None:
    with ScriptedServer([text(GOOD[:2]), text(GOOD)]) as server:
        params = make_params(server.base_url, tasks=SMALL)
        (record,) = run(params)
    write_shards(project / "data/recordings/tasks", record.entries)
    assert len(Recording.load(project / "data/recordings/tasks")) == 2

    replayed = make_params("http://unused", tasks=SMALL, llm={"provider": "recorded"})
    (same,) = run(replayed)
    (other,) = run(make_params("http://unused", tasks={**SMALL, "min_reads": 0}, llm={"provider": "recorded"}))

    assert same.artifact == other.artifact == record.artifact
    assert (same.changed_prompts, other.changed_prompts) == (0, 2)


def test_an_item_without_a_recorded_answer_is_rejected_and_says_what_to_do(make_params: Make, project: Path) -> None:
    with ScriptedServer([text(GOOD)]) as server:
        (record,) = run(make_params(server.base_url, tasks=SMALL))
    write_shards(project / "data/recordings/tasks", record.entries)
    recorded = make_params("http://unused", tasks=SMALL, llm={"provider": "recorded"})

    records = run(recorded, [SCENARIO, *scenarios(1)])

    assert [entry.reason for entry in records] == ["", "not_recorded"]
    with pytest.raises(ProviderError, match=r"set llm\.provider in params\.yaml to 'openai' or 'batch'"):
        run(recorded, scenarios(1))


def test_items_given_twice_are_refused(make_params: Make) -> None:
    with pytest.raises(ValueError, match="items given twice: lending_library"):
        run(make_params("http://unused", tasks=SMALL), [SCENARIO, SCENARIO])
