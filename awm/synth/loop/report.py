"""What a step leaves besides its artifacts: rejects, the answers it used, and its metrics."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from awm.llm.client import LLM
from awm.llm.recording import write_shards
from awm.llm.request import Usage
from awm.models import Rejection
from awm.store import Layout, pretty_json, write_atomic
from awm.synth.loop.runner import ItemRecord

__all__ = ["StageFailed", "artifacts", "clear", "step_metrics", "write_report"]


class StageFailed(Exception):
    """A step that nothing came of: later stages would build on nothing."""


def clear(folder: Path) -> None:
    """Empty a step's output folder, so that nothing of an earlier run stays in it."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)


def artifacts(records: Sequence[ItemRecord]) -> dict[str, dict[str, Any]]:
    """Artifacts of the items that passed, by item."""
    return {record.item: record.artifact for record in records if record.artifact is not None}


def step_metrics(records: Sequence[ItemRecord], llm: LLM) -> dict[str, Any]:
    """Figures of a step: success, attempts, tokens, cost in US dollars at the price of `llm.model`, failures by reason.

    First-try success, final success and mean attempts are over all items but those that the recordings hold no answer
    for, which are counted as `not_recorded`.
    """
    unanswered = [record for record in records if record.reason == "not_recorded"]
    count = len(records) - len(unanswered)
    passed = [record for record in records if record.status == "passed"]
    attempts = [attempt for record in records for attempt in record.attempts]
    usage = Usage(
        input_tokens=sum(attempt.input_tokens for attempt in attempts),
        cached_input_tokens=sum(attempt.cached_input_tokens for attempt in attempts),
        output_tokens=sum(attempt.output_tokens for attempt in attempts),
    )
    price = llm.cost(usage, llm.config.model)
    failures = Counter(reason for attempt in attempts for reason in attempt.reasons)
    rejects = Counter(record.reason for record in records if record.status == "rejected")
    return {
        "items": count,
        "passed": len(passed),
        "rejected": count - len(passed),
        "not_recorded": len(unanswered),
        "first_try_success": _share(sum(len(record.attempts) == 1 for record in passed), count),
        "final_success": _share(len(passed), count),
        "mean_attempts": round(len(attempts) / count, 4) if count else 0.0,
        "input_tokens": usage.input_tokens,
        "cached_input_tokens": usage.cached_input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": round(price, 4) if price is not None else None,
        "changed_prompts": sum(record.changed_prompts for record in records),
        "failed_attempts_by_reason": dict(sorted(failures.items())),
        "rejects_by_reason": dict(sorted(rejects.items())),
    }


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def write_report(
    layout: Layout,
    step: str,
    records: Sequence[ItemRecord],
    llm: LLM,
    *,
    rejections: Sequence[Rejection] | None = None,
    figures: dict[str, Any] | None = None,
) -> None:
    """Write rejects, answers and metrics of a step, and print what became of its items.

    `rejections` replaces the list that follows from the records; `figures` are added to the metrics. Raises
    StageFailed when no item passed.
    """
    if rejections is None:
        rejections = [record.rejection(step) for record in records if record.status == "rejected"]
    ordered: list[Rejection] = sorted(rejections, key=lambda entry: entry.item)
    layout.write_rejects(step, ordered)
    clear(layout.llm(step))
    write_shards(layout.llm(step), [entry for record in records for entry in record.entries])
    metrics = {**step_metrics(records, llm), **(figures or {})}
    write_atomic(layout.metrics(step), pretty_json(metrics))
    print(f"{step}: {metrics['passed']} of {metrics['items']} items passed, {metrics['mean_attempts']} attempts each")
    if metrics["changed_prompts"]:
        print(f"{step}: {metrics['changed_prompts']} recorded answers were given to another prompt than today's")
    for entry in ordered[:20]:
        print(f"{step}: rejected {entry.item}: {entry.reason}: {entry.detail[:300]}")
    if len(ordered) > 20:
        print(f"{step}: … and {len(ordered) - 20} more in {layout.rejects(step)}")
    if not metrics["passed"]:
        why = f"all {len(records)} items were rejected" if records else "there was no item to work on"
        raise StageFailed(f"{why}, so nothing is left for later stages; see above, and {layout.rejects(step)}")
