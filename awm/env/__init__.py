"""Executable environments: database, clock, generated code in its sandbox.

The sandbox's own processes import this package too: it stays light, and imports nothing of `awm` but `awm.env`.
"""

from awm.env.errors import EnvironmentFault, ModuleError, SandboxUnavailable, WorkerDied, WorkerTimeout
from awm.env.host import Sandbox, ToolWorker
from awm.env.policy import Limits
from awm.env.results import CallResult, SandboxReport, ToolSignature, VerifierResult

__all__ = [
    "CallResult",
    "EnvironmentFault",
    "Limits",
    "ModuleError",
    "Sandbox",
    "SandboxReport",
    "SandboxUnavailable",
    "ToolSignature",
    "ToolWorker",
    "VerifierResult",
    "WorkerDied",
    "WorkerTimeout",
]
