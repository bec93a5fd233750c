"""Environments as an OpenEnv server, seen by the package's own clients over a WebSocket."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("openenv", reason="needs the extra `openenv`")

from openenv.core.client_types import StepResult
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction, ListToolsObservation
from openenv.core.env_server.types import Observation
from openenv.core.generic_client import GenericEnvClient
from openenv.core.mcp_client import MCPToolClient
from pydantic import ConfigDict

from awm.env.environment import Environment
from awm.env.host import Sandbox
from awm.env.pool import Pool
from awm.serve.openenv_app import openenv_app
from awm.synth.databases import initial_state
from serve.conftest import Serve
from serve.library_server import descendants, gone, library
from synth.library_environment import CLOCK, DATA, SCHEMA, TASKS

EMMA = {"loan_id": 1, "title": "Emma", "due_on": "2026-03-23", "status": "open", "renewals": 1}
SLUG = "lending_library"
TEXTS = [task.text for task in TASKS.tasks]
FIELDS = frozenset(
    """
    reward_type scenario task task_idx has_verifier num_tools tool_name tool_result error warning verify_result
    steps_taken scenarios total trajectory_path session_dir metadata
    """.split()
)
"""What the Agent World Model client takes in an observation: it refuses everything else."""


class Seen(Observation):
    """An observation as that client reads it; what is not there is None."""

    model_config = ConfigDict(extra="allow")

    def __getattr__(self, name: str) -> Any:
        return (self.model_extra or {}).get(name)


class AgentWorldModelClient(MCPToolClient):
    """OpenEnv's client for tools, which reads observations as its Agent World Model client does."""

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[Any]:
        seen = payload["observation"]
        if "tools" in seen:
            assert set(seen) <= {"tools", "error", "metadata"}
            observation: Any = ListToolsObservation(tools=seen["tools"])
        else:
            assert set(seen) <= FIELDS
            assert None not in seen.values()
            observation = Seen(**seen)
        return StepResult(observation=observation, reward=payload["reward"], done=payload["done"])

    async def use(self, tool: str, **arguments: Any) -> StepResult[Any]:
        """Call a tool as a step."""
        return await self.step(CallToolAction(tool_name=tool, arguments=arguments))


@pytest.fixture
def pool(environment: Environment) -> Iterator[Pool]:
    with Pool(environment, size=1, min_episodes=1000) as pool:
        yield pool


@pytest.fixture
def url(environment: Environment, pool: Pool, served: Serve) -> str:
    return served(openenv_app(pool, [environment]))


@pytest.fixture
async def client(url: str) -> AsyncIterator[AgentWorldModelClient]:
    async with AgentWorldModelClient(base_url=url) as client:
        yield client


async def test_scenarios_are_listed_before_any_reset(client: AgentWorldModelClient, environment: Environment) -> None:
    result = await client.use("__list_scenarios__")

    assert result.observation.reward_type == "tool_call_ok"
    assert result.observation.total == 1
    assert result.observation.scenarios == [
        {"name": SLUG, "description": environment.scenario.description, "num_tasks": 2, "tasks": TEXTS}
    ]


async def test_an_episode_from_reset_to_done(client: AgentWorldModelClient, environment: Environment) -> None:
    reset = await client.reset(scenario=SLUG, task_idx=1)
    listed = await client.step(ListToolsAction())
    before = await client.use("verify", verifier_mode="code")
    renewed = await client.use("renew_loan", loan_id=1)
    verified = await client.use("verify", verifier_mode="code", final_answer="It is renewed.")
    done = await client.use("done")
    late = await client.use("list_loans")

    assert (reset.done, reset.reward) == (False, None)
    assert reset.observation.model_extra == {
        "reward_type": "reset_ok",
        "scenario": SLUG,
        "task": TEXTS[1],
        "task_idx": 1,
        "has_verifier": {"sql": False, "code": True},
        "num_tools": 7,
    }
    assert [(tool.name, tool.input_schema) for tool in listed.observation.tools] == [
        (tool.name, tool.parameters) for tool in environment.tools
    ]
    assert (before.observation.reward_type, before.reward, before.done) == ("others", 0.0, False)
    assert (renewed.observation.reward_type, renewed.reward, renewed.done) == ("tool_call_ok", 0.0, False)
    assert renewed.observation.tool_name == "renew_loan"
    assert json.loads(renewed.observation.tool_result) == EMMA
    assert (verified.observation.reward_type, verified.reward, verified.done) == ("complete", 1.0, False)
    assert verified.observation.verify_result == {
        "result": "complete",
        "execution_status": "success",
        "raw_result": {"verdict": "completed", "evidence": {"renewed": [1]}},
    }
    assert verified.observation.steps_taken == 4
    assert (done.observation.reward_type, done.reward, done.done) == ("episode_done", 0.0, True)
    assert (late.observation.reward_type, late.reward, late.done) == ("episode_already_done", None, True)


async def test_tools_are_listed_and_called_without_steps_of_the_client(client: AgentWorldModelClient) -> None:
    assert await client.list_tools() == []
    await client.reset(scenario=SLUG, task_idx=0)

    tools = await client.list_tools(use_cache=False)
    called = await client.call_tool("renew_loan", loan_id=1)
    seen = await client.use("list_loans", status="open")

    assert [tool.name for tool in tools][:3] == ["list_loans", "renew_loan", "return_loan"]
    assert (called["reward_type"], json.loads(called["tool_result"])) == ("tool_call_ok", EMMA)
    assert json.loads(seen.observation.tool_result)[1] == EMMA


RESETS = [
    ({}, "'scenario'"),
    ({"scenario": "no_such"}, "no_such"),
    ({"scenario": SLUG, "task_idx": 2}, "out of range"),
    ({"scenario": SLUG, "task_idx": -1}, "out of range"),
    ({"scenario": SLUG, "reward_config": {"complete": "much"}}, "reward_config"),
]


@pytest.mark.parametrize(("options", "said"), RESETS)
async def test_resets_that_fail(client: AgentWorldModelClient, options: dict[str, Any], said: str) -> None:
    failed = await client.reset(**options)
    called = await client.use("list_loans")

    assert (failed.observation.reward_type, failed.reward, failed.done) == ("reset_error", None, False)
    assert said in failed.observation.error
    assert called.observation.reward_type == "server_error"


async def test_a_scenario_may_be_written_as_a_name(client: AgentWorldModelClient) -> None:
    assert (await client.reset(scenario="Lending Library")).observation.scenario == SLUG


CALLS = [
    ("renew_loan", {"loan_id": 99}, "tool_call_ok", 0.0, "no loan 99 of yours"),
    ("renew_loan", {}, "invalid_args", -1.0, "argument 'loan_id' is missing"),
    ("no_such_tool", {}, "tool_not_found", -1.0, "no_such_tool"),
    ("count_days", {"loan_id": 1}, "server_error", 0.0, "ZeroDivisionError"),
    ("verify", {"verifier_mode": "none"}, "invalid_args", -1.0, "verifier_mode"),
    ("verify", {"verifier_mode": "sql"}, "no_verifier", 0.0, "LLM"),
]


@pytest.mark.parametrize(("tool", "arguments", "kind", "reward", "said"), CALLS)
async def test_calls_that_fail(
    client: AgentWorldModelClient, tool: str, arguments: dict[str, Any], kind: str, reward: float, said: str
) -> None:
    await client.reset(scenario=SLUG, task_idx=1)
    failed = await client.use(tool, **arguments)

    assert (failed.observation.reward_type, failed.reward, failed.done) == (kind, reward, False)
    assert said in failed.observation.error
    assert (await client.use("renew_loan", loan_id=1)).observation.reward_type == "tool_call_ok"


async def test_rewards_can_be_chosen(client: AgentWorldModelClient) -> None:
    await client.reset(scenario=SLUG, task_idx=1, reward_config={"incomplete": 0.5, "format_error": -2, "others": -0.5})

    assert (await client.use("no_such_tool")).reward == -2
    assert (await client.use("verify")).reward == -0.5
    await client.use("renew_loan", loan_id=1)
    await client.use("renew_loan", loan_id=1)
    assert (await client.use("verify")).reward == 0.0
    await client.reset(scenario=SLUG, task_idx=1)
    assert (await client.use("verify")).reward == 0.0


async def test_without_a_task_there_is_nothing_to_verify(client: AgentWorldModelClient) -> None:
    reset = await client.reset(scenario=SLUG, task="Do as you like.")
    verified = await client.use("verify")

    assert reset.observation.task == "Do as you like."
    assert reset.observation.has_verifier is None
    assert (verified.observation.reward_type, verified.reward) == ("no_verifier", 0.0)


async def test_an_environment_that_fails_ends_the_episode(client: AgentWorldModelClient) -> None:
    await client.reset(scenario=SLUG, task_idx=0)
    failed = await client.use("end_worker")
    verified = await client.use("verify")
    done = await client.use("done")
    again = await client.reset(scenario=SLUG, task_idx=0)

    assert (failed.observation.reward_type, failed.reward, failed.done) == ("server_error", 0.0, True)
    assert (verified.observation.reward_type, verified.reward) == ("server_error", 0.0)
    assert verified.observation.verify_result["execution_status"] == "error"
    assert done.done
    assert again.observation.reward_type == "reset_ok"


async def test_a_reset_starts_from_the_initial_state(client: AgentWorldModelClient) -> None:
    for _ in range(3):
        await client.reset(scenario=SLUG, task_idx=1)
        renewed = await client.use("renew_loan", loan_id=1)
        assert json.loads(renewed.observation.tool_result) == EMMA


async def test_what_is_kept_of_an_episode(client: AgentWorldModelClient) -> None:
    await client.reset(scenario=SLUG, task_idx=1)
    await client.use("renew_loan", loan_id=1)
    await client.use("verify")
    kept = (await client.use("done", keep_session=True)).observation
    await client.reset(scenario=SLUG, task_idx=1)
    await client.use("list_loans")
    dropped = (await client.use("done")).observation
    assert dropped.session_dir is None and Path(dropped.trajectory_path).is_file()
    await client.reset(scenario=SLUG)

    assert not Path(dropped.trajectory_path).parent.exists()
    folder = Path(kept.session_dir)
    trajectory = json.loads(Path(kept.trajectory_path).read_text())
    assert [entry["action"] for entry in trajectory["trajectory"]] == ["call_tool", "verify"]
    assert (folder / f"{SLUG}_initial.db").read_bytes() == initial_state(SCHEMA, DATA, CLOCK)
    with sqlite3.connect(folder / f"{SLUG}.db") as connection:
        assert connection.execute("SELECT renewals FROM loans WHERE id = 1").fetchone() == (1,)
    connection.close()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


async def test_the_packages_generic_client(url: str) -> None:
    async with GenericEnvClient(base_url=url) as client:
        reset = await client.reset(scenario=SLUG, task_idx=0)
        listed = await client.step({"type": "list_tools"})
        called = await client.step({"type": "call_tool", "tool_name": "list_loans", "arguments": {"status": "open"}})
        verified = await client.step(
            {"type": "call_tool", "tool_name": "verify", "arguments": {"final_answer": "It is Dracula."}}
        )
        with pytest.raises(RuntimeError, match="Invalid message"):
            await client.step({"type": "jump"})

    assert reset.observation["reward_type"] == "reset_ok"
    assert len(listed.observation["tools"]) == 7
    assert len(json.loads(called.observation["tool_result"])) == 2
    assert (verified.observation["reward_type"], verified.reward) == ("complete", 1.0)


async def test_sessions_have_episodes_of_their_own(sandbox: Sandbox, served: Serve) -> None:
    environments = [library("first", sandbox), library("second", sandbox)]
    with Pool(environments, size=2) as pool:
        url = served(openenv_app(pool, environments))
        async with AgentWorldModelClient(base_url=url) as one, AgentWorldModelClient(base_url=url) as two:
            await asyncio.gather(one.reset(scenario="first", task_idx=1), two.reset(scenario="second", task_idx=1))
            await one.use("renew_loan", loan_id=1)
            assert (await one.use("verify")).reward == 1.0
            assert (await two.use("verify")).reward == 0.0
            stats = httpx.get(f"{url}/stats").json()
    assert stats["scenarios"] == {"first": 1, "second": 1}


async def test_sessions_leave_nothing_behind(environment: Environment, served: Serve) -> None:
    with Pool(environment, size=0) as pool:
        url = served(openenv_app(pool, [environment]))
        before = descendants()
        for kind in (AgentWorldModelClient, GenericEnvClient):
            for _ in range(5):
                async with kind(base_url=url) as client:
                    await client.reset(scenario=SLUG, task_idx=1)
        assert gone(descendants() - before)
        assert httpx.get(f"{url}/stats").json()["total_sessions"] == 0


def test_stateless_requests_are_told_what_to_use(url: str) -> None:
    for path in ("/reset", "/step"):
        refused = httpx.post(f"{url}{path}", json={})
        assert refused.status_code == 400
        assert "/ws" in refused.json()["solution"]
    assert httpx.get(f"{url}/health").json() == {"status": "healthy"}
    assert set(httpx.get(f"{url}/schema").json()["observation"]["properties"]) >= FIELDS - {"metadata"}


def test_the_synchronous_client(url: str) -> None:
    with AgentWorldModelClient(base_url=url).sync() as client:
        assert client.reset(scenario=SLUG, task_idx=0).observation.task == TEXTS[0]
        called = client.step(CallToolAction(tool_name="list_loans", arguments={}))
        assert len(json.loads(called.observation.tool_result)) == 3
