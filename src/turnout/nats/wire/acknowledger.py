"""Durable consumer used only to acknowledge processed messages, up to a sequence.

The messages themselves are read by sequence (`turnout.nats.wire.direct`), so that a batch that failed can be read
again as it was; the consumer follows when the batch is committed.
"""

from __future__ import annotations

import time

from turnout.errors import ConnectionLostError, StreamError
from turnout.nats.protocol.answers import number_in, object_in
from turnout.nats.protocol.frames import frame
from turnout.nats.protocol.positions import sequences
from turnout.nats.protocol.pull_requests import PullStatus, next_request, pull_body
from turnout.nats.wire.connection import Connection
from turnout.nats.wire.streams import create_consumer

_BATCH_MESSAGES = 500


class Acknowledger:
    """Acknowledges the messages of *stream* for the durable *consumer*, which is made if it is not there."""

    def __init__(self, connection: Connection, stream: str, consumer: str, filters: tuple[str, ...] = ()) -> None:
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        config = {
            "durable_name": consumer,
            "name": consumer,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "headers_only": True,
            **({"filter_subject": filters[0]} if filters else {}),
        }
        request = f"consumer {consumer!r}"
        floor = object_in(create_consumer(connection, stream, config), "ack_floor", request=request)
        self.floor = number_in(floor, "stream_seq", request=request) + 1

    def acknowledge(self, end: int) -> int:
        """Acknowledge all pending messages below *end* and return their number.

        Not promised: one that was delivered moments ago to a process that then died is acknowledged by a later
        call only, when the consumer delivers it again (after its ``ack_wait``).
        """
        connection = self._connection
        count = 0
        # At most one message per sequence can be below the end.
        while (left := end - self.floor - count) > 0:
            if not connection.is_open:
                connection.reconnect()
            inbox = connection.new_inbox()
            number = connection.subscribe(inbox)
            batch = min(_BATCH_MESSAGES, left)
            connection.publish_api(next_request(self._stream, self._consumer), pull_body(batch, no_wait=True), inbox)
            try:
                below, more = self._answer(number, inbox, end, batch)
            except (TimeoutError, ConnectionLostError):
                connection.close()
                raise ConnectionLostError("the acknowledgements could not be sent") from None
            count += below
            if not more:
                break
        # Once a PONG is back the server has read every acknowledgement.
        if count:
            connection.ping()
        self.floor = max(self.floor, end)
        return count

    def _answer(self, number: int, inbox: str, end: int, batch: int) -> tuple[int, bool]:
        """Acknowledge one pull's messages below *end*, return the others; return the count, and whether to continue.

        How much is pending says nothing here: messages that were given back do not count as such.
        """
        connection = self._connection
        answers: list[bytes] = []
        below = received = 0
        ended = False
        for message in connection.messages(time.monotonic() + connection.options.timeout):
            status = message.status
            if status is not None and message.subject == inbox:
                if PullStatus.of(status.code, status.text) is not PullStatus.EXPIRED:
                    raise StreamError(f"consumer {self._consumer!r}: {status.text or 'refused'}", code=status.code)
                ended = True
                break
            if not message.reply.startswith("$JS.ACK."):
                continue
            mine = sequences(message.reply.encode())[0] < end
            answers.append(frame(message.reply, b"+ACK" if mine else b"-NAK"))
            below += mine
            received += 1
            if received == batch:
                break
        connection.unsubscribe(number)
        if answers:
            connection.send(b"".join(answers))
        return below, below == received and not ended
