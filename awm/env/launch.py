"""Start the zygote, and ask it for workers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import awm
from awm.env.channel import Worker
from awm.env.errors import SandboxUnavailable
from awm.env.policy import Limits, Mode, Runtime
from awm.env.results import SandboxReport
from awm.env.wire import Frames, unpack

__all__ = ["Zygote", "ZygoteGoneError"]

W = TypeVar("W", bound=Worker)

_START_S = 60.0
_FORK_S = 10.0
_CLOSE_S = 5.0
_PID_BYTES = 4
# No user site and no current folder on the path; the hash seed makes sets of text iterate alike in each run.
_FLAGS = ("-s", "-P")
_ENVIRONMENT = {"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1", "TZ": "UTC", "OMP_NUM_THREADS": "1"}
_PASSED_ON = ("LD_LIBRARY_PATH",)  # some installations need it to start Python at all
# Import this very package, and the libraries where the host has them; the zygote forgets these paths before it forks.
_BOOTSTRAP = """\
import os, sys
os.register_at_fork = lambda **hooks: None  # one thread, no locks: hooks only cost each worker 400 KiB
control, settings, package_parent, *library_paths = sys.argv[1:]
sys.path.insert(0, package_parent)
import awm
del sys.path[0]
sys.path += library_paths
from awm.env.zygote import main
main(int(control), settings)
"""


class ZygoteGoneError(RuntimeError):
    """The zygote ended; another can be started."""


class Zygote:
    """The process that workers are forked from. Use it from one thread at a time.

    Raises SandboxUnavailable if it does not come up, with the reason.
    """

    def __init__(self, mode: Mode, limits: Limits, runtime: Runtime = "module") -> None:
        self._control, its_end = socket.socketpair()
        settings = json.dumps({"mode": mode, "limits": asdict(limits), "runtime": runtime})
        paths = [str(Path(awm.__file__).resolve().parent.parent), *filter(os.path.isabs, sys.path)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *_FLAGS, "-c", _BOOTSTRAP, str(its_end.fileno()), settings, *paths],
                env=_ENVIRONMENT | {name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                cwd="/",
                pass_fds=[its_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C in a terminal is for the host, which then ends the zygote itself
            )
        finally:
            its_end.close()
        self.report = self._read_report()

    def _read_report(self) -> SandboxReport:
        frames = Frames()
        self._control.settimeout(_START_S)
        data = None
        try:
            while data is None:
                received = self._control.recv(1 << 16)
                if not received:
                    raise SandboxUnavailable(self._last_words())
                frames.feed(received)
                data = frames.take()
        except TimeoutError:
            self._process.kill()
            self._process.wait()
            raise SandboxUnavailable(f"the sandbox's zygote did not start within {_START_S:g} s") from None
        self._control.settimeout(_FORK_S)
        report: dict[str, Any] = unpack(data)
        assert self._process.stderr is not None
        self._process.stderr.close()
        if "error" in report:
            self.close()
            raise SandboxUnavailable(report["error"])
        return SandboxReport(**{**report, "layers": tuple(report["layers"])})

    def _last_words(self) -> str:
        _, errors = self._process.communicate(timeout=_CLOSE_S)
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        return f"the sandbox's zygote did not start: {lines[-1] if lines else f'exit {self._process.returncode}'}"

    def fork(self, role: bytes, make: type[W]) -> W:
        """Return a new worker, which is still to send its greeting; raise ZygoteGoneError if there is none to ask."""
        ours, its_end = socket.socketpair()
        try:
            with its_end:
                socket.send_fds(self._control, [role], [its_end.fileno()])
            data, descriptors, _, _ = socket.recv_fds(self._control, _PID_BYTES, 1)
        except OSError:
            data = b""
        if len(data) < _PID_BYTES:
            ours.close()
            self.close()
            raise ZygoteGoneError
        return make(ours, int.from_bytes(data, "little"), descriptors[0] if descriptors else None)

    def close(self) -> None:
        """Hang up, which makes it kill its workers, and wait until it is gone."""
        self._control.close()
        if self._process.stderr is not None:
            self._process.stderr.close()
        try:
            self._process.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
