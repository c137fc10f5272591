"""Schemas in files, for codecs that take one in the place of a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from turnout.base.files import read_file
from turnout.codecs.kind import Setting

_MAX_FILE_BYTES: Final = 1 << 20


def schema_file(doc: str) -> Setting:
    """Return the setting ``schema``, which names a file."""
    return Setting("schema", doc, _name, json_schema={"type": ["string", "null"]}, file=True)


def schema_text_of(path: Path) -> str:
    """Return the text in a file of a schema.

    Raises:
        ValueError: it cannot be read, or is no text.
    """
    try:
        return read_file(path, max_bytes=_MAX_FILE_BYTES).decode()
    except UnicodeDecodeError:
        raise ValueError(f"schema: {path} is no text in UTF-8") from None
    except OSError as failure:
        raise ValueError(f"schema: {path}: {failure.strerror}") from failure


def _name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected the name of a file, found {value!r}")
    return value
