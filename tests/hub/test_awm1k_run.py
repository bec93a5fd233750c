"""An imported environment runs like any other: calls, state, verdicts, and whose fault a failure is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from awm.env import Environment, Episode, MissingExtraError, Pool, Sandbox
from awm.env.published import NoVerdictError
from awm.hub.awm1k import import_awm1k
from awm.models import Outcome
from hub import small_awm1k


@pytest.fixture
def episode(environment: Environment) -> Iterator[Episode]:
    with environment.episode(task=1) as episode:
        yield episode


def names(episode: Episode) -> list[str]:
    value = episode.call("rolls_back").value
    return list(value["users"])


def test_endpoints_are_tools_in_the_order_of_their_lines(environment: Environment) -> None:
    assert [tool.name for tool in environment.tools] == [
        *("list_teas", "get_tea", "place_order", "half_done", "forgotten_commit", "rolls_back", "tell_time"),
        *("rank_teas", "waits", "breaks", "spins"),
    ]
    assert [tool.line for tool in environment.tools] == sorted(tool.line for tool in environment.tools)
    assert environment.tools[0].description == "List teas"


def test_parameters_of_path_query_and_body_lie_side_by_side(environment: Environment) -> None:
    schema = environment.tools[2].parameters

    assert list(schema["properties"]) == ["tea_id", "grams", "note", "wrapping"]
    assert schema["required"] == ["tea_id", "grams"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["grams"]["exclusiveMinimum"] == 0
    assert set(schema["$defs"]) == {"Wrapping"}


CALLS: list[tuple[str, dict[str, Any], str, str]] = [
    ("list_teas", {}, "ok", "[1, 2, 3]"),
    ("list_teas", {"kind": "black"}, "ok", "[2, 3]"),
    ("list_teas", {"kind": None}, "ok", "[1, 2, 3]"),
    ("list_teas", {"names": ["Jade Cloud", "Weaver's Cup"]}, "ok", "[1, 3]"),
    ("list_teas", {"names": '["Jade Cloud"]'}, "ok", "[1]"),
    ("get_tea", {"name": "Smuggler's Blend"}, "ok", "40"),
    ("get_tea", {"name": "a/b"}, "invalid_arguments", "argument 'name': must not be empty or contain '/'"),
    ("get_tea", {"name": ""}, "invalid_arguments", "argument 'name': must not be empty"),
    ("get_tea", {"name": {"x": 1}}, "invalid_arguments", "argument 'name': must be text, a number or a boolean"),
    ("get_tea", {}, "invalid_arguments", "argument 'name' is missing; this tool takes: name"),
    ("get_tea", {"name": "x", "nme": 1}, "invalid_arguments", "unknown argument 'nme'; this tool takes: name"),
    ("place_order", {"tea_id": 1, "grams": 0}, "invalid_arguments", "argument 'grams': input should be greater than 0"),
    ("place_order", {"tea_id": "x", "grams": 1}, "invalid_arguments", "argument 'tea_id': input should be a valid int"),
    ("place_order", {"tea_id": 1, "grams": 5, "wrapping": {}}, "invalid_arguments", "'wrapping.colour' is missing"),
    ("place_order", {"tea_id": 9, "grams": 5}, "tool_error", "There is no such tea (status 404)"),
    ("rank_teas", {"body": [3, 1], "x-reason": "taste"}, "ok", "{'ranked': [3, 1], 'reason': 'taste'}"),
    ("rank_teas", {"body": [3, "a"]}, "invalid_arguments", "argument '[1]'"),
    ("waits", {}, "ok", "{'waited': [1, 2]}"),
    ("get_tea", {"name": "nothing"}, "crash", "AttributeError: 'NoneType' object has no attribute 'id'"),
    ("place_order", {"tea_id": 3, "grams": 5}, "crash", "CHECK constraint failed: stock >= 0"),
    ("breaks", {}, "crash", "it broke (status 500)"),
    ("spins", {}, "timeout", "no result within 1 s"),
    ("buy_coffee", {}, "unknown_tool", "unknown tool 'buy_coffee'"),
]


@pytest.mark.parametrize(("tool", "arguments", "kind", "text"), CALLS)
def test_calls(episode: Episode, tool: str, arguments: dict[str, Any], kind: str, text: str) -> None:
    result = episode.call(tool, arguments)

    value = result.value
    if tool == "list_teas" and result.ok:
        value = [tea["id"] for tea in value["teas"]]
    assert result.kind == kind, result
    assert text in (str(value) if result.ok else result.message)
    assert "sqlalche.me" not in result.message
    assert episode.bugs == (kind in ("crash", "timeout"))
    assert episode.call("list_teas").ok


def test_a_crash_names_the_line_of_the_module(episode: Episode) -> None:
    line = episode.call("get_tea", {"name": "nothing"}).line

    assert line is not None
    assert "return TeaItem(id=tea.id" in small_awm1k.CODE.splitlines()[line - 1]


def test_json_text_for_an_object_is_taken_and_noted(episode: Episode) -> None:
    result = episode.call("place_order", {"tea_id": 1, "grams": 5, "wrapping": '{"colour": "red"}'})

    assert result.ok
    assert result.notes == ("argument 'wrapping' was JSON text and was parsed; give the object itself",)


def test_only_what_was_committed_stays_and_of_a_failed_call_nothing(episode: Episode) -> None:
    assert episode.call("half_done").kind == "crash"
    assert episode.diff() == {}
    assert episode.call("forgotten_commit").value == {"users": 2}
    assert episode.diff() == {}
    assert names(episode) == ["Ana", "Kept", "Nested"]
    assert [row["id"] for row in episode.diff()["users"]["added"]] == [70, 72]


def test_a_session_that_a_crash_left_open_does_not_disturb_later_calls(episode: Episode) -> None:
    for _ in range(3):
        assert episode.call("half_done").kind == "crash"
        assert episode.call("place_order", {"tea_id": 1, "grams": 1}).ok
    assert episode.diff()["teas"]["changed"][0]["after"] == {"stock": 497}


def test_python_and_sql_see_the_frozen_clock(episode: Episode) -> None:
    first, second = (episode.call("tell_time").value for _ in range(2))

    assert (first["python"], first["sql"]) == ("2026-02-01T12:00:00", "2026-02-01 12:00:00")
    assert (second["python"], second["sql"]) == ("2026-02-01T12:00:01", "2026-02-01 12:00:01")
    assert first["recent"] == 2


def test_equal_calls_give_equal_states_in_every_process(environment: Environment) -> None:
    hashes, codes = set(), set()
    for _ in range(2):
        with environment.episode() as episode:
            codes.add(episode.call("place_order", {"tea_id": 1, "grams": 5}).value["code"])
            hashes.add(episode.content_hash())
            episode.reset()
            codes.add(episode.call("place_order", {"tea_id": 1, "grams": 5}).value["code"])
            hashes.add(episode.content_hash())
    assert len(hashes) == len(codes) == 1


def test_reset_takes_the_state_and_the_clock_back(episode: Episode) -> None:
    start = episode.content_hash()
    episode.call("place_order", {"tea_id": 1, "grams": 5})
    episode.reset()

    assert episode.content_hash() == start
    assert episode.diff() == {}
    assert episode.call("tell_time").value["python"] == "2026-02-01T12:00:00"


def test_episodes_share_nothing_with_each_other(environment: Environment) -> None:
    with environment.episode() as one, environment.episode() as other:
        assert [one.call("tell_time").value["calls"] for _ in range(2)] == [1, 2]
        one.call("place_order", {"tea_id": 1, "grams": 5})
        assert other.call("tell_time").value["calls"] == 1
        assert other.diff() == {}


def test_many_calls_in_one_message(episode: Episode) -> None:
    results = episode.call_many(
        [("list_teas", {}), ("get_tea", {"name": "x"}), ("place_order", {"tea_id": 1, "grams": 1})]
    )

    assert [result.kind for result in results] == ["ok", "crash", "ok"]


async def test_async(environment: Environment) -> None:
    async with environment.episode(task=1) as episode:
        assert (await episode.acall("place_order", {"tea_id": 1, "grams": 100})).ok
        assert (await episode.averify("the code is abc")).verdict == Outcome.COMPLETED


def test_a_verifier_with_a_verdict(episode: Episode) -> None:
    assert episode.verify("the code is abc").verdict == Outcome.AGENT_ERROR
    episode.call("place_order", {"tea_id": 1, "grams": 100})

    verdict = episode.verify("the code is abc")

    assert verdict.verdict == Outcome.COMPLETED
    assert verdict.evidence == {"result": "complete"}
    assert episode.verify(None).verdict == Outcome.AGENT_ERROR


def test_a_verifier_that_only_collects_evidence(environment: Environment) -> None:
    with environment.episode(task=2) as episode:
        episode.call("place_order", {"tea_id": 1, "grams": 100})
        with pytest.raises(NoVerdictError, match=r"only collects evidence for a judge"):
            episode.verify("done")
        assert environment.evidence(2, episode.snapshot()) == {"orders_before": 2, "orders_after": 3}


def test_a_task_without_a_verifier(environment: Environment) -> None:
    with environment.episode(task=4) as episode, pytest.raises(ValueError, match=r"task 4 .* has no verifier"):
        episode.verify("done")


def test_a_pool_of_imported_environments(environment: Environment) -> None:
    with Pool([environment], size=2) as pool:
        for _ in range(3):
            with pool.episode(environment.slug) as episode:
                assert episode.call("list_teas").ok


@pytest.mark.parametrize("mode", ["nofs", "off"])
def test_other_modes_of_the_sandbox(environment: Environment, folder: Path, mode: Any) -> None:
    with Sandbox(mode=mode) as sandbox:
        other = Environment.load(folder, small_awm1k.SLUG, sandbox=sandbox)
        with other, other.episode(task=1) as episode:
            assert episode.call("place_order", {"tea_id": 1, "grams": 100}).ok
            assert episode.call("waits").ok
            assert episode.verify("code").verdict == Outcome.COMPLETED


def test_without_the_extra_the_error_names_the_install_command(
    environment: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "sqlalchemy", None)

    with pytest.raises(MissingExtraError, match=r"need sqlalchemy: pip install 'awm\[awm1k\]'"):
        environment.episode().start()
    with pytest.raises(MissingExtraError):
        import_awm1k(tmp_path, tmp_path / "out")
