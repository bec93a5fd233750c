"""From seeds to scenarios, against a scripted server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from awm.config import Params
from awm.synth.loop.runner import Runner
from awm.synth.scenarios import ScenarioBuild, build_scenarios
from awm.synth.similarity import TfidfEmbedder
from llm.scripted_server import Body, Reply, ScriptedServer, error

SEEDS = ["online bookstore", "veterinary clinic scheduling", "parcel lockers", "charity donations"]
Make = Callable[..., Params]

WORDS = {
    "Berth Desk": "harbour berth mooring boat owner season contract crane storage winter",
    "Orchard Book": "orchard harvest crate variety picker grower frost spraying pruning yield",
    "Choir Hall": "choir rehearsal singer concert score soprano conductor attendance ticket robe",
    "Kiln Share": "kiln pottery glaze firing shelf clay studio member booking breakage",
    "Bee Ledger": "hive apiary queen honey inspection mite treatment frame swarm extraction",
    "Rink Times": "rink skating hockey ice session coach locker league referee puck",
}


def candidate(name: str) -> dict[str, str]:
    """A candidate whose description has enough words, in the vocabulary of its field."""
    return {"name": name, "description": " ".join([WORDS[name]] * 6)}


def yes(category: str) -> str:
    uses = dict.fromkeys(("creates", "reads", "updates", "deletes", "stateful"), True)
    return json.dumps({**uses, "category": category, "reason": "Keeps records."})


def script(
    rounds: Sequence[Sequence[dict[str, str]]], classes: dict[str, str | Reply]
) -> Callable[[Body], str | Reply]:
    """Generation requests get the rounds in order, the last one again and again; classifier requests by name."""
    waiting = list(rounds)

    def reply(body: Body) -> str | Reply:
        prompt = body["messages"][1]["content"]
        if prompt.startswith("Propose"):
            return json.dumps({"scenarios": list(waiting.pop(0) if len(waiting) > 1 else waiting[0])})
        name = prompt.splitlines()[0].removeprefix("Application: ")
        return classes.get(name, yes("education and learning"))

    return reply


def build(params: Params) -> ScenarioBuild:
    async def main() -> ScenarioBuild:
        async with Runner.create(params, "scenarios") as runner:
            return await build_scenarios(runner, params.scenarios, SEEDS, TfidfEmbedder())

    return asyncio.run(main())


def settings(**changes: Any) -> dict[str, Any]:
    return {"count": 2, "per_request": 2, "examples": 3, "max_rounds": 3, "max_per_category": 2, **changes}


def test_good_candidates_become_scenarios_with_slugs_and_categories(make_params: Make) -> None:
    classes: dict[str, str | Reply] = {"Berth Desk": yes("travel and lodging")}
    with ScriptedServer(script([[candidate("Berth Desk"), candidate("Orchard Book")]], classes)) as server:
        made = build(make_params(server.base_url, scenarios=settings()))

    assert [(entry.slug, entry.category) for entry in made.scenarios] == [
        ("berth_desk", "travel and lodging"),
        ("orchard_book", "education and learning"),
    ]
    assert (made.shortfall, made.rejections, made.candidates, made.clusters) == ("", [], 2, 2)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (yes("education and learning").replace('"stateful": true', '"stateful": false'), "not_stateful"),
        (yes("education and learning").replace('"deletes": true', '"deletes": false'), "not_stateful"),
        (yes("no such category"), "classifier_failed"),
        ("I would rather not say.", "classifier_failed"),
        (error(500), "classifier_failed"),
    ],
)
def test_what_the_classifier_does_not_call_stateful_is_rejected(
    make_params: Make, reply: str | Reply, reason: str
) -> None:
    rounds = [[candidate("Berth Desk"), candidate("Orchard Book")]]
    with ScriptedServer(script(rounds, {"Berth Desk": reply})) as server:
        made = build(make_params(server.base_url, scenarios=settings(max_rounds=1), repair={"max_attempts": 2}))

    assert [entry.slug for entry in made.scenarios] == ["orchard_book"]
    assert [(entry.item, entry.reason) for entry in made.rejections] == [("Berth Desk", reason)]
    assert made.shortfall.startswith("1 of 2 scenarios: 1 of 1 rounds gave 2 candidates (1 ")


def test_near_duplicates_of_seeds_and_of_each_other_are_rejected(make_params: Make) -> None:
    again = {**candidate("Berth Desk"), "name": "Berth Desk Two"}
    seed = {**candidate("Choir Hall"), "name": "Online Bookstore"}
    rounds = [[candidate("Berth Desk"), again, seed, candidate("Orchard Book")]]
    with ScriptedServer(script(rounds, {})) as server:
        made = build(make_params(server.base_url, scenarios=settings(per_request=4, count=4, max_rounds=1)))

    assert [entry.slug for entry in made.scenarios] == ["berth_desk", "orchard_book"]
    assert {entry.item: entry.reason for entry in made.rejections} == {
        "Berth Desk Two": "duplicate",
        "Online Bookstore": "duplicate_of_seed",
    }


def test_the_cap_of_a_category_holds_over_all_rounds(make_params: Make) -> None:
    rounds = [
        [candidate("Berth Desk"), candidate("Orchard Book")],
        [candidate("Choir Hall"), candidate("Kiln Share")],
        [candidate("Bee Ledger"), candidate("Rink Times")],
    ]
    classes: dict[str, str | Reply] = {"Rink Times": yes("sports and fitness")}
    with ScriptedServer(script(rounds, classes)) as server:
        made = build(make_params(server.base_url, scenarios=settings(count=3)))

    assert [entry.slug for entry in made.scenarios] == ["berth_desk", "orchard_book", "rink_times"]
    assert {entry.reason for entry in made.rejections} == {"category_full"}
    assert len(made.rejections) == 3


def test_a_later_round_is_told_what_is_taken(make_params: Make) -> None:
    rounds = [[candidate("Berth Desk"), candidate("Orchard Book")], [candidate("Choir Hall"), candidate("Kiln Share")]]
    with ScriptedServer(script(rounds, {})) as server:
        build(make_params(server.base_url, scenarios=settings(count=3, max_per_category=9)))
        prompts = [request["messages"][1]["content"] for request in server.requests]

    later = [prompt for prompt in prompts if prompt.startswith("Propose")][1]
    assert "- Berth Desk\n- Orchard Book\n" in later


def test_the_stage_says_why_it_fell_short(make_params: Make) -> None:
    with ScriptedServer(script([[candidate("Berth Desk"), candidate("Orchard Book")]], {})) as server:
        made = build(make_params(server.base_url, scenarios=settings(count=9)))

    assert len(made.scenarios) == 2
    assert made.shortfall == (
        "2 of 9 scenarios: 3 of 3 rounds gave 6 candidates (4 duplicate); "
        "raise scenarios.max_rounds or scenarios.max_per_category"
    )


def test_two_names_with_one_slug_get_two_slugs(make_params: Make) -> None:
    rounds = [[{**candidate("Berth Desk"), "name": "Café Desk"}, {**candidate("Orchard Book"), "name": "Cafe-Desk"}]]
    with ScriptedServer(script(rounds, {})) as server:
        params = make_params(server.base_url, scenarios=settings())
        values = params.model_dump()
        values["scenarios"]["embedding"]["threshold"] = 0.99
        made = build(Params.model_validate(values))

    assert [entry.slug for entry in made.scenarios] == ["cafe_desk", "cafe_desk_2"]
