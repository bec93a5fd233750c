"""Large language models: requests, providers, the response cache, recordings, and the parsing of answers."""

from awm.llm.client import LLM
from awm.llm.errors import (
    AnswerError,
    AnswerPending,
    BatchPending,
    EmptyAnswer,
    ItemError,
    LLMError,
    NotRecorded,
    ProviderError,
    RecordingError,
    RefusedAnswer,
    TruncatedAnswer,
)
from awm.llm.recording import Recording, RecordingEntry, write_entries, write_shards
from awm.llm.request import LLMAnswer, LLMRequest, Message, Usage, request_key

__all__ = [
    "LLM",
    "AnswerError",
    "AnswerPending",
    "BatchPending",
    "EmptyAnswer",
    "ItemError",
    "LLMAnswer",
    "LLMError",
    "LLMRequest",
    "Message",
    "NotRecorded",
    "ProviderError",
    "Recording",
    "RecordingEntry",
    "RecordingError",
    "RefusedAnswer",
    "TruncatedAnswer",
    "Usage",
    "request_key",
    "write_entries",
    "write_shards",
]
