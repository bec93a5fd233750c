from __future__ import annotations

import asyncio

import pytest

from awm.llm import LLM, ItemError, LLMRequest, ProviderError, TruncatedAnswer, Usage
from llm.scripted_server import ScriptedServer, answer, error, truncated


def run_all(llm: LLM, *requests: LLMRequest) -> list:
    async def run():
        async with llm:
            return await asyncio.gather(*(llm.ask(request) for request in requests), return_exceptions=True)

    return asyncio.run(run())


def test_an_answer_is_paid_once(config, request_for, project):
    with ScriptedServer(["hi"]) as server:
        settings = config(base_url=server.base_url)
        first, second = LLM(settings, "tasks", project), LLM(settings, "tasks", project)
        run_all(first, request_for())
        run_all(second, request_for())
    assert len(server.requests) == 1
    assert first.entries() == second.entries() != []
    assert first.entries()[0].usage == Usage(input_tokens=100, output_tokens=10)


def test_equal_prompts_of_two_items_are_paid_once(config, request_for, project):
    with ScriptedServer(["hi"]) as server:
        llm = LLM(config(base_url=server.base_url), "tasks", project)
        run_all(llm, request_for(item="shop"), request_for(item="bank"))
    assert len(server.requests) == 1
    assert [entry.item for entry in llm.entries()] == ["bank", "shop"]


def test_unusable_answers_are_kept_in_the_entries_and_asked_again_in_the_next_run(config, request_for, project):
    with ScriptedServer([truncated("ha"), answer("whole")]) as server:
        settings = config(base_url=server.base_url)
        llm = LLM(settings, "tasks", project)
        [caught] = run_all(llm, request_for())
        [got] = run_all(LLM(settings, "tasks", project), request_for())
    assert isinstance(caught, TruncatedAnswer) and caught.answer.content == "ha"
    assert [entry.finish_reason for entry in llm.entries()] == ["length"]
    assert got.content == "whole"


@pytest.mark.parametrize(("status", "kind"), [(500, ItemError), (402, ProviderError)])
def test_errors_are_not_cached(config, request_for, project, status, kind):
    with ScriptedServer([error(status), answer("whole")]) as server:
        settings = config(base_url=server.base_url, retries=0)
        llm = LLM(settings, "tasks", project)
        [caught] = run_all(llm, request_for())
        [got] = run_all(LLM(settings, "tasks", project), request_for())
    assert type(caught) is kind
    assert llm.entries() == []
    assert got.content == "whole"


def test_nothing_is_needed_while_nothing_is_asked(config, project):
    llm = LLM(config(api_key_env="UNSET_KEY"), "tasks", project)
    run_all(llm)
    llm.finish()
    assert llm.identity("shop") == {
        "model": "scripted",
        "temperature": 0.5,
        "max_output_tokens": 1000,
        "structured_output": "json_schema",
    }
    assert list(project.iterdir()) == []


def test_one_attempt_can_not_be_asked_with_two_prompts(config, request_for, project):
    with ScriptedServer(["hi", "ho"]) as server:
        llm = LLM(config(base_url=server.base_url, concurrency=1), "tasks", project)
        _, second = run_all(llm, request_for("a"), request_for("b"))
    assert isinstance(second, ValueError)


def test_cost_in_dollars(config, project):
    llm = LLM(config(), "tasks", project)
    usage = Usage(input_tokens=1_000_000, cached_input_tokens=400_000, output_tokens=100_000)
    assert llm.cost(usage, "scripted") == pytest.approx(0.6 * 2.0 + 0.4 * 0.5 + 0.1 * 8.0)
    assert llm.cost(usage, "unpriced") is None
