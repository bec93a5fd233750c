"""The README's figures are those of data/metrics, its excerpts recorded answers, its commands and files exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
PUBLISHED = {"schemas": "88.3 %", "databases": "88.2 %", "tools": "86.8 %"}


def metrics(step: str) -> dict[str, float]:
    values: dict[str, float] = json.loads((PROJECT / f"data/metrics/{step}.json").read_text())
    return values


def row(first: str) -> list[str]:
    """The cells of the table row that starts with a word."""
    (line,) = [line for line in README.splitlines() if line.startswith(f"| `{first}` | ") and line.count("|") > 7]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("step", ["scenarios", "tasks", "schemas", "databases", "toolsets", "tools", "verifiers"])
def test_figures_are_those_of_the_metrics(step: str) -> None:
    found = metrics(step)
    _, items, first, final, attempts, tokens_in, tokens_out, cost, published = row(step)

    assert int(items) == found["items"]
    assert first == f"{100 * found['first_try_success']:.1f} %"
    assert final == f"{100 * found['final_success']:.1f} %"
    assert attempts == f"{found['mean_attempts']:.2f}"
    assert tokens_in == f"{found['input_tokens']:,}"
    assert tokens_out == f"{found['output_tokens']:,}"
    assert cost == f"{found['cost_usd']:.2f}"
    assert published == PUBLISHED.get(step, "")


def test_what_was_built_is_what_the_filter_kept() -> None:
    kept = metrics("filter")

    assert f"{kept['environments']:.0f} environments" in README
    for figure in ("tasks", "tools"):
        assert f"{kept[figure]:.0f} {figure}" in README
    number = {10: "Ten"}.get(int(kept["unreached_tools"]), str(kept["unreached_tools"]))
    assert f"{number} of the {kept['tools']:.0f} tools never succeeded" in " ".join(README.split())


def test_the_table_of_environments_is_that_of_the_build() -> None:
    """Skipped before `make repro`: the summaries are outputs, and not in Git."""
    paths = sorted((PROJECT / "data/environments").glob("*.json"))
    if not paths:
        pytest.skip("data/environments is not built")
    for path in paths:
        entry = json.loads(path.read_text())
        cells = [entry["category"], entry["tables"], entry["rows"], entry["tools"], f"{entry['code_lines']:,}"]
        assert f"| `{entry['slug']}` | " + " | ".join(map(str, [*cells, len(entry["tasks"])])) + " |" in README


def test_excerpts_are_recorded_answers() -> None:
    blocks = re.findall(r"^```(?:python|json)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    recorded = [
        json.loads(line)["content"]
        for path in sorted((PROJECT / "data/recordings").rglob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
    ]

    assert len(blocks) >= 3
    for block in blocks:
        wanted = re.sub(r"\s+", "", block)
        assert any(wanted in re.sub(r"\s+", "", content) for content in recorded), block


def test_the_two_commands_are_the_first_lines_and_exist() -> None:
    makefile = (PROJECT / "Makefile").read_text()
    lines = README.splitlines()

    assert lines[0].strip().startswith("make repro")
    assert lines[1].strip().startswith("make test")
    assert re.search(r"^repro:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_files_that_the_readme_names_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (PROJECT / target).exists(), target
