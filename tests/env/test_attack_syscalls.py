"""System calls made by hand, past Python and libc: the filter refuses what is not on its list."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from awm.env import Sandbox, ToolWorker, WorkerDied

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="system calls by their number on x86_64")

HOST = os.getpid()
EPERM, EACCES, ENOSYS = 1, 13, 38
MODULE = '''
import re
from typing import Annotated
from pydantic import Field
from awm.env.tool import Connection


def run(
    db: Connection,
    number: Annotated[int, Field(description="System call")],
    arguments: Annotated[list[int], Field(description="Its arguments")],
) -> list[int]:
    """Make a system call; return its result and the error number."""
    ctypes = re.enum.sys.modules["importlib"].import_module("ctypes")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = libc.syscall(*(ctypes.c_long(value) for value in (number, *arguments)))
    return [result, ctypes.get_errno()]
'''

OTHER_PROCESSES = {
    "ptrace attach": (101, 16, HOST),
    "ptrace seize": (101, 0x4206, HOST),
    "ptrace traceme": (101, 0),
    "process_vm_writev": (311, HOST),
    "process_madvise": (440, HOST),
    "process_mrelease": (448, HOST),
    "pidfd_open": (434, HOST),
    "pidfd_getfd": (438, 3, 0),
    "pidfd_send_signal": (424, 3, 9),
    "kcmp": (312, HOST, HOST),
    "kill the own group": (62, 0, 9),
    "kill the host's group": (62, -HOST, 9),
    "tkill": (200, HOST, 9),
    "tgkill the host": (234, HOST, HOST, 9),
    "rt_sigqueueinfo": (129, HOST, 9),
    "rt_tgsigqueueinfo": (297, HOST, HOST, 9),
    "prlimit on the host": (302, HOST, 0),
    "own limits": (160, 7, 0),
    "own limits by prlimit": (302, 0, 7, 4096),
    "setpgid": (109, 0, 0),
    "setsid": (112,),
    "sched_setscheduler": (144, 0, 1),
    "sched_setattr": (314, 0),
    "setpriority": (141, 0, 0, -20),
    "ioprio_set": (251, 1, 0, 0),
    "migrate_pages": (256, HOST),
    "move_pages": (279, HOST),
}
NEW_PROCESSES = {
    "fork": (57,),
    "vfork": (58,),
    "clone into a new user namespace": (56, 0x10000000 | 17),
    "clone with shared memory": (56, 0x100 | 17),
    "a thread": (56, 0x3D0F00),
    "execve": (59, 0),
    "execveat": (322, 3),
    "uselib": (134, 0),
}
NAMESPACES_AND_MOUNTS = {
    "setns": (308, 3, 0),
    "unshare the network": (272, 0x40000000),
    "umount": (166, 0),
    "pivot_root": (155, 0, 0),
    "chroot": (161, 0),
    "open_tree": (428, -100),
    "move_mount": (429, 3),
    "fsopen": (430, 0),
    "fsmount": (432, 3),
    "mount_setattr": (442, 3),
    "statmount": (457, 0),
    "swapon": (167, 0),
    "quotactl": (179, 0),
    "sethostname": (170, 0, 0),
}
KERNEL = {
    "perf_event_open": (298, 0),
    "userfaultfd": (323, 0),
    "init_module": (175, 0),
    "finit_module": (313, 3),
    "delete_module": (176, 0),
    "kexec_load": (246, 0),
    "kexec_file_load": (320, 3),
    "reboot": (169, 0xFEE1DEAD),
    "syslog": (103, 3),
    "acct": (163, 0),
    "iopl": (172, 3),
    "ioperm": (173, 0, 1, 1),
    "modify_ldt": (154, 1),
    "personality": (135, 0x0040000),
    "arch_prctl": (158, 0x1011, 0),
    "settimeofday": (164, 0),
    "clock_settime": (227, 0),
    "adjtimex": (159, 0),
    "add_key": (248, 0),
    "request_key": (249, 0),
    "io_setup": (206, 1),
    "io_uring_enter": (426, 3),
    "io_uring_register": (427, 3),
    "fanotify_init": (300, 0),
    "inotify_init": (294, 0),
    "timer_create": (222, 0),
    "remap_file_pages": (216, 0),
    "pkey_alloc": (330, 0),
}
PRIVILEGES = {
    "setuid": (105, 0),
    "setresuid": (117, 0, 0, 0),
    "setgid": (106, 0),
    "setgroups": (116, 0),
    "setfsuid": (122, 0),
    "capset": (126, 0),
    "another filter": (317, 1),
    "strict seccomp": (317, 0),
    "seccomp by prctl": (157, 22, 2),
    "another Landlock ruleset": (444, 0),
    "landlock_restrict_self": (446, 3),
    "lsm_set_self_attr": (460, 0),
    "no_new_privs": (157, 38, 0),
    "let others trace it": (157, 0x59616D61, -1),
    "keep capabilities": (157, 8, 1),
    "securebits": (157, 28, 1),
    "be a subreaper": (157, 36, 1),
    "move its own memory map": (157, 35, 8),
}
FILES = {
    "creat": (85, 0),
    "link": (86, 0),
    "linkat": (265, -100),
    "symlinkat": (266, 0),
    "unlinkat": (263, -100),
    "rmdir": (84, 0),
    "mknod": (133, 0),
    "renameat2": (316, -100),
    "chown": (92, 0),
    "fchmod": (91, 3, 0o777),
    "fchmodat2": (452, -100),
    "setxattr": (188, 0),
    "removexattr": (197, 0),
    "utimensat": (280, -100),
    "ftruncate": (77, 0, 0),
    "fallocate": (285, 0),
    "chdir": (80, 0),
    "fchdir": (81, 0),
    "open_by_handle_at": (304, -100),
    "name_to_handle_at": (303, -100),
    "sendfile": (40, 1, 0),
    "splice": (275, 0),
    "copy_file_range": (326, 0),
    "memfd_create": (319, 0),
    "memfd_secret": (447, 0),
}
COMMUNICATION = {
    "bind": (49, 3),
    "listen": (50, 3, 1),
    "accept": (43, 3),
    "connect": (42, 3),
    "setsockopt": (54, 3),
    "a vsock": (41, 40, 1),
    "a raw packet socket": (41, 17, 3),
    "an AF_ALG socket": (41, 38, 5),
    "a pair of network sockets": (53, 2, 1),
    "shmat": (30, 0),
    "msgget": (68, 0, 0o1666),
    "semget": (64, 0, 1, 0o1666),
    "mq_open": (240, 0),
    "signals to others from a descriptor": (72, 3, 8, HOST),
    "a lease": (72, 0, 1024, 1),
    "type into the terminal": (16, 0, 0x5412),
    "paste into the console": (16, 0, 0x541C),
}
OPENING = "w rw creat trunc append tmp".split()
UNKNOWN = {"openat2": (437, -100), "clone3": (435, 0), "io_uring_setup": (425, 1)}
GROUPS = (*(OTHER_PROCESSES, NEW_PROCESSES, NAMESPACES_AND_MOUNTS, KERNEL, PRIVILEGES, FILES, COMMUNICATION),)
REFUSED = {name: call for group in GROUPS for name, call in group.items()}


@pytest.fixture(scope="module")
def native(sandbox: Sandbox, snapshot: bytes) -> Iterator[ToolWorker]:
    """A worker that makes any system call."""
    with sandbox.worker() as worker:
        worker.load(MODULE)
        worker.open("s", snapshot, "2025-03-01")
        yield worker


def outcome(worker: ToolWorker, call: tuple[int, ...]) -> list[int]:
    padded = (*call[1:], 0, 0, 0, 0, 0, 0)[:6]
    result = worker.call("s", "run", {"number": call[0], "arguments": list(padded)})
    assert result.ok, result.message
    return result.value


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_it_is_not_permitted(native: ToolWorker, call: tuple[int, ...]):
    assert outcome(native, call) == [-1, EPERM]


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
def test_it_seems_not_to_exist(native: ToolWorker, call: tuple[int, ...]):
    assert outcome(native, call) == [-1, ENOSYS]


@pytest.mark.parametrize(
    "flags", [0o1, 0o2, 0o100, 0o1000, 0o2000, 0o20200000], ids="w rw creat trunc append tmp".split()
)
@pytest.mark.parametrize("call", [(2, 0), (257, -100, 0)], ids=["open", "openat"])
def test_opening_for_anything_but_reading_is_denied(native: ToolWorker, call: tuple[int, ...], flags: int):
    assert outcome(native, (*call, flags)) == [-1, EACCES]


def test_flags_in_the_upper_half_change_nothing(native: ToolWorker):
    """The filter compares 32 bits, and the kernel takes 32: there is no call that one sees and the other doesn't."""
    assert outcome(native, (41 | 1 << 32, 2, 1)) == [-1, EPERM]
    assert outcome(native, (257, -100, 0, 0o1 | 1 << 40)) == [-1, EACCES]
    assert outcome(native, (62, HOST | 1 << 32, 9)) == [-1, EPERM]


ENDING = {
    "x32, a call that would be allowed": "ctypes.CDLL(None).syscall(0x40000000 + 39)",
    "x32, a call that would not": "ctypes.CDLL(None).syscall(0x40000000 + 57)",
    "int 0x80": """
        import mmap
        page = mmap.mmap(-1, 4096, prot=7)
        page.write(bytes.fromhex("b814000000" "cd80" "c3"))  # mov eax, 20 (getpid); int 0x80; ret
        address = ctypes.addressof(ctypes.c_char.from_buffer(page))
        ctypes.CFUNCTYPE(ctypes.c_long)(address)()
    """,
}


@pytest.mark.parametrize("code", ENDING.values(), ids=ENDING)
def test_another_calling_convention_ends_the_process(run_tool, code: str):
    code = code.replace("import mmap", 'mmap = _module("mmap")')
    with pytest.raises(WorkerDied):
        run_tool('ctypes = _module("ctypes")\n' + "\n".join(line.strip() for line in code.strip().splitlines()))
