"""What pydantic found wrong, said as: the path, the value found, what was expected, and what was perhaps meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from turnout.errors import Mistake
from turnout.routes.document import RouteDocument
from turnout.routes.endpoints import FORMATS, SECRETS, TAGS
from turnout.routes.places import Path, dotted, line_of

__all__ = ["did_you_mean", "from_validation"]

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a block of names and values",
    "list_type": "a list",
    "model_type": "a block of names and values",
    "model_attributes_type": "a block of names and values",
}


def from_validation(
    failure: ValidationError, document: object, lines: dict[Path, int], model: type[BaseModel] = RouteDocument
) -> Iterator[Mistake]:
    """Every mistake that pydantic found in a document of *model*, in the author's words and without repetitions."""
    seen: set[tuple[str, str]] = set()
    for error in failure.errors(include_url=False):
        path = _authors_path(error["loc"], document)
        problem = _problem(error, path, document, model)
        place = dotted(path)
        if (place, problem) not in seen:
            seen.add((place, problem))
            yield Mistake(place, problem, line_of(lines, path))


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """``; did you mean "x"?`` where something near is known, else nothing."""
    lowered = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
    return f'; did you mean "{lowered[near[0]]}"?' if near else ""


def _authors_path(loc: Sequence[str | int], document: object) -> Path:
    """The error's place without what pydantic added to it: the chosen member of a union."""
    path: list[str | int] = []
    here: Any = document
    for step in loc:
        try:
            here = here[step]
        except (KeyError, IndexError, TypeError):
            if step in TAGS or step in _UNION_MEMBERS:
                continue
            here = None
        path.append(step)
    return tuple(path)


_UNION_MEMBERS = frozenset({"str", "int", "float", "bool", "list[str]", "dict[str,any]", "list[any]"})


def _problem(error: ErrorDetails, path: Path, document: object, model: type[BaseModel]) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        known = _names_at(path[:-1], document, model)
        return f"unknown name{did_you_mean(str(path[-1]), known)} (known here: {', '.join(known)})"
    if kind == "missing":
        return "is required and missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_format(given)
    if kind == "value_error":
        return str(context["error"])
    found = f"found {_shown(given, path)}, expected "
    if kind == "literal_error":
        return found + str(context["expected"]) + _near_literal(given, str(context["expected"]))
    if kind in _EXPECTED:
        return found + _EXPECTED[kind]
    message = error["msg"]
    return found + message[0].lower() + message[1:].removeprefix("nput should be ")


def _wrong_format(given: object) -> str:
    name = given.get("format") if isinstance(given, dict) else None
    expected = ", ".join(FORMATS)
    if not isinstance(given, dict):
        return f"found {given!r}, expected a block with a format"
    if name is None:
        return f"format is required and missing, one of {expected}"
    return f"format: found {name!r}, expected one of {expected}{did_you_mean(str(name), FORMATS)}"


def _near_literal(given: object, expected: str) -> str:
    known = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    return did_you_mean(given, known) if isinstance(given, str) else ""


def _shown(given: object, path: Path) -> str:
    if SECRETS.intersection(str(step) for step in path):
        return "a value that is not shown"
    text = repr(given)
    return text if len(text) <= 80 else text[:77] + "..."


def _names_at(path: Path, document: object, top: type[BaseModel]) -> list[str]:
    """The keys that may stand in the block at *path*."""
    model: Any = top
    here: Any = document
    for step in path:
        here = here[step]
        field = _field(model, step) if isinstance(model, type) and issubclass(model, BaseModel) else None
        model = _model_of(field.annotation if field else model, here)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _field(model: type[BaseModel], key: str | int) -> Any:
    return next((f for name, f in model.model_fields.items() if key in (f.alias, name)), None)


def _model_of(annotation: Any, block: Any) -> Any:
    """The model that reads *block*: through Optional, dict values and the choice by format."""
    wanted = block.get("format") if isinstance(block, dict) else None
    for model in _models_in(annotation):
        field = model.model_fields.get("format")
        if field is None or wanted in get_args(field.annotation):
            return model
    return annotation


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
