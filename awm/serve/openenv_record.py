"""The record of an episode that an OpenEnv server leaves on disk when the episode is done."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from awm.store import pretty_json, write_atomic

__all__ = ["EpisodeRecord"]


class EpisodeRecord:
    """What was done in an episode, step by step, and the folder it is written to.

    The folder goes when the record is closed, unless it is to be kept.
    """

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.kept = False
        self._folder: Path | None = None

    @property
    def folder(self) -> str | None:
        """The folder, if it is kept."""
        return str(self._folder) if self._folder is not None and self.kept else None

    def add(self, action: str, **details: Any) -> None:
        """Add a step."""
        self.entries.append({"action": action, **details})

    def save(self, about: Mapping[str, Any], databases: Mapping[str, bytes]) -> str | None:
        """Write the trajectory and databases; return the path of the trajectory, None if nothing was done.

        :param about: What stands before the steps.
        :param databases: Contents by file name. They are written only where the folder is kept.
        """
        if not self.entries and not self.kept:
            return None
        self._folder = Path(tempfile.mkdtemp(prefix=f"awm_{about['scenario']}_"))
        if self.kept:
            for name, content in databases.items():
                write_atomic(self._folder / name, content)
        path = self._folder / "trajectory.json"
        write_atomic(path, pretty_json({**about, "trajectory": self.entries}))
        return str(path)

    def close(self) -> None:
        """Remove the folder, unless it is kept."""
        if self._folder is not None and not self.kept:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None
