"""Tools in an OpenAPI document: one for each operation, its parameters in one flat object.

Path, query and header parameters and the fields of a JSON body lie side by side, as agents of published environments
know them. A body that is no object with named fields is one argument, `body`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from awm.env.arguments import InvalidArgumentsError, without_titles

__all__ = ["Operation", "Request", "operations"]

_METHODS = ("get", "post", "put", "patch", "delete")
_BODY = "body"
_REFERENCE = "#/components/schemas/"
_PLACES = ("path", "query", "header")


@dataclass(frozen=True)
class Request:
    """An HTTP request without a connection: `query` is encoded, `body` is JSON-compatible or None for no body."""

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: Any
    has_body: bool


@dataclass
class Operation:
    """One endpoint as a tool.

    `places` says where each argument goes: any of `path`, `query`, `header` and `body`.
    """

    name: str
    method: str
    path: str
    description: str
    schema: dict[str, Any]
    result: dict[str, Any]
    places: dict[str, tuple[str, ...]] = field(default_factory=dict)
    whole_body: bool = False
    body_required: bool = False

    @property
    def known(self) -> str:
        """The arguments, for a message to the agent."""
        required = self.schema.get("required", [])
        return ", ".join(n if n in required else f"{n} (optional)" for n in self.places) or "no arguments"

    def request(self, arguments: dict[str, Any]) -> Request:
        """Return the request that a call makes; raise InvalidArgumentsError where it can't be written down."""
        path, query, headers, body = self.path, [], [], {}
        for name, places in self.places.items():
            if name not in arguments:
                continue
            value = arguments[name]
            for place in places:
                if place == "path":
                    path = path.replace(f"{{{name}}}", _path_text(name, value))
                elif place == "query" and value is not None:
                    query += [(name, _text(name, item)) for item in (value if isinstance(value, list) else [value])]
                elif place == "header" and value is not None:
                    headers.append((name.lower(), _text(name, value)))
                elif place == "body":
                    body[name] = value
        has_body = bool(body) or self.body_required
        content = body.get(_BODY) if self.whole_body else body
        pairs = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in query)
        return Request(self.method, path, pairs, tuple(headers), content if has_body else None, has_body)


def operations(document: dict[str, Any]) -> Iterator[Operation]:
    """Yield the operations of an OpenAPI 3 document; each name comes once, the first wins."""
    schemas = document.get("components", {}).get("schemas", {})
    seen = set()
    for path, methods in document.get("paths", {}).items():
        for method in _METHODS:
            if method in methods and methods[method].get("operationId") not in seen:
                seen.add(methods[method].get("operationId"))
                yield _operation(path, method, methods[method], schemas)


def _operation(path: str, method: str, described: dict[str, Any], schemas: dict[str, Any]) -> Operation:
    path = re.sub(r"\{(\w+):\w+\}", r"{\1}", path)
    properties: dict[str, Any] = {}
    required: list[str] = []
    places: dict[str, tuple[str, ...]] = {}
    for parameter in described.get("parameters", []):
        if parameter["in"] in _PLACES:
            name = parameter["name"]
            schema = {**parameter.get("schema", {})}
            schema.setdefault("description", parameter.get("description", ""))
            properties[name] = schema
            places[name] = (*places.get(name, ()), parameter["in"])
            required += [name] if parameter.get("required") and name not in required else []
    body, body_required = _body_schema(described)
    fields = _fields(body, schemas)
    if body is not None and fields is None:
        fields = {"properties": {_BODY: body}, "required": [_BODY] if body_required else []}
        whole = True
    else:
        whole = False
    for name, schema in (fields or {}).get("properties", {}).items():
        properties.setdefault(name, schema)
        places[name] = (*places.get(name, ()), _BODY)
        if body_required and name in (fields or {}).get("required", []) and name not in required:
            required.append(name)
    texts = [described.get("summary", ""), described.get("description", "")]
    return Operation(
        name=described["operationId"],
        method=method.upper(),
        path=path,
        description="\n\n".join(dict.fromkeys(text for text in texts if text)),
        schema=_object_schema(properties, required, schemas),
        result=_result_schema(described, schemas),
        places=places,
        whole_body=whole,
        body_required=body_required,
    )


def _body_schema(described: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    body = described.get("requestBody")
    if not body:
        return None, False
    content = body.get("content", {}).get("application/json")
    return (content or {}).get("schema"), bool(body.get("required"))


def _fields(schema: dict[str, Any] | None, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """Return the object schema with named properties behind a schema, if it is one."""
    for _ in range(10):
        if schema is None:
            return None
        if "$ref" in schema:
            schema = schemas.get(schema["$ref"].removeprefix(_REFERENCE))
            continue
        parts = [part for part in schema.get("allOf", schema.get("anyOf", [])) if part.get("type") != "null"]
        if "properties" not in schema and len(parts) == 1:
            schema = parts[0]
            continue
        return schema if "properties" in schema else None
    return None


def _object_schema(properties: dict[str, Any], required: list[str], schemas: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    return _self_contained(schema, schemas)


def _result_schema(described: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    for status, response in described.get("responses", {}).items():
        if status.startswith("2"):
            schema = response.get("content", {}).get("application/json", {}).get("schema", {})
            return _self_contained(schema, schemas) if schema else {}
    return {}


def _self_contained(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with all that it refers to under `$defs`, and without titles."""
    used: dict[str, Any] = {}

    def rewrite(node: Any) -> Any:
        if isinstance(node, list):
            return [rewrite(item) for item in node]
        if not isinstance(node, dict):
            return node
        reference = node.get("$ref")
        if not isinstance(reference, str) or not reference.startswith(_REFERENCE):
            return {key: rewrite(value) for key, value in node.items()}
        name = reference.removeprefix(_REFERENCE)
        if name not in used:
            used[name] = {}
            used[name] = rewrite(schemas.get(name, {}))
        return {**{key: rewrite(value) for key, value in node.items()}, "$ref": f"#/$defs/{name}"}

    rewritten = rewrite(schema)
    if used:
        rewritten["$defs"] = used
    cleaned: dict[str, Any] = without_titles(rewritten)
    return cleaned


def _path_text(name: str, value: Any) -> str:
    text = _text(name, value)
    if not text or "/" in text:
        raise InvalidArgumentsError(f"argument '{name}': must not be empty or contain '/', got {text!r}")
    return text


def _text(name: str, value: Any) -> str:
    """Write a value as it stands in a URL."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    raise InvalidArgumentsError(f"argument '{name}': must be text, a number or a boolean")
