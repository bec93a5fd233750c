"""The provider for any OpenAI-compatible server: chat completions and embeddings.

Servers differ in what they take. The strongest form is tried first; when a server refuses it, the next weaker one is
tried and remembered.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from awm.llm.completion import (
    OPENAI_URL,
    Failure,
    StructuredOutput,
    TokensParameter,
    answer_of,
    base_url_setting,
    chat_body,
    failure_error,
    filtered_answer,
    is_permanent,
    server_of,
    tokens_parameter,
)
from awm.llm.errors import ItemError, LLMError, ProviderError
from awm.llm.recording import json_problem
from awm.llm.request import LLMAnswer, LLMRequest
from awm.store import digest

if TYPE_CHECKING:
    import openai

    from awm.config import LLMConfig

__all__ = ["OpenAIProvider", "embed"]

CONNECT_TIMEOUT_S = 10.0
TEXTS_PER_REQUEST = 128
LOCAL_KEY = "none"
WEAKER: dict[StructuredOutput, StructuredOutput] = {"json_schema": "json_object", "json_object": "off"}
OTHER_NAME: dict[TokensParameter, TokensParameter] = {
    "max_completion_tokens": "max_tokens",
    "max_tokens": "max_completion_tokens",
}
STRUCTURED_WORDS = ("response_format", "json_schema", "json_object", "structured output", "grammar")
# Names, not classes: the SDK's HTTP library is not ours to depend on.
UNREACHABLE = {"ConnectError", "ConnectTimeout", "ProxyError", "UnsupportedProtocol", "LocalProtocolError"}


class _Refused(Exception):
    """A server answered with an HTTP error, after the SDK's retries."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OpenAIProvider:
    """Asks a server, with at most `concurrency` requests in flight. For use in one event loop."""

    def __init__(self, config: LLMConfig) -> None:
        """Prepare a client; nothing is sent yet.

        :raises ProviderError: the API key or the base URL can't be used.
        """
        self._config = config
        self._key = _api_key(config)
        self._client = _client(config, self._key)
        self._slots = asyncio.Semaphore(config.concurrency)
        self._tokens: TokensParameter = tokens_parameter(config)
        self._refused_modes: set[tuple[str, StructuredOutput]] = set()

    async def answer(self, request: LLMRequest) -> LLMAnswer:
        """Ask one question.

        :raises ProviderError: no request can succeed until the user changes something.
        :raises ItemError: this request failed, after retries.
        """
        async with self._slots:
            try:
                completion = await self._complete(request)
            except _Refused as refused:
                if answer := filtered_answer(refused.failure, self._config.model):
                    return answer
                raise failure_error(refused.failure, self._config) from None
        return answer_of(completion, self._config.model, server_of(self._config))

    async def embed(self, texts: Sequence[str], model: str) -> list[list[float]]:
        """Return one vector per text, in their order, all of one length. Raises like `answer`."""
        starts = range(0, len(texts), TEXTS_PER_REQUEST)
        chunks = [list(texts[start : start + TEXTS_PER_REQUEST]) for start in starts]
        vectors = await asyncio.gather(*(self._embed_chunk(chunk, model) for chunk in chunks))
        return [vector for chunk in vectors for vector in chunk]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _complete(self, request: LLMRequest) -> Any:
        schema = digest(request.response_schema)
        tried: set[str] = set()
        while True:
            mode, tokens = self._mode(schema), self._tokens
            try:
                body = chat_body(request, self._config, mode, tokens)
                return await self._send(self._client.chat.completions.with_raw_response.create(**body))
            except _Refused as refused:
                if not is_permanent(refused.failure):
                    raise
                weakened = self._weaken(refused.failure, body, schema, mode, tokens)
                if weakened is None or weakened in tried:
                    raise
                tried.add(weakened)

    def _mode(self, schema: str) -> StructuredOutput:
        """Return the strongest form of structured output that the server has not refused for this schema."""
        mode: StructuredOutput = self._config.structured_output
        while (schema, mode) in self._refused_modes:
            mode = WEAKER[mode]
        return mode

    def _weaken(
        self, failure: Failure, body: dict[str, Any], schema: str, mode: StructuredOutput, tokens: TokensParameter
    ) -> str | None:
        """Remember what the server does not take. Returns its name, or None when that is nothing we can do without."""
        if failure.is_about(tokens):
            self._tokens = OTHER_NAME[tokens]
            return tokens
        if "response_format" in body and failure.is_about(*STRUCTURED_WORDS):
            self._refused_modes.add((schema, mode))
            return mode
        return None

    async def _embed_chunk(self, texts: list[str], model: str) -> list[list[float]]:
        async with self._slots:
            request = self._client.embeddings.with_raw_response.create(
                input=texts, model=model, encoding_format="float"
            )
            try:
                reply = await self._send(request)
            except _Refused as refused:
                raise failure_error(refused.failure, self._config, model) from None
        try:
            rows = sorted(reply["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
        except (KeyError, TypeError, ValueError, OverflowError):
            vectors = []
        finite = all(math.isfinite(number) for vector in vectors for number in vector)
        if len(vectors) != len(texts) or len({len(vector) for vector in vectors}) > 1 or not finite:
            raise ItemError(f"{server_of(self._config)} did not send one embedding per text; is {model} such a model?")
        return vectors

    async def _send(self, request: Awaitable[Any]) -> Any:
        """Await a request of the SDK and return the JSON of its reply; errors become ours."""
        import openai

        try:
            text = (await request).http_response.text
        except openai.APIStatusError as error:
            failure = Failure.of_body(error.status_code, error.body or error.response.text)
            raise _Refused(failure.without(self._key)) from None
        except openai.APIConnectionError as error:
            raise self._connection_error(error) from None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._not_json(text, error) from None

    def _connection_error(self, error: openai.APIConnectionError) -> LLMError:
        import openai

        if isinstance(error.__cause__, LLMError):
            return error.__cause__  # ours, from below the SDK, of which some releases wrap every exception
        server, cause = server_of(self._config), type(error.__cause__).__name__
        if cause in UNREACHABLE:
            return ProviderError(
                f"{server} can't be reached ({cause}): check {base_url_setting(self._config)}, that the server runs, "
                f"and the network"
            )
        if isinstance(error, openai.APITimeoutError):
            return ItemError(
                f"{server} sent no answer within llm.timeout_s = {self._config.timeout_s:g} seconds, "
                f"tried {self._config.retries + 1} times"
            )
        return ItemError(f"{server} cut the connection ({cause}), tried {self._config.retries + 1} times")

    def _not_json(self, text: str, error: Exception) -> LLMError:
        server = server_of(self._config)
        if text.lstrip().startswith("<"):
            setting = base_url_setting(self._config)
            return ProviderError(f"{server} answers with a web page, not with JSON: check {setting} (often .../v1)")
        return ItemError(f"{server} sent a reply that is not JSON ({json_problem(error)}): {text[:100]!r}")


async def embed(texts: Sequence[str], config: LLMConfig, model: str) -> list[list[float]]:
    """Return one embedding per text, in their order, from the server that `config` names.

    :raises ProviderError: no request can succeed until the user changes something.
    :raises ItemError: a request failed, after retries.
    """
    provider = OpenAIProvider(config)
    try:
        return await provider.embed(texts, model)
    finally:
        await provider.aclose()


def _api_key(config: LLMConfig) -> str:
    key = os.environ.get(config.api_key_env, "").strip()
    if not key:
        if server_of(config) != OPENAI_URL:
            return LOCAL_KEY  # servers on one's own machine rarely want one; the SDK insists on some text
        raise ProviderError(
            f"the environment variable {config.api_key_env} is not set: put the API key of {server_of(config)} in it, "
            f"or set llm.base_url to a server that needs none"
        )
    if not (key.isascii() and key.isprintable()):
        raise ProviderError(f"{config.api_key_env} holds characters that no API key has: set it again")
    return key


def _client(config: LLMConfig, key: str) -> openai.AsyncOpenAI:
    import openai  # here, because it takes a second and most stages replay

    from awm.llm.bounded_http import BoundedClient

    server = server_of(config)
    try:
        parts = urlsplit(server)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        setting = base_url_setting(config)
        raise ProviderError(f"{setting}: {server!r} is not an address such as http://localhost:8000/v1")
    # A connection that is refused in silence shall be told from an answer that is late: it has less time than a try.
    timeout = openai.Timeout(config.timeout_s, connect=min(CONNECT_TIMEOUT_S, config.timeout_s / 2))
    http = BoundedClient(server, config.timeout_s)
    return openai.AsyncOpenAI(
        base_url=server, api_key=key, timeout=timeout, max_retries=config.retries, http_client=http
    )
