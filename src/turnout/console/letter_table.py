"""Dead letters as rows of a table: the fields of their records, and a search for a text in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from turnout.console.formatting import pretty
from turnout.history.dead_letters import DeadLetter
from turnout.server.dead_letters import text_of_bytes

_LARGEST_VALUE: Final = 64 << 10
"""Bytes of a value up to which its fields are columns."""
_MOST_COLUMNS: Final = 200


def fields_of(letter: DeadLetter) -> dict[str, str]:
    """Return the header texts of a letter's record, and the fields of a value that is a JSON object, by column."""
    headers = {f"headers.{name}": text_of_bytes(raw or b"") or "" for name, raw in letter.record.headers}
    return headers | {f"value.{name}": pretty(value) for name, value in _object_of(letter.record.value).items()}


def _object_of(value: bytes | None) -> dict[str, object]:
    if value is None or len(value) > _LARGEST_VALUE:
        return {}
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def columns_of(rows: Sequence[dict[str, str]]) -> list[str]:
    """Return the columns that some rows have, by name."""
    return sorted({name for row in rows for name in row})[:_MOST_COLUMNS]


def has_text(letter: DeadLetter, text: str) -> bool:
    """Return True if a text is in a letter's topic, stage, reason, key, value or headers, in any case."""
    record = letter.record
    raw = [record.key, record.value, *(part for _, part in record.headers)]
    texts = [record.topic, letter.stage, letter.reason, *(text_of_bytes(part) for part in raw if part is not None)]
    return any(text.lower() in part.lower() for part in texts if part)
