"""Options of the NATS sink: of a route, and of Spark."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.routes.endpoints import NatsSink
from turnout.runtime.nats.sink import SinkOptions

_ALL: dict[str, Any] = {
    "user": "u",
    "password": "p",
    "stream": "S",
    "window": 7,
    "forwardHeaders": ["Nats-TTL"],
    "timeout": 2.5,
}
_ALL["allow"] = ["deliver.>", "$KV.b.*"]


@pytest.mark.parametrize("options", [{}, _ALL])
def test_a_routes_sink_has_the_options_that_spark_would_read(options: dict[str, Any]) -> None:
    """Both ways to say the same give equal options, secrets and defaults included."""
    sink = NatsSink.model_validate({"format": "nats", "servers": "nats://a,nats://b:5000", **options})

    assert SinkOptions.from_mapping(sink.options()) == SinkOptions.of(sink)


@pytest.mark.parametrize(("message_id", "expected"), [(None, "auto"), ("origin", "auto"), ("none", "none")])
def test_a_sink_without_ids(message_id: str | None, expected: str) -> None:
    """Only a sink with `messageId: none` publishes without ids."""
    sink = NatsSink.model_validate({"format": "nats", "servers": "nats://a", "messageId": message_id})

    assert expected == SinkOptions.of(sink).message_id
