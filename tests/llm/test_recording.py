from __future__ import annotations

import json

import pytest

from awm.llm.errors import RecordingError
from awm.llm.recording import Recording, RecordingEntry, read_entries, shard_of, write_entries, write_shards
from awm.llm.request import LLMAnswer, request_key, sampling_parameters


@pytest.fixture
def entry_for(config, request_for):
    def make(item: str = "shop", attempt: int = 1, content: str = "yes") -> RecordingEntry:
        answer = LLMAnswer(content=content, finish_reason="stop", model="scripted")
        return RecordingEntry.of(request_for(item=item, attempt=attempt), answer, sampling_parameters(config()))

    return make


def test_entries_come_back_sorted_and_whole(tmp_path, entry_for):
    entries = [entry_for("shop", 2, "line\u2028break \n é"), entry_for("shop", 1), entry_for("bank/3")]
    write_entries(tmp_path / "all.jsonl", entries)
    loaded = Recording.load(tmp_path).entries()
    assert loaded == [entries[2], entries[1], entries[0]]


def test_a_line_has_sorted_keys_and_readable_text(entry_for):
    line = entry_for(content="é").line()
    assert line.endswith("\n") and "é" in line
    assert list(json.loads(line)) == sorted(json.loads(line))


def test_the_key_of_an_entry_is_the_key_of_its_request(config, request_for, entry_for):
    assert entry_for(attempt=3).key == request_key(request_for(attempt=3), config())


def test_parts_of_a_scenario_share_a_shard():
    assert shard_of("shop/1") == shard_of("shop/2") == shard_of("shop") == 3
    assert {shard_of(f"scenario_{number}") for number in range(500)} == set(range(16))


def test_shards_hold_everything_once_and_old_ones_go(tmp_path, entry_for):
    entries = [entry_for(f"scenario_{number}/{part}") for number in range(20) for part in (1, 2)]
    write_shards(tmp_path, entries)
    assert Recording.load(tmp_path).entries() == sorted(entries, key=lambda entry: entry.position)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_shards(tmp_path, reversed(entries))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    written = write_shards(tmp_path, [entry_for("shop")])
    assert list(tmp_path.iterdir()) == written == [tmp_path / "03.jsonl"]


def test_no_answers_leave_an_empty_folder(tmp_path):
    assert write_shards(tmp_path / "llm", []) == []
    assert (tmp_path / "llm").is_dir()


def test_a_missing_folder_is_an_empty_recording(tmp_path):
    assert len(Recording.load(tmp_path / "none")) == 0


def _cut(text: str) -> str:
    return text[:-30]


def _not_json_first(text: str) -> str:
    return "{oops\n" + text


def _twice(text: str) -> str:
    return text + text


def _unknown_key(text: str) -> str:
    return text.replace('"step"', '"stage"')


@pytest.mark.parametrize(
    ("damage", "line", "words"),
    [
        (_cut, 1, "the last line is cut off"),
        (_not_json_first, 1, "not JSON"),
        (_twice, 2, "a second answer for step tasks, item shop, attempt 1"),
        (_unknown_key, 1, "not a recorded answer"),
    ],
)
def test_damage_is_one_error_that_names_file_and_line(tmp_path, entry_for, damage, line, words):
    path = tmp_path / "shop.jsonl"
    path.write_text(damage(entry_for().line()), encoding="utf-8")
    with pytest.raises(RecordingError) as caught:
        Recording.load(tmp_path)
    assert str(caught.value).startswith(f"{path}, line {line}: ")
    assert words in str(caught.value)


def test_a_duplicate_in_another_file_is_found(tmp_path, entry_for):
    (tmp_path / "a.jsonl").write_text(entry_for().line())
    (tmp_path / "b.jsonl").write_text("\n" + entry_for().line())
    with pytest.raises(RecordingError, match=r"b\.jsonl, line 2"):
        Recording.load(tmp_path)


def test_bytes_that_are_not_text_are_an_error(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RecordingError, match="can't be read"):
        list(read_entries(path))


def test_writing_the_same_position_twice_is_refused(tmp_path, entry_for):
    with pytest.raises(RecordingError, match="keep one"):
        write_entries(tmp_path / "a.jsonl", [entry_for(), entry_for(content="no")])


def _replaced(old: str, new: str):
    return lambda text: text.replace(old, new)


@pytest.mark.parametrize(
    "damage",
    [
        _replaced('"temperature": 0.5', '"temperature": NaN'),
        _replaced('"temperature": 0.5', '"temperature": 1e999'),
        _replaced('"temperature": 0.5', '"temperature": "\\ud800"'),
        _replaced('"temperature": 0.5', '"temperature": ' + "[" * 200_000 + "]" * 200_000),
        _replaced('"temperature": 0.5', '"temperature": ' + "[" * 900 + "]" * 900),
        _replaced('"attempt": 1', '"attempt": ' + "9" * 5000),
        _replaced('"output_tokens": 0', '"output_tokens": -1'),
        _replaced('"output_tokens": 0', '"output_tokens": ' + "9" * 400),
        _replaced('"item": "shop"', '"item": "\\ud800"'),
        _replaced('"content": "yes"', '"content": "\\ud800"'),
        lambda text: "[" * 200_000,
    ],
)
def test_json_that_nobody_would_write_is_an_error_that_names_the_line(tmp_path, entry_for, damage):
    path = tmp_path / "shop.jsonl"
    path.write_text(damage(entry_for().line()) + "\n", encoding="utf-8")
    try:
        [entry] = Recording.load(tmp_path).entries()
    except RecordingError as error:
        assert str(error).startswith(f"{path}, line 1: ")
    else:  # what can be read must be usable, too
        assert json.loads(entry.line()) and entry.key


@pytest.mark.parametrize("inside", [False, True])
def test_a_file_in_place_of_the_folder_is_said(tmp_path, inside):
    path = tmp_path / "recordings"
    path.write_text("")
    with pytest.raises(RecordingError, match=r"recordings.* can't be read"):
        Recording.load(path / "tasks" if inside else path)
