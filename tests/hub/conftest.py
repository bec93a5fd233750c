"""One import of the small environment, shared by the tests that only look at it or run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from awm.env import Environment, Limits, Sandbox
from awm.hub.awm1k import ImportReport, import_awm1k
from hub import small_awm1k


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    pytest.importorskip("fastapi")
    pytest.importorskip("sqlalchemy")
    with Sandbox(Limits(call_s=1.0)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the small environment was imported to."""
    return tmp_path_factory.mktemp("awm1k") / "imported"


@pytest.fixture(scope="session")
def report(folder: Path, sandbox: Sandbox) -> ImportReport:
    return import_awm1k(small_awm1k.write(folder.parent / "published"), folder, sandbox=sandbox)


@pytest.fixture
def environment(folder: Path, report: ImportReport, sandbox: Sandbox) -> Iterator[Environment]:
    assert [environment.slug for environment in report.environments] == [small_awm1k.SLUG]
    with Environment.load(folder, small_awm1k.SLUG, sandbox=sandbox) as environment:
        yield environment
