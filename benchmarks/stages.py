"""How long each stage takes when nothing is known yet, and when every item is in the item store.

    python benchmarks/stages.py [--json PATH]

Run it in a project that `make repro` has built. It uses an item store of its own, and the project stays as it is: the
stages write the same outputs again. Seconds are wall clock of one run of a stage's script, start of the interpreter
included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml


def seconds(stage: str, cache: Path) -> float:
    """Run a stage's script once and return its wall-clock seconds."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", f"stages.{stage}"],
        env={**os.environ, "AWM_CACHE_DIR": str(cache)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


def main() -> None:
    """Print the table, and write it as JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    path = parser.parse_args().json
    stages = yaml.safe_load(Path("dvc.yaml").read_text(encoding="utf-8"))["stages"]
    figures = []
    with tempfile.TemporaryDirectory() as cache:
        for stage in stages:
            first, again = seconds(stage, Path(cache)), seconds(stage, Path(cache))
            figures.append({"stage": stage, "first_s": round(first, 2), "again_s": round(again, 2)})
            print(f"{stage:<10} first {first:7.2f} s   again {again:6.2f} s   ratio {first / again:5.1f}", flush=True)
    if path is not None:
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
