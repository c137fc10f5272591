"""Places in a stream: words, sequences and times, and how much lies between two of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from turnout.errors import ConfigError, StreamError
from turnout.nats.wire import Connection, create_stream, delete_stream, stored_message
from turnout.nats.wire.streams import count_exactly, parse_place, parse_position, position_of, resolve, state_of


@pytest.fixture
def stream(nats_server) -> Iterator[tuple[Connection, str]]:
    """A stream of six messages on two subjects, the third of which is gone."""
    name = f"P{uuid.uuid4().hex[:8]}"
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.*"], "storage": "memory"})
        for n in range(6):
            connection.request(f"{name}.{'ab'[n % 2]}", b"")
        connection.api(f"STREAM.MSG.DELETE.{name}", {"seq": 3})
        yield connection, name
        delete_stream(connection, name)


def test_what_lies_between_two_places(stream) -> None:
    """Messages that are there, on the subjects that are asked for; nothing where the end is not behind the start."""
    connection, name = stream

    assert count_exactly(connection, name, 1, 7) == 5
    assert count_exactly(connection, name, 2, 5) == 2
    assert count_exactly(connection, name, 1, 7, [f"{name}.a"]) == 2
    assert count_exactly(connection, name, 4, 5, [f"{name}.a", f"{name}.c"]) == 0
    assert count_exactly(connection, name, 5, 5) == count_exactly(connection, name, 5, 2) == 0
    assert state_of(connection, name).deleted == 1
    assert connection.api(f"STREAM.INFO.{name}")["state"]["consumer_count"] == 0


def test_places_as_sequences(stream) -> None:
    """A time is the first message at or behind it; what lies behind everything is the end."""
    connection, name = stream
    fifth = stored_message(connection, name, 5).column("timestamp")[0].as_py()

    assert [resolve(connection, name, place) for place in ("earliest", "latest", 4, {name: 2})] == [1, 7, 4, 2]
    assert resolve(connection, name, fifth) == 5
    assert resolve(connection, name, fifth + timedelta(days=1)) == 7
    with pytest.raises(ConfigError, match="has no sequence for the stream"):
        resolve(connection, name, {"OTHER": 1})
    with pytest.raises(StreamError, match="there is no stream 'NONE'"):
        resolve(connection, "NONE", "latest")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("Earliest", "earliest"),
        ("17", 17),
        ('{"S": 3}', {"S": 3}),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))),
        ("noon", None),
        ('{"S": "3"}', None),
        ("{", None),
    ],
)
def test_places_as_text(text, place) -> None:
    """Positions in options and commands; a time without a zone is UTC."""
    assert parse_position(text) == place


def test_an_age_is_a_place() -> None:
    """It is the time so long ago; a source's start has none, and no age is longer than there are times."""
    place = parse_place("10m")

    assert isinstance(place, datetime)
    assert timedelta(minutes=10) <= datetime.now(UTC) - place < timedelta(minutes=11)
    assert parse_place("17") == 17
    assert parse_position("10m") is parse_place("9999999999d") is parse_place("10 minutes") is None
    with pytest.raises(ConfigError, match=r"--from: expected earliest, .*, an age such as 10m .* found 'noon'"):
        position_of("--from", "noon")
