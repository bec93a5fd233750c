"""What can go wrong with a request to a model, sorted by who has to act.

`ProviderError`: the user (stop the stage). `ItemError`: nobody, this item is rejected. `AnswerError`: the model, which
gets its answer back with the problem. `AnswerPending`: whoever answers the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from awm.llm.request import LLMAnswer

__all__ = [
    "FINISH_REASONS",
    "TOOL_CALLS",
    "AnswerError",
    "AnswerPending",
    "BatchPending",
    "EmptyAnswer",
    "ItemError",
    "LLMError",
    "NotRecorded",
    "ProviderError",
    "RecordingError",
    "RefusedAnswer",
    "TruncatedAnswer",
    "answer_error",
]


TOOL_CALLS = "tool_calls"
FINISH_REASONS = ("stop", "length", "content_filter", "refusal", TOOL_CALLS, "function_call")
"""How an answer may end. With any other word nobody knows whether it is whole."""


class LLMError(Exception):
    """Base of all errors of this package."""


class ProviderError(LLMError):
    """No request can succeed until the user changes something; the stage stops and keeps what is done."""


class RecordingError(ProviderError):
    """A file of recorded answers can't be read; the message names the file and the line."""


class BatchPending(ProviderError):
    """The stage waits for a batch; the message says which file to send and where its answers go."""


class ItemError(LLMError):
    """This request failed for good, others may succeed; the item is rejected and nothing is stored."""


class NotRecorded(ItemError):
    """The recordings hold no answer to this request."""

    def __init__(self, step: str, item: str, attempt: int) -> None:
        """Say which answer is missing."""
        super().__init__(
            f"no recorded answer for step {step}, item {item}, attempt {attempt}: "
            f"set llm.provider to openai or batch in params.yaml to ask a model"
        )
        self.step, self.item, self.attempt = step, item, attempt


class AnswerPending(LLMError):
    """The request waits in a batch file; ask again in a later run."""


class AnswerError(LLMError):
    """The model answered, but with something unusable that asking again may mend."""

    def __init__(self, message: str, answer: LLMAnswer) -> None:
        """Keep the answer beside the message."""
        super().__init__(message)
        self.answer = answer


class TruncatedAnswer(AnswerError):
    """The answer stopped at the limit on output tokens."""


class EmptyAnswer(AnswerError):
    """The answer has no text."""


class RefusedAnswer(AnswerError):
    """The model, or a filter in front of it, refused to answer."""


def answer_error(answer: LLMAnswer) -> AnswerError | None:
    """Return why an answer is unusable whatever was asked, or None. Unusable answers are never cached."""
    if answer.finish_reason == "length":
        tokens = f" ({answer.usage.output_tokens} output tokens)" if answer.usage.output_tokens else ""
        return TruncatedAnswer(f"the answer was cut off at the limit on its length{tokens}: give a shorter one", answer)
    if answer.finish_reason == "content_filter":
        return RefusedAnswer("the answer was withheld by a content filter", answer)
    if answer.finish_reason == "refusal":
        return RefusedAnswer(f"the model refused to answer: {answer.content}", answer)
    if answer.finish_reason not in FINISH_REASONS:
        return AnswerError(f"the answer ended with finish_reason {answer.finish_reason[:80]!r}: it may be half", answer)
    if not answer.content.strip() and answer.finish_reason in (TOOL_CALLS, "function_call"):
        return EmptyAnswer("the model called a tool instead of answering: answer in text", answer)
    if not answer.content.strip():
        return EmptyAnswer("the answer was empty", answer)
    return None
