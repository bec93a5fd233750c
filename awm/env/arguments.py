"""A tool's arguments: checked against its signature, described as JSON Schema."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

__all__ = ["Arguments", "InvalidArgumentsError", "describe_errors", "result_schema"]

_MAX_ERRORS = 5
_MAX_SHOWN = 80
_CONFIG = ConfigDict(extra="forbid", protected_namespaces=())
_WANTED_JSON = {"dict", "list", "model", "tuple", "set", "frozen", "dataclass", "mapping", "typed"}


class InvalidArgumentsError(ValueError):
    """Arguments that don't fit; the message tells the caller what to change."""


class Arguments:
    """The parameters of one tool, without the connection.

    :param function: The tool. Raises TypeError or pydantic's errors for a signature that can't be described.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.names = {p.name: _outer_name(p.name, hints.get(p.name)) for p in parameters}
        # Numbered fields with aliases: a parameter may be called like a method of a model, or start with an underscore.
        self._fields = {f"p{number}": parameter.name for number, parameter in enumerate(parameters)}
        fields: dict[str, Any] = {
            f"p{number}": _field(parameter, hints.get(parameter.name, Any), self.names[parameter.name])
            for number, parameter in enumerate(parameters)
        }
        self._model: type[BaseModel] = create_model("Arguments", __config__=_CONFIG, **fields)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""
        schema: dict[str, Any] = _without_titles(self._model.model_json_schema())
        schema.setdefault("properties", {})
        return schema

    def validate(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return keyword arguments for the function, and notes on what was repaired.

        A number is no text, and text is a number only if it spells one. JSON text does for the object or list that it
        spells. Raise InvalidArgumentsError for anything that does not fit.
        """
        if not isinstance(arguments, dict):
            raise InvalidArgumentsError(f"the arguments must be an object with the keys: {self._known()}")
        notes: tuple[str, ...] = ()
        try:
            checked = self._model.model_validate(arguments)
        except ValidationError as error:
            arguments, notes = _with_parsed_json(arguments, error)
            if not notes:
                raise InvalidArgumentsError(self._explain(error)) from None
            try:
                checked = self._model.model_validate(arguments)
            except ValidationError as second:
                raise InvalidArgumentsError(self._explain(second)) from None
        values = checked.__dict__
        return {name: values[field] for field, name in self._fields.items()}, notes

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_context=False)
        text = describe_errors(errors)
        if any(detail["type"] in ("extra_forbidden", "missing") and len(detail["loc"]) == 1 for detail in errors):
            text += f"; this tool takes: {self._known()}"
        return text

    def _known(self) -> str:
        required = {self.names[name] for field, name in self._fields.items() if self._is_required(field)}
        return ", ".join(n if n in required else f"{n} (optional)" for n in self.names.values()) or "no arguments"

    def _is_required(self, field: str) -> bool:
        return self._model.model_fields[field].is_required()


def result_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON Schema of what a function is declared to return, empty where that says nothing."""
    annotation = get_type_hints(function, include_extras=True).get("return")
    if annotation is None or annotation is type(None):
        return {}
    try:
        schema: dict[str, Any] = _without_titles(TypeAdapter(annotation).json_schema(mode="serialization"))
    except (PydanticUserError, PydanticInvalidForJsonSchema):
        return {}
    return schema


def describe_errors(errors: list[ErrorDetails], what: str = "argument") -> str:
    """Say what a validation found, without links and without anything that differs from run to run."""
    lines = [_describe(detail, what) for detail in errors[:_MAX_ERRORS]]
    if len(errors) > _MAX_ERRORS:
        lines.append(f"and {len(errors) - _MAX_ERRORS} more")
    return "; ".join(lines)


def _describe(detail: ErrorDetails, what: str) -> str:
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in detail["loc"]).lstrip(".")
    if detail["type"] == "missing":
        return f"{what} '{where}' is missing"
    if detail["type"] == "extra_forbidden":
        return f"unknown {what} '{where}'"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    if message == detail["msg"]:  # pydantic's own words: "Input should be ..."
        message = message[:1].lower() + message[1:]
    return f"{what} '{where}': {message}, got {_shown(detail['input'])}" if where else message


def _shown(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def _with_parsed_json(arguments: Mapping[str, Any], error: ValidationError) -> tuple[dict[str, Any], tuple[str, ...]]:
    repaired, notes = dict(arguments), []
    for detail in error.errors(include_url=False, include_context=False, include_input=False):
        name = detail["loc"][0] if detail["loc"] else None
        if not isinstance(name, str) or not isinstance(repaired.get(name), str):
            continue
        if detail["type"].split("_")[0] not in _WANTED_JSON:
            continue
        try:
            value = json.loads(repaired[name])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            repaired[name] = value
            notes.append(f"argument '{name}' was JSON text and was parsed; give the {_json_name(value)} itself")
    return repaired, tuple(notes)


def _json_name(value: object) -> str:
    return "object" if isinstance(value, dict) else "list"


def _field_infos(annotation: Any) -> list[FieldInfo]:
    if get_origin(annotation) is not Annotated:
        return []
    return [part for part in get_args(annotation)[1:] if isinstance(part, FieldInfo)]


def _outer_name(name: str, annotation: Any) -> str:
    aliases = [info.alias for info in _field_infos(annotation) if info.alias]
    return aliases[-1] if aliases else name


def _field(parameter: inspect.Parameter, annotation: Any, outer_name: str) -> Any:
    named = Annotated[annotation, Field(alias=outer_name)]
    return named if parameter.default is inspect.Parameter.empty else (named, parameter.default)


_SCHEMA_MAPS = ("properties", "$defs", "patternProperties")
_SCHEMA_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "contains", "not", "propertyNames")


def _without_titles(schema: Any) -> Any:
    """Drop the titles that pydantic makes from names; they say nothing and cost tokens."""
    if not isinstance(schema, dict):
        return schema
    cleaned = {key: value for key, value in schema.items() if key != "title"}
    for key in _SCHEMA_MAPS:
        if key in cleaned:
            cleaned[key] = {name: _without_titles(part) for name, part in cleaned[key].items()}
    for key in _SCHEMA_LISTS:
        if key in cleaned:
            cleaned[key] = [_without_titles(part) for part in cleaned[key]]
    for key in _SCHEMAS:
        if key in cleaned:
            cleaned[key] = _without_titles(cleaned[key])
    return cleaned
