"""One session of a server: an episode that starts with its first call and ends with the session."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from awm.env.episode import Episode, EpisodeOver
from awm.env.errors import EnvironmentFault, MissingExtraError, SandboxUnavailable
from awm.env.results import CallResult

__all__ = ["OpenEpisode", "Session", "SessionOver"]

OpenEpisode = Callable[[], Episode]
"""Gives the episode of a new session."""


class SessionOver(RuntimeError):
    """The session has no environment any more; the message is for the agent."""


class Session:
    """An episode for one client, which may ask for several things at a time: they are done one after the other.

    :param open_episode: Asked for the episode when the first call comes. Until then a session costs nothing.
    """

    def __init__(self, open_episode: OpenEpisode) -> None:
        self._open_episode = open_episode
        self._episode: Episode | None = None
        self._turn = anyio.Lock()
        self._over: str | None = None

    async def call(self, tool: str, arguments: dict[str, object]) -> CallResult:
        """Call a tool; raise SessionOver once the environment has failed.

        A call that the client cancels still runs to its end, which is never far, so that the episode can go on.
        """
        async with self._turn:
            with anyio.CancelScope(shield=True):
                result = await self._call(tool, arguments)
            return result

    async def _call(self, tool: str, arguments: dict[str, object]) -> CallResult:
        if self._over is not None:
            raise SessionOver(self._over)
        try:
            if self._episode is None:
                self._episode = self._open_episode()
            return await self._episode.acall(tool, arguments)
        except EpisodeOver as error:
            reason = error.fault or str(error)
        except (EnvironmentFault, SandboxUnavailable, MissingExtraError) as error:
            reason = str(error)
        self._over = (
            f"this session is over, because its environment failed: {reason}; open a new session to start again"
        )
        raise SessionOver(self._over)

    def close(self) -> None:
        """End the episode with its process; harmless when that is done."""
        self._over = self._over or "this session is closed"
        if self._episode is not None:
            self._episode.close()
