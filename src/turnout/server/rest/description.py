"""OpenAPI 3.1 description of the interface: the framework's description, with the error responses."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from http import HTTPStatus
from pathlib import Path
from typing import TypeAlias

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from turnout.base.untrusted import JsonObject
from turnout.server.rest.dependencies import Reads
from turnout.server.rest.idempotency import KEY_HEADER, MAX_KEY
from turnout.server.rest.models import with_headers

Document: TypeAlias = JsonObject
"""Part of an OpenAPI description, as the framework makes it."""

_PROBES = ("/live", "/ready")
_CONNECT = ("/connectors", "/connector-plugins")
_CHANGING = ("post", "put", "patch", "delete")

_GATE = (400, 401, 403, 421)
"""Statuses of requests that are refused before their content is read."""

_CONDITIONS_OF_READS = [
    {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": description}
    for name, description in (
        ("If-Match", "ETag of the version that is wanted; 412 for others"),
        ("If-None-Match", "ETag of a version that is known; it is answered with 304"),
    )
]

_INPUT = "/v1/in/{name}"
_IDEMPOTENCY = {
    "name": KEY_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]+$"},
    "description": "of this request: one that is sent again with it gets the first answer, and nothing is done twice",
}

_HEADERS = {"401": "WWW-Authenticate", "429": "Retry-After", "503": "Retry-After"}
"""Headers of errors."""

_TAGS = {
    "routes": "Routes, their files, their history and their control",
    "dead letters": "Records that were set aside",
    "webhooks": "Endpoints of a route's webhooks, and deliveries that were given up",
    "subscriptions": "Subscriptions, their history, and what they match",
    "feeds": "Messages of one subscription",
    "inputs": "Requests that become messages of a stream",
    "subjects": "Mapping of subjects",
    "events": "Changes of state",
    "leader": "The leader of several servers",
    "Kafka Connect": "Routes as connectors",
    "health": "Probes and metrics",
}

_NULL = {"type": "null"}
_INT32 = 1 << 31
_BOUNDS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_VALUES = ("example", "examples", "default", "const", "enum")
"""Keywords whose values are no schemas."""

_PROBLEM = {
    "type": "object",
    "description": "The problem; RFC 9457.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "in a sentence"},
        "mistakes": {"type": "array", "items": {"$ref": "#/components/schemas/MistakeModel"}},
        "changes": {"type": "array", "items": {"$ref": "#/components/schemas/ChangeModel"}},
        "confirm": {"type": "string", "description": "what to add to the request to have it done all the same"},
    },
}
_CONNECT_PROBLEM = {
    "type": "object",
    "description": "The problem, in Kafka Connect's form.",
    "required": ["error_code", "message"],
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
}


class Described(FastAPI):
    """An application that describes its errors too.

    An operation names its own statuses, with nothing behind them: ``responses={409: {}}``. Those that
    follow from its path, its parameters and its method are added, and each gets the form that it is answered in.
    """

    def openapi(self) -> Document:
        """Return the description; made once."""
        if self.openapi_schema is None:
            self.openapi_schema = _described(super().openapi())
        return self.openapi_schema


def _described(document: Document) -> Document:
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas |= {"Problem": _PROBLEM, "ConnectProblem": _CONNECT_PROBLEM}
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _describe(path, method, operation)
    document["tags"] = [{"name": tag, "description": text} for tag, text in _TAGS.items()]
    _simplify(document["paths"])
    _simplify(components)
    return document


def _simplify(part: object) -> None:
    """Write schemas in the forms that generators of clients read.

    Numbers have a format, as some generators read others as 32 bits. Null is a further type, where a choice would be a
    class of its own. Schemas are named by their place, not by the framework's titles.
    """
    if isinstance(part, list):
        for one in part:
            _simplify(one)
    if not isinstance(part, dict):
        return
    match part:
        case {"anyOf": [{"type": str(kind), **other}, {"type": "null"}]}:
            del part["anyOf"]
            part |= {**other, "type": [kind, "null"]}
            if "enum" in part:
                part["enum"] = [*part["enum"], None]
    kinds = part.get("type", "")
    if "integer" in kinds:
        for bound in _BOUNDS & part.keys():
            part[bound] = int(part[bound])
        part["format"] = "int32" if part.get("maximum", _INT32) < _INT32 else "int64"
    elif "number" in kinds:
        part["format"] = "double"
    if isinstance(part.get("title"), str):
        del part["title"]
    for name, below in part.items():
        if name not in _VALUES:
            _simplify(below)


def _describe(path: str, method: str, operation: Document) -> None:
    responses = operation["responses"]
    is_probe = path in _PROBES
    operation["security"] = [] if is_probe else [{"token": []}]
    for parameter in operation.get("parameters", ()):
        # A parameter is absent, and never null.
        schema = parameter["schema"]
        if _NULL in schema.get("anyOf", ()):
            schema |= next(choice for choice in schema.pop("anyOf") if choice != _NULL)
    implied = {400, 421} if is_probe else {*_GATE}
    implied |= {412, 413, 415} if method in _CHANGING else set()
    if method == "post" and path != _INPUT:
        implied |= {422}
        operation.setdefault("parameters", []).append(_IDEMPOTENCY)
    implied |= {404} if "{" in path else set()
    for status in sorted(implied):
        responses.setdefault(str(status), {})
    if "304" in responses:
        responses["304"] = {"description": "The version that If-None-Match names"}
        operation["parameters"] = [*operation.get("parameters", []), *_CONDITIONS_OF_READS]
        responses["200"] |= with_headers("ETag")
    elif any(parameter["name"] == "If-Match" for parameter in operation.get("parameters", ())):
        for status in {"200", "201"} & responses.keys():
            responses[status].setdefault("headers", {}).update(with_headers("ETag")["headers"])
    for status, response in responses.items():
        if status in _HEADERS:
            response |= with_headers(_HEADERS[status])
        if status.isdecimal() and int(status) >= 400 and not (is_probe and status == "503"):
            response["description"] = HTTPStatus(int(status)).phrase
            response["content"] = _content(path)
    operation["responses"] = dict(sorted(responses.items()))


def _content(path: str) -> dict[str, object]:
    problem: dict[str, object] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    if not path.startswith(_CONNECT):
        return problem
    # The gate answers before the client is identified.
    return {"application/json": {"schema": {"$ref": "#/components/schemas/ConnectProblem"}}, **problem}


router = APIRouter(prefix="/v1", include_in_schema=False)

_STYLE = Path(__file__).with_name("docs.css")


@router.get("/openapi.json")
def openapi(request: Request, _: Reads) -> JSONResponse:
    return JSONResponse(request.app.openapi())


@router.get("/docs.css")
def style(_: Reads) -> Response:
    return Response(_STYLE.read_bytes(), media_type="text/css")


@router.get("/docs")
def docs(request: Request, _: Reads) -> HTMLResponse:
    document = request.app.openapi()
    return HTMLResponse("".join(_page(document)))


def _page(document: Document) -> Iterator[str]:
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
    yield '<link rel="stylesheet" href="docs.css"></head><body>'
    yield '<nav><a href="/">Console</a></nav>'
    yield f"<main><h1>{title}</h1><p>{escape(document['info'].get('description', ''))}</p>"
    yield '<p><a href="openapi.json">openapi.json</a></p>'
    for tag, operations in _by_tag(document).items():
        yield f"<h2>{escape(tag)}</h2>"
        for method, path, operation in operations:
            yield from _operation(document, method, path, operation)
    yield "</main></body></html>"


def _by_tag(document: Document) -> dict[str, list[tuple[str, str, Document]]]:
    tags: dict[str, list[tuple[str, str, Document]]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            tags.setdefault(operation.get("tags", ["other"])[0], []).append((method.upper(), path, operation))
    return tags


def _operation(document: Document, method: str, path: str, operation: Document) -> Iterator[str]:
    yield f"<section><h3><b>{method}</b> <code>{escape(path)}</code></h3><p>{escape(operation.get('summary', ''))}</p>"
    rows = [
        (parameter["name"], parameter["in"], parameter.get("description", ""))
        for parameter in operation.get("parameters", ())
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    rows += [(name, "body", text) for name, text in _fields(document, body or {})]
    if rows:
        cells = "".join(
            f"<tr><td><code>{escape(name)}</code></td><td>{escape(location)}</td><td>{escape(text)}</td></tr>"
            for name, location, text in rows
        )
        label = escape(f"Parameters of {method} {path}")
        yield f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table>{cells}</table></div>'
    yield f"<p>Answers: {', '.join(map(escape, operation.get('responses', {})))}</p></section>"


def _fields(document: Document, schema: Document) -> Iterator[tuple[str, str]]:
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    described = document.get("components", {}).get("schemas", {}).get(name, schema)
    for field, about in described.get("properties", {}).items():
        yield field, str(about.get("description", ""))
