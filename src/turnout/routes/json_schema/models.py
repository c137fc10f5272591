"""JSON Schema of the pydantic models of a route's blocks."""

from __future__ import annotations

import inspect
import re
from typing import Any, TypeAlias

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from turnout.routes.endpoints import FORMATS, kind_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_VARIABLE = r"\$\{"
_WORDS = r"^\s*(?:[Tt]rue|TRUE|[Ff]alse|FALSE|[Yy]es|YES|[Nn]o|NO|[Oo]n|ON|[Oo]ff|OFF|[TtFfYyNn01])\s*$"
_ENTRY = re.compile(r" {4}(\w+): (.*)")

JsonSchema: TypeAlias = dict[str, Any]
"""A JSON Schema, or a part of one."""


def model_schema(model: type[BaseModel]) -> JsonSchema:
    """Return the schema of a model with the names used in files, with its parts under ``$defs``.

    Numbers and switches may be texts, too: pydantic reads ``"100"``, and ``${NAME}`` is a placeholder.
    """
    schema: JsonSchema = _plain(model.model_json_schema(by_alias=True, schema_generator=_Generator))
    return schema


def _plain(schema: Any) -> Any:
    """Return a schema without titles that repeat names and without null defaults."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _plain(inner) for key, inner in value.items()}
        if name in ("properties", "$defs", "patternProperties")
        else _plain(value)
        for name, value in schema.items()
        if not (name == "title" and isinstance(value, str)) and not (name == "default" and value is None)
    }


def when(name: str, values: list[str], then: JsonSchema) -> JsonSchema:
    """Return a rule for blocks in which *name* has one of these values.

    Editors report more for one rule that applies than for alternatives that do not.
    """
    condition = {"properties": {name: {"enum": values}}, "required": [name]}
    return {"if": condition, "then": then}


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, with texts of docstrings, and with all input types that pydantic accepts."""

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        """Return the schema of a block; its docstring describes it, and fields without a description."""
        kind: type[BaseModel] = schema["cls"]
        definition = super().model_schema(schema)
        definition["description"] = first_sentence(kind)
        texts = attribute_texts(kind)
        for name, field in kind.model_fields.items():
            text = field.description or texts.get(name)
            if text:
                definition["properties"][field.alias or name]["description"] = text
        return definition

    def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> JsonSchemaValue:
        """Return the schema of a source or sink; its format determines the other keys."""
        rules = [
            when("format", [name for name in FORMATS if kind_of({"format": name}) == tag], self.generate_inner(choice))
            for tag, choice in schema["choices"].items()
        ]
        formats = {"enum": list(FORMATS), "description": "format of the endpoint"}
        return {"type": "object", "required": ["format"], "properties": {"format": formats}, "allOf": rules}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Return the schema of an integer, or of its text."""
        text = {"type": "string", "pattern": rf"^\s*[+-]?\d+\s*$|{_VARIABLE}"}
        return {"anyOf": [super().int_schema(schema), text]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Return the schema of a number, or of its text."""
        text = {"type": "string", "pattern": rf"^\s*[+-]?[\d.]+(?:[eE][+-]?\d+)?\s*$|{_VARIABLE}"}
        return {"anyOf": [super().float_schema(schema), text]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """Return the schema of a boolean, or of a text or number that is read as one."""
        return {"anyOf": [super().bool_schema(schema), {"type": "string", "pattern": f"{_WORDS}|{_VARIABLE}"},
                          {"enum": [0, 1]}]}  # fmt: skip


def attribute_texts(kind: type) -> dict[str, str]:
    """Return the text of each entry below ``Attributes:`` in a class's and its parents' docstrings, by name."""
    texts: dict[str, str] = {}
    for holder in reversed(kind.__mro__):
        texts |= _of_docstring(inspect.cleandoc(holder.__doc__ or ""))
    return texts


def first_sentence(kind: type) -> str:
    """Return the first line of a class's own docstring."""
    return inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]


def _of_docstring(text: str) -> dict[str, str]:
    _, _, section = text.partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry:
            name = entry[1]
            texts[name] = entry[2]
        elif name and line.startswith(" " * 8):
            texts[name] += " " + line.strip()
        else:
            break
    return texts
