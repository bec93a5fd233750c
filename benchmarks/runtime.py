"""What a reset, a call, a worker, a verification and a thousand live episodes cost.

    python benchmarks/runtime.py                         # a table; about two minutes
    python benchmarks/runtime.py --json runtime.json     # and the figures
    python benchmarks/runtime.py --only read batch       # some of it
    python benchmarks/runtime.py --data data --slug my_shop    # an environment that the pipeline built

Host and workers run on one core (`--cpu`, or `--cpu any` for no choice): a wake-up on another core costs more than a
call. Each figure is the median of one run. The environment is a synthetic one of the usual size
(`benchmarks/synthetic.py`) unless one is named.

The first lines say what the machine itself takes: a bare echo through a socket pair between two Python processes on
that core, a query in this process, and the copy of a memory page after a fork, of which a worker's start takes some
2,000. They are what the figures can be compared by from machine to machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from awm.env import Environment, Episode
from benchmarks import machine
from benchmarks.synthetic import READ, READ_MODEL, WRITE, synthetic_environment

BATCH = 64
LIVE = 1000

TARGETS: dict[str, tuple[str, float]] = {
    "reset_ms": ("<=", 0.2),
    "read_ms": ("<=", 0.04),
    "calls_per_s": (">=", 20_000),
    "batch64_ms_per_call": ("<=", 0.012),
    "worker_start_ms": ("<=", 20),
    "verify_ms": ("<=", 15),
    "episode_pss_mb": ("<=", 8),
    "live_1000_gb": ("<=", 8),
}
"""What issue 3 asks of each figure; those without a line here are shown for comparison."""

Call = tuple[str, dict[str, object]]
Measure = Callable[["Subject"], dict[str, float]]


@dataclass
class Subject:
    """What is measured: an environment, and calls on it."""

    environment: Environment
    read: Call
    write: Call | None = None
    model: Call | None = None
    answer: str = "7"
    live: int = LIVE
    figures: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def episode(self) -> Iterator[Episode]:
        """An episode that is warm: its statements are compiled and its models built."""
        task = next(iter(self.environment.verifiers), None)
        with self.environment.episode(task) as episode:
            for call in filter(None, (self.read, self.write, self.model)):
                for _ in range(50):
                    episode.call(*call)
            yield episode


def timed(work: Callable[[], object], count: int, before: Callable[[], object] | None = None) -> list[float]:
    """Return the milliseconds that each of `count` runs took, without what was done before each."""
    taken = []
    for _ in range(count):
        if before is not None:
            before()
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def measure_reset(subject: Subject) -> dict[str, float]:
    """A reset after a call that changed something, and the first call after it, which reads the schema again."""
    with subject.episode() as episode:
        change = subject.write or subject.read
        alone = median(timed(episode.reset, 1000, before=lambda: episode.call(*change)))

        def reset_and_read() -> None:
            episode.reset()
            episode.call(*subject.read)

        return {"reset_ms": alone, "reset_and_read_ms": median(timed(reset_and_read, 500))}


def measure_read(subject: Subject) -> dict[str, float]:
    """A light read: one row by its key. Beside it, one that returns a model, and a write."""
    with subject.episode() as episode:
        taken = timed(lambda: episode.call(*subject.read), 20_000)
        figures = {"read_ms": median(taken), "calls_per_s": 1000 * len(taken) / sum(taken)}
        for name, call in (("read_model_ms", subject.model), ("write_ms", subject.write)):
            if call is not None:
                figures[name] = median(timed(lambda call=call: episode.call(*call), 5_000))  # type: ignore[misc]
        return figures


def measure_batch(subject: Subject) -> dict[str, float]:
    """Light reads, 64 in a message."""
    with subject.episode() as episode:
        calls = [subject.read] * BATCH
        return {"batch64_ms_per_call": median(timed(lambda: episode.call_many(calls), 500)) / BATCH}


def measure_start(subject: Subject) -> dict[str, float]:
    """A new process with the tools loaded and the initial state open."""
    _ = subject.environment.tools
    episodes: list[Episode] = []
    try:
        taken = timed(lambda: episodes.append(subject.environment.episode().start()), 50)
    finally:
        for episode in episodes:
            episode.close()
    return {"worker_start_ms": median(taken)}


def measure_verification(subject: Subject) -> dict[str, float]:
    """A verifier in a process of its own, from the two databases to the verdict; and the diff alone."""
    environment, task = subject.environment, next(iter(subject.environment.verifiers), None)
    if task is None:
        return {}
    with subject.episode() as episode:
        final = episode.snapshot()
        environment.verify(task, final, subject.answer)
        taken = timed(lambda: environment.verify(task, final, subject.answer), 50)
        return {"verify_ms": median(taken), "diff_ms": median(timed(episode.diff, 50))}


def measure_live(subject: Subject) -> dict[str, float]:
    """Many episodes at a time: memory of one, of all with the zygote, and that each answers."""
    with ExitStack() as stack:
        episodes = [stack.enter_context(subject.environment.episode()) for _ in range(subject.live)]
        for episode in episodes:
            assert episode.call(*subject.read).ok
        sizes = [machine.proportional_mb(pid) for pid in machine.children_of(os.getpid())]
        slowest = max(timed_calls(episodes, subject.read))
        total = sum(sizes) / 1024 * LIVE / subject.live
        return {"episode_pss_mb": median(sizes), "live_1000_gb": total, "live_slowest_read_ms": slowest}


def timed_calls(episodes: list[Episode], call: Call) -> Iterator[float]:
    """Ask every episode once more; the milliseconds of each."""
    for episode in episodes:
        [taken] = timed(lambda episode=episode: episode.call(*call), 1)  # type: ignore[misc]
        yield taken


MEASURES: dict[str, Measure] = {
    "reset": measure_reset,
    "read": measure_read,
    "batch": measure_batch,
    "start": measure_start,
    "verify": measure_verification,
    "live": measure_live,
}
"""Add a measurement here; what it returns goes into the table and the JSON file, with TARGETS if there are any."""


def chosen_subject(options: argparse.Namespace) -> Subject:
    """The synthetic environment, or the one that the options name, with its first read-only tool that needs nothing."""
    if options.slug is None:
        return Subject(synthetic_environment(), READ, WRITE, READ_MODEL, live=options.live)
    environment = Environment.load(options.data, options.slug)
    specs = environment.toolset.tools if environment.toolset else ()
    names = [tool.name for tool in specs if tool.read_only and not any(p.required for p in tool.parameters)]
    if not names:
        raise SystemExit(f"{options.slug} has no read-only tool without required parameters")
    return Subject(environment, (names[0], {}), live=options.live)


def show(figures: dict[str, float]) -> None:
    """Print a table."""
    for name, value in figures.items():
        relation, wanted = TARGETS.get(name, ("", 0.0))
        target = f"{relation} {wanted:,g}" if relation else ""
        met = "" if not relation else "met" if (value <= wanted) == (relation == "<=") else "missed"
        print(f"{name:<24}{value:>14,.4g}   {target:<12}{met}")


def main() -> None:
    """Measure, print, and write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures to this file too")
    parser.add_argument("--only", nargs="+", choices=[*MEASURES], default=[*MEASURES], help="measure only these")
    parser.add_argument("--cpu", default="0", help="core to run on, or 'any'")
    parser.add_argument("--live", type=int, default=LIVE, help="episodes that live at a time")
    parser.add_argument("--data", type=Path, default=Path("data"), help="the pipeline's folder, with --slug")
    parser.add_argument("--slug", help="an environment that the pipeline built, instead of the synthetic one")
    options = parser.parse_args()
    if options.cpu != "any":
        os.sched_setaffinity(0, {int(options.cpu)})

    print(
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, {platform.release()}, cpu {options.cpu}"
    )
    floors = machine.floors()
    show(floors)
    subject = chosen_subject(options)
    figures: dict[str, float] = {}
    with subject.environment:
        print(f"{subject.environment.slug}: {len(subject.environment.tools)} tools")
        for name in options.only:
            found = MEASURES[name](subject)
            show(found)
            figures |= found
    if options.json is not None:
        options.json.write_text(json.dumps(figures | floors, indent=2) + "\n")


if __name__ == "__main__":
    main()
