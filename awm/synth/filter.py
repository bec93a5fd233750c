"""The filter: start every environment as a user would, and keep those that are whole. No LLM is asked."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from awm.config import FilterConfig
from awm.env.errors import EnvironmentFault
from awm.env.host import Sandbox
from awm.models import DatabaseSummary, EnvironmentSummary, ModuleSummary, Outcome, Rejection, Scenario, Task, Toolset
from awm.synth.tools import signature_problems
from awm.verify.code import code_verdict

__all__ = ["Candidate", "judge_candidate"]


@dataclass(frozen=True)
class Candidate:
    """The parts of an environment; a part is None when its step rejected it."""

    scenario: Scenario
    tasks: Sequence[Task]
    toolset: Toolset | None
    summary: DatabaseSummary | None
    snapshot: bytes | None
    source: str | None
    module: ModuleSummary | None
    verifiers: Mapping[int, str]


def judge_candidate(sandbox: Sandbox, candidate: Candidate, config: FilterConfig) -> EnvironmentSummary | Rejection:
    """A summary of the environment when it is whole, or the reason why it is not kept.

    It must have all parts, start in the sandbox, offer exactly the tools of its toolset, and have at least
    `config.min_tasks` tasks whose verifier gives a verdict other than `completed` on the untouched state.
    """
    slug = candidate.scenario.slug
    toolset, summary, snapshot, source = candidate.toolset, candidate.summary, candidate.snapshot, candidate.source
    if toolset is None or summary is None or snapshot is None or source is None:
        parts = {"toolset": toolset, "database": summary, "tools": source}
        missing = ", ".join(name for name, part in parts.items() if part is None)
        return _rejection(slug, "incomplete", f"has no {missing}")
    if problem := _start_problem(sandbox, source, toolset, snapshot, summary):
        return _rejection(slug, "does_not_start", problem)
    good = [
        task for task in candidate.tasks if _is_sound(sandbox, candidate.verifiers.get(task.number), snapshot, summary)
    ]
    if len(good) < config.min_tasks:
        return _rejection(
            slug, "few_tasks", f"{len(good)} tasks have a sound verifier, filter.min_tasks is {config.min_tasks}"
        )
    kinds = Counter(task.kind for task in good)
    return EnvironmentSummary(
        slug=slug,
        name=candidate.scenario.name,
        category=candidate.scenario.category,
        tables=len(summary.tables),
        rows=sum(summary.tables.values()),
        tools=len(toolset.tools),
        read_only_tools=sum(tool.read_only for tool in toolset.tools),
        code_lines=len(source.splitlines()),
        tasks=tuple(task.number for task in good),
        task_kinds=dict(sorted(kinds.items())),
        unreached_tools=candidate.module.unreached if candidate.module else (),
        clock=summary.clock,
        content_hash=summary.content_hash,
        tools_sha256=hashlib.sha256(source.encode()).hexdigest(),
    )


def _rejection(slug: str, reason: str, detail: str) -> Rejection:
    return Rejection(step="filter", item=slug, reason=reason, detail=detail)


def _start_problem(
    sandbox: Sandbox, source: str, toolset: Toolset, snapshot: bytes, summary: DatabaseSummary
) -> str | None:
    """What keeps an environment from starting: its module, its tools, or its database."""
    try:
        with sandbox.worker() as worker:
            problems = signature_problems(toolset, worker.load(source))
            worker.open("start", snapshot, summary.clock)
            found = worker.content_hash("start")
    except EnvironmentFault as fault:
        return str(fault)
    if found != summary.content_hash:
        return "the database's content hash differs from the one recorded beside it"
    return "; ".join(problem.message for problem in problems[:3]) or None


def _is_sound(sandbox: Sandbox, verifier: str | None, snapshot: bytes, summary: DatabaseSummary) -> bool:
    if verifier is None:
        return False
    try:
        verdict = code_verdict(sandbox, verifier, snapshot, snapshot, None, clock=summary.clock)
    except EnvironmentFault:
        return False
    return verdict.verdict not in (Outcome.COMPLETED, Outcome.ENVIRONMENT_ERROR)
