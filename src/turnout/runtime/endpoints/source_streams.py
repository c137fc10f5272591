"""Streams of a source, and the test whether a sink feeds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from turnout.base.untrusted import JsonMapping
from turnout.errors import StreamError
from turnout.nats.wire import Connection, stream_info
from turnout.routes.endpoints import NatsSource
from turnout.subjects.pattern import common


@dataclass(frozen=True, slots=True)
class SourceStreams:
    """The streams that a route reads.

    Attributes:
        subjects: patterns of the subjects read from them.
        created: stream → creation time, which distinguishes it from others of its name.
    """

    subjects: tuple[str, ...] = ()
    created: Mapping[str, str] | None = None

    @classmethod
    def of(cls, connection: Connection, source: NatsSource) -> Self:
        """Return the streams of a source.

        Raises:
            StreamError: one does not exist.
        """
        infos = {name: stream_info(connection, name) for name in source.streams}
        stored = _stored(connection, infos)
        filters = source.filters or (">",)
        read = {common(subject, other) for subject in stored for other in filters} - {None}
        created = {name: str(info["created"]) for name, info in infos.items()}
        return cls(tuple(sorted(subject for subject in read if subject is not None)), created)

    def is_fed_by(self, connection: Connection) -> bool:
        """Return True if messages published over a connection may reach one of these streams.

        An address says little: servers have several, and accounts of one server know nothing of each other.
        """
        return any(_created(connection, name) == created for name, created in (self.created or {}).items())


def _created(connection: Connection, stream: str) -> str | None:
    """Return the creation time of a stream; None if the server of this connection has no stream of that name."""
    try:
        return str(stream_info(connection, stream)["created"])
    except StreamError:
        return None


def _stored(connection: Connection, infos: Mapping[str, JsonMapping]) -> list[str]:
    """Return the subjects that some streams store, also by way of the streams that they mirror or source from."""
    subjects: list[str] = []
    names, waiting = set(infos), [info["config"] for info in infos.values()]
    while waiting:
        config = waiting.pop()
        subjects += config.get("subjects") or ()
        for name in _origins(config):
            if name not in names:
                names.add(name)
                waiting += _config(connection, name)
    return subjects


def _origins(config: JsonMapping) -> Iterable[str]:
    """Return the streams of the same account that a stream copies."""
    copied = [*([config["mirror"]] if config.get("mirror") else ()), *(config.get("sources") or ())]
    return (origin["name"] for origin in copied if not origin.get("external"))


def _config(connection: Connection, stream: str) -> list[JsonMapping]:
    try:
        return [stream_info(connection, stream)["config"]]
    except StreamError:
        # A stream may copy one that is not there, or that this user may not see.
        return []
