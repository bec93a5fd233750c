"""The verdict of a verifier's code: from what its run gave to one of the four outcomes. No LLM is asked."""

from __future__ import annotations

from typing import Any

from awm.env.errors import EnvironmentFault
from awm.env.host import Sandbox
from awm.env.results import VerifierResult
from awm.models import Outcome, Verdict

__all__ = ["VERDICTS", "code_verdict", "failed_verdict", "read_verdict", "verdict_problem"]

VERDICTS = (Outcome.COMPLETED, Outcome.PARTIALLY_COMPLETED, Outcome.AGENT_ERROR)
"""What a verifier itself may say; the fourth outcome is said of it."""


def code_verdict(
    sandbox: Sandbox, source: str, initial: bytes, final: bytes, answer: str | None, *, clock: str
) -> Verdict:
    """Run a verifier in a process of its own and read what it reports.

    A verifier that crashes, hangs, fails in SQL or reports something else than a verdict gives
    `environment_error`: it is the environment that failed, not the agent. Raises ModuleError for a source that is no
    verifier and EnvironmentFault for databases that can't be opened.
    """
    return read_verdict(sandbox.verify(source, initial, final, answer, clock=clock))


def read_verdict(result: VerifierResult) -> Verdict:
    """The verdict in a verifier's result; `environment_error` with the reason as evidence when there is none."""
    problem = verdict_problem(result)
    if problem is not None:
        return failed_verdict(problem)
    assert result.value is not None
    return Verdict(verdict=Outcome(result.value["verdict"]), evidence=result.value["evidence"])


def failed_verdict(reason: str | EnvironmentFault) -> Verdict:
    """The verdict where the environment failed: `environment_error`, with the reason as evidence."""
    return Verdict(verdict=Outcome.ENVIRONMENT_ERROR, evidence={"error": str(reason)})


def verdict_problem(result: VerifierResult) -> str | None:
    """What is wrong with a verifier's result; None when it is a verdict with evidence."""
    where = f" (line {result.line})" if result.line else ""
    if not result.ok:
        return f"{result.kind}: {result.message}{where}"
    value: Any = result.value
    if not isinstance(value, dict) or set(value) != {"verdict", "evidence"}:
        return 'it must return {"verdict": ..., "evidence": {...}}'
    if value["verdict"] not in VERDICTS:
        return f"verdict {value['verdict']!r} is not one of {', '.join(VERDICTS)}"
    if not isinstance(value["evidence"], dict):
        return "evidence must be a dict"
    return None
