"""The reference of a route's keys as Markdown, made of the models that check them.

``python -m tools.reference_route`` prints it.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from turnout.base.options import attribute_texts
from turnout.routes.document import RouteDocument
from turnout.routes.endpoints import AnySink, AnySource

_HEAD = """# Keys of a route

Every key that a route file may have, with its type and what it is if it is not given.
[The route file](../routes.md) tells what they are for; [transforms](../transforms.md) and
[mappings](../subjects.md#mappings) have pages of their own, and so have [tests](../testing.md)."""

_NAMES = {str: "text", int: "integer", float: "number", bool: "true or false", type(None): "null", Any: "anything"}
_ANYWHERE = frozenset({"transforms", "mappings"})
"""Keys that their own packages check: the model takes any block for them."""

_ELSEWHERE = {
    "key": "how keys are [read and written](../codecs.md)",
    "value": "how values are [read and written](../codecs.md)",
    "transforms": "Kafka Connect's [transforms](../transforms.md)",
    "mappings": "nats-server's [mappings](../subjects.md#mappings)",
}


def reference() -> str:
    """Every key of the route file, block by block."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _block("The route", RouteDocument)
    for name, ends in (("source", AnySource), ("sink", AnySink)):
        for model in _models(ends):
            formats = "`, `".join(get_args(model.model_fields["format"].annotation))
            yield from _block(f"{name}: `{formats}`", model)
    for field_name, field in RouteDocument.model_fields.items():
        for model in _models(field.annotation):
            if field_name not in ("source", "sink", "sinks"):
                yield from _block(f"`{field.alias or field_name}`", model)


def _block(title: str, model: type[BaseModel]) -> Iterator[str]:
    described = {**attribute_texts(model), **(_ELSEWHERE if model is RouteDocument else {})}
    yield from ("", f"## {title}", "", _first_paragraph(model))
    yield from ("", "| key | type | if not given | |", "| --- | --- | --- | --- |")
    for name, field in model.model_fields.items():
        text = field.description or described.get(name, _of_block(field))
        yield f"| `{field.alias or name}` | {_type(name, field)} | {_default(field)} | {_cell(text)} |"


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, wherever in it."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    return list(dict.fromkeys(model for part in get_args(annotation) for model in _models(part)))


def _first_paragraph(model: type[BaseModel]) -> str:
    return " ".join(inspect.cleandoc(model.__doc__ or "").partition("\n\n")[0].replace("``", "`").split())


def _of_block(field: FieldInfo) -> str:
    """Return the description of the block that a key holds."""
    models = _models(field.annotation)
    return _first_paragraph(models[0]) if len(models) == 1 else ""


def _cell(text: str) -> str:
    """A text for one line of a table: docstrings mark code by two backquotes, Markdown by one."""
    return " ".join(text.replace("``", "`").split()).removesuffix(".").replace("|", "\\|")


def _type(name: str, field: FieldInfo) -> str:
    if name in _ANYWHERE:
        return "list, block or file name" if name == "transforms" else "block or file name"
    return " or ".join(dict.fromkeys(_types(field.annotation)))


def _types(annotation: Any) -> Iterator[str]:
    """The words for each alternative of an annotation, but for null: that is what a key is that is not given."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        yield from (f"`{value}`" for value in inner)
    elif origin in (Union, types.UnionType):
        for part in inner:
            if part is not type(None):
                yield from _types(part)
    elif origin is list:
        yield f"list of {_plural(inner[0])}"
    elif origin is dict:
        yield "block" if _models(annotation) or inner[1] is Any else f"block of name → {' or '.join(_types(inner[1]))}"
    elif inner and hasattr(annotation, "__metadata__"):
        yield from _types(inner[0])
    elif _models(annotation):
        yield "block"
    else:
        yield _NAMES.get(annotation, "anything")


def _plural(annotation: Any) -> str:
    return {"text": "texts", "anything": "blocks"}.get(text := " or ".join(_types(annotation)), text)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or value == {} or isinstance(value, BaseModel):
        return ""
    if isinstance(value, dict):
        return "`{" + ", ".join(f"{name}: {part}" for name, part in value.items()) + "}`"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(reference())
