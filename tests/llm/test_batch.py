from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from awm.llm import LLM, AnswerPending, BatchPending, ItemError, RecordingError, TruncatedAnswer, request_key
from awm.llm import batch as batch_module
from awm.llm.batch import BatchFiles


@pytest.fixture
def settings(config):
    return config(provider="batch")


@pytest.fixture
def folder(project) -> Path:
    return project / "batches" / "tasks"


def run(settings, project, *requests):
    """One run of a stage: results of all requests, then what `finish` raised."""

    async def go():
        async with LLM(settings, "tasks", project) as llm:
            results = await asyncio.gather(*(llm.ask(request) for request in requests), return_exceptions=True)
            try:
                llm.finish()
            except BatchPending as pending:
                return results, str(pending)
            return results, None

    return asyncio.run(go())


def request_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("requests-*.jsonl") if not path.name.endswith(".index.jsonl"))


def completion(content: str, finish_reason: str = "stop") -> dict:
    message = {"role": "assistant", "content": content}
    return {"choices": [{"message": message, "finish_reason": finish_reason}], "usage": {"prompt_tokens": 7}}


def line(key: str, body: dict | None = None, status: int = 200, error: dict | None = None) -> str:
    response = None if body is None else {"status_code": status, "request_id": "r", "body": body}
    return json.dumps({"id": "b", "custom_id": key, "response": response, "error": error}) + "\n"


def test_a_round_trip(settings, request_for, project, folder):
    requests = [request_for(f"text {number}", item=f"scenario_{number}") for number in (2, 0, 1)]
    results, message = run(settings, project, *requests)
    assert [type(result) for result in results] == [AnswerPending] * 3

    [path] = request_files(folder)
    answers = path.with_name(path.name.replace("requests", "answers"))
    assert "3 requests" in message and f"{path} (3 requests) -> {answers}" in message and "/v1/batches" in message
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    assert [entry["body"]["messages"][1]["content"] for entry in lines] == ["text 0", "text 1", "text 2"]
    assert {(entry["method"], entry["url"]) for entry in lines} == {("POST", "/v1/chat/completions")}
    assert lines[2]["custom_id"] == request_key(requests[0], settings)
    assert lines[2]["body"]["max_completion_tokens"] == 1000
    index = [json.loads(text) for text in path.with_name(f"{path.stem}.index.jsonl").read_text().splitlines()]
    assert [(entry["custom_id"], entry["item"]) for entry in index] == [
        (entry["custom_id"], f"scenario_{number}") for number, entry in enumerate(lines)
    ]

    answers.write_text("".join(line(entry["custom_id"], completion(f"answer {n}")) for n, entry in enumerate(lines)))
    results, message = run(settings, project, *requests)
    assert message is None
    assert [result.content for result in results] == ["answer 2", "answer 0", "answer 1"]
    assert results[0].usage.input_tokens == 7

    answers.unlink()  # by now they are in the response cache
    assert run(settings, project, *requests) == (results, None)


def test_asking_again_before_the_answers_writes_nothing_twice(settings, request_for, project, folder):
    first, second = request_for("a"), request_for("b", item="bank")
    run(settings, project, first)
    [path] = request_files(folder)
    _, message = run(settings, project, first)
    assert request_files(folder) == [path] and str(path) in message
    _, message = run(settings, project, first, second)
    [other] = [file for file in request_files(folder) if file != path]
    assert len(other.read_text().splitlines()) == 1
    assert str(path) in message and str(other) in message


def test_failures_are_asked_again_with_their_reason(settings, request_for, project, folder):
    requests = [request_for(text, item=text) for text in "abcd"]
    run(settings, project, *requests)
    [path] = request_files(folder)
    keys = [request_key(request, settings) for request in requests]
    answers = path.with_name(path.name.replace("requests", "answers"))
    answers.write_text(
        line(keys[0], completion("yes"))
        + line(keys[1], error={"code": "batch_expired", "message": "ran out of time"})
        + line(keys[2], {"error": {"message": "overloaded"}}, status=500)
        + line("f" * 64, completion("whose?"))
    )
    results, message = run(settings, project, *requests)
    assert results[0].content == "yes"
    assert [type(result) for result in results[1:]] == [AnswerPending] * 3
    assert "3 requests wait" in message
    assert "2 of them failed" in message and ("ran out of time" in message or "overloaded" in message)
    assert "1 lines of the answer files belong to no request" in message
    [again] = [file for file in request_files(folder) if file != path]
    assert [json.loads(text)["custom_id"] for text in again.read_text().splitlines()] == keys[1:]

    again.with_name(again.name.replace("requests", "answers")).write_text(
        "".join(line(key, completion("late")) for key in keys[1:])
    )
    results, message = run(settings, project, *requests)
    assert message is None
    assert [result.content for result in results] == ["yes", "late", "late", "late"]


def test_when_all_fail_the_answers_get_a_name_of_their_own(settings, request_for, project, folder):
    run(settings, project, request_for())
    [path] = request_files(folder)
    answers = path.with_name(path.name.replace("requests", "answers"))
    answers.write_text(line(request_key(request_for(), settings), {"error": {"message": "no"}}, status=503))
    _, message = run(settings, project, request_for())
    assert request_files(folder) == [path]
    assert f"-> {answers.with_name(f'{answers.stem}-2.jsonl')}" in message


def test_a_request_refused_for_good_is_an_item_error(settings, request_for, project, folder):
    run(settings, project, request_for())
    body = {"error": {"message": "context too long", "code": "context_length_exceeded"}}
    (folder / "answers.jsonl").write_text(line(request_key(request_for(), settings), body, status=400))
    [result], message = run(settings, project, request_for())
    assert isinstance(result, ItemError) and "context too long" in str(result)
    assert message is None


def test_a_truncated_answer_is_an_answer_error_in_every_run(settings, request_for, project, folder):
    run(settings, project, request_for())
    key = request_key(request_for(), settings)
    (folder / "answers.jsonl").write_text(line(key, completion("ha", "length")))
    for _ in range(2):
        [result], message = run(settings, project, request_for())
        assert isinstance(result, TruncatedAnswer) and message is None


def test_a_whole_answer_wins(settings, request_for, folder):
    files = BatchFiles(settings, "tasks")
    files.write_pending([request_for()])
    key = request_key(request_for(), settings)
    (folder / "answers-1.jsonl").write_text(line(key, {"error": "no"}, status=500) + line(key, completion("", "stop")))
    (folder / "answers-2.jsonl").write_text(line(key, completion("first")) + line(key, completion("second")))
    ingested = files.ingest()
    assert {key: answer.content for key, answer in ingested.answers.items()} == {key: "first"}
    assert ingested.failed == {}


@pytest.mark.parametrize(
    ("text", "number", "words"),
    [
        (line("a" * 64, completion("x")) + line("b" * 64, completion("y"))[:-9], 2, "the last line is cut off"),
        ("[1]\n", 1, "no custom_id"),
    ],
)
def test_a_damaged_answer_file_stops_the_stage(settings, request_for, project, folder, text, number, words):
    run(settings, project, request_for())
    (folder / "answers.jsonl").write_text(text)
    [result], _ = run(settings, project, request_for())
    assert isinstance(result, RecordingError)
    assert str(result).startswith(f"{folder / 'answers.jsonl'}, line {number}: ") and words in str(result)


def test_large_batches_are_split(settings, request_for, folder, monkeypatch):
    monkeypatch.setattr(batch_module, "MAX_LINES", 2)
    files = BatchFiles(settings, "tasks").write_pending([request_for(str(n), item=f"s{n}") for n in range(5)])
    assert sorted(file.requests for file in files) == [1, 2, 2]
    monkeypatch.setattr(batch_module, "MAX_BYTES", 600)
    files = BatchFiles(settings, "schemas").write_pending([request_for(f"{n}" * 400, item=f"s{n}") for n in range(2)])
    assert [file.requests for file in files] == [1, 1]


def test_items_with_the_same_prompt_share_a_line(settings, request_for, folder):
    [file] = BatchFiles(settings, "tasks").write_pending([request_for(item="a"), request_for(item="b")])
    assert file.requests == len(file.path.read_text().splitlines()) == 1
    assert len(file.path.with_name(f"{file.path.stem}.index.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("status", ["abc", [1], True, -5, "1" * 5000])
def test_a_status_that_is_none_stops_the_stage(settings, request_for, project, folder, status):
    run(settings, project, request_for())
    path = folder / "answers.jsonl"
    path.write_text(line(request_key(request_for(), settings), completion("yes"), status=status))
    [result], _ = run(settings, project, request_for())
    assert isinstance(result, RecordingError)
    assert str(result).startswith(f"{path}, line 1: status_code is no HTTP status")


def test_a_status_in_quotes_is_read(settings, request_for, project, folder):
    run(settings, project, request_for())
    (folder / "answers.jsonl").write_text(line(request_key(request_for(), settings), completion("yes"), status="200"))
    [result], _ = run(settings, project, request_for())
    assert result.content == "yes"


def test_an_answer_with_senseless_usage_is_asked_again_and_its_line_named(settings, request_for, project, folder):
    run(settings, project, request_for())
    body = {**completion("yes"), "usage": {"prompt_tokens": "many"}}
    (folder / "answers.jsonl").write_text(line(request_key(request_for(), settings), body))
    [result], message = run(settings, project, request_for())
    assert isinstance(result, AnswerPending)
    assert f"{folder / 'answers.jsonl'}, line 1: usage" in message


@pytest.mark.parametrize("text", ["[" * 200_000, "9" * 5000])
def test_an_answer_file_that_python_can_not_read_is_named(settings, request_for, project, folder, text):
    run(settings, project, request_for())
    (folder / "answers.jsonl").write_text(text + "\n")
    [result], _ = run(settings, project, request_for())
    assert isinstance(result, RecordingError) and str(result).startswith(f"{folder / 'answers.jsonl'}, line 1: ")


@pytest.mark.parametrize("text", ["[1]", "{}", '{"custom_id": 5}', "1"])
def test_a_damaged_index_is_named(settings, request_for, project, folder, text):
    run(settings, project, request_for())
    [index] = folder.glob("*.index.jsonl")
    index.write_text(text + "\n")
    [result], _ = run(settings, project, request_for())
    assert isinstance(result, RecordingError) and str(result).startswith(f"{index}, line 1: no custom_id")
