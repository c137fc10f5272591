"""Records as their stream still has them."""

from __future__ import annotations

import uuid

import pytest

from turnout.embedded import NatsServer
from turnout.engine.sample_records import SampleRecord
from turnout.history import original_records as module
from turnout.history.dead_letters import DeadLetter
from turnout.history.original_records import originals
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stored_message
from turnout.routes import Route


def _letter(stream: str, offset: int, topic: str) -> DeadLetter:
    record = SampleRecord(topic, b"of the letter", offset=offset, stream=stream)
    return DeadLetter("DEAD", offset, "", 0, record, True, None, None, None)


def test_messages_that_lie_close_together_are_read_at_once(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They equal the records that single requests return, including missing ones and those of other subjects."""
    name = f"O{uuid.uuid4().hex[:8]}"
    route = Route.parse(
        f'name: r\nsource: {{format: nats, servers: "{nats_server.url}", stream: {name}}}\n'
        f'sink: {{format: nats, servers: "{nats_server.url}"}}\n'
    )
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.*"], "storage": "memory"})
        with Publisher(connection) as publisher:
            for number in range(1, 101):
                publisher.publish(f"{name}.a", b"%d" % number, [("Place", str(number))], f"id-{number}")
        connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": 7})
        try:
            letters = [_letter(name, number, f"{name}.{'b' if number == 9 else 'a'}") for number in range(1, 100, 2)]
            singly = [originals(route, [letter])[0] for letter in letters]
            requested: list[int] = []
            ask = stored_message
            monkeypatch.setattr(module, "stored_message", lambda *place: requested.append(place[2]) or ask(*place))
            together = originals(route, letters)
        finally:
            delete_stream(connection, name)

    assert together == singly
    assert requested == []
    assert [one.offset for one in together if one.value == b"of the letter"] == [7, 9]
    assert (together[0].key, dict(together[0].headers)["Place"]) == (b"id-1", b"1")


def test_messages_that_lie_far_apart_are_asked_for(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages between them are not read."""
    name = f"O{uuid.uuid4().hex[:8]}"
    route = Route.parse(
        f'name: r\nsource: {{format: nats, servers: "{nats_server.url}", stream: {name}}}\n'
        f'sink: {{format: nats, servers: "{nats_server.url}"}}\n'
    )
    monkeypatch.setattr(module, "_MAX_SINGLE_READS", 2)
    monkeypatch.setattr(module, "_SPARSE", 10)
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.*"], "storage": "memory"})
        with Publisher(connection) as publisher:
            for number in range(1, 101):
                publisher.publish(f"{name}.a", b"%d" % number)
        requested: list[int] = []
        ask = stored_message
        monkeypatch.setattr(module, "stored_message", lambda *place: requested.append(place[2]) or ask(*place))
        try:
            values = [
                original.value for original in originals(route, [_letter(name, at, f"{name}.a") for at in (1, 50, 100)])
            ]
        finally:
            delete_stream(connection, name)

    assert values == [b"1", b"50", b"100"]
    assert requested == [1, 50, 100]
