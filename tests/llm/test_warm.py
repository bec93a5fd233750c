from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from awm.llm import LLM, TruncatedAnswer, write_shards
from awm.llm.cache import ResponseCache
from awm.llm.warm import warm
from llm.scripted_server import ScriptedServer, answer, truncated

DVC_YAML = """
stages:
  tasks:
    cmd: python -c "import shutil; shutil.copytree('made', 'data/llm/tasks')"
    outs: [data/llm/tasks]
"""


def dvc(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "dvc", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def answered(config, request_for, tmp_path):
    """A DVC project whose stage has used two answers, one of them cut off."""
    project = tmp_path / "repository"
    project.mkdir()

    async def run(settings):
        async with LLM(settings, "tasks", project) as llm:
            with pytest.raises(TruncatedAnswer):
                await llm.ask(request_for("one"))
            await llm.ask(request_for("two", attempt=2))
            return llm.entries()

    with ScriptedServer([truncated("ha"), answer("yes")]) as server:
        entries = asyncio.run(run(config(base_url=server.base_url)))
    write_shards(project / "made", entries)
    (project / "dvc.yaml").write_text(DVC_YAML.replace("python -c", f"{sys.executable} -c"))
    dvc(project, "init", "--no-scm", "-q")
    dvc(project, "repro", "-q")
    return project, entries


def test_whole_answers_are_taken_and_present_ones_stay(answered, tmp_path):
    project, entries = answered
    for path in (project / "data/llm/tasks").iterdir():
        path.unlink()
    cache = ResponseCache(tmp_path / "new.sqlite")
    assert warm(cache, "tasks", project) == 1
    assert cache.get(entries[1].key) == entries[1].answer
    assert cache.get(entries[0].key) is None
    assert warm(cache, "tasks", project) == 0
    assert warm(cache, "schemas", project) == 0
    cache.close()


def test_a_clone_asks_only_what_is_new(answered, config, request_for, monkeypatch, tmp_path):
    project, _ = answered
    monkeypatch.setenv("AWM_CACHE_DIR", str(tmp_path / "clone_cache"))

    async def run(settings):
        async with LLM(settings, "tasks", project) as llm:
            old = await llm.ask(request_for("two", attempt=2))
            return old.content, (await llm.ask(request_for("three"))).content

    with ScriptedServer(["new"]) as server:
        assert asyncio.run(run(config(base_url=server.base_url))) == ("yes", "new")
    assert server.prompts == ["three"]


def test_nothing_there_is_no_error(tmp_path):
    cache = ResponseCache(tmp_path / "new.sqlite")
    assert warm(cache, "tasks", tmp_path) == 0
    (tmp_path / "dvc.lock").write_text(
        "stages:\n  tasks:\n    outs:\n    - path: data/llm/tasks\n      md5: 00ff.dir\n"
    )
    assert warm(cache, "tasks", tmp_path) == 0  # no repository
    (tmp_path / "dvc.lock").write_text("{ not yaml")
    assert warm(cache, "tasks", tmp_path) == 0
    cache.close()


def test_a_damaged_object_is_left_out(answered, tmp_path, caplog):
    project, _ = answered
    for path in (project / ".dvc/cache/files/md5").rglob("*"):
        if path.is_file() and not path.name.endswith(".dir"):
            path.chmod(0o644)
            path.write_bytes(path.read_bytes()[:-20])
    cache = ResponseCache(tmp_path / "new.sqlite")
    assert warm(cache, "tasks", project) == 0
    assert "left out" in caplog.text
    cache.close()
