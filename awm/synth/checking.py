"""The sandbox that the steps check generated code in, with the limits that params.yaml sets."""

from __future__ import annotations

from awm.config import SandboxConfig
from awm.env.host import Sandbox
from awm.env.policy import Limits

__all__ = ["make_sandbox"]


def make_sandbox(config: SandboxConfig) -> Sandbox:
    """A sandbox; use it as a context manager."""
    limits = Limits(call_s=config.call_timeout_s, verify_s=config.verify_timeout_s, memory_mb=config.memory_mb)
    return Sandbox(limits, mode=config.mode)
