"""The provider that replays recorded answers: the default, so that a fresh clone runs offline."""

from __future__ import annotations

from awm.llm.errors import NotRecorded
from awm.llm.recording import Recording, RecordingEntry
from awm.llm.request import LLMRequest
from awm.store import digest

__all__ = ["RecordedProvider"]


class RecordedProvider:
    """Answers by step, item and attempt, whatever the prompt says.

    A prompt that has changed since its answer was recorded is replayed all the same: the data stay what they are until
    someone asks a model again. The entry names the prompt it was recorded for.
    """

    def __init__(self, recording: Recording) -> None:
        """Replay a recording."""
        self._recording = recording

    def replay(self, request: LLMRequest) -> RecordingEntry:
        """Return the recorded entry for a request.

        :raises NotRecorded: there is none.
        """
        entry = self._recording.get(request.step, request.item, request.attempt)
        if entry is None:
            raise NotRecorded(request.step, request.item, request.attempt)
        return entry

    def fingerprint(self, step: str, item: str) -> str:
        """Hash (64 hex digits) of all recorded answers of an item: changes when any of them does."""
        return digest([entry.model_dump() for entry in self._recording.of_item(step, item)])
