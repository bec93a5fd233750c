"""Stage `filter`: start every environment, and keep those that are whole.

Reads the outputs of all earlier stages; writes data/environments/<slug>.json for each environment that is
kept. No LLM is asked. Run by `dvc repro filter`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from awm.config import Params
from awm.env.cells import split_cells
from awm.models import DatabaseSummary, EnvironmentSummary, ModuleSummary, Rejection, Scenario, TaskSet, Toolset
from awm.store import Layout, pretty_json, write_atomic
from awm.synth.checking import make_sandbox
from awm.synth.databases import read_snapshot
from awm.synth.filter import Candidate, judge_candidate
from awm.synth.loop.report import StageFailed, clear
from awm.synth.loop.stage import run_stage

WORKERS = 4


def candidates(layout: Layout) -> list[Candidate]:
    """Every scenario with whatever parts its steps have made of it."""
    made = {step: set(layout.slugs(step, suffix)) for step, suffix in PARTS.items()}
    found = []
    for scenario in layout.read_models("scenarios", Scenario):
        slug = scenario.slug
        has = {step: slug in slugs for step, slugs in made.items()}
        summary = layout.read_model("databases", slug, DatabaseSummary) if has["databases"] else None
        cells = split_cells(layout.read_text("verifiers", slug, ".py")) if has["verifiers"] else {}
        found.append(
            Candidate(
                scenario=scenario,
                tasks=layout.read_model("tasks", slug, TaskSet).tasks if has["tasks"] else (),
                toolset=layout.read_model("toolsets", slug, Toolset) if has["toolsets"] else None,
                summary=summary,
                snapshot=read_snapshot(layout, summary) if summary else None,
                source=layout.read_text("tools", slug, ".py") if has["tools"] else None,
                module=layout.read_model("tools", slug, ModuleSummary) if has["tools"] else None,
                verifiers={int(number): source for number, source in cells.items()},
            )
        )
    return found


PARTS = {"tasks": ".json", "databases": ".json", "toolsets": ".json", "tools": ".py", "verifiers": ".py"}


def figures(kept: list[EnvironmentSummary], rejected: list[Rejection]) -> dict[str, Any]:
    """Metrics over the environments that are kept."""

    def mean(values: list[int]) -> float:
        return round(sum(values) / len(values), 2) if values else 0.0

    return {
        "environments": len(kept),
        "rejected": len(rejected),
        "rejects_by_reason": dict(sorted(Counter(entry.reason for entry in rejected).items())),
        "tasks": sum(len(entry.tasks) for entry in kept),
        "tools": sum(entry.tools for entry in kept),
        "unreached_tools": sum(len(entry.unreached_tools) for entry in kept),
        "categories": len({entry.category for entry in kept}),
        "mean_tables": mean([entry.tables for entry in kept]),
        "mean_rows": mean([entry.rows for entry in kept]),
        "mean_tools": mean([entry.tools for entry in kept]),
        "mean_code_lines": mean([entry.code_lines for entry in kept]),
        "mean_tasks": mean([len(entry.tasks) for entry in kept]),
    }


async def main(params: Params, layout: Layout) -> None:
    """Judge every environment, and write down what is kept."""
    found = candidates(layout)
    with make_sandbox(params.sandbox) as sandbox, ThreadPoolExecutor(WORKERS) as threads:
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(threads, judge_candidate, sandbox, entry, params.filter) for entry in found]
        results = await asyncio.gather(*jobs)

    kept = [result for result in results if isinstance(result, EnvironmentSummary)]
    rejected = [result for result in results if isinstance(result, Rejection)]
    clear(layout.step("environments"))
    for summary in kept:
        layout.write_model("environments", summary.slug, summary)
    layout.write_rejects("filter", rejected)
    write_atomic(layout.metrics("filter"), pretty_json(figures(kept, rejected)))
    print(f"filter: {len(kept)} of {len(found)} environments kept")
    for entry in rejected:
        print(f"filter: rejected {entry.item}: {entry.reason}: {entry.detail[:300]}")
    if not kept:
        raise StageFailed(f"no environment is whole; see above, and {layout.rejects('filter')}")


if __name__ == "__main__":
    run_stage(main)
