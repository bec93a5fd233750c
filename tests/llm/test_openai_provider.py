from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
import threading

import pytest

from awm.llm.completion import Failure, failure_error
from awm.llm.errors import EmptyAnswer, ItemError, ProviderError, TruncatedAnswer, answer_error
from awm.llm.openai_provider import OpenAIProvider, embed
from awm.llm.request import LLMAnswer, Usage
from llm.scripted_server import Reply, ScriptedServer, answer, cut, embeddings, error, held, truncated

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def ask(config, *requests) -> list[LLMAnswer]:
    async def run() -> list[LLMAnswer]:
        provider = OpenAIProvider(config)
        try:
            return await asyncio.gather(*(provider.answer(request) for request in requests))
        finally:
            await provider.aclose()

    return asyncio.run(run())


def test_an_answer_with_its_usage(config, request_for):
    with ScriptedServer([answer("hi", usage=(12, 8, 3))]) as server:
        [got] = ask(config(base_url=server.base_url), request_for())
    usage = Usage(input_tokens=12, cached_input_tokens=8, output_tokens=3)
    assert got == LLMAnswer(content="hi", finish_reason="stop", model="scripted", usage=usage)
    [body] = server.requests
    assert body["model"] == "scripted"
    assert body["temperature"] == 0.5
    assert body["messages"][1] == {"role": "user", "content": "hello"}
    assert "response_format" not in body


def test_no_temperature_is_sent_when_there_is_none(config, request_for):
    with ScriptedServer(["hi"]) as server:
        ask(config(base_url=server.base_url, temperature=None), request_for())
    assert "temperature" not in server.requests[0]


@pytest.mark.parametrize("failure", [error(429), error(500), error(503), cut()])
def test_passing_failures_are_tried_again(config, request_for, failure):
    with ScriptedServer([failure, answer("hi")]) as server:
        [got] = ask(config(base_url=server.base_url), request_for())
    assert got.content == "hi"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "requests", "words"),
    [
        (error(500, "broken inside"), 2, "broken inside"),
        (error(429, "slow down"), 2, "slow down"),
        (cut(), 2, "cut the connection"),
        (error(400, "context too long", "context_length_exceeded", "messages"), 1, "context too long"),
        (Reply(body="{ not json"), 1, "not JSON"),
        (Reply(body='{"object": "list"}'), 1, "not a chat completion"),
    ],
)
def test_lasting_failures_of_one_request_are_item_errors(config, request_for, reply, requests, words):
    with ScriptedServer(lambda body: reply) as server, pytest.raises(ItemError, match=words):
        ask(config(base_url=server.base_url, retries=1), request_for())
    assert len(server.requests) == requests


def test_a_server_that_never_answers_is_an_item_error(config, request_for):
    never = threading.Event()
    with (
        ScriptedServer(lambda body: held(never, "late")) as server,
        pytest.raises(ItemError, match=r"no answer within llm.timeout_s = 0.2 seconds, tried 1 times"),
    ):
        ask(config(base_url=server.base_url, timeout_s=0.2, retries=0), request_for())


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (error(401, "bad key sk-secret-1"), "refused the API key in SCRIPTED_KEY"),
        (error(402, "pay first"), "no credit left.*pay first"),
        (error(403, "not in your country"), "not in your country"),
        (error(404, "no such model"), "does not know model scripted"),
        (error(429, "over quota sk-secret-1", "insufficient_quota"), r"no credit left.*over quota \[key\]"),
        (error(400, "only 1 is supported", "unsupported_value", "temperature"), "change llm.temperature"),
        (error(400, "at most 500", "invalid_value", "max_tokens"), "change llm.max_output_tokens"),
        (Reply(body="<html>welcome</html>"), "answers with a web page"),
    ],
)
def test_what_no_request_can_pass_is_a_provider_error(config, request_for, monkeypatch, reply, words):
    monkeypatch.setenv("SCRIPTED_KEY", "sk-secret-1")
    with (
        ScriptedServer(lambda body: reply) as server,
        pytest.raises(ProviderError, match=words) as caught,
    ):
        ask(config(base_url=server.base_url, api_key_env="SCRIPTED_KEY", retries=1), request_for())
    assert server.base_url in str(caught.value)
    assert "sk-secret-1" not in str(caught.value)


def test_a_server_that_is_not_there_is_a_provider_error(config, request_for):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ProviderError, match="can't be reached"):
            ask(config(base_url=url, retries=0), request_for())


def test_a_name_that_does_not_resolve_is_a_provider_error(config, request_for):
    with pytest.raises(ProviderError, match=r"http://nowhere.invalid/v1 can't be reached"):
        ask(config(base_url="http://nowhere.invalid/v1", retries=0), request_for())


def test_an_unusable_base_url_is_named(config):
    with pytest.raises(ProviderError, match=r"llm.base_url: 'http://localhost:port/v1'"):
        OpenAIProvider(config(base_url="http://localhost:port/v1"))


@pytest.mark.parametrize("url", ["localhost:8000/v1", "http://localhost:port/v1", "ftp://localhost/v1", "http://"])
def test_an_unusable_address_in_the_environment_is_named(config, url, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ProviderError, match="variable OPENAI_BASE_URL"):
        OpenAIProvider(config())


def test_the_key_is_needed_only_without_a_base_url(config, request_for, monkeypatch):
    monkeypatch.delenv("SCRIPTED_KEY", raising=False)
    with pytest.raises(ProviderError, match=r"SCRIPTED_KEY is not set.*https://api.openai.com/v1"):
        OpenAIProvider(config(api_key_env="SCRIPTED_KEY"))
    with ScriptedServer(["hi"]) as server:
        ask(config(base_url=server.base_url, api_key_env="SCRIPTED_KEY"), request_for())
    assert server.headers[0]["authorization"] == "Bearer none"


def test_the_key_is_sent_and_never_logged(config, request_for, monkeypatch, caplog):
    monkeypatch.setenv("SCRIPTED_KEY", "sk-secret-1\n")
    caplog.set_level(logging.DEBUG)
    with ScriptedServer([error(500), answer("hi")]) as server:
        ask(config(base_url=server.base_url, api_key_env="SCRIPTED_KEY"), request_for())
    assert server.headers[0]["authorization"] == "Bearer sk-secret-1"
    assert "sk-secret-1" not in caplog.text


def test_a_key_that_no_header_can_hold_is_refused(config, monkeypatch):
    monkeypatch.setenv("SCRIPTED_KEY", "sk-“quoted”")
    with pytest.raises(ProviderError, match="SCRIPTED_KEY holds characters") as caught:
        OpenAIProvider(config(api_key_env="SCRIPTED_KEY"))
    assert "quoted" not in str(caught.value)


def test_no_more_requests_in_flight_than_allowed(config, request_for):
    full = threading.Event()

    def reply(body):
        if len(server.requests) >= 3:
            full.set()
        return held(full, "hi")

    with ScriptedServer(reply) as server:
        got = ask(config(base_url=server.base_url, concurrency=3), *(request_for(str(n)) for n in range(12)))
    assert len(got) == len(server.requests) == 12
    assert server.max_in_flight == 3


@pytest.mark.parametrize(
    ("mode", "refused", "sent"),
    [
        ("json_schema", (), ["json_schema"]),
        ("json_schema", ("json_schema",), ["json_schema", "json_object"]),
        ("json_schema", ("json_schema", "json_object"), ["json_schema", "json_object", None]),
        ("json_object", ("json_object",), ["json_object", None]),
        ("off", (), [None]),
    ],
)
@pytest.mark.parametrize("status", [400, 422])
def test_structured_output_falls_back_once_and_remembers(config, request_for, mode, refused, sent, status):
    def reply(body):
        kind = body.get("response_format", {}).get("type")
        return error(status, f"'response_format' {kind} is not supported") if kind in refused else answer("{}")

    async def run(settings):
        provider = OpenAIProvider(settings)
        for text in ("first", "second"):
            await provider.answer(request_for(text, response_schema=SCHEMA, response_name="a name"))
        await provider.aclose()

    with ScriptedServer(reply) as server:
        asyncio.run(run(config(base_url=server.base_url, structured_output=mode)))
    assert [body.get("response_format", {}).get("type") for body in server.requests] == [*sent, sent[-1]]


def test_the_schema_is_sent_as_it_is_and_not_strict(config, request_for):
    with ScriptedServer(["{}"]) as server:
        ask(config(base_url=server.base_url), request_for(response_schema=SCHEMA, response_name="a name"))
    sent = server.requests[0]["response_format"]["json_schema"]
    assert sent == {"name": "a_name", "schema": SCHEMA, "strict": False}


def test_the_other_name_of_the_token_limit_is_found_and_remembered(config, request_for):
    def reply(body):
        if "max_tokens" in body:
            return error(400, "Unsupported parameter: 'max_tokens'", "unsupported_parameter", "max_tokens")
        return answer("hi")

    async def run(settings):
        provider = OpenAIProvider(settings)
        for text in ("first", "second"):
            await provider.answer(request_for(text))
        await provider.aclose()

    with ScriptedServer(reply) as server:
        asyncio.run(run(config(base_url=server.base_url)))
    names = [sorted(name for name in body if name.startswith("max_")) for body in server.requests]
    assert names == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


def test_unusable_answers_are_returned_as_such(config, request_for):
    replies = [
        truncated("half"),
        answer(None),
        answer(None, refusal="I won't"),
        answer("", finish_reason="content_filter"),
        error(400, "filtered", "content_filter"),
    ]
    with ScriptedServer(replies) as server:
        settings = config(base_url=server.base_url, concurrency=1)
        got = ask(settings, *(request_for(str(number)) for number in range(5)))
    assert [entry.finish_reason for entry in got] == ["length", "stop", "refusal", "content_filter", "content_filter"]
    kinds = [type(answer_error(entry)).__name__ for entry in got]
    assert kinds == ["TruncatedAnswer", "EmptyAnswer", "RefusedAnswer", "RefusedAnswer", "RefusedAnswer"]
    assert isinstance(answer_error(got[0]), TruncatedAnswer)
    assert answer_error(got[0]).answer == got[0]


def test_embeddings_come_in_the_order_of_their_texts(config):
    def reply(body):
        return embeddings([[float(text), 1.0] for text in body["input"]])

    with ScriptedServer(reply) as server:
        texts = [str(number) for number in range(300)]
        vectors = asyncio.run(embed(texts, config(base_url=server.base_url), "embedder"))
    assert vectors == [[float(number), 1.0] for number in range(300)]
    assert {body["model"] for body in server.requests} == {"embedder"}
    assert len(server.requests) == 3


def test_no_texts_need_no_request(config):
    with ScriptedServer([]) as server:
        assert asyncio.run(embed([], config(base_url=server.base_url), "embedder")) == []
    assert server.requests == []


def test_failures_of_embeddings_are_sorted_as_those_of_answers(config):
    with ScriptedServer([error(404)]) as server, pytest.raises(ProviderError, match="does not know model embedder"):
        asyncio.run(embed(["a"], config(base_url=server.base_url), "embedder"))
    with ScriptedServer([embeddings([])]) as server, pytest.raises(ItemError, match="one embedding per text"):
        asyncio.run(embed(["a"], config(base_url=server.base_url), "embedder"))


def test_errors_in_other_forms_are_read_too(config):
    for body in ({"detail": "why"}, {"error": "why"}, "why", {"message": "why"}, {"error": {"message": "why"}}):
        assert "why" in str(failure_error(Failure.of_body(500, body), config()))


def reply_with(usage=None, **choice) -> Reply:
    """A chat completion whose choice and usage are as given."""
    whole = {"finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}, **choice}
    return Reply(body=json.dumps({"choices": [whole], "usage": usage}))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (reply_with({"prompt_tokens": "many"}), "prompt_tokens is many"),
        (reply_with({"prompt_tokens_details": [1]}), "prompt_tokens_details"),
        (Reply(body=reply_with({"prompt_tokens": 77}).body.replace("77", "1e999")), "prompt_tokens is Infinity"),
        (Reply(body=reply_with({"prompt_tokens": 77}).body.replace("77", "9" * 10_000)), "not JSON"),
        (Reply(body='{"a":' * 200_000), "nested too deep"),
        (Reply(body='{"choices": 1, "x": ' + "[" * 900 + "]" * 900 + "}"), "not a chat completion"),
        (Reply(status=400, body='{"error": ' + "[" * 900 + "]" * 900 + "}"), "failed on this request"),
        (Reply(status=400, body="[" * 200_000), "failed on this request"),
        (reply_with(finish_reason="error"), "finish_reason 'error'"),
        (reply_with(finish_reason=["stop"]), "finish_reason"),
        (reply_with(message={"content": {"text": "hi"}}), "content is not text"),
        (reply_with(message={"content": ["hi"]}), "content is not text"),
        (reply_with(message={"content": 5}), "content is not text"),
        (reply_with(message={"content": None, "refusal": {"a": 1}}), "content is not text"),
        (Reply(body=gzip.compress(b" " * 65_000_000), headers={"content-encoding": "gzip"}), "more than 64 MB"),
        (Reply(status=400, body=b" " * 65_000_000), "more than 64 MB"),
        (Reply(body="x", headers={"content-encoding": "gzip, gzip"}), "not asked for"),
        (Reply(body="no gzip", headers={"content-encoding": "gzip"}), r"cut the connection \(DecodingError"),
        (Reply(body=gzip.compress(b'{"a": 1}' * 99)[:-9], headers={"content-encoding": "gzip"}), "DecodingError"),
    ],
)
def test_a_reply_that_makes_no_sense_is_an_item_error_that_names_the_server(config, request_for, reply, words):
    with ScriptedServer(lambda body: reply) as server, pytest.raises(ItemError, match=words) as caught:
        ask(config(base_url=server.base_url, retries=0), request_for())
    assert server.base_url in str(caught.value)
    assert len(str(caught.value)) < 600


def test_negative_counts_are_none_and_text_parts_are_joined(config, request_for):
    parts = [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    reply = reply_with({"prompt_tokens": -1, "completion_tokens": 3.0}, message={"content": parts})
    with ScriptedServer([reply]) as server:
        [got] = ask(config(base_url=server.base_url), request_for())
    assert got == LLMAnswer(content="ab", finish_reason="stop", model="scripted", usage=Usage(output_tokens=3))


@pytest.mark.parametrize("finish_reason", ["stop", "tool_calls"])
def test_a_call_of_a_tool_is_an_empty_answer(config, request_for, finish_reason):
    reply = answer(None, finish_reason, tool_calls=[{"type": "function"}])
    with ScriptedServer([reply]) as server:
        [got] = ask(config(base_url=server.base_url), request_for())
    assert isinstance(answer_error(got), EmptyAnswer)
    assert "called a tool" in str(answer_error(got))


@pytest.mark.parametrize("part", ["headers", "body"])
def test_a_reply_that_never_ends_is_tried_again_and_given_up(config, request_for, part):
    with (
        ScriptedServer(lambda body: Reply(trickle=part)) as server,
        pytest.raises(ItemError, match=r"within llm.timeout_s = 0.3 seconds, tried 2 times"),
    ):
        ask(config(base_url=server.base_url, timeout_s=0.3, retries=1), request_for())
    assert len(server.requests) == 2


def test_a_compressed_reply_is_read(config, request_for):
    content = gzip.compress(answer("hi").body.encode())
    with ScriptedServer([Reply(body=content, headers={"content-encoding": "gzip"})]) as server:
        [got] = ask(config(base_url=server.base_url), request_for())
    assert got.content == "hi"


def test_the_address_in_the_environment_is_used_when_there_is_no_base_url(config, request_for, monkeypatch):
    with ScriptedServer(["hi", error(404)]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        ask(config(), request_for())
        with pytest.raises(ProviderError, match="OPENAI_BASE_URL") as caught:
            ask(config(), request_for())
    assert len(server.requests) == 2
    assert server.base_url in str(caught.value)


@pytest.mark.parametrize("numbers", ['["x"]', "[1e999]", "[" + "9" * 400 + "]"])
def test_embeddings_that_are_no_numbers_are_an_item_error(config, numbers):
    reply = Reply(body='{"data": [{"index": 0, "embedding": ' + numbers + "}]}")
    with ScriptedServer([reply]) as server, pytest.raises(ItemError, match="one embedding per text"):
        asyncio.run(embed(["a"], config(base_url=server.base_url), "embedder"))
