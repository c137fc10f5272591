"""CloudEvents through a route: the bodies are what the SDK of their authors reads and writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings import http
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.routes import Route

_FORMAT = JSONFormat()
_FIXED = {"id": "1", "source": "/s", "type": "t", "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)}


def through(transforms: list[dict[str, Any]], *values: bytes, value: str = "json") -> list[http.HTTPMessage]:
    """What a route sends for each value: its headers, and its body."""
    document = {
        "name": "events",
        "source": {"format": "nats", "servers": "nats://127.0.0.1:4222", "stream": "S"},
        "value": {"format": value},
        "transforms": transforms,
        "mappings": {"a": "b"},
        "sink": {"format": "nats", "servers": "nats://127.0.0.1:4222"},
    }
    records = [SampleRecord("a", value=one, offset=at + 1) for at, one in enumerate(values)]
    result = Program.of(Route.parse(json.dumps(document))).run(record_batch(records))
    rows = zip(result.messages.column("headers").to_pylist(), result.messages.column("value").to_pylist(), strict=True)
    return [
        http.HTTPMessage({one["key"]: one["value"].decode() for one in headers or ()}, body) for headers, body in rows
    ]


EVENTS: list[tuple[dict[str, str], Any]] = [
    ({"datacontenttype": "application/octet-stream"}, b"\1\2\xff"),
    ({"datacontenttype": "text/plain"}, "x"),
    ({"datacontenttype": "text/plain; charset=utf-8"}, 'say "ä"'),
    ({"datacontenttype": "application/json"}, {"n": 1, "deep": [1, {"a": None}]}),
    ({"datacontenttype": "application/vnd.x+json"}, {"list": [1, "a text"]}),
    ({"datacontenttype": "application/xml"}, "<a/>"),
    ({}, {"n": 1}),
    ({}, b"\0"),
]


def structured(attributes: dict[str, Any], data: Any) -> bytes:
    return http.to_structured(CloudEvent({**_FIXED, **attributes}, data), _FORMAT).body


@pytest.mark.parametrize("copies", [1, 3])
def test_the_body_of_a_binary_event_is_its_data(copies: int) -> None:
    """Bytes are the bytes, a text that is not JSON is the text, all else is JSON: as the SDK writes the same event."""
    texts = [structured(attributes, data) for attributes, data in EVENTS] * copies

    sent = through([{"type": "CloudEvent", "mode": "binary"}], *texts)

    for (attributes, data), message in zip(EVENTS * copies, sent, strict=True):
        theirs = http.to_binary(CloudEvent({**_FIXED, **attributes}, data), _FORMAT)
        if isinstance(data, bytes) or not attributes.get("datacontenttype", "json").endswith("json"):
            assert theirs.body == message.body
        else:
            assert json.loads(theirs.body) == json.loads(message.body)
        assert http.from_binary(message, _FORMAT).get_data() == http.from_binary(theirs, _FORMAT).get_data()


def test_the_data_alone_is_the_same_body() -> None:
    """Without attributes."""
    sent = through([{"type": "CloudEvent", "mode": "data"}], *[structured(*event) for event in EVENTS[:3]])

    assert [message.body for message in sent] == [b"\1\2\xff", b"x", 'say "ä"'.encode()]


@pytest.mark.parametrize("format_name", ["json", "string", "raw", "msgpack", "connect-json"])
def test_a_structured_event_is_json_in_every_format(format_name: str) -> None:
    """The content type says so; a format that has no objects would print something that no one reads."""
    parse = [{"type": "FromJson$Value"}] if format_name in ("string", "raw") else []
    value = {"n": 1, "s": "x"}
    text = msgspec.msgpack.encode(value) if format_name == "msgpack" else json.dumps(value).encode()
    if format_name == "connect-json":
        text = json.dumps({"schema": None, "payload": value}).encode()
    stage = {"type": "CloudEvent", "mode": "structured", "attributes": {"source": "/s", "type": "t"}}

    for more in ([], [{"type": "ReplaceField$Value", "renames": "subject:subject2"}]):
        (message,) = through([*parse, stage, *more], text, value=format_name)
        event = http.from_structured(message, _FORMAT)
        assert (event.get_data(), event.get_source()) == (value, "/s")


def test_binary_and_structured_are_each_other() -> None:
    """There and back the event is the one that the SDK wrote."""
    stages = [{"type": "CloudEvent", "mode": mode} for mode in ("binary", "structured")]

    for attributes, data in EVENTS:
        (message,) = through(stages, structured(attributes, data))
        event = http.from_structured(message, _FORMAT)
        assert (
            event.get_data()
            == http.from_structured(http.HTTPMessage({}, structured(attributes, data)), _FORMAT).get_data()
        )
