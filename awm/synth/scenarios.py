"""Scenarios: from seed names to distinct, stateful applications.

Rounds of candidates are generated from a sample of the seeds. A candidate is kept when it resembles no seed
and no earlier
candidate, an LLM classifier calls it a stateful application, and its category has room. Rounds run in a fixed order,
since each one is told what is taken already.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from awm.config import ScenariosConfig
from awm.llm.errors import ProviderError
from awm.llm.parsing import parse_model
from awm.models import Artifact, Rejection, Scenario
from awm.synth.answers import ClassAnswer, ScenarioAnswer, ScenariosAnswer
from awm.synth.loop.runner import ItemRecord, Runner
from awm.synth.loop.step import Item, Problem
from awm.synth.similarity import Embedder, concept_clusters, near_duplicates
from awm.synth.slug import unique_slugs

__all__ = ["CATEGORIES", "CandidateStep", "ClassifyStep", "ScenarioBuild", "build_scenarios"]

CATEGORIES = (
    "agriculture and environment",
    "arts and culture",
    "commerce and retail",
    "community and volunteering",
    "construction and property",
    "education and learning",
    "energy and utilities",
    "events and tickets",
    "finance and insurance",
    "food and hospitality",
    "government and public services",
    "health and care",
    "home and family",
    "human resources and work",
    "law and compliance",
    "logistics and transport",
    "manufacturing and maintenance",
    "media and publishing",
    "pets and animals",
    "science and laboratories",
    "sales and customer service",
    "software and projects",
    "sports and fitness",
    "travel and lodging",
)


class Candidates(Artifact):
    """Answer of one round."""

    scenarios: tuple[ScenarioAnswer, ...]


class Class(Artifact):
    """Answer of the classifier for one candidate."""

    stateful: bool
    category: str
    reason: str


@dataclass(frozen=True)
class Round:
    """Subject of a generation request."""

    count: int
    examples: tuple[str, ...]
    taken: tuple[str, ...]


class CandidateStep:
    """Asks for one round of candidates."""

    name = "scenarios"
    prompt = "scenarios"
    answer_model = ScenariosAnswer

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        return {"count": item.subject.count, "examples": item.subject.examples, "taken": item.subject.taken}

    def read(self, content: str, item: Item, previous: ScenariosAnswer | None) -> ScenariosAnswer:
        """The candidates; a repair replaces those of the same name."""
        answer = parse_model(content, ScenariosAnswer)
        if previous is None:
            return answer
        merged = {entry.name: entry for entry in (*previous.scenarios, *answer.scenarios)}
        return ScenariosAnswer(scenarios=tuple(entry for name, entry in merged.items() if name not in answer.remove))

    def check(self, answer: ScenariosAnswer, item: Item) -> list[Problem]:
        """Number, names and length of descriptions."""
        problems = []
        if len(answer.scenarios) < item.subject.count:
            problems.append(
                Problem("count", f"{item.subject.count} applications were asked for, {len(answer.scenarios)} came")
            )
        for entry in answer.scenarios:
            words = len(entry.description.split())
            if not entry.name or len(entry.name) > 120:
                problems.append(
                    Problem("name", f"the name {entry.name[:60]!r} must have 1 to 120 characters", entry.name)
                )
            if words < 40:
                problems.append(
                    Problem("description", f"the description has {words} words; 90 to 150 are wanted", entry.name)
                )
        return problems

    def excerpt(self, answer: ScenariosAnswer, parts: Sequence[str]) -> str:
        """The named candidates as JSON."""
        kept = tuple(entry for entry in answer.scenarios if not parts or entry.name in parts)
        return ScenariosAnswer(scenarios=kept).model_dump_json(exclude_defaults=True)

    def artifact(self, answer: ScenariosAnswer, item: Item) -> Candidates:
        """The round's candidates, at most as many as were asked for."""
        return Candidates(scenarios=answer.scenarios[: item.subject.count])


class ClassifyStep:
    """Asks whether one candidate is a stateful application, and for its category."""

    name = "scenarios"
    prompt = "classify"
    answer_model = ClassAnswer

    def variables(self, item: Item) -> dict[str, Any]:
        """Values for the prompt file."""
        return {"name": item.subject.name, "description": item.subject.description, "categories": CATEGORIES}

    def read(self, content: str, item: Item, previous: ClassAnswer | None) -> ClassAnswer:
        """The classifier's answer; a repair is a whole new one."""
        return parse_model(content, ClassAnswer)

    def check(self, answer: ClassAnswer, item: Item) -> list[Problem]:
        """The category must be one of the list."""
        if answer.category in CATEGORIES:
            return []
        return [Problem("category", f"{answer.category!r} is not one of the categories; copy one of them exactly")]

    def excerpt(self, answer: ClassAnswer, parts: Sequence[str]) -> str:
        """The whole answer."""
        return answer.model_dump_json()

    def artifact(self, answer: ClassAnswer, item: Item) -> Class:
        """Stateful only when every core use is there."""
        stateful = answer.stateful and answer.creates and answer.reads and answer.updates and answer.deletes
        return Class(stateful=stateful, category=answer.category, reason=answer.reason)


@dataclass
class ScenarioBuild:
    """What the step made: the scenarios, what was rejected and why, and every LLM item."""

    scenarios: list[Scenario] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    records: list[ItemRecord] = field(default_factory=list)
    candidates: int = 0
    surplus: int = 0
    clusters: int = 0
    shortfall: str = ""
    recording_ends: bool = False
    """Whether no further round is recorded."""

    def reject(self, name: str, reason: str, detail: str) -> None:
        """Book a candidate as rejected."""
        self.rejections.append(Rejection(step="scenarios", item=name, reason=reason, detail=detail))


def _text(entry: ScenarioAnswer | Scenario) -> str:
    return f"{entry.name}. {entry.description}"


async def build_scenarios(
    runner: Runner, config: ScenariosConfig, seeds: Sequence[str], embedder: Embedder
) -> ScenarioBuild:
    """Generate, sort out and classify until `config.count` scenarios are found or the rounds are used up.

    `shortfall` says in one line why there are fewer than asked for.
    """
    build = ScenarioBuild()
    for number in range(1, config.max_rounds + 1):
        found = await _round(runner, config, seeds, build, number)
        if found is None:
            break
        distinct = _without_duplicates(found, build, seeds, embedder, config)
        await _classify(runner, config, distinct, build)
        if len(build.scenarios) >= config.count:
            break
    build.clusters = _cluster_count(build.scenarios, embedder, config)
    build.shortfall = _shortfall(build, config)
    return build


async def _round(
    runner: Runner, config: ScenariosConfig, seeds: Sequence[str], build: ScenarioBuild, number: int
) -> list[ScenarioAnswer] | None:
    """Candidates of one round; None when the LLM gives no more."""
    shown = random.Random(config.seed * 1000 + number).sample(list(seeds), min(config.examples, len(seeds)))
    taken = tuple(scenario.name for scenario in build.scenarios)
    subject = Round(config.per_request, tuple(shown), taken)
    item = Item(f"round-{number:02d}", subject, [subject.count, subject.examples, subject.taken])
    try:
        (record,) = await runner.run(CandidateStep(), [item])
    except ProviderError:
        if number == 1 or runner.params.llm.provider != "recorded":
            raise
        build.recording_ends = True
        return None
    build.records.append(record)
    if record.artifact is None:
        build.rejections.append(record.rejection("scenarios"))
        return []
    candidates = list(Candidates.model_validate(record.artifact).scenarios)
    build.candidates += len(candidates)
    return candidates


def _without_duplicates(
    found: Sequence[ScenarioAnswer],
    build: ScenarioBuild,
    seeds: Sequence[str],
    embedder: Embedder,
    config: ScenariosConfig,
) -> list[ScenarioAnswer]:
    """Candidates that resemble no seed (by name, or with description) and no scenario or earlier candidate."""
    threshold = config.embedding.threshold
    by_seed = [
        by_name or by_description
        for by_name, by_description in zip(
            near_duplicates(embedder, seeds, [entry.name for entry in found], threshold, among_candidates=False),
            near_duplicates(embedder, seeds, [_text(entry) for entry in found], threshold, among_candidates=False),
            strict=True,
        )
    ]
    kept = [_text(scenario) for scenario in build.scenarios]
    by_text = near_duplicates(embedder, kept, [_text(entry) for entry in found], threshold)
    earlier = [*(scenario.name for scenario in build.scenarios), *(entry.name for entry in found)]
    taken = {scenario.name.casefold() for scenario in build.scenarios}
    distinct = []
    for entry, seed_match, text_match in zip(found, by_seed, by_text, strict=True):
        if seed_match:
            build.reject(entry.name, "duplicate_of_seed", f"{seeds[seed_match[0]]!r}, similarity {seed_match[1]:.2f}")
        elif text_match:
            build.reject(entry.name, "duplicate", f"{earlier[text_match[0]]!r}, similarity {text_match[1]:.2f}")
        elif entry.name.casefold() in taken:
            build.reject(entry.name, "duplicate_name", "another candidate has this name")
        else:
            taken.add(entry.name.casefold())
            distinct.append(entry)
    return distinct


async def _classify(
    runner: Runner, config: ScenariosConfig, entries: Sequence[ScenarioAnswer], build: ScenarioBuild
) -> None:
    """Keep what the classifier calls stateful, in order, while its category has room."""
    slugs = unique_slugs([*(scenario.name for scenario in build.scenarios), *(entry.name for entry in entries)])
    slugs = slugs[len(build.scenarios) :]
    items = [Item(f"{slug}/class", entry, [entry.model_dump()]) for slug, entry in zip(slugs, entries, strict=True)]
    records = await runner.run(ClassifyStep(), items) if items else []
    build.records += records
    room = Counter(scenario.category for scenario in build.scenarios)
    for slug, entry, record in zip(slugs, entries, records, strict=True):
        if record.artifact is None:
            detail = f"{record.reason}: {record.detail}"
            rejection = record.rejection("scenarios")
            build.rejections.append(
                rejection.model_copy(update={"item": entry.name, "reason": "classifier_failed", "detail": detail})
            )
            continue
        verdict = Class.model_validate(record.artifact)
        if not verdict.stateful:
            build.reject(entry.name, "not_stateful", verdict.reason)
        elif room[verdict.category] >= config.max_per_category:
            build.reject(entry.name, "category_full", f"{verdict.category!r} has {config.max_per_category}")
        elif len(build.scenarios) >= config.count:
            build.surplus += 1
        else:
            room[verdict.category] += 1
            build.scenarios.append(
                Scenario(slug=slug, name=entry.name, description=entry.description, category=verdict.category)
            )


def _cluster_count(scenarios: Sequence[Scenario], embedder: Embedder, config: ScenariosConfig) -> int:
    if not scenarios:
        return 0
    vectors = embedder.embed([_text(scenario) for scenario in scenarios])
    return len(set(concept_clusters(vectors, config.embedding.cluster_threshold)))


def _shortfall(build: ScenarioBuild, config: ScenariosConfig) -> str:
    missing = config.count - len(build.scenarios)
    if missing <= 0:
        return ""
    reasons = Counter(rejection.reason for rejection in build.rejections)
    rounds = sum(record.item.startswith("round-") for record in build.records)
    why = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())) or "no candidate was rejected"
    advice = "raise scenarios.max_rounds or scenarios.max_per_category"
    if not build.candidates:
        advice = "no round gave an answer that could be used: see data/rejects/scenarios.json"
    elif build.recording_ends:
        advice = "no further round is recorded: set llm.provider to 'openai' or 'batch' for more"
    return (
        f"{len(build.scenarios)} of {config.count} scenarios: {rounds} of {config.max_rounds} rounds gave "
        f"{build.candidates} candidates ({why}); {advice}"
    )
