"""Publishing of a task's messages to a NATS sink."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from turnout.base.deferred import pc
from turnout.engine.messages import ListedMessages
from turnout.nats.wire import Connection, Publisher
from turnout.nats.wire.packing import header_block, header_lines, id_line, id_lines, key_lines
from turnout.records.published import Published, Refuse

if TYPE_CHECKING:
    from turnout.engine import Messages
    from turnout.runtime.sink_options import SinkOptions


class NatsPublisher:
    """Publishes a task's messages to one NATS sink, over a connection of its own.

    Args:
        options: options of the sink.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._connection = Connection(options.connection)
        # A task may begin while the server restarts: it waits as long as a task that is under way.
        self._connection.reconnect()
        self._publisher = Publisher(self._connection, options.window, options.stream, options.allow)

    def send(self, messages: Messages | ListedMessages, refuse: Refuse) -> None:
        """Send messages; wait where too many are without acknowledgement.

        Raises:
            StreamError: the server takes no messages at all.
            ConnectionLostError: no reconnection in time.
        """
        if isinstance(messages, ListedMessages):
            values = [messages.values[row] or b"" for row in messages.rows]
            self._publisher.publish_lists(messages.topics, values, lines_of_listed(messages, self._options), refuse)
            return
        values = messages.column("value").fill_null(b"")
        self._publisher.publish_columns(messages.topics, values, lines_of(messages, self._options), refuse)

    def collect(self) -> None:
        """Process the acknowledgements that have arrived, without a wait for others.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        self._publisher.collect()

    def flush(self) -> Published:
        """Wait until every message is stored or refused.

        Raises:
            StreamError: as `send`.
            ConnectionLostError: as `send`.
        """
        return self._publisher.flush()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def lines_of_listed(messages: ListedMessages, options: SinkOptions) -> list[bytes] | None:
    """Return the header lines of each message as `lines_of` does."""
    has_ids = options.message_id != "none" and any(id_ is not None for id_ in messages.ids)
    if not has_ids and not any(messages.headers):
        return None
    blocks = [header_block(pairs, options.withholds) if pairs else b"" for pairs in messages.headers]
    ids = [id_line(id_) if id_ else b"" for id_ in messages.ids] if has_ids else [b""] * len(messages)
    return [line + blocks[row] for line, row in zip(ids, messages.rows, strict=True)]


def lines_of(messages: Messages, options: SinkOptions) -> pa.Array | None:
    """Return the header lines of each message, None if no message has any; those of a record are encoded once."""
    parts = [id_lines(messages.ids)] if options.message_id != "none" and messages.ids.null_count < len(messages) else []
    headers = messages.records.column("headers")
    if headers.null_count < len(headers):
        parts.append(header_lines(headers, options.withholds).take(pa.array(messages.rows)))
    if options.key_header is not None:
        keys = key_lines(options.key_header, messages.records.column("key").to_pylist())
        parts.append(keys.take(pa.array(messages.rows)))
    if len(parts) > 1:
        return pc.binary_join_element_wise(*parts, pa.scalar(b"", type=pa.binary()))
    return parts[0] if parts else None
