"""A small real HTTP server that speaks the OpenAI API by a script; for every test that needs a model on a wire.

    with ScriptedServer([error(500), answer("hello")]) as server:
        ...LLMConfig(base_url=server.base_url, ...)...
    assert len(server.requests) == 2

The script is a list, one reply a request, or a function from a request's body to its reply. A reply may be plain text:
the content of the answer.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal

Body = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What the server does with one request.

    With `cut` it closes the connection after the first bytes of the body. With `trickle` it sends a line of the headers
    or a byte of the body now and then and never ends.
    """

    status: int = 200
    body: str | bytes = ""
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    trickle: Literal["headers", "body"] | None = None
    hold: threading.Event | None = None


Script = Callable[[Body], "Reply | str"] | Sequence["Reply | str"]


def answer(
    content: str | None, finish_reason: str = "stop", usage: tuple[int, int, int] = (100, 0, 10), **message: Any
) -> Reply:
    """A chat completion. `usage` is input, cached input and output tokens; `message` adds fields, such as `refusal`."""
    tokens, cached, output = usage
    completion = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted-2025-01-01",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {
            "prompt_tokens": tokens,
            "completion_tokens": output,
            "total_tokens": tokens + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }
    return Reply(body=json.dumps(completion))


def truncated(content: str) -> Reply:
    """A chat completion that stopped at its limit."""
    return answer(content, finish_reason="length")


def embeddings(vectors: Sequence[Sequence[float]]) -> Reply:
    """Embeddings, sent in reverse order as servers may."""
    rows = [{"object": "embedding", "index": index, "embedding": list(row)} for index, row in enumerate(vectors)]
    return Reply(body=json.dumps({"object": "list", "model": "scripted", "data": rows[::-1], "usage": {}}))


def error(status: int, message: str = "scripted failure", code: str | None = None, param: str | None = None) -> Reply:
    """An error in OpenAI's form, to be tried again without a wait."""
    body = {"error": {"message": message, "type": "scripted", "code": code, "param": param}}
    return Reply(status=status, body=json.dumps(body), headers={"retry-after-ms": "1", "retry-after": "0"})


def cut() -> Reply:
    """A connection that ends in the middle of the answer."""
    return replace(answer("never seen whole"), cut=True)


def held(until: threading.Event, reply: Reply | str) -> Reply:
    """A reply that is sent once the event is set."""
    return replace(_as_reply(reply), hold=until)


def _as_reply(reply: Reply | str) -> Reply:
    return answer(reply) if isinstance(reply, str) else reply


class ScriptedServer:
    """Serves on a free loopback port, a thread per connection, and keeps what it was asked.

    `requests`: bodies, in the order of their arrival. `headers`: their headers, in lower case. `max_in_flight`: the
    most requests that were open at one time. A request after the end of a list gets a 400.
    """

    def __init__(self, script: Script) -> None:
        """Serve by this script."""
        self._script = script
        self._lock = threading.Lock()
        self._in_flight = 0
        self.stopping = threading.Event()
        self.max_in_flight = 0
        self.requests: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def base_url(self) -> str:
        """Value for `llm.base_url`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def prompts(self) -> list[str]:
        """The last message of each request."""
        return [request["messages"][-1]["content"] for request in self.requests]

    def __enter__(self) -> ScriptedServer:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; replies that are held back are dropped."""
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def reply_to(self, body: Body, headers: dict[str, str]) -> Reply:
        """Record a request and choose its reply."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(body)
            self.headers.append(headers)
            self._in_flight += 1
            self.max_in_flight = max(self.max_in_flight, self._in_flight)
        if callable(self._script):
            reply = _as_reply(self._script(body))
        elif number < len(self._script):
            reply = _as_reply(self._script[number])
        else:
            reply = error(400, f"the script has {len(self._script)} replies, this is request {number + 1}")
        while reply.hold is not None and not reply.hold.wait(0.02) and not self.stopping.is_set():
            pass
        with self._lock:
            self._in_flight -= 1
        return reply


def _handler(server: ScriptedServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            reply = server.reply_to(body, {name.lower(): value for name, value in self.headers.items()})
            content = reply.body.encode("utf-8") if isinstance(reply.body, str) else reply.body
            self.send_response(reply.status)
            for name, value in {"content-type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            if reply.trickle:
                self.trickle(reply.trickle)
                return
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:10] if reply.cut else content)
            self.close_connection = self.close_connection or reply.cut

        def trickle(self, part: str) -> None:
            self.close_connection = True
            self.send_header("content-length", "1000000")
            self.end_headers() if part == "body" else self.flush_headers()
            while not server.stopping.wait(0.02):
                self.wfile.write(b" " if part == "body" else b"x-more: 1\r\n")

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the client went away, which some tests are about
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Be quiet."""

    return Handler
