"""Bytes that processes share, and files of cells."""

from __future__ import annotations

import os
import sys

import pytest

from awm.env import EnvironmentFault, Limits, Sandbox
from awm.env.cells import join_cells, split_cells
from awm.env.shared import SharedBytes, map_shared

DATA = bytes(range(256)) * 300
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="files in memory")


@pytest.fixture
def files():
    """Shared bytes, closed in the end."""
    files = SharedBytes()
    yield files
    files.close()


@on_linux
def test_a_file_holds_the_bytes_and_nobody_can_change_them(files: SharedBytes):
    descriptor = files.file(DATA)
    assert descriptor is not None
    for change in (
        lambda: os.pwrite(descriptor, b"x", 0),
        lambda: os.ftruncate(descriptor, 0),
        lambda: os.ftruncate(descriptor, 1 << 20),
    ):
        with pytest.raises(PermissionError):
            change()
    mapped = map_shared(descriptor, len(DATA))
    assert mapped[:] == DATA
    with pytest.raises(TypeError):
        mapped[0] = 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@on_linux
def test_equal_bytes_are_one_file_and_outlive_the_owner(files: SharedBytes):
    first, second = files.file(DATA), files.file(bytes(bytearray(DATA)))
    assert first is not None and second is not None
    assert os.fstat(first).st_ino == os.fstat(second).st_ino
    files.close()
    os.close(second)
    assert map_shared(first, len(DATA))[:] == DATA


def test_few_bytes_are_not_worth_a_file(files: SharedBytes):
    assert files.file(b"few") is None


@on_linux
def test_no_descriptor_is_left_on_either_side(sandbox: Sandbox, shop: str, large: bytes):
    before = set(os.listdir("/proc/self/fd"))
    sandbox._files.close()
    for _ in range(3):
        with sandbox.worker() as worker:
            worker.load(shop)
            worker.open("s", large, "2025-03-01")
            worker.open("s", large, "2025-03-01")
            assert worker.call("s", "get_order", {"order_id": 1}).ok
            assert worker.dump("s") == large
            worker.reset("s")
            assert not worker.changed("s")
    sandbox._files.close()
    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_large_file_that_is_no_database_is_a_fault(sandbox: Sandbox, shop: str):
    with sandbox.worker() as worker:
        worker.load(shop)
        with pytest.raises(EnvironmentFault, match="open: the snapshot is not a SQLite database"):
            worker.open("s", DATA, "2025-03-01")


def test_the_mode_without_files_takes_them_too(shop: str, large: bytes):
    with Sandbox(Limits(), "nofs") as sandbox, sandbox.worker() as worker:
        worker.load(shop)
        worker.open("s", large, "2025-03-01")
        assert worker.call("s", "get_order", {"order_id": 1}).ok


@pytest.fixture(scope="module")
def large(snapshot: bytes) -> bytes:
    """A snapshot that is large enough to be shared."""
    assert len(snapshot) >= 1 << 14
    return snapshot


def test_cells_are_joined_and_split():
    cells = {"01": "x = 1\n", "02": "", "a title": "y = 2"}
    assert split_cells(join_cells(cells)) == cells
    for text in ("x = 1\n# %% 01\n", "# %%\nx\n", "# %% 01\n\n# %% 01\n"):
        with pytest.raises(ValueError, match="line "):
            split_cells(text)
