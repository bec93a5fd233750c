"""A tool's arguments: checked against its signature, described as JSON Schema."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, SchemaValidator

__all__ = ["Arguments", "InvalidArgumentsError", "as_object", "describe_errors", "result_schema", "without_titles"]

_MAX_ERRORS = 5
_MAX_SHOWN = 80
_PARSED = "the arguments were JSON text and were parsed; give the object itself"
_CONFIG = ConfigDict(extra="forbid", protected_namespaces=(), defer_build=False)
_WANTED_JSON = {"dict", "list", "model", "tuple", "set", "frozen", "dataclass", "mapping", "typed"}


class InvalidArgumentsError(ValueError):
    """Arguments that don't fit; the message tells the caller what to change."""


class Arguments:
    """The parameters of one tool, without the connection.

    :param function: The tool. Raises TypeError or pydantic's errors for a signature that can't be described.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        hints = get_type_hints(function, include_extras=True)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        self.names = {p.name: _outer_name(p.name, hints.get(p.name)) for p in parameters}
        model = _model(hints, parameters, self.names)  # let go of: with one for each tool, processes would be larger
        fields = zip(self.names, model.model_fields.values(), strict=True)
        self._required = {name for name, field in fields if field.is_required()}
        self._check = _keyword_validator(model, list(self.names))

    @cached_property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments object."""
        hints = get_type_hints(self._function, include_extras=True)
        parameters = list(inspect.signature(self._function).parameters.values())[1:]
        schema: dict[str, Any] = without_titles(_model(hints, parameters, self.names).model_json_schema())
        schema.setdefault("properties", {})
        return schema

    def validate(self, arguments: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Return keyword arguments for the function, and notes on what was repaired.

        None means no arguments. A number is no text, and text is a number only if it spells one. JSON text does for the
        object or list that it spells, also for the arguments as a whole. Raise InvalidArgumentsError for anything that
        does not fit.
        """
        given, notes = as_object(arguments)
        if given is None:
            raise InvalidArgumentsError(f"the arguments must be an object with the keys: {self._known()}")
        try:
            return self._check(given)[0], notes
        except ValidationError as error:
            repaired, repairs = _with_parsed_json(given, error)
            if not repairs:
                raise InvalidArgumentsError(self._explain(error)) from None
        try:
            return self._check(repaired)[0], notes + repairs
        except ValidationError as error:
            raise InvalidArgumentsError(self._explain(error)) from None

    def _explain(self, error: ValidationError) -> str:
        errors = error.errors(include_url=False, include_context=False)
        text = describe_errors(errors)
        if any(detail["type"] in ("extra_forbidden", "missing") and len(detail["loc"]) == 1 for detail in errors):
            text += f"; this tool takes: {self._known()}"
        return text

    def _known(self) -> str:
        shown = (outer if name in self._required else f"{outer} (optional)" for name, outer in self.names.items())
        return ", ".join(shown) or "no arguments"


def _model(
    hints: Mapping[str, Any], parameters: Sequence[inspect.Parameter], outer_names: Mapping[str, str]
) -> type[BaseModel]:
    # Numbered fields with aliases: a parameter may be called like a method of a model, or start with an underscore.
    fields: dict[str, Any] = {
        f"p{number}": _field(parameter, hints.get(parameter.name, Any), outer_names[parameter.name])
        for number, parameter in enumerate(parameters)
    }
    return create_model("Arguments", __config__=_CONFIG, **fields)


def _keyword_validator(model: type[BaseModel], names: Sequence[str]) -> Callable[[Any], Any]:
    """Return the validation of a model's fields alone: it gives a dict by the fields' new names, and makes no model."""
    schema: Any = model.__pydantic_core_schema__
    whole = schema["schema"] if schema["type"] == "definitions" else schema
    fields = dict(zip(names, whole["schema"]["fields"].values(), strict=True))
    bare: Any = {"type": "model-fields", "model_name": "Arguments", "fields": fields, "extra_behavior": "forbid"}
    if schema["type"] == "definitions":
        bare = {**schema, "schema": bare}
    return SchemaValidator(bare).validate_python


def result_schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the JSON Schema of what a function is declared to return, empty where that says nothing."""
    annotation = get_type_hints(function, include_extras=True).get("return")
    if annotation is None or annotation is type(None):
        return {}
    try:
        schema: dict[str, Any] = without_titles(TypeAdapter(annotation).json_schema(mode="serialization"))
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


def as_object(arguments: Any) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the arguments as an object, None if they are none, and a note if they were text."""
    if arguments is None:
        return {}, ()
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            return None, ()
        return (value, (_PARSED,)) if isinstance(value, dict) else (None, ())
    return (arguments, ()) if isinstance(arguments, dict) else (None, ())


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


def without_titles(schema: Any) -> Any:
    """Drop the titles that pydantic makes from names; they say nothing and cost tokens."""
    if not isinstance(schema, dict):
        return schema
    cleaned = {key: value for key, value in schema.items() if key != "title"}
    for key in _SCHEMA_MAPS:
        if key in cleaned:
            cleaned[key] = {name: without_titles(part) for name, part in cleaned[key].items()}
    for key in _SCHEMA_LISTS:
        if key in cleaned:
            cleaned[key] = [without_titles(part) for part in cleaned[key]]
    for key in _SCHEMAS:
        if key in cleaned:
            cleaned[key] = without_titles(cleaned[key])
    return cleaned
