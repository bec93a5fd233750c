"""Stand-ins for containers: outer seccomp filters that refuse what a container without privileges refuses.

Run a command in one: `python tests/env/containers.py docker python -m pytest tests/env`.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["CONTAINERS", "enter"]

# What Docker's own profile refuses without privileges, by number on x86_64: namespaces, mounts, the memory of other
# processes, keys, tracing, clocks and modules. `clone` is refused only with flags for namespaces.
_DOCKER = (
    *(101, 103, 134, 135, 136, 139, 153, 154, 155, 156, 159, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173),
    *(174, 175, 176, 177, 178, 179, 180, 212, 227, 237, 238, 239, 246, 248, 249, 250, 256, 272, 279, 298, 300, 303),
    *(304, 305, 308, 310, 311, 312, 313, 320, 321, 323, 428, 429, 430, 431, 432, 433, 442),
)
_LANDLOCK = (444, 445, 446)
_SECCOMP = (317,)

CONTAINERS: Mapping[str, Mapping[int, int]] = {
    "docker": dict.fromkeys(_DOCKER, errno.EPERM),
    "docker of old": dict.fromkeys((*_DOCKER, *_LANDLOCK), errno.EPERM),
    "gvisor": dict.fromkeys((*_DOCKER, *_LANDLOCK), errno.ENOSYS),
    "no seccomp": dict.fromkeys((*_DOCKER, *_SECCOMP), errno.EPERM),
}
"""The calls that each refuses, and with which error."""

_NEW_NAMESPACES = 0x7E020000
_CLONE, _X86_64 = 56, 0xC000003E


def enter(name: str) -> None:
    """Confine this process, and all that it starts, for good."""
    from awm.env import linux, seccomp

    steps = [(0x20, 0, 0, 4), (0x15, 1, 0, _X86_64), (6, 0, 0, 0x7FFF0000), (0x20, 0, 0, 0)]
    for number, code in CONTAINERS[name].items():
        steps += [(0x15, 0, 1, number), (6, 0, 0, 0x00050000 | code)]
    steps += [
        (0x15, 0, 3, _CLONE),
        (0x20, 0, 0, 16),
        (0x45, 0, 1, _NEW_NAMESPACES),
        (6, 0, 0, 0x00050000 | errno.EPERM),
    ]
    steps += [(6, 0, 0, 0x7FFF0000)]
    linux.forbid_new_privileges()
    seccomp.Filter(b"".join(struct.pack("=HBBI", *step) for step in steps), ()).install(0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    enter(sys.argv[1])
    os.execvp(sys.argv[2], sys.argv[2:])
