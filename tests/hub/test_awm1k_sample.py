"""Real published environments, where a checkout has them beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from awm.env import Environment, Sandbox
from awm.hub.awm1k import ImportReport, import_awm1k
from awm.models import Outcome

SLUGS = ["rover", "gofundme", "fortnite_item_shop"]


def sample() -> Path | None:
    """Return the folder with the published files: `../shared/data/awm-1k-sample`, seen from the checkout."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "shared" / "data" / "awm-1k-sample"
        if folder.is_dir():
            return folder
    return None


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory, sandbox: Sandbox) -> tuple[Path, ImportReport]:
    published = sample()
    if published is None:
        pytest.skip("no published sample beside this checkout")
    folder = tmp_path_factory.mktemp("sample")
    return folder, import_awm1k(published, folder, sandbox=sandbox)


@pytest.fixture(params=SLUGS)
def real(
    request: pytest.FixtureRequest, imported: tuple[Path, ImportReport], sandbox: Sandbox
) -> Iterator[Environment]:
    with Environment.load(imported[0], request.param, sandbox=sandbox) as environment:
        yield environment


def test_all_are_imported_whole(imported: tuple[Path, ImportReport]) -> None:
    _, report = imported

    assert [environment.slug for environment in report.environments] == SLUGS
    assert not report.rejected and not report.problems
    assert [environment.verifiers for environment in report.environments] == [10, 10, 10]
    assert [environment.tools for environment in report.environments] == [17, 10, 11]
    assert not any(environment.findings for environment in report.environments)


def test_every_tool_answers(real: Environment) -> None:
    with real.episode() as episode:
        for tool in real.tools:
            assert episode.call(tool.name, {"no_such_argument": 1}).kind == "invalid_arguments"
        reads = [tool for tool in real.tools if not tool.parameters.get("required")]
        assert reads
        assert any(episode.call(tool.name).ok for tool in reads)
        assert episode.fault is None


def test_every_verifier_runs_and_refuses_the_untouched_state(real: Environment) -> None:
    verdicts = {task.number: real.verify(task.number, real.snapshot, "Done.") for task in real.tasks}

    assert {number: verdict.verdict for number, verdict in verdicts.items()} == dict.fromkeys(
        range(1, 11), Outcome.AGENT_ERROR
    )


def test_an_unknown_id_that_crashes_a_tool_is_the_environments_bug(
    imported: tuple[Path, ImportReport], sandbox: Sandbox
) -> None:
    environment = Environment.load(imported[0], "rover", sandbox=sandbox)
    with environment, environment.episode() as episode:
        result = episode.call("get_booking", {"booking_id": 987654321})

        assert result.kind == "crash" and result.is_bug
        assert "NoneType" in result.message
        assert episode.bugs == 1
        assert episode.call("list_message_threads").ok


def test_a_task_can_be_done(imported: tuple[Path, ImportReport], sandbox: Sandbox) -> None:
    """Writes through the tools change the state, at the frozen time."""
    environment = Environment.load(imported[0], "rover", sandbox=sandbox)
    with environment, environment.episode(task=1) as episode:
        pet = episode.call("create_pet", {"name": "Rex", "species": "dog"})

        assert pet.ok
        assert pet.value["created_at"].startswith("2026-02-01T12:00:00")
        assert [row["name"] for row in episode.diff()["pets"]["added"]] == ["Rex"]
