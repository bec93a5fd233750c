"""The filter, on whole and broken environments in a real sandbox."""

from __future__ import annotations

from dataclasses import replace

import pytest

from awm.config import FilterConfig
from awm.env import Sandbox
from awm.models import EnvironmentSummary, ModuleSummary, Rejection
from awm.synth.databases import initial_state, summarise
from awm.synth.filter import Candidate, judge_candidate
from synth.library_environment import CLOCK, DATA, MODULE, SCENARIO, SCHEMA, TASKS, TOOLSET, VERIFIER

SNAPSHOT = initial_state(SCHEMA, DATA, CLOCK)
OTHER = initial_state(SCHEMA, DATA.replace("'Emma', 2", "'Emma', 3"), CLOCK)
WHOLE = Candidate(
    scenario=SCENARIO,
    tasks=TASKS.tasks,
    toolset=TOOLSET,
    summary=summarise(SCENARIO.slug, SNAPSHOT, CLOCK),
    snapshot=SNAPSHOT,
    source=MODULE,
    module=ModuleSummary(slug=SCENARIO.slug, unreached=("return_loan",)),
    verifiers={1: VERIFIER, 2: VERIFIER},
)


def test_a_whole_environment_is_summarised(sandbox: Sandbox) -> None:
    summary = judge_candidate(sandbox, WHOLE, FilterConfig(min_tasks=2))

    assert isinstance(summary, EnvironmentSummary)
    assert (summary.tables, summary.rows, summary.tools, summary.read_only_tools) == (3, 9, 3, 1)
    assert (summary.tasks, summary.unreached_tools) == ((1, 2), ("return_loan",))


@pytest.mark.parametrize(
    ("change", "reason", "said"),
    [
        ({"source": None}, "incomplete", "has no tools"),
        ({"toolset": None, "summary": None}, "incomplete", "has no toolset, database"),
        ({"source": MODULE.replace("def return_loan(", "def give_back(")}, "does_not_start", "return_loan is missing"),
        ({"source": "import os\n"}, "does_not_start", "os"),
        ({"snapshot": OTHER}, "does_not_start", "content hash"),
        ({"verifiers": {1: VERIFIER}}, "few_tasks", "1 tasks have a sound verifier"),
        ({"verifiers": {1: VERIFIER, 2: VERIFIER.replace("agent_error", "completed")}}, "few_tasks", "1 tasks"),
        ({"verifiers": {1: VERIFIER, 2: VERIFIER.replace("b.title", "b.titel")}}, "few_tasks", "1 tasks"),
        ({"verifiers": {1: VERIFIER, 2: "def verify("}}, "few_tasks", "1 tasks"),
    ],
)
def test_a_broken_environment_is_rejected_with_its_reason(
    sandbox: Sandbox, change: dict[str, object], reason: str, said: str
) -> None:
    rejection = judge_candidate(sandbox, replace(WHOLE, **change), FilterConfig(min_tasks=2))  # type: ignore[arg-type]

    assert isinstance(rejection, Rejection)
    assert rejection.reason == reason
    assert said in rejection.detail
