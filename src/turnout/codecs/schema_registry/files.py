"""Schemas in files, for codecs that take one in the place of a registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from turnout.base.files import read_file
from turnout.codecs.kind import Setting

_MAX_FILE_BYTES: Final = 1 << 20


def schema_file(doc: str) -> Setting:
    """Return the setting ``schema``, which names a file or is the schema itself."""
    return Setting("schema", doc, _name_or_schema, json_schema={"type": ["string", "object", "null"]}, file=True)


def schema_text_of(schema: str | Mapping[str, object]) -> str:
    """Return the text of a schema that is given, or of the file with that name.

    Raises:
        ValueError: the file cannot be read, or is no text.
    """
    if not isinstance(schema, str):
        return json.dumps(schema)
    path = Path(schema)
    try:
        return read_file(path, max_bytes=_MAX_FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise ValueError(f"schema: {path} is no text in UTF-8") from None
    except OSError as failure:
        raise ValueError(f"schema: {path}: {failure.strerror}") from failure


def _name_or_schema(value: object) -> str | Mapping[str, object]:
    if isinstance(value, Mapping) and value:
        return value
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the name of a file, or a schema in place, found {value!r}")
    return value
