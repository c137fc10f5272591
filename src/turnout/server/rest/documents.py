"""``/v1/openapi.json`` and ``/v1/docs``: description of the interface, on a page without external assets."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from turnout.server.rest.dependencies import Reads
from turnout.server.rest.description import Document

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
