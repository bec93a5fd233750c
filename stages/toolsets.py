"""Stage `toolsets`: the specification of each scenario's tools.

Reads data/scenarios, data/tasks and data/schemas; writes data/toolsets/<slug>.json. Run by `dvc repro toolsets`.
"""

from __future__ import annotations

from awm.config import Params
from awm.models import Scenario, TaskSet, Toolset
from awm.store import Layout
from awm.synth.design import design_items
from awm.synth.loop.report import artifacts, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.toolsets import ToolsetsStep


async def main(params: Params, layout: Layout) -> None:
    """Ask for the toolset of every scenario that has a schema."""
    step = ToolsetsStep(params.toolsets, params.databases.clock)
    tasks = {entry.slug: entry for entry in layout.read_models("tasks", TaskSet)}
    schemas = {slug: layout.read_text("schemas", slug, ".sql") for slug in layout.slugs("schemas", ".sql")}
    items = design_items(
        layout.read_models("scenarios", Scenario), tasks, schemas, params.toolsets, params.databases.clock
    )
    async with Runner.create(params, step.name) as runner:
        records = await runner.run(step, items)

    clear(layout.step("toolsets"))
    toolsets = {slug: Toolset.model_validate(artifact) for slug, artifact in artifacts(records).items()}
    for slug, toolset in toolsets.items():
        layout.write_model("toolsets", slug, toolset)
    write_report(
        layout, step.name, records, runner.llm, figures={"tools": sum(len(entry.tools) for entry in toolsets.values())}
    )


if __name__ == "__main__":
    run_stage(main)
