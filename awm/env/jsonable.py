"""Turn what generated code returns into JSON-compatible data, or say exactly what in it is not."""

from __future__ import annotations

import sqlite3
from math import isfinite
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

__all__ = ["UnserialisableError", "to_jsonable"]

_MAX_DEPTH = 100
_LEAVES = (str, int, bool, type(None))


class UnserialisableError(ValueError):
    """A result with a part that JSON has no form for; the message names the part."""


class _UnknownTypeError(Exception):
    pass


def to_jsonable(value: Any) -> Any:
    """Return the value in plain data: models, rows, dates, decimals and the like are converted.

    Raise UnserialisableError for bytes, floats that are not finite, unknown types, and nesting beyond 100 levels.
    """
    return _convert(value, "result", 0)


def _convert(value: Any, path: str, depth: int) -> Any:
    kind = type(value)
    if kind in _LEAVES:
        return value
    if depth > _MAX_DEPTH:
        raise UnserialisableError(f"the result is nested more than {_MAX_DEPTH} levels deep")
    if kind is sqlite3.Row:
        value = dict(zip(value.keys(), value, strict=True))
        kind = dict
    if kind is dict:
        return _convert_dict(value, path, depth)
    if kind is list or kind is tuple:
        return _convert_items(value, path, depth)
    if kind is float:
        if not isfinite(value):
            raise UnserialisableError(f"{path} is {value}, which JSON has no form for")
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        raise UnserialisableError(f"{path} is bytes; return text, for example in base64")
    return _convert(_by_pydantic(value, path), path, depth + 1)


def _convert_dict(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    converted = {}
    for key, item in value.items():
        name = key if type(key) is str else _key(key, path)
        if type(item) not in _LEAVES:
            item = _convert(item, f"{path}[{name!r}]", depth + 1)
        converted[name] = item
    return converted


def _convert_items(value: Any, path: str, depth: int) -> list[Any]:
    return [
        item if type(item) in _LEAVES else _convert(item, f"{path}[{index}]", depth + 1)
        for index, item in enumerate(value)
    ]


def _key(key: Any, path: str) -> str:
    if isinstance(key, bytes) or (isinstance(key, float) and not isfinite(key)):
        raise UnserialisableError(f"{path} has the key {key!r}, which JSON has no form for")
    try:
        return str(next(iter(to_jsonable_python({key: None}))))
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise UnserialisableError(f"{path} has a key of type {type(key).__name__}; JSON's keys are text") from error


def _by_pydantic(value: Any, path: str) -> Any:
    try:
        return to_jsonable_python(value, fallback=_by_fallback)
    except (PydanticSerializationError, _UnknownTypeError) as error:
        raise UnserialisableError(f"{path} is of type {type(value).__name__}, which has no form in JSON") from error


def _by_fallback(value: Any) -> Any:
    if type(value) is sqlite3.Row:
        return dict(zip(value.keys(), value, strict=True))
    raise _UnknownTypeError
