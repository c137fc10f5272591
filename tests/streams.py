"""Streams of a real server for single tests."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from turnout.nats.wire import Connection, create_stream, delete_stream

__all__ = ["own_stream", "sequences_in"]


@contextmanager
def own_stream(connection: Connection, subjects: str = ">") -> Iterator[str]:
    """Create a memory stream with a unique name, for *subjects* below that name; delete it at the end."""
    name = f"T{secrets.token_hex(4).upper()}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.{subjects}"], "storage": "memory"})
    yield name
    delete_stream(connection, name)


def sequences_in(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset of a checkpoint without what distinguishes its streams from others of their names."""
    return {name: value for name, value in offset.items() if not name.endswith((".created", ".id", ".time"))}
