"""Stage `scenarios`: from names of well-known kinds of applications to distinct, stateful scenarios.

Reads data/seeds/applications.txt; writes data/scenarios/<slug>.json. Run by `dvc repro scenarios`.
"""

from __future__ import annotations

from collections import Counter

from awm.config import Params
from awm.store import Layout, StoreError
from awm.synth.loop.report import StageFailed, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.scenarios import build_scenarios
from awm.synth.similarity import make_embedder

SEEDS = "seeds/applications.txt"


def read_seeds(layout: Layout) -> list[str]:
    """Seed names, one a line; empty lines and lines that start with # don't count."""
    path = layout.data / SEEDS
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        raise StoreError(f"{path}: not found; it holds one application name a line") from None
    except UnicodeDecodeError as error:
        raise StoreError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    seeds = [line for line in lines if line and not line.startswith("#")]
    if not seeds:
        raise StoreError(f"{path}: holds no names; write one application name a line")
    return seeds


async def main(params: Params, layout: Layout) -> None:
    """Build the scenarios and say why they are fewer than asked for, when they are."""
    config = params.scenarios
    async with Runner.create(params, "scenarios") as runner:
        build = await build_scenarios(runner, config, read_seeds(layout), make_embedder(config.embedding, params.llm))

    clear(layout.step("scenarios"))
    for scenario in build.scenarios:
        layout.write_model("scenarios", scenario.slug, scenario)
    figures = {
        "asked_for": config.count,
        "scenarios": len(build.scenarios),
        "candidates": build.candidates,
        "surplus": build.surplus,
        "candidates_rejected_by_reason": dict(sorted(Counter(entry.reason for entry in build.rejections).items())),
        "categories": len({scenario.category for scenario in build.scenarios}),
        "concept_clusters": build.clusters,
    }
    print(
        f"scenarios: {build.candidates} candidates: {len(build.scenarios)} kept, {len(build.rejections)} rejected, "
        f"{build.surplus} more than were asked for"
    )
    write_report(layout, "scenarios", build.records, runner.llm, rejections=build.rejections, figures=figures)
    if not build.scenarios:
        raise StageFailed(f"no scenario was found: {build.shortfall}")
    if build.shortfall:
        print(f"scenarios: {build.shortfall}")


if __name__ == "__main__":
    run_stage(main)
