"""Waiting at the server for the next message, instead of asking again and again."""

from __future__ import annotations

import contextlib
import json
import time

from turnout.errors import ConnectionLostError, StreamError
from turnout.wire import Connection, create_consumer, delete_consumer

__all__ = ["wait_for_more"]


def wait_for_more(connection: Connection, places: dict[str, int], filters: tuple[str, ...], seconds: float) -> None:
    """Return when one of the streams has a message at or behind its place, or after *seconds*.

    A consumer for each stream hands over the headers of one message. It is a hint only: what goes wrong here
    goes wrong again, and is told, when the stream is asked for its state.
    """
    made = []
    inbox = connection.new_inbox()
    with contextlib.suppress(StreamError, ConnectionLostError, TimeoutError):
        number = connection.subscribe(inbox)
        for stream, place in places.items():
            config = {
                "deliver_policy": "by_start_sequence",
                "opt_start_seq": place,
                "ack_policy": "none",
                "headers_only": True,
                "mem_storage": True,
                "num_replicas": 1,
                "inactive_threshold": 30_000_000_000,
                **({"filter_subjects": list(filters)} if filters else {}),
            }
            made.append((stream, create_consumer(connection, stream, config)["name"]))
        request = json.dumps({"batch": 1, "expires": int(seconds * 1_000_000_000)}).encode()
        for stream, name in made:
            connection.publish(f"{connection.options.api_prefix}.CONSUMER.MSG.NEXT.{stream}.{name}", request, inbox)
        for message in connection.messages(time.monotonic() + seconds + 1):
            if message.subject == inbox or message.reply.startswith("$JS.ACK."):
                break
        connection.unsubscribe(number)
    for stream, name in made:
        with contextlib.suppress(StreamError, ConnectionLostError):
            delete_consumer(connection, stream, name)
