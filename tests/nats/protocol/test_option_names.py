"""One list of connection options: each listed option is read, and no module reads an option that is not listed."""

from __future__ import annotations

from dataclasses import fields

import pytest

from turnout.cli.jetstream import JetStreamAccess
from turnout.nats.protocol.options import (
    CONNECTION_OPTIONS,
    FILE_OPTIONS,
    LOGINS,
    REQUIRED_WITH,
    ConnectionOptions,
    ConnectionSettings,
)
from turnout.routes.endpoints import NatsSink, NatsSource
from turnout.runtime.nats.sink import SinkOptions
from turnout.runtime.nats.source import SourceOptions

NAMES = [field.name for field in fields(ConnectionSettings)]
END = {"format": "nats", "servers": "a", "stream": "S"}


class Watched(dict[str, str]):
    """Texts that know which of them were asked for."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__(texts)
        self.read: set[str] = set()

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.read.add(key)
        return super().get(key, default)


def test_each_option_is_read() -> None:
    """Every listed option is read."""
    texts = Watched({"servers": "nats://a", "tls": "true"})

    ConnectionOptions.from_mapping(texts)

    assert texts.read == set(CONNECTION_OPTIONS)


@pytest.mark.parametrize("kind", [NatsSource, NatsSink])
def test_a_route_has_them_all(kind: type[NatsSource | NatsSink]) -> None:
    """In this order."""
    assert [name for name in kind.model_fields if name in NAMES] == NAMES


def test_what_is_read_from_a_route_is_known_to_spark() -> None:
    """A source's and a sink's own options too."""
    source = {"start": 5, "filterSubject": ["a", "b"], "maxRecordsPerTrigger": 1, "maxBytesPerTrigger": 1}
    source |= {"partitions": 2, "failOnDataLoss": False, "pollWait": 1}
    sink = {"window": 5, "messageId": "none", "forwardHeaders": ["Nats-TTL"]}
    rest = {"tls": True, "tlsInsecure": True, "domain": "hub", "timeout": 2.5, "clientName": "me", "token": "t"}

    read = SourceOptions.from_mapping(NatsSource.model_validate(END | source | rest).options(), streaming=True)
    written = SinkOptions.from_mapping(NatsSink.model_validate(END | sink | rest).options())

    assert read.connection == written.connection
    assert (read.connection.api_prefix, read.connection.timeout) == ("$JS.hub.API", 2.5)
    assert (read.start, read.filters, read.max_records, read.partitions) == (5, ("a", "b"), 1, 2)
    assert (written.window, written.forward_headers) == (5, frozenset({"nats-ttl"}))


@pytest.mark.parametrize("seconds", ["timeout", "connectTimeout", "reconnectTimeout"])
@pytest.mark.parametrize("kind", [NatsSource, NatsSink])
def test_a_time_is_above_0(kind: type[NatsSource | NatsSink], seconds: str) -> None:
    """This holds even if the list of options only requires a number."""
    with pytest.raises(ValueError, match="greater than 0"):
        kind.model_validate(END | {seconds: 0})


def test_what_is_said_of_options_is_said_of_those_there_are() -> None:
    """Ways to log in, files, what belongs together; and the fields of the commands' options."""
    named = {*LOGINS, *FILE_OPTIONS, *(name for pair in REQUIRED_WITH for name in pair)}

    assert named <= set(NAMES)
    assert {field.name for field in fields(JetStreamAccess)} <= set(NAMES)
