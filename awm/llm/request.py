"""What is asked of a model and what it answers: requests, answers, and the keys that tell them apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from awm.store import digest

if TYPE_CHECKING:
    from awm.config import LLMConfig

__all__ = [
    "LLMAnswer",
    "LLMRequest",
    "Message",
    "Usage",
    "answer_key",
    "request_key",
    "sampling_parameters",
]

KEY_VERSION = 1
MAX_TOKENS = 10**12
"""No answer costs more; a count above it is a mistake of whoever counted."""


def _writable(value: Any) -> Any:
    """Replace lone surrogates: legal in JSON and in Python, but not in UTF-8."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_writable)]


class Frozen(BaseModel):
    """Base of the models of this package: immutable, and no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(Frozen):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Text


class Usage(Frozen):
    """Tokens that one answer cost. Cached input tokens are part of the input tokens."""

    input_tokens: int = Field(default=0, ge=0)
    cached_input_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)


class LLMRequest(Frozen):
    """One question to a model, made by a step for one of its items."""

    step: str
    item: str = Field(description="`<scenario>` or `<scenario>/<part>`")
    attempt: int = Field(ge=1, description="Number of the try, from 1; a new attempt is a new sample")
    messages: tuple[Message, ...]
    response_schema: dict[str, Any] | None = Field(default=None, description="JSON Schema that the answer should fit")
    response_name: str | None = Field(
        default=None, description="Name of that schema; some servers show it to the model"
    )

    @property
    def prompt_sha256(self) -> str:
        """Hash of all that the model is shown: messages and response schema."""
        messages = [message.model_dump() for message in self.messages]
        return digest({"messages": messages, "response_schema": self.response_schema})


class LLMAnswer(Frozen):
    """What a model answered. `model` is the name it was asked for under, so that it is the same on every server."""

    content: Text
    finish_reason: Text = Field(description="One of `FINISH_REASONS`; `refusal` stands for a refusal in words")
    model: str
    usage: Usage = Usage()


def sampling_parameters(config: LLMConfig) -> dict[str, Any]:
    """Return the settings that change what a model answers, as they are recorded with each answer."""
    return {
        "max_output_tokens": config.max_output_tokens,
        "structured_output": config.structured_output,
        "temperature": config.temperature,
    }


def answer_key(prompt_sha256: str, model: str, parameters: dict[str, Any], attempt: int) -> str:
    """Key of an answer (64 hex digits): prompt, model, sampling parameters and number of the sample."""
    parts = {"prompt": prompt_sha256, "model": model, "parameters": parameters, "sample": attempt}
    return digest({"version": KEY_VERSION, **parts})


def request_key(request: LLMRequest, config: LLMConfig) -> str:
    """Key of the answer to a request (64 hex digits).

    It holds whatever changes the answer and nothing else: not the base URL, the API key, timeouts or retries.
    """
    return answer_key(request.prompt_sha256, config.model, sampling_parameters(config), request.attempt)
