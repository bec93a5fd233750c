"""Stage `schemas`: the SQLite schema of each scenario, executed before it is kept.

Reads data/scenarios and data/tasks; writes data/schemas/<slug>.sql. Run by `dvc repro schemas`.
"""

from __future__ import annotations

from awm.config import Params
from awm.models import Scenario, TaskSet
from awm.store import Layout, write_atomic
from awm.synth.loop.report import artifacts, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.schemas import SchemasStep, Sql, schema_items


async def main(params: Params, layout: Layout) -> None:
    """Ask for the schema of every scenario that has tasks."""
    step = SchemasStep(params.schemas, params.databases.clock)
    tasks = {entry.slug: entry for entry in layout.read_models("tasks", TaskSet)}
    items = schema_items(layout.read_models("scenarios", Scenario), tasks, step)
    async with Runner.create(params, step.name) as runner:
        records = await runner.run(step, items)

    clear(layout.step("schemas"))
    for slug, artifact in artifacts(records).items():
        write_atomic(layout.file("schemas", slug, ".sql"), Sql.model_validate(artifact).sql)
    write_report(layout, step.name, records, runner.llm)


if __name__ == "__main__":
    run_stage(main)
