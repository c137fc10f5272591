"""Options of the NATS sink; without Spark, so that others may publish alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnout.base.untrusted import decimal
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.forwarded_headers import instructs_server
from turnout.nats.protocol.options import CONNECTION_OPTIONS
from turnout.nats.wire import ConnectionOptions
from turnout.runtime.source_options import check_names
from turnout.subjects.rights import check_pattern

if TYPE_CHECKING:
    from turnout.routes.endpoints import NatsSink
    from turnout.runtime.nats_publisher import NatsPublisher

_WRITE_OPTIONS = ("stream", "window", "messageId", "forwardHeaders", "allow")
_WINDOW = 4000
_MESSAGE_IDS = ("auto", "key", "offset", "none")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Options of the NATS sink.

    Attributes:
        message_id: source of the ids: ``key``, ``offset`` (stream, offset and topic), ``none``, or ``auto``:
            the key where there is one, else the offset where the columns are there, else none.
        forward_headers: names of headers that instruct a server and are forwarded all the same, in lower case.
        allow: patterns of subjects, see `turnout.nats.wire.Publisher`.
        key_header: name of the header with the record's key; None for none.
    """

    connection: ConnectionOptions
    stream: str | None = None
    window: int = _WINDOW
    message_id: str = "auto"
    forward_headers: frozenset[str] = frozenset()
    allow: tuple[str, ...] | None = None
    key_header: str | None = None

    def publisher(self, slot: object = None) -> NatsPublisher:  # noqa: ARG002 - for sinks with transactions
        """Return a publisher."""
        # It needs the engine, which the planning processes of Spark, too, would load.
        from turnout.runtime.nats_publisher import NatsPublisher

        return NatsPublisher(self)

    def withholds(self, name: str) -> bool:
        """Return True if headers of this name are left out."""
        if self.key_header is not None and name.lower() == self.key_header.lower():
            return True
        return instructs_server(name) and name.lower() not in self.forward_headers

    @classmethod
    def of(cls, sink: NatsSink) -> SinkOptions:
        """Return the options of a route's sink, whose messages have computed ids or none.

        Raises:
            ConfigError: lists every mistake of the connection.
        """
        forward = frozenset(name.strip().lower() for name in sink.forward_headers or ()) - {""}
        message_id = "auto" if sink.with_ids else "none"
        return cls(
            sink.connection, sink.stream, sink.window or _WINDOW, message_id, forward, sink.writable, sink.key_header
        )

    @classmethod
    def from_mapping(cls, options: Mapping[str, str]) -> SinkOptions:
        """Read and check Spark's options.

        Raises:
            ConfigError: lists every mistake, with the option's name.
        """
        mistakes = check_names(options, (*CONNECTION_OPTIONS, *_WRITE_OPTIONS))
        try:
            connection = ConnectionOptions.from_mapping(options)
        except ConfigError as wrong:
            mistakes += wrong.mistakes
        window = decimal(options.get("window", str(_WINDOW)), 10_000) or 0
        if not window:
            mistakes.append(Mistake("window", f"is a number from 1 to 10000, not {options['window']!r}"))
        message_id = options.get("messageId", "auto").lower()
        if message_id not in _MESSAGE_IDS:
            mistakes.append(Mistake("messageId", f"is one of {', '.join(_MESSAGE_IDS)}, not {message_id!r}"))
        allow = None
        if "allow" in options:
            allow = tuple(pattern.strip() for pattern in options["allow"].split(","))
            mistakes += _wrong_patterns(allow)
        if mistakes:
            raise ConfigError(mistakes, what="NATS sink")
        forward = frozenset(name.strip().lower() for name in options.get("forwardHeaders", "").split(",")) - {""}
        return cls(connection, options.get("stream") or None, window, message_id, forward, allow)


def _wrong_patterns(patterns: Iterable[str]) -> Iterator[Mistake]:
    for pattern in patterns:
        try:
            check_pattern(pattern)
        except ValueError as problem:
            yield Mistake("allow", str(problem))
