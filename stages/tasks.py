"""Stage `tasks`: what the signed-in user asks for in each scenario.

Reads data/scenarios; writes data/tasks/<slug>.json. Run by `dvc repro tasks`.
"""

from __future__ import annotations

from collections import Counter

from awm.config import Params
from awm.models import Scenario, TaskSet
from awm.store import Layout
from awm.synth.loop.report import artifacts, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.tasks import TasksStep, task_items


async def main(params: Params, layout: Layout) -> None:
    """Ask for the tasks of every scenario."""
    step = TasksStep(params.tasks, today=params.databases.clock[:10])
    async with Runner.create(params, step.name) as runner:
        records = await runner.run(step, task_items(layout.read_models("scenarios", Scenario), step))

    clear(layout.step("tasks"))
    sets = {slug: TaskSet.model_validate(artifact) for slug, artifact in artifacts(records).items()}
    for slug, tasks in sets.items():
        layout.write_model("tasks", slug, tasks)
    kinds = Counter(task.kind.value for tasks in sets.values() for task in tasks.tasks)
    write_report(layout, step.name, records, runner.llm, figures={"tasks_by_kind": dict(sorted(kinds.items()))})


if __name__ == "__main__":
    run_stage(main)
