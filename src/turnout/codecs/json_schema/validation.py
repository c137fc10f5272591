"""Validation of values by their JSON Schema, with the ``jsonschema-rs`` library."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from turnout.errors import MissingExtraError, RecordError
from turnout.mistakes import shortened

_MAX_BACKTRACKS: Final = 100_000
"""Steps of a regular expression for a value: a schema's may be one that takes exponential time."""

Validate = Callable[[bytes], None]
"""Raises a `RecordError` where a text is no value of the schema."""


def validator_of(text: str, references: Sequence[tuple[str, str]]) -> Validate:
    """Return the validator of a schema that refers to others by these names; nothing is fetched.

    Raises:
        ValueError: it is no schema, or refers to one that is not there.
        MissingExtraError: the library is not installed.
    """
    try:
        import jsonschema_rs
    except ModuleNotFoundError as missing:
        raise MissingExtraError("jsonschema", "jsonschema-rs") from missing
    by_name = {name: json.loads(other) for name, other in references}

    def retrieve(uri: str) -> Any:
        name = next((name for name in by_name if uri in (name, f"json-schema:///{name}")), None)
        if name is None:
            raise ValueError(f"no schema {uri!r} among the references")
        return by_name[name]

    try:
        validator = jsonschema_rs.validator_for(
            json.loads(text),
            retriever=retrieve,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_MAX_BACKTRACKS),
        )
    except (ValueError, jsonschema_rs.ReferencingError) as failure:
        raise ValueError(f"values cannot be validated by the schema: {failure}") from failure

    def validate(content: bytes) -> None:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as failure:
            raise RecordError(f"the value is no JSON: {failure}") from None
        error = next(validator.iter_errors(value), None)
        if error is not None:
            where = "".join(f".{part}" if isinstance(part, str) else f"[{part}]" for part in error.instance_path)
            raise RecordError(f"the value is not valid: {where.removeprefix('.')}: {shortened(error.message)}")

    return validate
