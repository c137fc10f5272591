"""Headers that instruct a nats-server, and sinks that forward them."""

from __future__ import annotations

import pytest

from turnout.nats.protocol.forwarded_headers import instructs_server
from turnout.runtime.nats.sink import SinkOptions


@pytest.mark.parametrize(
    ("name", "instructs"),
    [
        ("Nats-Msg-Id", True),
        ("nats-ttl", True),
        ("NATS-EXPECTED-LAST-SEQUENCE", True),
        ("Nats-Expected-", False),
        ("Nats-Stream", False),
        ("X-Nats-TTL", False),
        ("traceparent", False),
    ],
)
def test_names(name: str, instructs: bool) -> None:
    """A name in any case; what only looks alike is a header as any other."""
    assert instructs_server(name) == instructs


def test_a_sink_may_ask_for_headers_for_the_server() -> None:
    """By name, and for those alone."""
    options = {"servers": "nats://localhost:4222", "forwardHeaders": "Nats-TTL, nats-incr"}
    sink = SinkOptions.from_mapping(options)

    assert [name for name in ("Nats-TTL", "NATS-INCR", "Nats-Rollup", "Kind") if sink.withholds(name)] == [
        "Nats-Rollup"
    ]
