"""Executable environments: `Environment`, `Episode`, `Pool`, and the sandbox that generated code runs in.

```python
with Environment.load("data", "lending_library") as environment, environment.episode(task=3) as episode:
    print([tool.name for tool in environment.tools])
    result = episode.call("list_loans", {"status": "open"})
    print(result.value if result.ok else result.message)
    print(episode.diff())
    print(episode.verify("You have two open loans.").verdict)
```

The sandbox's own processes import this package too. It stays light for them: what needs more of `awm` than `awm.env` is
imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from awm.env.errors import (
    EnvironmentFault,
    MissingExtraError,
    ModuleError,
    SandboxUnavailable,
    WorkerDied,
    WorkerTimeout,
)
from awm.env.host import Sandbox, ToolWorker
from awm.env.policy import Limits
from awm.env.results import CallResult, SandboxReport, ToolSignature, VerifierResult

if TYPE_CHECKING:
    from awm.env.environment import Environment, environment_slugs
    from awm.env.episode import Episode, EpisodeOver, Step
    from awm.env.pool import EnvironmentHealth, Pool, QuarantinedError

__all__ = [
    "CallResult",
    "Environment",
    "EnvironmentFault",
    "EnvironmentHealth",
    "Episode",
    "EpisodeOver",
    "Limits",
    "MissingExtraError",
    "ModuleError",
    "Pool",
    "QuarantinedError",
    "Sandbox",
    "SandboxReport",
    "SandboxUnavailable",
    "Step",
    "ToolSignature",
    "ToolWorker",
    "VerifierResult",
    "WorkerDied",
    "WorkerTimeout",
    "environment_slugs",
]

_LATE = {
    "Environment": "environment",
    "EnvironmentHealth": "pool",
    "Episode": "episode",
    "EpisodeOver": "episode",
    "Pool": "pool",
    "QuarantinedError": "pool",
    "Step": "episode",
    "environment_slugs": "environment",
}


def __getattr__(name: str) -> Any:
    """Import what needs the rest of `awm`."""
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATE[name]}"), name)
