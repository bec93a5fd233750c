"""Environments as an OpenEnv server that OpenEnv's Agent World Model client can use without a change.

One server offers all environments; a session is one WebSocket connection, and chooses an environment and a task with
each reset. `verify` and `done` are called like tools, but are not listed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Self
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment as OpenEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, ListToolsAction, Tool
from openenv.core.env_server.types import Action, EnvironmentMetadata, Observation, State

import awm
from awm.env.environment import Environment
from awm.env.episode import Episode, EpisodeOver
from awm.env.errors import EnvironmentFault, MissingExtraError, SandboxUnavailable
from awm.env.pool import Pool
from awm.models import Outcome, Task
from awm.serve.openenv_models import ListedTools, Observed
from awm.serve.openenv_record import EpisodeRecord
from awm.serve.text import as_text

__all__ = ["DEFAULT_REWARDS", "Catalog", "ScenarioEnvironment"]

DEFAULT_REWARDS = {"complete": 1.0, "incomplete": 0.1, "format_error": -1.0}
"""Reward by type; every other type gives 0."""

_FORMAT_ERRORS = frozenset({"tool_not_found", "invalid_args", "invalid_action"})
_CALLS = {
    "ok": "tool_call_ok",
    "tool_error": "tool_call_ok",  # the call was right, and the agent may want to know that it is refused
    "unknown_tool": "tool_not_found",
    "invalid_arguments": "invalid_args",
    "timeout": "timeout",
}
_OUTCOMES = {
    Outcome.COMPLETED: "complete",
    Outcome.PARTIALLY_COMPLETED: "incomplete",
    Outcome.AGENT_ERROR: "others",
    Outcome.ENVIRONMENT_ERROR: "judge_error",
}
_MODES = ("code", "sql")
_NOT_RUNNING = "there is no environment: call reset(scenario=...) first"
_COMPLETION = re.compile(r"^def verify_task_completion\b", re.MULTILINE)


class Catalog:
    """The environments of a server, and the pool that their episodes come from."""

    def __init__(self, pool: Pool, environments: Sequence[Environment]) -> None:
        self.pool = pool
        self.environments = {environment.slug: environment for environment in environments}

    def find(self, scenario: str) -> Environment | None:
        """Return an environment by its slug or its name, however that is written."""
        return self.environments.get(re.sub(r"[^a-z0-9]+", "_", scenario.lower()).strip("_"))

    def listing(self) -> list[dict[str, Any]]:
        """Return what a client sees of all environments; a task's position is its `task_idx`."""
        return [
            {
                "name": slug,
                "description": environment.scenario.description,
                "num_tasks": len(environment.tasks),
                "tasks": [task.text for task in environment.tasks],
            }
            for slug, environment in self.environments.items()
        ]


class SteppedTools:
    """What OpenEnv asks for the tools of a session over plain MCP requests: each request is a step of the session.

    Its newer clients list and call tools in this way, and reset, verify and end episodes over the WebSocket.
    """

    def __init__(self, session: ScenarioEnvironment) -> None:
        self._session = session

    async def __aenter__(self) -> Self:
        """Connect: there is nothing to connect to."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Disconnect."""

    def is_connected(self) -> bool:
        """Whether requests can be made."""
        return True

    async def list_tools(self) -> list[Tool]:
        """Return the tools; none before a reset."""
        tools: list[Tool] = getattr(await self._session.step_async(ListToolsAction()), "tools", [])
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any] | None) -> dict[str, Any]:
        """Return the observation that the call gives."""
        seen = await self._session.step_async(CallToolAction(tool_name=name, arguments=arguments or {}))
        return seen.model_dump()


class ScenarioEnvironment(OpenEnvironment[Any, Any, State]):
    """One session: reset to a task of an environment, list and call its tools, `verify`, `done`.

    What a client does wrong is an observation with a `reward_type` and an `error`, never an exception.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self.mcp_client = SteppedTools(self)
        self._turn = asyncio.Lock()
        self._catalog = catalog
        self._state = State(episode_id=None, step_count=0)
        self._episode: Episode | None = None
        self._done = False
        self._record = EpisodeRecord()
        self._rewards = DEFAULT_REWARDS
        self._about: dict[str, Any] = {}
        """The observation's fields scenario, task and task_idx."""

    # -- OpenEnv's interface -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The episode's id and its number of steps."""
        return self._state

    def get_metadata(self) -> EnvironmentMetadata:
        """Return what the server offers."""
        return EnvironmentMetadata(
            name="agent_world_model_env",
            description=f"{len(self._catalog.environments)} executable environments for tool-using agents",
            version=awm.__version__,
        )

    @property
    def running(self) -> str | None:
        """The environment that an episode of this session runs in; None if none does."""
        return None if self._episode is None or self._episode.over else self._episode.environment.slug

    def close(self) -> None:
        """End the episode."""
        if self._episode is not None:
            self._episode.close()
        self._episode = None
        self._record.close()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Observation:
        """Do what `reset_async` does, where no event loop runs."""
        return asyncio.run(self.reset_async(seed, episode_id, **options))

    def step(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        """Do what `step_async` does, where no event loop runs."""
        return asyncio.run(self.step_async(action, timeout_s, **options))

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        scenario: str | None = None,
        task_idx: int | None = None,
        task: str | None = None,
        reward_config: dict[str, float] | None = None,
        **options: Any,
    ) -> Observation:
        """Start an episode. An error ends the one before it as well.

        :param scenario: The environment's slug, or its name.
        :param task_idx: Position of the task, from 0, as in `__list_scenarios__`; without it nothing can be verified.
        :param task: A text that replaces the task's own.
        :param reward_config: Rewards by type, instead of `DEFAULT_REWARDS`.
        """
        async with self._turn:
            self.close()
            return await self._start(episode_id, scenario, task_idx, task, reward_config)

    async def step_async(self, action: Action, timeout_s: float | None = None, **options: Any) -> Observation:
        """List the tools, or call one; `verify`, `done` and `__list_scenarios__` are called like tools."""
        async with self._turn:
            return await self._take(action)

    # -- what a reset and a step do ----------------------------------------------------------------------------------

    async def _start(
        self, episode_id: str | None, scenario: str | None, task_idx: int | None, task: str | None, rewards: Any
    ) -> Observation:
        self._done = False
        self._about = {}
        self._record = EpisodeRecord()
        try:
            environment, chosen = self._chosen(scenario, task_idx)
            self._rewards = _rewards(rewards)
            tools = await asyncio.to_thread(lambda: environment.tools)
            episode = self._catalog.pool.episode(environment.slug, None if chosen is None else chosen.number)
            self._episode = await episode.astart()
        except (ValueError, EnvironmentFault, SandboxUnavailable, MissingExtraError) as error:
            return Observed(reward_type="reset_error", error=str(error))
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        text = task if task is not None else None if chosen is None else chosen.text
        self._about = {"scenario": environment.slug, "task": text, "task_idx": task_idx}
        return Observed(
            reward_type="reset_ok" if tools else "reset_warning",
            warning=None if tools else "this environment has no tools",
            has_verifier=_verifier_modes(environment, chosen),
            num_tools=len(tools),
            **self._about,
        )

    async def _take(self, action: Action) -> Observation:
        if self._done:
            error = "the episode has ended: call reset() to start another"
            return Observed(done=True, reward_type="episode_already_done", error=error)
        self._state.step_count += 1
        if isinstance(action, ListToolsAction):
            return self._list_tools()
        if not isinstance(action, CallToolAction):
            return self._observed("invalid_action", error=f"{type(action).__name__} is no action: list or call tools")
        if action.tool_name == "__list_scenarios__":
            listing = self._catalog.listing()
            return Observed(reward_type="tool_call_ok", scenarios=listing, total=len(listing))
        if action.tool_name == "done":
            return await self._finish(keep=bool(action.arguments.get("keep_session", False)))
        if action.tool_name == "verify":
            return await self._verify(action.arguments)
        return await self._call(action.tool_name, action.arguments)

    def _list_tools(self) -> Observation:
        if self._episode is None:
            self._record.add("list_tools", success=False, error=_NOT_RUNNING)
            return ListedTools(tools=[], error=_NOT_RUNNING)
        tools = [
            Tool(name=tool.name, description=tool.description, input_schema=tool.parameters)
            for tool in self._episode.environment.tools
        ]
        names = [tool.name for tool in tools]
        self._record.add("list_tools", success=True, num_tools=len(tools), tool_names=names)
        return ListedTools(tools=tools)

    async def _call(self, name: str, arguments: dict[str, Any]) -> Observation:
        if self._episode is None:
            return self._observed("server_error", tool_name=name, error=_NOT_RUNNING)
        try:
            result = await self._episode.acall(name, arguments)
        except EpisodeOver as over:
            self._record.add("call_tool", tool_name=name, arguments=arguments, success=False, error=str(over))
            return self._observed("server_error", done=True, tool_name=name, error=str(over))
        text = as_text(result.value, quoted=True) if result.ok else None
        error = None if result.ok else result.message
        self._record.add("call_tool", tool_name=name, arguments=arguments, success=result.ok, result=text, error=error)
        return self._observed(
            _CALLS.get(result.kind, "server_error"),
            tool_name=name,
            tool_result=text,
            error=error,
            warning="; ".join(result.notes) or None,
        )

    async def _verify(self, arguments: dict[str, Any]) -> Observation:
        if self._episode is None:
            return self._observed("server_error", error=f"nothing to verify: {_NOT_RUNNING}")
        mode = arguments.get("verifier_mode", "code")
        if mode not in _MODES:
            return self._observed("invalid_args", error=f"verifier_mode is one of {', '.join(_MODES)}, not {mode!r}")
        modes = _verifier_modes(self._episode.environment, self._episode.task)
        if modes is None or not modes[mode]:
            return self._observed("no_verifier", error=_no_verifier(mode, self._episode.task), **self._about)
        answer = arguments.get("final_answer")
        try:
            verdict = await self._episode.averify(None if answer is None else as_text(answer))
        except ValueError as error:  # a verifier that comes to no verdict after all
            return self._observed("no_verifier", error=str(error), **self._about)
        kind = "server_error" if self._episode.fault is not None else _OUTCOMES[verdict.verdict]
        failed = verdict.verdict is Outcome.ENVIRONMENT_ERROR
        report = {
            "result": "others" if failed else kind,
            "execution_status": "error" if failed else "success",
            "raw_result": verdict.model_dump(mode="json"),
        }
        if failed:
            report["error_message"] = str(verdict.evidence.get("error", "the environment failed"))
        seen = self._observed(kind, verify_result=report, steps_taken=self._state.step_count, **self._about)
        self._record.add(
            "verify", arguments=arguments, success=True, reward_type=kind, reward=seen.reward, verify_result=report
        )
        return seen

    async def _finish(self, *, keep: bool) -> Observation:
        self._done = True
        if self._episode is None:
            return self._observed("server_error", done=True, error=f"nothing to end: {_NOT_RUNNING}")
        self._record.kept = keep
        slug = self._about["scenario"]
        databases = {f"{slug}_initial.db": self._episode.environment.snapshot}
        if keep and not self._episode.over:
            try:
                databases[f"{slug}.db"] = await self._episode.asnapshot()
            except EpisodeOver as over:
                self._record.add("done", success=False, error=str(over))
        about = {**self._about, "steps": self._state.step_count}
        path = await asyncio.to_thread(self._record.save, about, databases)
        self._episode.close()
        return Observed(
            done=True,
            reward=0.0,
            reward_type="episode_done",
            steps_taken=self._state.step_count,
            trajectory_path=path,
            session_dir=self._record.folder,
            **self._about,
        )

    # -- its parts ---------------------------------------------------------------------------------------------------

    def _chosen(self, scenario: str | None, task_idx: int | None) -> tuple[Environment, Task | None]:
        """Return what a reset asks for; raise ValueError if there is no such thing."""
        if not scenario or not isinstance(scenario, str):
            raise ValueError("reset needs the parameter 'scenario'; __list_scenarios__ lists them")
        environment = self._catalog.find(scenario)
        if environment is None:
            raise ValueError(f"there is no scenario {scenario!r}; __list_scenarios__ lists them")
        if task_idx is None:
            return environment, None
        tasks = environment.tasks
        if not isinstance(task_idx, int) or isinstance(task_idx, bool) or not 0 <= task_idx < len(tasks):
            raise ValueError(
                f"task_idx {task_idx!r} is out of range: {environment.slug} has {len(tasks)} tasks, from 0"
            )
        return environment, tasks[task_idx]

    def _observed(self, reward_type: str, *, done: bool = False, **fields: Any) -> Observed:
        name = "format_error" if reward_type in _FORMAT_ERRORS else reward_type
        default = DEFAULT_REWARDS["format_error"] if name == "format_error" else 0.0
        return Observed(reward_type=reward_type, reward=self._rewards.get(name, default), done=done, **fields)


def _rewards(given: Any) -> dict[str, float]:
    if not given:
        return DEFAULT_REWARDS
    if not isinstance(given, dict) or not all(isinstance(value, int | float) for value in given.values()):
        raise ValueError(f"reward_config is an object of numbers by reward type, not {given!r}")
    return given


def _verifier_modes(environment: Environment, task: Task | None) -> dict[str, bool] | None:
    """Return the ways in which a task can be verified here; None if there is none.

    Mode `sql` asks an LLM. This server asks none, so verifiers that only collect evidence for one are of no use to it.
    """
    source = None if task is None else environment.verifiers.get(task.number)
    if source is None or (environment.kind == "fastapi" and not _COMPLETION.search(source)):
        return None
    return {"sql": False, "code": True}


def _no_verifier(mode: str, task: Task | None) -> str:
    if task is None:
        return "nothing to verify: the reset named no task_idx"
    if mode == "sql":
        return "verifier_mode 'sql' asks an LLM, and this server asks none; use 'code'"
    return "this task has no verifier that comes to a verdict by itself"
