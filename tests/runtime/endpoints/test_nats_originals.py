"""Records as their stream still has them."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from turnout.embedded import NatsServer
from turnout.engine.sample_records import SampleRecord
from turnout.nats.protocol.errors import StreamReplacedError
from turnout.nats.protocol.identity import StreamIdentity
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stored_message, stream_info
from turnout.routes.endpoints import NatsSource
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.endpoints.nats import history as module


def record(stream: str, offset: int, topic: str) -> SampleRecord:
    return SampleRecord(topic, b"of the letter", offset=offset, stream=stream)


def source(server: NatsServer, stream: str) -> NatsSource:
    return NatsSource.model_validate({"format": "nats", "servers": server.url, "stream": stream})


def test_messages_that_lie_close_together_are_read_at_once(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They equal the records that single requests return, including missing ones and those of other subjects."""
    name = f"O{uuid.uuid4().hex[:8]}"
    adapter = adapter_of(source(nats_server, name))
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.*"], "storage": "memory"})
        with Publisher(connection) as publisher:
            for number in range(1, 101):
                publisher.publish(f"{name}.a", b"%d" % number, [("Place", str(number))], f"id-{number}")
        connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": 7})
        try:
            records = [record(name, number, f"{name}.{'b' if number == 9 else 'a'}") for number in range(1, 100, 2)]
            singly = [adapter.originals([one])[0] for one in records]
            requested: list[int] = []
            ask = stored_message
            monkeypatch.setattr(module, "stored_message", lambda *place: requested.append(place[2]) or ask(*place))
            together = adapter.originals(records)
        finally:
            delete_stream(connection, name)

    assert together == singly
    assert requested == []
    assert [one.offset for one in together if one.value == b"of the letter"] == [7, 9]
    assert (together[0].key, dict(together[0].headers)["Place"]) == (b"id-1", b"1")


def test_messages_that_lie_far_apart_are_asked_for(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages between them are not read."""
    name = f"O{uuid.uuid4().hex[:8]}"
    adapter = adapter_of(source(nats_server, name))
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
            found = adapter.originals([record(name, sequence, f"{name}.a") for sequence in (1, 50, 100)])
        finally:
            delete_stream(connection, name)

    assert [one.value for one in found] == [b"1", b"50", b"100"]
    assert requested == [1, 50, 100]


def test_a_record_of_a_stream_that_was_made_anew(nats_server: NatsServer) -> None:
    """An origin with the identity of the former stream names no message of the present one."""
    name = f"O{uuid.uuid4().hex[:8]}"
    adapter = adapter_of(source(nats_server, name))
    labels = []
    with Connection.open(nats_server.url) as connection:
        for value in (b"old", b"new"):
            create_stream(connection, {"name": name, "subjects": [f"{name}.*"], "storage": "memory"})
            with Publisher(connection) as publisher:
                publisher.publish(f"{name}.a", value)
            labels.append(StreamIdentity.of(stream_info(connection, name)["created"]).label(name))
            if value == b"old":
                delete_stream(connection, name)
    former, present = labels

    with pytest.raises(StreamReplacedError, match=former):
        adapter.record_at(former, 1)
    assert adapter.record_at(present, 1).column("value").to_pylist() == [b"new"]
    assert adapter.record_at(name, 1).column("stream_id").to_pylist() == [present]
    letter = replace(record(name, 1, f"{name}.a"), identity=former.partition(".")[2])
    assert adapter.originals([letter]) == [letter]
