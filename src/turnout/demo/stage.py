"""Preparation of the demo: streams, their messages, and the stored subscriptions."""

from __future__ import annotations

import threading
from collections.abc import Callable

from turnout.demo.flights import messages
from turnout.demo.interests import generated, hand_written
from turnout.errors import TurnoutError
from turnout.nats.wire import Connection, Publisher
from turnout.subscriptions import Store
from turnout.subscriptions.store import create_many

_REPORT_EVERY = 2_000


def streams() -> list[dict[str, object]]:
    """Return the configurations of the three streams: input, deliveries, and dead letters."""
    # A killed run is expected to continue within the hour.
    window = 3600 * 10**9
    return [
        {"name": "FLIGHTS", "subjects": ["flights.>"], "storage": "file", "duplicate_window": window},
        {"name": "DELIVERIES", "subjects": ["deliver.>"], "storage": "file", "duplicate_window": window},
        {"name": "DEAD", "subjects": ["dead.>"], "storage": "file", "duplicate_window": window},
    ]


def publish_flights(
    connection: Connection, limit: int | None, on_progress: Callable[[int], None], stop: threading.Event
) -> int:
    """Publish the flights, await every acknowledgement, and return the number of stored messages.

    Raises:
        StreamError: the server refused one.
        TurnoutError: *stop* was set before the end.
    """
    publisher = Publisher(connection)
    for count, message in enumerate(messages(limit), start=1):
        publisher.publish(message.subject, message.payload, message.headers, message.message_id)
        if count % _REPORT_EVERY == 0:
            on_progress(count)
            check_stop(stop)
    done = publisher.flush()
    on_progress(done.stored + done.duplicates)
    return done.stored


def subscribe(store: Store, count: int, limit: int | None = None) -> int:
    """Store the hand-written subscriptions and *count* generated ones; return their total number."""
    written = hand_written()
    create_many(store, written)
    create_many(store, generated(count, limit=limit))
    return len(written) + count


def check_stop(stop: threading.Event) -> None:
    """Raise `TurnoutError` if *stop* is set."""
    if stop.is_set():
        raise TurnoutError("the demo was stopped")
