"""What generated code is allowed: limits, modes, and the paths and modules it may use."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from awm.env.landlock import ReadRule

__all__ = ["MODES", "OVERRIDE", "PRELOADED", "READABLE_PACKAGES", "Limits", "Mode", "Runtime", "library_rules"]

Mode = Literal["auto", "strict", "nofs", "off"]
MODES: tuple[str, ...] = get_args(Mode)
Runtime = Literal["module", "fastapi"]
"""What workers hold: a tool module, or a published FastAPI + SQLAlchemy module."""

OVERRIDE = "AWM_SANDBOX"
"""Environment variable that overrides the mode, above all `off` where nothing else works."""

READABLE_PACKAGES = ("annotated_types", "pydantic", "pydantic_core", "typing_extensions", "typing_inspection", "tzdata")
"""Installed packages that a worker may read, because pydantic and zoneinfo load parts of themselves late."""

PRELOADED = """
    _strptime abc array ast asyncio base64 binascii bisect calendar cmath collections.abc contextlib copy csv
    dataclasses datetime decimal difflib encodings.ascii encodings.idna encodings.latin_1 enum fractions functools
    graphlib hashlib heapq hmac html inspect io ipaddress itertools json linecache locale logging math numbers operator
    pprint random re secrets sqlite3 statistics string struct textwrap time tokenize traceback types typing unicodedata
    urllib.parse uuid warnings weakref zlib zoneinfo
""".split()
"""Standard library that every worker starts with, so that the mode without file access can import it too."""


@dataclass(frozen=True)
class Limits:
    """Bounds on generated code. Times are wall-clock seconds: soft ones end as a result of kind `timeout`."""

    call_s: float = 5.0
    """One tool call."""
    load_s: float = 10.0
    """Loading a module."""
    verify_s: float = 10.0
    """One verification, loading included."""
    grace_s: float = 3.0
    """After a soft limit, until the process is killed."""
    memory_mb: int = 512
    """Address space beyond what a fresh worker has."""
    database_mb: int = 15
    """Size of one database; must fit a message."""


_LIBRARY_DIRECTORIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
_SINGLE_FILES = ("/etc/ld.so.cache", "/dev/null", "/dev/zero", "/dev/urandom")
_INSTALLED = {"site-packages", "dist-packages"}


def library_rules(packages: Sequence[str] = ()) -> list[ReadRule]:
    """List what a worker may read: the standard library, shared libraries, time zones and a few packages.

    Installed packages as such are not granted: they may hold this project with its tasks and verifiers.
    """
    rules = [*_standard_library(), *_shared_libraries(), *_packages((*READABLE_PACKAGES, *packages))]
    rules += [ReadRule("/usr/share/zoneinfo"), *(ReadRule(path) for path in _SINGLE_FILES)]
    return list(dict.fromkeys(rules))


def _standard_library() -> Iterator[ReadRule]:
    for directory in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}:
        if not os.path.isdir(directory):
            continue
        yield ReadRule(directory, list_only=True)
        for entry in sorted(os.listdir(directory)):
            if entry not in _INSTALLED:
                yield ReadRule(os.path.join(directory, entry))


def _shared_libraries() -> Iterator[ReadRule]:
    for directory in (os.path.join(sys.base_prefix, "lib"), *_LIBRARY_DIRECTORIES):
        if not os.path.isdir(directory):
            continue
        for entry in sorted(os.listdir(directory)):
            if ".so" in entry or "-linux-" in entry:
                yield ReadRule(os.path.join(directory, entry))


def _packages(names: Iterable[str]) -> Iterator[ReadRule]:
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            yield ReadRule(str(origin.parent if origin.name == "__init__.py" else origin))
