"""Addresses of sources and sinks on the command line."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError
from turnout.routes.drafts import sink_of, source_of


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("nats://host:4222", "expected a stream"),
        ("natz://host:4222/S", 'did you mean "nats"'),
        ("kafka://host:9092", "expected topics"),
        ("orders", "expected nats://host:4222/STREAM"),
        ("nast://ann:hunter2@host/S", "nast://[*]{3}@host/S"),
    ],
)
def test_addresses_that_are_none(address, expected) -> None:
    """The error has the value found and the value expected, and no password."""
    with pytest.raises(ConfigError, match=expected) as raised:
        source_of(address)

    assert "hunter2" not in str(raised.value)


def test_sinks() -> None:
    """A named stream must take the messages; brokers have no topic."""
    assert sink_of("nats://h:1/OUT") == {"format": "nats", "servers": "nats://h:1", "stream": "OUT"}
    assert sink_of("csv:out") == {"format": "csv", "path": "out"}
    with pytest.raises(ConfigError, match="expected brokers alone"):
        sink_of("kafka://h:1/t")
