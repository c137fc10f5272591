"""Translation of pydantic's errors: path, value found, value expected, and a suggestion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from turnout.base.terminal import did_you_mean, nearest
from turnout.errors import MOST_MISTAKES, Mistake
from turnout.routes.document import RouteDocument
from turnout.routes.endpoints import FORMATS, TAGS, secrets_of
from turnout.routes.yaml_text import Path, dotted, line_of
from turnout.secrets import is_secret, masked_url

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
    "mapping_type": "a block of names and values",
    "list_type": "a list",
    "model_type": "a block of names and values",
    "model_attributes_type": "a block of names and values",
}


def from_validation(
    failure: ValidationError, document: object, lines: dict[Path, int], model: type[BaseModel] = RouteDocument
) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic found in a document of *model*, in the author's words and without repetitions.

    Only the first of thousands are sorted, more than are ever shown.
    """
    problems_by_path: dict[Path, list[str]] = {}
    for error in failure.errors(include_url=False)[:_MOST_ERRORS]:
        where = _authors_path(error["loc"], document)
        for path, problem in _parts(where, _problem(error, where, document, model), document):
            problems = problems_by_path.setdefault(path, [])
            if problem not in problems:
                problems.append(problem)
    for path, problems in problems_by_path.items():
        for problem in _together(problems):
            yield Mistake(dotted(path), problem, line_of(lines, path))
    if failure.error_count() > _MOST_ERRORS:
        yield Mistake("", f"there are {failure.error_count() - _MOST_ERRORS:,} more mistakes")


def _together(problems: Sequence[str]) -> Iterator[str]:
    """Join the problems of one value that fits none of several types."""
    expected: dict[str, list[str]] = {}
    for problem in problems:
        start, cut, type_ = problem.partition(", expected ")
        expected.setdefault(start, []).extend([type_] if cut else [])
    for start, types in expected.items():
        yield f"{start}, expected {' or '.join(types)}" if types else start


def _parts(path: Path, problem: str, document: object) -> Iterator[tuple[Path, str]]:
    """Yield the problems of a whole block, under the key that each one begins with."""
    if path or not isinstance(document, dict):
        yield path, problem
        return
    for part in problem.split("; "):
        name, colon, rest = part.partition(": ")
        yield ((name,), rest) if colon and name in document else ((), part)


def _authors_path(loc: Sequence[str | int], document: object) -> Path:
    """Return the error's place without what pydantic added to it: the chosen member of a union."""
    path: list[str | int] = []
    node: Any = document
    for step in loc:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            if step in TAGS or step in _UNION_MEMBERS:
                continue
            node = None
        path.append(step)
    return tuple(path)


_MOST_ERRORS = 10 * MOST_MISTAKES
"""Errors of pydantic; several may be about one path."""
_UNION_MEMBERS = frozenset({"str", "int", "float", "bool", "list[str]", "dict[str,any]", "list[any]"})


def _problem(error: ErrorDetails, path: Path, document: object, model: type[BaseModel]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        names = names_at(path[:-1], document, model)
        return f"unknown name{did_you_mean(str(path[-1]), names)} (known here: {', '.join(names)})"
    if kind == "missing":
        return "is required and missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_format(value)
    if kind == "value_error":
        return str(context["error"])
    if kind == "invalid_key":
        return f"found {path[-1]!r}, expected a name: put it in quotes"
    prefix = f"found {describe_value(value, path, model)}, expected "
    if kind == "literal_error":
        return prefix + str(context["expected"]) + _near_literal(value, str(context["expected"]))
    if kind in _EXPECTED:
        return prefix + _EXPECTED[kind]
    message = error["msg"].removeprefix("Input should be ")
    return prefix + message[0].lower() + message[1:]


def _wrong_format(value: object) -> str:
    name = value.get("format") if isinstance(value, dict) else None
    expected = ", ".join(FORMATS)
    if not isinstance(value, dict):
        return f"found {masked_url(repr(value))}, expected a block with a format"
    if name is None:
        key_guess = next((key for key in map(str, value) if nearest(key, ["format"], 0.7)), None)
        guess = f'; found {key_guess!r}, did you mean "format"?' if key_guess else ""
        return f"format is required and missing, one of {expected}{guess}"
    return f"format: found {name!r}, expected one of {expected}{did_you_mean(str(name), FORMATS)}"


def _near_literal(value: object, expected: str) -> str:
    literals = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    return did_you_mean(value, literals) if isinstance(value, str) else ""


def describe_value(value: object, path: Path, top: type[BaseModel]) -> str:
    """Return a value for an error: short, without passwords; not at all where its place may hold a secret."""
    # A server's address may be a token and a host.
    if any(step == "servers" or step in secret_names(top) or is_secret(str(step)) for step in path):
        return "a value that is not shown"
    text = masked_url(repr(value))
    return text if len(text) <= 80 else text[:77] + "..."


@cache
def secret_names(top: type[BaseModel] = RouteDocument) -> frozenset[str]:
    """Return the names of the fields that no view shows, of a model and of those inside it."""
    inside = {model for field in top.model_fields.values() for model in _models_in(field.annotation)}
    return secrets_of(top).union(*map(secret_names, inside))


def names_at(path: Path, document: object, top: type[BaseModel]) -> list[str]:
    """Return the keys that the block at *path* may have."""
    model: object = top
    node: Any = document
    for step in path:
        node = node[step]
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = model.model_fields.items()
            model = next((field.annotation for name, field in fields if step in (field.alias, name)), model)
        model = _model_of(model, node)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _model_of(annotation: object, block: object) -> object:
    """Return the model that reads *block*: through Optional, dict values and the choice by format."""
    format_name = block.get("format") if isinstance(block, dict) else None
    for model in _models_in(annotation):
        field = model.model_fields.get("format")
        if field is None or format_name in get_args(field.annotation):
            return model
    return annotation


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
