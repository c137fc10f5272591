"""CloudEvents, with the SDK of their authors on the other side."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings import http, kafka
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st

from turnout.records import Field, Header, Record, Schema
from turnout.records.text import json_of, text_of
from turnout.transforms import Chain

_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=10)
_EVENTS = st.fixed_dictionaries(
    {"id": _TEXTS, "source": _TEXTS, "type": _TEXTS}, optional={"subject": _TEXTS, "traceparent": _TEXTS}
)
_DATA = st.dictionaries(st.text(max_size=5), st.integers() | st.booleans() | st.text(max_size=5) | st.none())
_FORMAT = JSONFormat()


def event_of(attributes: dict[str, Any], data: Any) -> CloudEvent:
    fixed = {"time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "datacontenttype": "application/json"}
    return CloudEvent({**attributes, **fixed}, data)


def through(mode: str, prefix: str, record: Record) -> Record:
    (made,) = Chain.from_route([{"type": "CloudEvent", "mode": mode, "header.prefix": prefix}]).apply([record])
    assert isinstance(made, Record)
    return made


def record_of(message: Any) -> Record:
    headers = [
        Header(name, value if isinstance(value, bytes) else value.encode()) for name, value in message.headers.items()
    ]
    body = message.value if isinstance(message, kafka.KafkaMessage) else message.body
    return Record("orders", json.loads(body), headers=headers, offset=1)


def sent(record: Record) -> tuple[dict[str, str], bytes]:
    headers = {header.name: str(text_of(header.value)) for header in record.headers}
    return headers, json.dumps(json_of(record.value)).encode()


def same(one: Any, other: Any) -> bool:
    return bool(one.get_attributes() == other.get_attributes() and one.get_data() == other.get_data())


@pytest.mark.parametrize("made", ["to_binary", "to_structured"])
@pytest.mark.parametrize("mode", ["binary", "structured"])
@given(attributes=_EVENTS, data=_DATA)
def test_kafkas_events_are_read_and_written(made: str, mode: str, attributes: dict[str, Any], data: Any) -> None:
    """Events written by the SDK in either mode are read again after the transform, in either mode."""
    event = event_of(attributes, data)

    headers, body = sent(through(mode, "ce_", record_of(getattr(kafka, made)(event, _FORMAT))))
    message = kafka.KafkaMessage({name: text.encode() for name, text in headers.items()}, None, body)

    assert same(event, getattr(kafka, f"from_{mode}")(message, _FORMAT))


@pytest.mark.parametrize("made", ["to_binary", "to_structured"])
@pytest.mark.parametrize("mode", ["binary", "structured"])
@given(attributes=_EVENTS, data=_DATA)
def test_events_in_headers_of_nats_are_those_of_http(
    made: str, mode: str, attributes: dict[str, Any], data: Any
) -> None:
    """The names begin with ``ce-``, and what is no printable ASCII is encoded."""
    event = event_of(attributes, data)

    headers, body = sent(through(mode, "ce-", record_of(getattr(http, made)(event, _FORMAT))))

    assert all(text.isascii() for text in headers.values())
    assert same(event, getattr(http, f"from_{mode}")(http.HTTPMessage(headers, body), _FORMAT))


def test_an_event_that_is_made_is_one_for_others() -> None:
    """Of a record that was none, with its place as the id and its time."""
    stage = {"type": "CloudEvent", "attributes": {"source": "/flights", "type": "$value.kind"}}
    (record,) = Chain.from_route([stage]).apply([Record("orders", {"kind": "late"}, offset=7, timestamp=1000)])
    assert isinstance(record, Record)

    event = http.from_binary(http.HTTPMessage(*sent(record)), _FORMAT)

    assert (event.get_id(), event.get_type(), event.get_source()) == ("orders:0:7", "late", "/flights")
    assert event.get_time() == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert event.get_data() == {"kind": "late"}


def test_typed_data_stays_typed() -> None:
    """In binary mode as a struct, in structured mode inside the schemaless event."""
    data = Schema("struct", optional=True, fields=(Field("n", Schema("int32")),))
    schema = Schema(
        "struct",
        fields=(
            *(Field(name, Schema("string")) for name in ("specversion", "id", "source", "type")),
            Field("data", data),
        ),
    )
    value = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": {"n": 1}}
    record = Record("orders", value, value_schema=schema)

    binary, structured = through("binary", "ce-", record), through("structured", "ce-", record)

    assert (binary.value, binary.value_schema) == ({"n": 1}, data)
    assert json_of(structured.value) == value


def test_conditions_see_attributes() -> None:
    """In binary mode as headers; in structured mode at their paths."""
    chain = Chain.from_route(
        [
            {"type": "CloudEvent", "attributes": {"source": "/s", "type": "$value.kind"}},
            {"type": "Filter", "predicate": {"type": "Condition", "when": {"key": "ce-type", "equals": "late"}}},
        ]
    )

    late, early = chain.apply([Record("t", {"kind": kind}, offset=1) for kind in ("late", "early")])

    assert late is None
    assert isinstance(early, Record)


def test_events_and_others_in_one_batch() -> None:
    """Each is read as what it is; one that fails stops no other."""
    chain = Chain.from_route([{"type": "CloudEvent", "mode": "structured"}])
    event: dict[str, Any] = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "data": 1}
    headers = [Header(f"ce-{name}", text.encode()) for name, text in event.items() if name not in ("data", "id")]

    one, none, two = chain.apply(
        [Record("t", event), Record("t", 5), Record("t", 2, headers=[*headers, Header("ce-id", b"2")])]
    )

    assert isinstance(one, Record)
    assert isinstance(two, Record)
    assert not isinstance(none, Record)
    assert (one.value, two.value) == (event, {**event, "id": "2", "data": 2})


@pytest.mark.parametrize("mode", ["binary", "structured"])
def test_attributes_of_other_names_in_each_record(mode: str) -> None:
    """Any number of names costs what they hold, and not a column of the batch for each."""
    required = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t"}
    own = [{f"ce-x{number}y{index}": "1" for index in range(20)} for number in range(100)]
    records = [
        Record("t", {"n": 1}, headers=[Header(name, text.encode()) for name, text in (required | names).items()])
        for names in own
    ]
    made = Chain.from_route([{"type": "CloudEvent", "mode": mode}]).apply(records)

    for record, names in zip(made, own, strict=True):
        assert isinstance(record, Record)
        if mode == "binary":
            assert names.keys() <= {header.name for header in record.headers}
        else:
            assert {name[3:] for name in names} <= record.value.keys()
        assert len(record.headers) == (len(required) + len(names) + 1 if mode == "binary" else 1)
