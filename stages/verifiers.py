"""Stage `verifiers`: for each task, code that tells from both databases and the answer whether it was done.

Reads data/scenarios, data/tasks, data/schemas, data/databases, data/toolsets and data/tools (only environments
with working tools
get verifiers); writes data/verifiers/<slug>.py, one cell (`# %% 03`) per task. Run by `dvc repro verifiers`.
"""

from __future__ import annotations

from awm.config import Params
from awm.env.cells import join_cells
from awm.models import DatabaseSummary, Scenario, TaskSet, Toolset
from awm.store import Layout, write_atomic
from awm.synth.checking import make_sandbox
from awm.synth.databases import read_snapshot
from awm.synth.loop.report import artifacts, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.tools import Code
from awm.synth.verifiers import VerifiersStep, VerifierSubject, verifier_items


def subjects(layout: Layout) -> list[VerifierSubject]:
    """Tasks of the scenarios that have working tools."""
    ready = set(layout.slugs("tools", ".py"))
    found = []
    for scenario in layout.read_models("scenarios", Scenario):
        if scenario.slug not in ready:
            continue
        summary = layout.read_model("databases", scenario.slug, DatabaseSummary)
        schema = layout.read_text("schemas", scenario.slug, ".sql")
        toolset = layout.read_model("toolsets", scenario.slug, Toolset)
        snapshot = read_snapshot(layout, summary)
        found += [
            VerifierSubject(scenario, schema, toolset, snapshot, summary.clock, summary.content_hash, task)
            for task in layout.read_model("tasks", scenario.slug, TaskSet).tasks
        ]
    return found


async def main(params: Params, layout: Layout) -> None:
    """Ask for a verifier of every task, and run each on the untouched state."""
    with make_sandbox(params.sandbox) as sandbox:
        step = VerifiersStep(params.verifiers, sandbox)
        async with Runner.create(params, step.name) as runner:
            records = await runner.run(step, verifier_items(subjects(layout), params.verifiers, params.sandbox))

    clear(layout.step("verifiers"))
    cells: dict[str, dict[str, str]] = {}
    for item, artifact in artifacts(records).items():
        slug, number = item.split("/")
        cells.setdefault(slug, {})[number] = Code.model_validate(artifact).source
    for slug, sources in cells.items():
        write_atomic(layout.file("verifiers", slug, ".py"), join_cells(sources))
    write_report(layout, step.name, records, runner.llm)


if __name__ == "__main__":
    run_stage(main)
