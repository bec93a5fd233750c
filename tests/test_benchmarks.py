"""The benchmark's environment is what it says, and every measurement runs."""

from __future__ import annotations

import math

import pytest

from awm.env import Sandbox
from awm.env.database import open_database, table_counts
from awm.models import Outcome
from benchmarks import machine, runtime
from benchmarks.synthetic import READ, READ_MODEL, WRITE, synthetic_environment


@pytest.fixture(scope="module")
def sandbox():
    """A sandbox for all tests here."""
    with Sandbox() as sandbox:
        yield sandbox


def test_the_synthetic_environment_is_of_the_usual_size(sandbox: Sandbox):
    environment = synthetic_environment(sandbox=sandbox)
    assert environment.snapshot == synthetic_environment(sandbox=sandbox).snapshot
    counts = table_counts(open_database(environment.snapshot))
    assert len(counts) >= 18 and sum(counts.values()) >= 500
    assert len(environment.tools) >= 30
    with environment.episode(task=1) as episode:
        assert all(episode.call(*call).ok for call in (READ, READ_MODEL))
        assert episode.verify("7").verdict is Outcome.AGENT_ERROR
        assert episode.call(*WRITE).ok
        assert episode.verify("7").verdict is Outcome.COMPLETED


@pytest.mark.parametrize("name", ["reset", "batch", "live"])
def test_a_measurement_gives_figures(sandbox: Sandbox, name: str):
    subject = runtime.Subject(synthetic_environment(sandbox=sandbox), READ, WRITE, READ_MODEL, live=2)
    figures = runtime.MEASURES[name](subject)
    assert figures and all(math.isfinite(value) and value > 0 for value in figures.values())


def test_the_machine_is_measured_too():
    assert all(value > 0 for value in machine.floors().values())
