"""The one way for a step to ask a model: pick the provider, pay each answer once, keep what was answered."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from awm.llm.batch import BatchFiles, BatchProvider
from awm.llm.cache import ResponseCache, cache_root
from awm.llm.errors import answer_error
from awm.llm.openai_provider import OpenAIProvider
from awm.llm.recorded import RecordedProvider
from awm.llm.recording import Recording, RecordingEntry
from awm.llm.request import LLMAnswer, LLMRequest, Usage, request_key, sampling_parameters
from awm.llm.warm import warm

if TYPE_CHECKING:
    from types import TracebackType

    from awm.config import LLMConfig

__all__ = ["LLM"]


class Provider(Protocol):
    """Something that answers a request, at a price."""

    async def answer(self, request: LLMRequest) -> LLMAnswer:
        """Answer, or raise one of `awm.llm.errors`."""

    async def aclose(self) -> None:
        """Let go of connections."""


class LLM:
    """The model, as one step sees it.

    Nothing is opened before the first question, so that a stage whose items are all reused needs no key, no server and
    no recordings. Use it in one event loop, as `async with LLM(...) as llm`, or call `aclose` at the end.
    """

    def __init__(self, config: LLMConfig, step: str, root: Path) -> None:
        """Set up the model for a step.

        :param root: the project's folder, where params.yaml is.
        """
        self.config = config
        self.step = step
        self._root = root
        self._entries: dict[tuple[str, str, int], RecordingEntry] = {}

    async def ask(self, request: LLMRequest) -> LLMAnswer:
        """Answer a request from the recordings, the response cache, a server or a batch.

        :raises AnswerError: the answer is cut off, empty or a refusal; it holds the answer, which is in `entries`.
        :raises ItemError: this request failed for good.
        :raises AnswerPending: the answer comes with a batch; `finish` writes its file.
        :raises ProviderError: the stage can't go on.
        """
        entry = await self._entry(request)
        known = self._entries.setdefault(entry.position, entry)
        if known != entry:
            raise ValueError(f"step, item and attempt {entry.position} were asked before, with another prompt")
        if error := answer_error(entry.answer):
            raise error
        return entry.answer

    def entries(self, item: str | None = None) -> list[RecordingEntry]:
        """List the answers used so far, unusable ones too, sorted by item and attempt; of one item when given."""
        positions = sorted(self._entries)
        return [self._entries[position] for position in positions if item in (None, position[1])]

    def identity(self, item: str) -> dict[str, Any]:
        """Return what an item's answers depend on besides its prompts, for the key of the item.

        Replayed items depend on their recorded answers alone, all others on the model and its sampling parameters.
        """
        if self.config.provider == "recorded":
            return {"recorded": self._recorded.fingerprint(self.step, item)}
        return {"model": self.config.model, **sampling_parameters(self.config)}

    def cost(self, usage: Usage, model: str) -> float | None:
        """Return the price of an answer in US dollars, or None when `llm.prices` has none for the model."""
        price = self.config.prices.get(model)
        if price is None:
            return None
        uncached = max(0, usage.input_tokens - usage.cached_input_tokens)
        dollars = uncached * price.input + usage.cached_input_tokens * price.cached_input
        return (dollars + usage.output_tokens * price.output) / 1_000_000

    def finish(self) -> None:
        """Close the step's questions; call it when every item is done or waits.

        :raises BatchPending: requests wait for a batch; their file is written, and the message says what to do.
        """
        if isinstance(provider := self.__dict__.get("_provider"), BatchProvider):
            provider.finish()

    async def aclose(self) -> None:
        """Close connections and the cache. The entries stay."""
        if provider := self.__dict__.pop("_provider", None):
            await provider.aclose()
        if cache := self.__dict__.pop("_cache", None):
            cache.close()

    async def __aenter__(self) -> LLM:
        """Return itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.aclose()

    async def _entry(self, request: LLMRequest) -> RecordingEntry:
        if self.config.provider == "recorded":
            return self._recorded.replay(request)
        key = request_key(request, self.config)
        answer = await self._cache.call(key, lambda: self._provider.answer(request))
        return RecordingEntry.of(request, answer, sampling_parameters(self.config))

    @cached_property
    def _recorded(self) -> RecordedProvider:
        return RecordedProvider(Recording.load(self._root / self.config.recordings / self.step))

    @cached_property
    def _cache(self) -> ResponseCache:
        cache = ResponseCache(cache_root(self._root) / "responses.sqlite")
        warm(cache, self.step, self._root)
        return cache

    @cached_property
    def _provider(self) -> Provider:
        if self.config.provider == "openai":
            return OpenAIProvider(self.config)
        files = BatchFiles(self.config, self.step, self._root)
        ingested = files.ingest()
        self._cache.put_all(ingested.answers.items())
        return BatchProvider(self.config, files, ingested)
