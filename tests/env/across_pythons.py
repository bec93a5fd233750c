"""Compare what several Pythons make of the same calls: `python tests/env/across_pythons.py python3.11 python3.12 ...`.

Each must have awm's dependencies; the interpreter this runs under takes part too. Exit status 1 if they don't agree.

Compared are the content hash of the initial and the final state and every result, and, among those with the same
version of SQLite, the bytes of both states. What is known to differ, and no part of it:

- the total of a set's walk that has None in it: before Python 3.12 None hashes by its address;
- words of Python's own errors, the names it gives to weekdays, and the version of Unicode it knows;
- `math.sin`, `exp`, `log` and their kin, and what `random` makes with them: the machine's C library computes those;
- `sum` and `avg` of REAL columns: SQLite adds with compensation since 3.43 (Python's `sum` is made to agree).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("same_state.py")
COMPARED = ("initial", "final", "results")
BYTES = ("initial_bytes", "final_bytes")


def run(python: str) -> dict[str, Any]:
    """Play the calls under an interpreter."""
    done = subprocess.run([python, str(SCRIPT)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def differences(first: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Say what two runs don't agree on."""
    names = COMPARED + (BYTES if first["sqlite"] == other["sqlite"] else ())
    found = [name for name in names if first[name] != other[name]]
    pairs = enumerate(zip(first["values"], other["values"], strict=True), 1)
    return found + [f"call {number}: {a} and {b}" for number, (a, b) in pairs if a != b]


def main(pythons: list[str]) -> int:
    """Compare every interpreter with the first."""
    runs = [run(python) for python in (sys.executable, *pythons)]
    agree = True
    for found in runs:
        problems = differences(runs[0], found)
        agree = agree and not problems
        print(f"Python {found['python']}, SQLite {found['sqlite']}: final state {found['final'][:16]}")
        for problem in problems:
            print(f"  differs: {problem}")
    print("all agree" if agree else "they don't agree")
    return 0 if agree else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
