"""What the verifiers of AgentWorldModel-1K report, in our words: a verdict, or evidence for a judge."""

from __future__ import annotations

from typing import Any

from awm.env.results import VerifierResult
from awm.env.verdict import failed_verdict
from awm.models import Outcome, Verdict

__all__ = ["NoVerdictError", "published_evidence", "published_verdict"]

_OUTCOMES = {"complete": Outcome.COMPLETED, "others": Outcome.AGENT_ERROR}


class NoVerdictError(ValueError):
    """The verifier comes to no verdict: it only collects evidence, for a judge to read."""


def published_verdict(result: VerifierResult) -> Verdict:
    """Return the verdict in what `Sandbox.verify_published` gave.

    `complete` is `completed`, `others` is `agent_error`; a verifier that fails, or says anything else, gives
    `environment_error`. Raises NoVerdictError for evidence without a verdict.
    """
    if not result.ok:
        where = f" (line {result.line})" if result.line else ""
        return failed_verdict(f"{result.kind}: {result.message}{where}")
    form, value = _parts(result)
    if form == "evidence":
        raise NoVerdictError("this verifier only collects evidence for a judge, and comes to no verdict of its own")
    if not isinstance(value, dict) or value.get("result") not in _OUTCOMES:
        return failed_verdict(f'the verifier must return {{"result": "complete"}} or "others", not {str(value)[:200]}')
    return Verdict(verdict=_OUTCOMES[value["result"]], evidence=value)


def published_evidence(result: VerifierResult) -> dict[str, Any]:
    """Return the evidence in what `Sandbox.verify_published` gave; a verifier that failed gives `{"error": ...}`."""
    if not result.ok:
        return failed_verdict(f"{result.kind}: {result.message}").evidence
    _, value = _parts(result)
    return value if isinstance(value, dict) else {"error": f"the verifier must return a dict, not {str(value)[:200]}"}


def _parts(result: VerifierResult) -> tuple[str, Any]:
    value = result.value or {}
    return str(value.get("form")), value.get("result")
