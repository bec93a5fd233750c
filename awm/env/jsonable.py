"""Turn what generated code returns into JSON, or say exactly what in it has no form there."""

from __future__ import annotations

import sqlite3
from math import isfinite
from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from awm.env import wire

__all__ = ["NON_FINITE", "UnserialisableError", "encode", "to_jsonable"]

NON_FINITE: Final = "constants"
"""How models must write numbers that are not finite (`ser_json_inf_nan`), so that they are found in their JSON."""

_MAX_DEPTH = 100
_LEAVES = (str, int, bool, type(None))
_ONLY_DIGITS = bytes(48 if 48 <= byte < 58 else 32 for byte in range(256))
_LONG_NUMBER = b"0" * 19
_SUSPICIOUS = b"NaN"
_PLAIN = frozenset({*_LEAVES, float})
_KEYS = frozenset({str})


class UnserialisableError(ValueError):
    """A result with a part that JSON has no form for; the message names the part."""


class _UnknownTypeError(Exception):
    pass


def encode(value: Any) -> bytes:
    """Return the value as JSON text; models, rows, dates, decimals and the like are converted.

    Raise UnserialisableError as `to_jsonable` does, WireError for integers beyond 64 bits, broken Unicode, and more
    than a message may hold.
    """
    if _is_plain(value) or _is_model(value):
        direct = True
    elif type(value) is list:
        direct = all(map(_is_plain, value)) or all(map(_is_model, value))
    else:
        direct = False
    try:
        data = to_json(value if direct else to_jsonable(value))
    except PydanticSerializationError:
        data = _SUSPICIOUS
    # What was not looked at part by part is looked at as text.
    if b"NaN" in data or b"Infinity" in data or _LONG_NUMBER in data.translate(_ONLY_DIGITS):
        plain = to_jsonable(value)
        wire.pack(plain)
        data = to_json(plain)
    wire.check_size(data)
    return data


def _is_model(value: Any) -> bool:
    config: Any = getattr(type(value), "model_config", None)
    return type(config) is dict and config.get("ser_json_inf_nan") == NON_FINITE


def _is_plain(value: Any) -> bool:
    """Tell whether this is a dict of text, numbers, truth values and None, by text: what a row becomes most often."""
    return type(value) is dict and _PLAIN.issuperset(map(type, value.values())) and _KEYS.issuperset(map(type, value))


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
        kind = type(item)
        if kind not in _LEAVES and not (kind is float and isfinite(item)):
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
