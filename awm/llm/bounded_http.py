"""The HTTP client under the SDK: each try ends in time, and no reply is larger than memory allows.

The SDK's own timeout is one for each read, so that a server that sends a byte now and then would hold a stage for ever.
A try that takes too long looks to the SDK like a read that did, and is tried again with its usual waits. Importing this
module takes a second, because it imports the SDK.
"""

from __future__ import annotations

import asyncio
import importlib
import zlib
from collections.abc import Iterator
from typing import Any

import openai

from awm.llm.errors import ItemError

__all__ = ["MAX_BODY_BYTES", "BoundedClient"]

MAX_BODY_BYTES = 64_000_000

# The library that this release of the SDK is built on, whichever it is: its exceptions are the ones the SDK retries.
_http: Any = importlib.import_module(openai.DefaultAsyncHttpxClient.__mro__[1].__module__.partition(".")[0])


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client for the SDK with a time limit on each try and a limit on the size of each body."""

    def __init__(self, server: str, try_s: float) -> None:
        """Prepare a client.

        :param server: the name of the server in messages.
        :param try_s: seconds from the start of a try to the last byte of its reply.
        """
        super().__init__(headers={"accept-encoding": "gzip"}, event_hooks={"response": [self._read_bounded]})
        self._server = server
        self._try_s = try_s

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request and read its reply within the time limit.

        :raises ItemError: the reply is too large or compressed in a way that was not asked for.
        """
        try:
            async with asyncio.timeout(self._try_s):
                return await super().send(request, **options)
        except TimeoutError:
            raise _http.ReadTimeout(f"no whole reply within {self._try_s:g} seconds", request=request) from None

    async def _read_bounded(self, response: Any) -> None:
        """Put what was read in place of the stream, so that neither the SDK nor the library reads without a limit."""
        coding = response.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity", "gzip"):
            raise ItemError(f"{self._server} compressed its reply with {coding[:40]!r}, which was not asked for")
        inflate = zlib.decompressobj(wbits=31) if coding == "gzip" else None
        body = bytearray()
        try:
            async for received in response.stream:
                for part in _inflated(received, inflate):
                    body += part
                    if len(body) > MAX_BODY_BYTES:
                        raise ItemError(f"{self._server} sent a reply of more than {MAX_BODY_BYTES // 10**6} MB")
            if inflate is not None and body and not inflate.eof:
                raise zlib.error("the reply is cut off")
        except zlib.error as error:
            raise _http.DecodingError(str(error), request=response.request) from None
        finally:
            await response.stream.aclose()
        response.stream = _http.ByteStream(bytes(body))
        response.headers.pop("content-encoding", None)


def _inflated(received: bytes, inflate: Any) -> Iterator[bytes]:
    """The content of some received bytes, in parts of at most one megabyte."""
    if inflate is None:
        yield received
        return
    while received and not inflate.eof:
        yield inflate.decompress(received, 1_000_000)
        received = inflate.unconsumed_tail
