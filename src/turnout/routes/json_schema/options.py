"""Options of transforms, predicates and policies as JSON Schema: kinds, words, defaults, and which are needed."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.routes.json_schema.models import JsonSchema
from turnout.transforms.options import RANGES, REQUIRED, OneOf, Option, OptionError

_SCALAR = ["string", "number", "boolean"]


def options_schema(options: Sequence[Option], other_names: Sequence[str]) -> JsonSchema:
    """Return the schema of a block with these options and the names *other_names*, described elsewhere."""
    return {
        "properties": {option.name: option_schema(option) for option in options} | dict.fromkeys(other_names, True),
        "required": [option.name for option in options if option.default is REQUIRED],
        "additionalProperties": False,
    }


def option_schema(option: Option) -> JsonSchema:
    """Return the schema of one option.

    Whatever the check of the option refuses for null and for the empty text is not allowed; other checks show in the
    description alone.
    """
    schemas = _schemas(option)
    if _takes(option, None):
        schemas.append({"type": "null"})
    valid = f" Valid: {option.valid}." if option.valid else ""
    default = {} if option.default is REQUIRED or option.default is None else {"default": _plain(option.default)}
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    return {"description": option.doc + valid, **default, **schema}


def any_case(word: str) -> str:
    """Return a regular expression for a word in upper case, lower case, or both: JSON Schema has no flag for it."""
    return "".join(f"[{char.lower()}{char.upper()}]" if char.isalpha() else char for char in word)


def _schemas(option: Option) -> list[JsonSchema]:
    if isinstance(option.check, OneOf):
        return _words(option.check)
    least = 0 if _takes(option, "") else 1
    if option.kind == "STRING":
        block: list[JsonSchema] = [{"type": "object"}] if option.block else []
        return [{"type": _SCALAR, **_length(least)}, *block]
    if option.kind == "LIST":
        items = {"type": "array", "items": {"type": _SCALAR}, **({"minItems": least} if least else {})}
        return [{"type": _SCALAR, **_length(least)}, items]
    if option.kind == "BOOLEAN":
        words = "|".join(any_case(word) for word in ("true", "false"))
        return [{"type": "boolean"}, {"type": "string", "pattern": rf"^\s*(?:{words})\s*$"}]
    bits = RANGES[option.kind]
    whole = {"type": "integer", "minimum": -(1 << bits), "maximum": (1 << bits) - 1}
    return [whole, {"type": "string", "pattern": r"^\s*[+-]?\d+\s*$"}]


def _length(least: int) -> JsonSchema:
    return {"minLength": least} if least else {}


def _words(check: OneOf) -> list[JsonSchema]:
    words: list[JsonSchema] = [{"enum": list(check.words)}]
    if check.any_case:
        words.append({"type": "string", "pattern": f"^(?:{'|'.join(map(any_case, check.words))})$"})
    return words


def _takes(option: Option, text: str | None) -> bool:
    try:
        option.parse(text)
    except OptionError:
        return False
    return True


def _plain(default: object) -> object:
    return list(default) if isinstance(default, tuple) else default
