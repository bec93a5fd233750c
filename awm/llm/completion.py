"""The chat-completions format: requests to JSON, JSON to answers, refusals to errors.

Shared by the provider that talks to a server and the one that writes and reads batch files.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from awm.llm.errors import FINISH_REASONS, TOOL_CALLS, ItemError, LLMError, ProviderError
from awm.llm.request import MAX_TOKENS, LLMAnswer, LLMRequest, Usage

if TYPE_CHECKING:
    from awm.config import LLMConfig

__all__ = [
    "OPENAI_URL",
    "Failure",
    "NotACompletion",
    "answer_of",
    "base_url_setting",
    "chat_body",
    "failure_error",
    "filtered_answer",
    "is_permanent",
    "server_of",
    "tokens_parameter",
]

OPENAI_URL = "https://api.openai.com/v1"
BASE_URL_VARIABLE = "OPENAI_BASE_URL"
SETTINGS = {
    "temperature": "llm.temperature (null leaves it to the server)",
    "max_tokens": "llm.max_output_tokens",
    "max_completion_tokens": "llm.max_output_tokens",
    "response_format": "llm.structured_output",
    "model": "llm.model",
}
SHOWN_CHARACTERS = 300

StructuredOutput = Literal["json_schema", "json_object", "off"]
TokensParameter = Literal["max_completion_tokens", "max_tokens"]


class NotACompletion(ItemError):
    """A server's reply is not a chat completion, or not one that ended as it should."""


@dataclass(frozen=True)
class Failure:
    """A server's refusal of one request. `status` is its HTTP status, 0 when there was none."""

    status: int
    message: str
    code: str = ""
    param: str = ""

    @classmethod
    def of_body(cls, status: int, body: Any) -> Failure:
        """Read an error body; servers disagree on its shape."""
        error = body.get("error", body) if isinstance(body, dict) else body
        if not isinstance(error, dict):
            return cls(status=status, message=_words(error or ""))
        message = error.get("message") or error.get("detail") or error
        return cls(
            status=status,
            message=_words(message),
            code=_words(error.get("code") or error.get("type") or ""),
            param=_words(error.get("param") or ""),
        )

    def is_about(self, *words: str) -> bool:
        """Tell whether the refusal names one of these parameters."""
        return any(self.param.startswith(word) or word in self.message.lower() for word in words)

    def without(self, secret: str) -> Failure:
        """Return this failure with a secret struck out of the server's words."""
        return replace(self, message=self.message.replace(secret, "[key]")) if secret else self

    @property
    def shown(self) -> str:
        """The server's words on one line, shortened, for a message."""
        text = " ".join(self.message.split()) or "no reason given"
        return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


def _words(value: Any) -> str:
    """Text as it is, any other JSON as JSON."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "(nested too deep to be shown)"


def server_of(config: LLMConfig) -> str:
    """Return the base URL that requests go to: llm.base_url, else the SDK's variable, else OpenAI."""
    return (config.base_url or os.environ.get(BASE_URL_VARIABLE, "").strip() or OPENAI_URL).rstrip("/")


def base_url_setting(config: LLMConfig) -> str:
    """Return the name of what decides where requests go, for messages."""
    from_environment = not config.base_url and os.environ.get(BASE_URL_VARIABLE, "").strip()
    return f"the environment variable {BASE_URL_VARIABLE}" if from_environment else "llm.base_url"


def tokens_parameter(config: LLMConfig) -> TokensParameter:
    """Return the name under which a server most likely takes the limit on output tokens.

    OpenAI's reasoning models refuse `max_tokens`; many other servers silently ignore `max_completion_tokens`.
    """
    return "max_completion_tokens" if "api.openai.com" in server_of(config) else "max_tokens"


def chat_body(
    request: LLMRequest, config: LLMConfig, structured_output: StructuredOutput, tokens: TokensParameter
) -> dict[str, Any]:
    """Return the body of a chat-completions request."""
    body: dict[str, Any] = {
        "model": config.model,
        "messages": [message.model_dump() for message in request.messages],
        tokens: config.max_output_tokens,
    }
    if config.temperature is not None:
        body["temperature"] = config.temperature
    if request.response_schema is not None and structured_output != "off":
        body["response_format"] = _response_format(request, structured_output)
    return body


def _response_format(request: LLMRequest, structured_output: StructuredOutput) -> dict[str, Any]:
    if structured_output == "json_object":
        return {"type": "json_object"}
    name = re.sub(r"[^A-Za-z0-9_-]", "_", request.response_name or request.step)[:64] or "answer"
    # Not strict: strict mode takes a subset of JSON Schema only, and every answer is checked by its step anyway.
    schema = {"name": name, "schema": request.response_schema, "strict": False}
    return {"type": "json_schema", "json_schema": schema}


def answer_of(completion: Any, model: str, source: str) -> LLMAnswer:
    """Read an answer from a chat completion.

    :param completion: the parsed JSON of the response.
    :param model: the name that the model was asked for under.
    :param source: who sent it, for messages: a server, or a file and a line.
    :raises NotACompletion: it does not hold one, or the server says that it failed on the way.
    """
    try:
        choice = completion["choices"][0]
        message = choice["message"]
        content, refusal, called = message.get("content"), message.get("refusal"), message.get("tool_calls")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise NotACompletion(f"{source}: not a chat completion: {_words(completion)[:200]}") from None
    finish_reason = _finish_reason(choice.get("finish_reason"), source)
    text = _text_of(content, source)
    if refusal:
        finish_reason, text = "refusal", _text_of(refusal, source)
    elif called and not text.strip() and finish_reason == "stop":
        finish_reason = TOOL_CALLS
    usage = _usage_of(completion.get("usage"), source)
    return LLMAnswer(content=text, finish_reason=finish_reason, model=model, usage=usage)


def _finish_reason(given: Any, source: str) -> str:
    if given is None:  # some servers leave it out
        return "stop"
    if given not in FINISH_REASONS:
        raise NotACompletion(
            f"{source}: the answer ended with finish_reason {_words(given)[:80]!r}: it may be half of one"
        )
    return str(given)


def _text_of(content: Any, source: str) -> str:
    """Text, or the text parts of a list joined; what a model thought is left out."""
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type", "text") if isinstance(part, dict) and isinstance(content, list) else None
        if kind in ("thinking", "reasoning"):
            continue
        text = part.get("text") if kind in ("text", "output_text") else None
        if not isinstance(text, str):
            raise NotACompletion(f"{source}: the answer's content is not text: {_words(content)[:200]}")
        texts.append(text)
    return "".join(texts)


def _usage_of(usage: Any, source: str) -> Usage:
    if not isinstance(usage, dict):
        return Usage()
    details = usage.get("prompt_tokens_details") or {}
    if not isinstance(details, dict):
        raise NotACompletion(f"{source}: usage.prompt_tokens_details is {_words(details)[:80]}, not an object")
    return Usage(
        input_tokens=_tokens(usage, "prompt_tokens", source),
        cached_input_tokens=_tokens(details, "cached_tokens", source),
        output_tokens=_tokens(usage, "completion_tokens", source),
    )


def _tokens(counts: dict[str, Any], name: str, source: str) -> int:
    """A number of tokens; none when it is missing, or negative as some servers write "unknown"."""
    count = counts.get(name)
    if count is None:
        return 0
    if isinstance(count, bool) or not isinstance(count, int | float) or not count <= MAX_TOKENS:
        raise NotACompletion(f"{source}: usage says that {name} is {_words(count)[:80]}, which is no number of tokens")
    return max(0, int(max(0, count)))


def is_permanent(failure: Failure) -> bool:
    """Tell whether the same request would be refused again, whenever it is made."""
    return failure.status in (400, 413, 422)


def filtered_answer(failure: Failure, model: str) -> LLMAnswer | None:
    """Return the empty answer that stands for a prompt stopped by a content filter, or None for another refusal."""
    if failure.status == 400 and failure.code in ("content_filter", "content_policy_violation"):
        return LLMAnswer(content="", finish_reason="content_filter", model=model)
    return None


def failure_error(failure: Failure, config: LLMConfig, model: str | None = None) -> LLMError:
    """Turn a server's refusal into the error that says who has to act; never holds the API key.

    :param model: the model that was asked for, when it is not `llm.model`.
    """
    server, model, key = server_of(config), model or config.model, config.api_key_env
    status = failure.status
    if status == 401:
        # The server's own words may quote a part of the key.
        return ProviderError(f"{server} refused the API key in {key} (401): set {key} to a valid key of that server")
    if status == 402 or (status == 429 and _is_quota(failure)):
        return ProviderError(
            f"{server} reports no credit left for the key in {key} ({status}): {failure.shown}: add credit or use "
            f"another key, then run the same command again"
        )
    if status == 403:
        return ProviderError(
            f"{server} does not allow model {model} to the key in {key} (403): {failure.shown}: choose another "
            f"llm.model or key"
        )
    if status == 404:
        return ProviderError(
            f"{server} does not know model {model} (404): {failure.shown}: check llm.model and "
            f"{base_url_setting(config)} (which usually ends in /v1)"
        )
    if is_permanent(failure) and failure.code != "context_length_exceeded":
        for parameter, setting in SETTINGS.items():
            if failure.param.startswith(parameter):
                return ProviderError(f"{server} refused {parameter} ({status}): {failure.shown}: change {setting}")
    return ItemError(f"{server} failed on this request ({status}): {failure.shown}")


def _is_quota(failure: Failure) -> bool:
    return "insufficient_quota" in failure.code or failure.is_about("insufficient_quota", "exceeded your current quota")
