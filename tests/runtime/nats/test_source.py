"""Waiting at a stream for its next message."""

from __future__ import annotations

import secrets
import threading
from typing import Any

import pytest

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_consumer, create_stream, delete_stream, stream_info
from turnout.runtime.nats.source import wait_for_more

pytestmark = pytest.mark.jetstream


def created_consumer(connection: Connection, **config: Any) -> str:
    name = f"WAIT{secrets.token_hex(4)}"
    create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory", **config})
    return name


def test_the_wait_ends_with_the_next_message(nats_server: NatsServer, connection: Connection) -> None:
    """Long before its time, and nothing of it is left behind."""
    stream = created_consumer(connection)
    waiting = threading.Thread(target=wait_for_more, args=(connection, {stream: 1}, (), 300.0), daemon=True)
    waiting.start()
    with Connection.open(nats_server.url) as other:
        while stream_info(other, stream)["state"]["consumer_count"] == 0:
            assert waiting.is_alive()
        other.publish(f"{stream}.a", b"x")
        other.ping()
        waiting.join(60)

        assert not waiting.is_alive()
        assert stream_info(other, stream)["state"]["consumer_count"] == 0
        delete_stream(other, stream)


DENYING = """
jetstream: enabled
accounts { A { jetstream: enabled, users: [
    {user: a, password: pw},
    {user: b, password: pw, permissions: {publish: {allow: ">", deny: "$JS.API.CONSUMER.>"}}}
] } }
"""


def test_a_denied_wait(caplog: pytest.LogCaptureFixture) -> None:
    """The state of the stream may be requested, which would hide that: a warning names the subject, once."""
    with NatsServer(config=DENYING) as server:
        with Connection.open(server.url.replace("//", "//a:pw@")) as connection:
            create_stream(connection, {"name": "DENIED", "subjects": ["denied.>"], "storage": "memory"})
        with Connection.open(server.url.replace("//", "//b:pw@")) as connection:
            for _ in range(2):
                wait_for_more(connection, {"DENIED": 1}, (), 0.1)

    warned = [record.getMessage() for record in caplog.records if "is not permitted" in record.getMessage()]
    assert len(warned) == 1
    assert "DENIED" in warned[0]
    assert "$JS.API.CONSUMER.CREATE" in warned[0]


def test_a_stream_that_cannot_be_waited_at(connection: Connection) -> None:
    """One that gives each message to a single consumer has it already: the wait is short, and nothing is disturbed."""
    stream = created_consumer(connection, retention="workqueue")
    create_consumer(connection, stream, {"durable_name": "mine", "name": "mine", "ack_policy": "explicit"})

    waiting = threading.Thread(target=wait_for_more, args=(connection, {stream: 1}, (), 300.0), daemon=True)
    waiting.start()
    waiting.join(60)

    assert not waiting.is_alive()
    assert stream_info(connection, stream)["state"]["consumer_count"] == 1
    delete_stream(connection, stream)
