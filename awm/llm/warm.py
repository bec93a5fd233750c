"""Seed the response cache of a fresh clone with the answers that the last run of a stage used.

DVC removes a stage's outputs before it runs the stage, but the files are still in DVC's cache (after a run, or after
`dvc pull`), under the hashes in dvc.lock.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from awm.llm.cache import ResponseCache
from awm.llm.errors import RecordingError
from awm.llm.recording import RecordingEntry, read_entries

__all__ = ["warm"]

log = logging.getLogger(__name__)


def warm(cache: ResponseCache, step: str, root: Path) -> int:
    """Store the answers of `data/llm/<step>` as dvc.lock names them, where the cache has none yet.

    :param root: the folder of dvc.lock.
    :return: how many answers are new; 0 when there is no lock, no such output, or nothing of it in DVC's cache.
    """
    directory = _locked_hash(root / "dvc.lock", f"data/llm/{step}")
    objects = _dvc_cache(root) if directory else None
    if directory is None or objects is None:
        return 0
    entries: list[RecordingEntry] = []
    for path in _files(objects, directory):
        try:
            entries += [entry for _, entry in read_entries(path)]
        except RecordingError as error:
            log.warning("answers of an earlier run are left out: %s", error)
    return cache.put_all((entry.key, entry.answer) for entry in entries)


def _locked_hash(lock: Path, output: str) -> str | None:
    """Hash of a stage's output as dvc.lock has it."""
    try:
        content: Any = yaml.load(lock.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        stages = content["stages"].values()
    except (OSError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        return None
    for stage in stages:
        for entry in stage.get("outs", []):
            if entry.get("path") == output and "md5" in entry:
                return str(entry["md5"])
    return None


def _dvc_cache(root: Path) -> Path | None:
    """Folder of DVC's objects; in a temporary experiment copy this is the original repository's."""
    command = [sys.executable, "-m", "dvc", "cache", "dir"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    return Path(root, done.stdout.strip()) / "files" / "md5" if done.returncode == 0 else None


def _files(objects: Path, directory: str) -> Iterator[Path]:
    """Files of a directory object that are in DVC's cache."""
    try:
        listing = json.loads(_object(objects, directory).read_bytes())
    except (OSError, json.JSONDecodeError):
        return
    for entry in listing:
        path = _object(objects, entry["md5"])
        if entry["relpath"].endswith(".jsonl") and path.is_file():
            yield path


def _object(objects: Path, md5: str) -> Path:
    return objects / md5[:2] / md5[2:]
