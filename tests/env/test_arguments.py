"""Arguments: what fits, what is repaired, what is explained, and how parameters are described."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from awm.env.arguments import Arguments, InvalidArgumentsError
from awm.env.tool import Connection

LONG = "a" * 64


class Address(BaseModel):
    street: str
    zip: str


class Person(BaseModel):
    name: str
    address: Address | None = None


class Part(BaseModel):
    """A part, and the parts that it is made of."""

    sku: str
    parts: list[Part] = []


def tool(
    db: Connection,
    zip: Annotated[str, Field(description="A")] = "",
    person: Annotated[Person | None, Field(description="B")] = None,
    people: Annotated[list[Person], Field(description="C")] = (),  # type: ignore[assignment]
    part: Annotated[Part | None, Field(description="D")] = None,
    unit: Annotated[Literal["g", "kg"] | None, Field(description="E")] = None,
    level: Annotated[Literal[1, 2], Field(description="F")] = 1,
    class_: Annotated[str | None, Field(description="G", alias="class")] = None,
    _hidden: Annotated[int | None, Field(description="H")] = None,
    model_dump: Annotated[str | None, Field(description="I")] = None,
    either: Annotated[str | dict[str, Any] | None, Field(description="J")] = None,
    days: Annotated[dict[str, list[date]] | None, Field(description="K")] = None,
    a64: Annotated[int | None, Field(description="L", alias=LONG)] = None,
    number: Annotated[float | None, Field(description="M")] = None,
) -> None:
    """Take everything."""


ARGUMENTS = Arguments(tool)


def needs(db: Connection, order_id: Annotated[int, Field(description="A")], default: int = Field(default=3)) -> None:
    """Take one."""


@pytest.mark.parametrize(
    ("given", "name", "taken"),
    [
        ({"zip": "02134"}, "zip", "02134"),
        ({"zip": '{"a":1}'}, "zip", '{"a":1}'),
        ({"zip": "[1]"}, "zip", "[1]"),
        ({"zip": "null"}, "zip", "null"),
        ({"zip": " "}, "zip", " "),
        ({"either": '{"a":1}'}, "either", '{"a":1}'),
        ({"either": {"a": 1}}, "either", {"a": 1}),
        ({"person": {"name": "Ada"}}, "person", Person(name="Ada")),
        (
            {"person": {"name": "Ada", "address": {"street": "Main", "zip": "02134"}}},
            "person",
            Person(name="Ada", address=Address(street="Main", zip="02134")),
        ),
        ({"people": [{"name": "Ada"}, {"name": "Bo"}]}, "people", [Person(name="Ada"), Person(name="Bo")]),
        ({"people": []}, "people", []),
        ({"part": {"sku": "a", "parts": [{"sku": "b"}]}}, "part", Part(sku="a", parts=[Part(sku="b")])),
        ({"unit": "kg"}, "unit", "kg"),
        ({"unit": None}, "unit", None),
        ({"level": 2}, "level", 2),
        ({"class": "first"}, "class_", "first"),
        ({"_hidden": 1}, "_hidden", 1),
        ({"model_dump": "x"}, "model_dump", "x"),
        ({"days": {"a": ["2026-03-02"]}}, "days", {"a": [date(2026, 3, 2)]}),
        ({LONG: "5"}, "a64", 5),
        ({"number": 3}, "number", 3.0),
    ],
    ids=str,
)
def test_what_fits_is_taken_as_it_is(given: dict[str, Any], name: str, taken: Any):
    keywords, notes = ARGUMENTS.validate(given)
    assert (keywords[name], notes) == (taken, ())
    assert type(keywords[name]) is type(taken)


@pytest.mark.parametrize("given", [None, {}, "", "  ", "{}"])
def test_missing_arguments_are_none_at_all(given: Any):
    assert ARGUMENTS.validate(given)[0]["zip"] == ""
    with pytest.raises(InvalidArgumentsError, match="argument 'order_id' is missing"):
        Arguments(needs).validate(given)


@pytest.mark.parametrize(
    ("given", "name", "taken", "note"),
    [
        ({"person": '{"name": "Ada"}'}, "person", Person(name="Ada"), "argument 'person' was JSON text"),
        ({"people": '[{"name": "Ada"}]'}, "people", [Person(name="Ada")], "argument 'people' was JSON text"),
        ({"part": '{"sku": "a"}'}, "part", Part(sku="a"), "argument 'part' was JSON text"),
        ({"days": '{"a": []}'}, "days", {"a": []}, "argument 'days' was JSON text"),
        ('{"zip": "02134"}', "zip", "02134", "the arguments were JSON text"),
    ],
    ids=str,
)
def test_json_text_does_for_an_object_and_is_noted(given: Any, name: str, taken: Any, note: str):
    keywords, notes = ARGUMENTS.validate(given)
    assert keywords[name] == taken
    assert len(notes) == 1 and notes[0].startswith(note)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"zip": 2134}, "argument 'zip': input should be a valid string, got 2134"),
        ({"zip": {"a": 1}}, "argument 'zip': input should be a valid string, got {\"a\": 1}"),
        ({"person": {}}, "argument 'person.name' is missing"),
        ({"person": "Ada"}, "argument 'person': "),
        ({"person": '{"name": 1}'}, "argument 'person.name': input should be a valid string, got 1"),
        ({"people": [{"name": "Ada"}, {}]}, "argument 'people[1].name' is missing"),
        ({"part": {"sku": "a", "parts": [{"parts": []}]}}, "argument 'part.parts[0].sku' is missing"),
        ({"unit": "lb"}, "argument 'unit': input should be 'g' or 'kg', got \"lb\""),
        ({"level": 3}, "argument 'level': input should be 1 or 2, got 3"),
        ({"level": None}, "argument 'level': input should be 1 or 2, got null"),
        ({"class_": "first"}, "unknown argument 'class_'; this tool takes: zip (optional), "),
        ({"a64": 1}, "unknown argument 'a64'"),
        ("open", "the arguments must be an object with the keys: zip (optional), "),
        ("[1]", "the arguments must be an object"),
        (7, "the arguments must be an object"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_explained(given: Any, message: str):
    with pytest.raises(InvalidArgumentsError) as raised:
        ARGUMENTS.validate(given)
    assert str(raised.value).startswith(message)


def test_what_is_validated_does_not_change_what_was_given():
    given = {"person": '{"name": "Ada"}', "people": []}
    ARGUMENTS.validate(given)
    assert given == {"person": '{"name": "Ada"}', "people": []}


def test_defaults_are_new_for_each_call():
    def lists(db: Connection, names: Annotated[list[str], Field(description="A")] = []) -> None:  # noqa: B006
        """Take a list."""

    arguments = Arguments(lists)
    arguments.validate(None)[0]["names"].append("x")
    assert arguments.validate(None)[0]["names"] == []


def test_the_schema_describes_what_is_taken():
    schema = ARGUMENTS.schema
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    names = "zip person people part unit level class _hidden model_dump either days".split()
    assert list(schema["properties"]) == [*names, LONG, "number"]
    part = {"sku": "a", "parts": [{"sku": "b"}]}
    assert validator.is_valid({"part": part, "class": "first", LONG: 1, "unit": "g"})
    for wrong in ({"part": {"parts": []}}, {"unit": "lb"}, {"class_": "first"}, {"people": [{}]}):
        assert not validator.is_valid(wrong)
    assert schema["$defs"]["Part"]["properties"]["parts"]["items"] == {"$ref": "#/$defs/Part"}
    assert json.loads(json.dumps(schema)) == schema
    assert Arguments(needs).schema["required"] == ["order_id"]
