"""Where each artifact lives, how it is written, and which items need not be made again.

Two places:

* `data/<step>/`: a step's output, one file per scenario, tracked by DVC (`Layout`);
* `.awm_cache/items/`: the result of a step for one item under the hash of everything it was made from
(`ItemStore`). It lies
  outside DVC's outputs, so that a stage killed half-way, or run for another scenario, keeps what is done.

Every write is atomic: a reader sees the old file or the new one, never half of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

__all__ = ["ItemStore", "Layout", "StoreError", "canonical_json", "digest", "pretty_json", "write_atomic"]

M = TypeVar("M", bound=BaseModel)


class StoreError(ValueError):
    """A stored file can't be used; the message names the file and what to do."""


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def pretty_json(value: Any) -> str:
    """JSON that people read and diff: indented, keys in the order given, a newline at the end."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def digest(value: Any) -> str:
    """SHA-256 of a JSON-compatible value, as 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that it exists whole or not at all; parent folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class Layout:
    """Paths of the pipeline's artifacts under one project folder."""

    def __init__(self, root: Path | str = ".") -> None:
        self.root = Path(root)
        self.data = self.root / "data"

    def step(self, name: str) -> Path:
        """Folder of a step's output."""
        return self.data / name

    def file(self, step: str, slug: str, suffix: str) -> Path:
        """File of one scenario in a step's output; `suffix` with its dot."""
        return self.step(step) / f"{slug}{suffix}"

    def llm(self, step: str) -> Path:
        """Folder of the answers that a step used."""
        return self.data / "llm" / step

    def rejects(self, step: str) -> Path:
        """JSON file of a step's rejections: a list, also when it is empty."""
        return self.data / "rejects" / f"{step}.json"

    def metrics(self, step: str) -> Path:
        """JSON file of a step's metrics."""
        return self.data / "metrics" / f"{step}.json"

    def slugs(self, step: str, suffix: str) -> list[str]:
        """Slugs that a step has an output for, sorted."""
        folder = self.step(step)
        if not folder.is_dir():
            raise StoreError(f"{folder}: not found; run `dvc repro {step}` first")
        return sorted(path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}"))

    def read_text(self, step: str, slug: str, suffix: str) -> str:
        """Text of one scenario's file."""
        path = self.file(step, slug, suffix)
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise StoreError(f"{path}: not found; run `dvc repro {step}`") from None
        except UnicodeDecodeError as error:
            raise StoreError(f"{path}: not UTF-8 at byte {error.start}; run `dvc repro -f {step}`") from None

    def read_bytes(self, step: str, slug: str, suffix: str) -> bytes:
        """Bytes of one scenario's file."""
        path = self.file(step, slug, suffix)
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise StoreError(f"{path}: not found; run `dvc repro {step}`") from None

    def read_model(self, step: str, slug: str, model: type[M]) -> M:
        """A JSON file of one scenario as its model."""
        return parse_stored(self.file(step, slug, ".json"), self.read_text(step, slug, ".json"), model, step)

    def read_models(self, step: str, model: type[M]) -> list[M]:
        """All of a step's JSON files as models, in the order of their slugs."""
        return [self.read_model(step, slug, model) for slug in self.slugs(step, ".json")]

    def write_model(self, step: str, slug: str, value: BaseModel) -> None:
        """Write a model as readable JSON."""
        write_atomic(self.file(step, slug, ".json"), pretty_json(value.model_dump(mode="json")))

    def write_rejects(self, step: str, values: Iterable[BaseModel]) -> None:
        """Write a step's rejections."""
        write_atomic(self.rejects(step), pretty_json([value.model_dump(mode="json") for value in values]))


def parse_stored(path: Path, text: str, model: type[M], step: str) -> M:
    """Validate a stored JSON text, or raise StoreError with the file's name."""
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise StoreError(f"{path}: {where}: {first['msg']}; run `dvc repro -f {step}`") from None


class ItemStore:
    """Results of steps for single items, by the hash of all that they depend on.

    A damaged entry counts as absent: the item is made again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, step: str, key: str) -> Path:
        return self.folder / step / key[:2] / f"{key}.json"

    def get(self, step: str, key: str, model: type[M]) -> M | None:
        """The stored result, or None."""
        try:
            return model.model_validate_json(self._path(step, key).read_bytes())
        except (FileNotFoundError, IsADirectoryError, ValidationError):
            return None

    def put(self, step: str, key: str, value: BaseModel) -> None:
        """Store a result; the first one stays when two processes store the same key."""
        if self.get(step, key, type(value)) is None:
            write_atomic(self._path(step, key), value.model_dump_json())
