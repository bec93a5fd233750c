"""Stage `tools`: the Python module behind each toolset, loaded and tried in the sandbox.

Reads data/scenarios, data/schemas, data/databases and data/toolsets; writes data/tools/<slug>.py and
<slug>.json (tools that never succeeded). Run by `dvc
repro tools`.
"""

from __future__ import annotations

from awm.config import Params
from awm.models import DatabaseSummary, ModuleSummary, Scenario, Toolset
from awm.store import Layout, write_atomic
from awm.synth.checking import make_sandbox
from awm.synth.databases import read_snapshot
from awm.synth.loop.report import artifacts, clear, write_report
from awm.synth.loop.runner import Runner
from awm.synth.loop.stage import run_stage
from awm.synth.tools import Module, ToolsStep, ToolsSubject, tools_items


def subjects(layout: Layout) -> list[ToolsSubject]:
    """Scenarios that have both a toolset and an initial state."""
    ready = set(layout.slugs("toolsets", ".json")) & set(layout.slugs("databases", ".json"))
    found = []
    for scenario in layout.read_models("scenarios", Scenario):
        if scenario.slug in ready:
            summary = layout.read_model("databases", scenario.slug, DatabaseSummary)
            found.append(
                ToolsSubject(
                    scenario=scenario,
                    schema=layout.read_text("schemas", scenario.slug, ".sql"),
                    toolset=layout.read_model("toolsets", scenario.slug, Toolset),
                    snapshot=read_snapshot(layout, summary),
                    clock=summary.clock,
                    content_hash=summary.content_hash,
                )
            )
    return found


async def main(params: Params, layout: Layout) -> None:
    """Ask for every tool module, and try each in the sandbox."""
    with make_sandbox(params.sandbox) as sandbox:
        step = ToolsStep(params.tools, sandbox)
        async with Runner.create(params, step.name) as runner:
            records = await runner.run(step, tools_items(subjects(layout), params.tools, params.sandbox))

    clear(layout.step("tools"))
    modules = {slug: Module.model_validate(artifact) for slug, artifact in artifacts(records).items()}
    for slug, module in modules.items():
        write_atomic(layout.file("tools", slug, ".py"), module.source)
        layout.write_model("tools", slug, ModuleSummary(slug=slug, unreached=module.unreached))
    figures = {
        "code_lines": sum(len(module.source.splitlines()) for module in modules.values()),
        "unreached_tools": sum(len(module.unreached) for module in modules.values()),
    }
    write_report(layout, step.name, records, runner.llm, figures=figures)


if __name__ == "__main__":
    run_stage(main)
