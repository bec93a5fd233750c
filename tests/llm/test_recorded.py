from __future__ import annotations

import asyncio

import pytest

from awm.llm import LLM, NotRecorded, Recording, TruncatedAnswer, write_shards
from llm.scripted_server import ScriptedServer, answer, truncated


@pytest.fixture
def recorded(config, request_for, project):
    """Answers of a scripted model, recorded for the step."""

    async def run(settings):
        async with LLM(settings, "tasks", project) as llm:
            with pytest.raises(TruncatedAnswer):
                await llm.ask(request_for("one"))
            await llm.ask(request_for("two", attempt=2))
            await llm.ask(request_for("other", item="bank"))
            return llm.entries()

    with ScriptedServer([truncated("ha"), answer("yes"), answer("bank")]) as server:
        entries = asyncio.run(run(config(base_url=server.base_url)))
    write_shards(project / "data/recordings/tasks", entries)
    return entries


def test_a_replay_gives_the_same_entries_offline(config, request_for, project, recorded):
    async def run():
        async with LLM(config(provider="recorded"), "tasks", project) as llm:
            with pytest.raises(TruncatedAnswer):
                await llm.ask(request_for("one"))
            got = await llm.ask(request_for("two", attempt=2))
            await llm.ask(request_for("other", item="bank"))
            return got.content, llm.entries()

    cache = project / ".awm_cache/responses.sqlite"
    cache.unlink()
    content, entries = asyncio.run(run())
    assert content == "yes"
    assert entries == recorded
    assert not cache.exists()


def test_a_changed_prompt_is_replayed_all_the_same(config, request_for, project, recorded):
    async def run():
        async with LLM(config(provider="recorded"), "tasks", project) as llm:
            for _ in range(2):
                got = await llm.ask(request_for("new words", item="bank"))
            return got.content, llm.entries("bank")

    assert asyncio.run(run()) == ("bank", [recorded[0]])


def test_what_is_not_recorded_is_said(config, request_for, project, recorded):
    async def run():
        async with LLM(config(provider="recorded"), "tasks", project) as llm:
            await llm.ask(request_for(attempt=3))

    with pytest.raises(NotRecorded, match="step tasks, item shop, attempt 3"):
        asyncio.run(run())


def test_identity_follows_the_recorded_answers_of_the_item_alone(config, project, recorded):
    def identities():
        llm = LLM(config(provider="recorded", model="any"), "tasks", project)
        return llm.identity("shop"), llm.identity("bank")

    shop, bank = identities()
    assert set(shop) == {"recorded"} and shop != bank
    changed = [entry if entry.item == "shop" else entry.model_copy(update={"content": "new"}) for entry in recorded]
    write_shards(project / "data/recordings/tasks", changed)
    assert identities()[0] == shop
    assert identities()[1] != bank
    assert len(Recording.load(project / "data/recordings/tasks")) == 3
