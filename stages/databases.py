"""Stage `databases`: sample data in which every task can be carried out, and the initial state that it makes.

Reads data/scenarios, data/tasks and data/schemas; writes data/databases/<slug>.sql (the rows as statements),
<slug>.db (the SQLite file) and <slug>.json (its figures and content hash). Run by `dvc repro databases`.
"""

from __future__ import annotations

from awm.config import Params
from awm.models import Scenario, TaskSet
from awm.store import Layout, write_atomic
from awm.synth.databases import DatabasesStep, initial_state, summarise
from awm.synth.design import design_items
from awm.synth.loop.report import artifacts, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.schemas import Sql


async def main(params: Params, layout: Layout) -> None:
    """Ask for the sample data of every scenario that has a schema."""
    step = DatabasesStep(params.databases)
    clock = params.databases.clock
    tasks = {entry.slug: entry for entry in layout.read_models("tasks", TaskSet)}
    schemas = {slug: layout.read_text("schemas", slug, ".sql") for slug in layout.slugs("schemas", ".sql")}
    items = design_items(
        layout.read_models("scenarios", Scenario), tasks, schemas, params.databases, params.databases.clock
    )
    async with Runner.create(params, step.name) as runner:
        records = await runner.run(step, items)

    clear(layout.step("databases"))
    rows = 0
    for slug, artifact in artifacts(records).items():
        sql = Sql.model_validate(artifact).sql
        snapshot = initial_state(schemas[slug], sql, clock)
        summary = summarise(slug, snapshot, clock)
        rows += sum(summary.tables.values())
        write_atomic(layout.file("databases", slug, ".sql"), sql)
        write_atomic(layout.file("databases", slug, ".db"), snapshot)
        layout.write_model("databases", slug, summary)
    write_report(layout, step.name, records, runner.llm, figures={"rows": rows})


if __name__ == "__main__":
    run_stage(main)
