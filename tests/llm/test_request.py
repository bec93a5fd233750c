from __future__ import annotations

import pytest
from pydantic import ValidationError

from awm.llm.request import LLMAnswer, Message, Usage, request_key

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"temperature": 0.6},
        {"temperature": None},
        {"max_output_tokens": 999},
        {"structured_output": "off"},
    ],
)
def test_the_key_changes_with_what_changes_the_answer(config, request_for, change):
    assert request_key(request_for(), config(**change)) != request_key(request_for(), config())


@pytest.mark.parametrize(
    "change",
    [
        {"timeout_s": 5},
        {"retries": 9},
        {"concurrency": 1},
        {"base_url": "http://elsewhere/v1"},
        {"api_key_env": "OTHER"},
        {"provider": "batch"},
        {"prices": {}},
    ],
)
def test_the_key_keeps_when_only_the_way_of_asking_changes(config, request_for, change):
    assert request_key(request_for(), config(**change)) == request_key(request_for(), config())


def test_the_key_holds_prompt_schema_and_attempt_but_not_the_item(config, request_for):
    keys = {
        request_key(request_for(), config()),
        request_key(request_for("other"), config()),
        request_key(request_for(attempt=2), config()),
        request_key(request_for(response_schema=SCHEMA), config()),
    }
    assert len(keys) == 4
    assert all(len(key) == 64 for key in keys)
    assert request_key(request_for(item="bank"), config()) in keys


def test_the_order_of_a_schemas_keys_does_not_matter(request_for):
    turned = dict(reversed(SCHEMA.items()))
    assert request_for(response_schema=SCHEMA).prompt_sha256 == request_for(response_schema=turned).prompt_sha256


def test_lone_surrogates_become_writable(request_for):
    assert Message(role="user", content="a\ud800b").content == "a?b"
    assert LLMAnswer(content="\udfff", finish_reason="stop", model="m").content == "?"


def test_models_are_frozen_and_closed(request_for):
    with pytest.raises(ValidationError):
        request_for().item = "other"
    with pytest.raises(ValidationError):
        Usage(tokens=1)


def test_counts_are_not_negative():
    with pytest.raises(ValidationError):
        Usage(output_tokens=-1)
