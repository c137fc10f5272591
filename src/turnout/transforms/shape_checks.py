"""Requirements of transforms on keys and values (Connect's ``Requirements``)."""

from __future__ import annotations

from turnout.errors import RecordError
from turnout.records import Shape


def require_object(shape: Shape, purpose: str) -> None:
    """Raise for everything that is neither a struct nor a schemaless map; null is neither.

    Args:
        shape: shape of the keys or values.
        purpose: purpose of the fields, for the message.
    """
    if shape.kind == "object":
        return
    if shape.schema is None:
        raise RecordError(f"Only Map objects supported in absence of schema for [{purpose}], found: {_kind_of(shape)}")
    raise RecordError(f"Only Struct objects supported for [{purpose}], found: {_kind_of(shape)}")


def _kind_of(shape: Shape) -> str:
    if shape.kind == "null":
        return "null"
    return "another type" if shape.schema is None else shape.schema.type
