"""`awm serve`, on a project folder with the lending library."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from typer.testing import CliRunner

from awm.env.cells import join_cells
from awm.models import EnvironmentSummary
from awm.serve.commands import serve
from awm.store import Layout, write_atomic
from awm.synth.databases import initial_state, summarise
from serve.library_server import VARIABLES
from synth.library_environment import CLOCK, DATA, MODULE, SCENARIO, SCHEMA, TASKS, TOOLSET, VERIFIER

SLUG = SCENARIO.slug
COMMAND = [sys.executable, "-c", "import typer; from awm.serve.commands import serve; typer.run(serve)"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with one environment, as the current folder."""
    layout = Layout(tmp_path)
    database = initial_state(SCHEMA, DATA, CLOCK)
    summary = summarise(SLUG, database, CLOCK)
    kept = EnvironmentSummary(
        slug=SLUG,
        name=SCENARIO.name,
        category=SCENARIO.category,
        tables=3,
        rows=9,
        tools=3,
        read_only_tools=1,
        code_lines=80,
        tasks=(1,),
        task_kinds={},
        clock=CLOCK,
        content_hash=summary.content_hash,
        unreached_tools=(),
        tools_sha256=hashlib.sha256(MODULE.encode()).hexdigest(),
    )
    parts = {"scenarios": SCENARIO, "tasks": TASKS, "toolsets": TOOLSET, "databases": summary, "environments": kept}
    for step, value in parts.items():
        layout.write_model(step, SLUG, value)
    write_atomic(layout.file("databases", SLUG, ".db"), database)
    write_atomic(layout.file("tools", SLUG, ".py"), MODULE)
    write_atomic(layout.file("verifiers", SLUG, ".py"), join_cells({"1": VERIFIER}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Run the command until the block ends; give the address that it prints."""
    command = [*COMMAND, *arguments, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=VARIABLES) as server:
        assert server.stderr is not None
        address = re.search(r"http://[0-9.:]+", server.stderr.readline())
        assert address is not None
        try:
            yield address.group()
        finally:
            server.send_signal(signal.SIGINT)
            assert server.wait(30) == 0


MISTAKES = [
    ((), "name one environment, or say --all"),
    ((SLUG, "--all"), "name one environment, or say --all"),
    (("--all", "--transport", "stdio"), "over stdio one environment is served"),
    ((SLUG, "--openenv", "--transport", "stdio"), "over stdio one environment is served"),
    (("no_such",), "no environment 'no_such' in data; there are: lending_library"),
    ((SLUG, "--host", "192.0.2.1"), "can't serve at 192.0.2.1:8000"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_a_mistake_is_one_line(project: Path, arguments: tuple[str, ...], said: str) -> None:
    app = typer.Typer()
    app.command()(serve)
    result = CliRunner().invoke(app, list(arguments))

    assert result.exit_code == 1
    assert said in result.output
    assert result.output.count("\n") == 1


async def test_one_environment_over_http(project: Path) -> None:
    with serving(SLUG) as url:
        async with Client(f"{url}/mcp") as client:
            assert (await client.call_tool("renew_loan", {"loan_id": 1})).data["renewals"] == 1


async def test_all_environments_over_http(project: Path) -> None:
    with serving("--all") as url:
        async with Client(f"{url}/{SLUG}/mcp") as client:
            assert len(await client.list_tools()) == 3


async def test_one_environment_over_stdio(project: Path) -> None:
    arguments = [*COMMAND[1:], SLUG, "--transport", "stdio"]
    async with Client(StdioTransport(COMMAND[0], arguments, env=VARIABLES, keep_alive=False)) as client:
        assert len(await client.list_tools()) == 3


async def test_for_openenv(project: Path) -> None:
    generic = pytest.importorskip("openenv.core.generic_client", reason="needs the extra `openenv`")
    with serving("--openenv") as url:
        async with generic.GenericEnvClient(base_url=url) as client:
            assert (await client.reset(scenario=SLUG, task_idx=0)).observation["task"] == TASKS.tasks[0].text
