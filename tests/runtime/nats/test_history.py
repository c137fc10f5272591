"""Feeds of a route with several NATS streams, on a real server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.feeds import FedRoute
from tests.integration.routes import Streams
from tests.runtime.test_offsets import checkpoint as written_checkpoint

from turnout.embedded import NatsServer
from turnout.engine.sample_records import SampleRecord
from turnout.errors import ConfigError, StreamError
from turnout.history.dead_letters import LetterBox
from turnout.history.feed import FeedPage, FeedReader
from turnout.nats.protocol.errors import StreamReplacedError
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream, stored_message, stream_info
from turnout.nats.wire.streams import purge_stream
from turnout.routes import Route
from turnout.routes.endpoints import NatsSource
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.nats import history as module

pytestmark = pytest.mark.jetstream


@pytest.fixture
def two(nats_server: NatsServer) -> Iterator[tuple[Streams, Streams]]:
    """Two streams, in the order of their names."""
    streams = Streams(nats_server.url, "a2f"), Streams(nats_server.url, "b2f")
    for one in streams:
        one.create()
    yield streams
    for one in streams:
        one.delete()


@pytest.fixture
def reader(two: tuple[Streams, Streams], tmp_path: Path) -> Iterator[FeedReader]:
    """Reader of a route with ten records in one stream, and four in the other."""
    fed = FedRoute(two[0], tmp_path / "fed")
    ends = {streams.source: fed.match(streams, count) for streams, count in zip(two, (10, 4), strict=True)}
    written_checkpoint(fed.folder, json.dumps(ends))
    both = fed.text.replace(f"stream: {two[0].source}", f"stream: [{two[0].source}, {two[1].source}]")
    with FeedReader(Route.parse(both, {})) as opened:
        yield opened


def numbers_of(page: FeedPage) -> list[int]:
    return [json.loads(message.value or b"")["n"] for message in page.messages]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_streams_take_turns(reader: FeedReader, two: tuple[Streams, Streams], limit: int) -> None:
    """The size of pages changes no order; cursors have the names of the streams."""
    pages = [reader.page("oulu", 0, limit)]
    while not pages[-1].is_last:
        pages.append(reader.page("oulu", pages[-1].cursor, limit))
    first, second = (streams.source for streams in two)

    assert [number for page in pages for number in numbers_of(page)] == [0, 0, 2, 2, 4, 6, 8]
    assert pages[0].messages[0].cursor == f"{first}:1"
    assert sorted(str(pages[-1].cursor).split(",")) == [f"{first}:10", f"{second}:4"]
    assert reader.page("oulu", pages[-1].cursor).messages == ()


def test_positions_and_removed_records(reader: FeedReader, two: tuple[Streams, Streams]) -> None:
    """A feed may begin at the end of both streams; what a stream no longer holds is counted."""
    latest = reader.start("latest")
    with Connection.open(two[0].url) as connection:
        purge_stream(connection, two[0].source)
    page = reader.page("turku", reader.start("earliest"))
    left = reader.page("turku", 0)

    assert sorted(str(latest).split(",")) == [f"{two[0].source}:10", f"{two[1].source}:4"]
    assert (numbers_of(page), numbers_of(left), left.removed) == ([1, 3], [1, 3], 5)


@pytest.mark.parametrize("cursor", [7, "0:1", "OTHER:7"])
def test_cursors_of_other_sources(reader: FeedReader, cursor: int | str) -> None:
    """They are refused, as their positions mean nothing here."""
    with pytest.raises(ConfigError, match="expected sequences of the streams, as in IN_a2f:1042"):
        reader.page("oulu", cursor)
    with pytest.raises(ConfigError, match="each stream has its own sequences"):
        reader.start(17)


def test_matches_of_a_stream_that_was_made_anew(fed: FedRoute) -> None:
    """They are no messages of the present stream, whose records have the same sequences."""
    with Connection.open(fed.streams.url) as connection:
        created = stream_info(connection, fed.streams.source)["created"]
    recorded = {fed.streams.source: 11, f"{fed.streams.source}.created": created, f"{fed.streams.source}.id": ""}
    (fed.folder / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(recorded)}")
    with FeedReader(fed.route) as reader:
        before = reader.page("oulu", 0)
        with Connection.open(fed.streams.url) as connection:
            config = stream_info(connection, fed.streams.source)["config"]
            delete_stream(connection, fed.streams.source)
            create_stream(connection, {"name": fed.streams.source, "subjects": config["subjects"]})
        fed.streams.publish([("order", b'{"n": 99, "city": "Oulu"}', [])] * 10)

        after = reader.page("oulu", 0)

    assert numbers_of(before) == [0, 2, 4, 6, 8]
    assert (numbers_of(after), after.removed) == ([], 5)


def record(stream: str, offset: int, topic: str) -> SampleRecord:
    return SampleRecord(topic, b"of the letter", offset=offset, stream=stream)


def source(server: NatsServer, stream: str) -> NatsSource:
    return NatsSource.model_validate({"format": "nats", "servers": server.url, "stream": stream})


@pytest.mark.usefixtures("far_zone")
def test_starts_that_are_texts(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """A time without a zone is UTC, as for a run; a sequence may be a text, and words have any case."""
    with Publisher(connection) as publisher:
        for number in range(3):
            publisher.publish(f"{stream}.a", b"%d" % number)
    now = datetime.now(UTC).replace(tzinfo=None)
    starts = {
        "an hour ago": (now - timedelta(hours=1)).isoformat(),
        "in an hour": (now + timedelta(hours=1)).isoformat(),
        "the second": "2",
        "the end": "Latest",
    }
    block = source(nats_server, stream)
    found = {
        name: adapter_of(block.model_copy(update={"start": start})).sequences()[stream]
        for name, start in starts.items()
    }

    assert found == {"an hour ago": 1, "in an hour": 4, "the second": 2, "the end": 4}


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


def test_letters_that_the_stream_of_the_sink_does_not_take(two: tuple[Streams, Streams]) -> None:
    """They would be refused, and those that another stream has are no letters of this sink: that is said."""
    one, other = two
    source = f'source: {{format: nats, servers: "{one.url}", stream: {one.source}}}\n'
    sink = f'sink: {{format: nats, servers: "{one.url}", stream: {one.sink}}}\n'

    def streams_of(topic: str) -> list[str]:
        box = LetterBox.of(Route.parse(f"name: r\n{source}{sink}deadLetter: {{topic: {topic}}}\n", {}))
        with box.letters.history() as history:
            return list(history.streams)

    elsewhere = other.out("letters")
    with pytest.raises(StreamError, match=rf"does not have the subject {elsewhere} of the .*, {other.sink} has it"):
        streams_of(elsewhere)
    with pytest.raises(StreamError, match=r"of the dead letters, no stream has it: .* leave stream out of the sink"):
        streams_of("nowhere.at.all")
    assert streams_of(one.out("letters")) == [one.sink]
