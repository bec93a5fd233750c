"""A fresh small project for each test."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from llm.scripted_server import ScriptedServer
from small_project import PROJECT, SMALL, Author, Repository, git


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """A fresh repository without any output, and its server."""
    for name in ("DVC_ROOT", "AWM_CACHE_DIR", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    root = tmp_path / "project"
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    for folder in ("awm", "stages", "data/seeds"):
        shutil.copytree(PROJECT / folder, root / folder, ignore=ignore)
    for file in ("params.yaml", "dvc.yaml", ".dvcignore", ".gitignore"):
        shutil.copy(PROJECT / file, root / file)
    stages = yaml.safe_load((root / "dvc.yaml").read_text())["stages"]
    for stage in stages:
        (root / "data/recordings" / stage).mkdir(parents=True)
        (root / "data/recordings" / stage / ".gitkeep").touch()
    git(root, "init", "-q")
    author = Author()
    with ScriptedServer(author) as server:
        repository = Repository(root, server, author)
        llm = {"provider": "openai", "model": "scripted", "base_url": server.base_url, "retries": 1}
        repository.params(**SMALL, llm=llm)
        repository.run("dvc", "init", "-q")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "start")
        yield repository
