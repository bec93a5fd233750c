"""What the machine itself takes, and what processes take of it."""

from __future__ import annotations

import mmap
import os
import socket
import sqlite3
import time
from pathlib import Path
from statistics import median

__all__ = ["children_of", "floors", "proportional_mb"]

_PAGE = mmap.PAGESIZE


def floors() -> dict[str, float]:
    """Return what no runtime could be faster than, here and now."""
    return {
        "machine_echo_ms": _echo_ms(),
        "machine_query_ms": _query_ms(),
        "machine_page_copy_us": _page_copy_us(),
    }


def _echo_ms(rounds: int = 5_000) -> float:
    """A message of 200 bytes to another Python process and back, on the core that this one runs on."""
    ours, its = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        while data := its.recv(1 << 14):
            its.send(data)
        os._exit(0)
    its.close()
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        ours.send(bytes(200))
        ours.recv(1 << 14)
        taken.append((time.perf_counter() - start) * 1000)
    ours.close()
    os.waitpid(child, 0)
    return median(taken)


def _query_ms(rounds: int = 5_000) -> float:
    """The light read itself, in this process: a row by its key, as a dict."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.row_factory = sqlite3.Row
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, a TEXT, b TEXT, c REAL, d TEXT, e TEXT, f TEXT)")
    connection.execute("INSERT INTO orders VALUES (7, 'Order 7', 'open', 23.7, NULL, 'note', 'time')")
    taken = []
    for _ in range(rounds):
        start = time.perf_counter()
        dict(connection.execute("SELECT * FROM orders WHERE id = ?", (7,)).fetchone())
        taken.append((time.perf_counter() - start) * 1000)
    connection.close()
    return median(taken)


def _page_copy_us(pages: int = 2_000) -> float:
    """The first write to a page of memory after a fork."""
    memory = mmap.mmap(-1, pages * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(pages):
        memory[page * _PAGE] = 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        start = time.perf_counter()
        for page in range(pages):
            memory[page * _PAGE] = 2
        os.write(write, f"{(time.perf_counter() - start) / pages * 1e6}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        taken = float(file.read())
    os.waitpid(child, 0)
    memory.close()
    return taken


def children_of(pid: int) -> list[int]:
    """Return the ids of all processes that descend from one."""
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def proportional_mb(pid: int) -> float:
    """Return a process's proportional set size: its own memory and its share of what it has in common, in MiB."""
    for line in Path("/proc", str(pid), "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
