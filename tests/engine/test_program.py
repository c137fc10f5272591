"""A route as a program: what becomes of each record of a batch."""

from __future__ import annotations

import gzip
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, ROUTE, SINK, WANTED, batch, program, sent
from turnout.conditions import all_of, exists, kiwi, not_
from turnout.engine import Counts, Program
from turnout.errors import RunError
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.transforms.community import contents as transforms_of_contents

OULU = {"n": 1, "city": "Oulu", "secret": "s"}


def subscribed(**conditions: Any) -> Index:
    return Index.of(
        [
            Subscription(destinations=(f"out.{name}",), condition=condition, id=name)
            for name, condition in conditions.items()
        ]
    )


def test_a_record_takes_its_whole_way() -> None:
    """Decoded, transformed, mapped, encoded; headers are kept; the id names stream, sequence and destination."""
    result = program().run(batch([{"topic": "in.a.b", "value": OULU, "headers": [("Kind", "x")]}]))

    ((topic, id_, value, headers),) = sent(result.messages)
    assert topic == "mapped.b.a"
    assert id_ is not None
    assert id_.startswith("S:1:")
    assert json.loads(value or b"") == {"n": 1, "town": "Oulu", "secret": "*"}
    assert headers == [("Kind", b"x")]
    assert result.counts == Counts(read=1, delivered=1, messages=1)


def test_a_filtered_record_leaves_no_message() -> None:
    """It is counted, and nothing else."""
    result = program().run(batch([{"value": OULU, "headers": [("Old", "yes")]}, {"value": OULU}]))

    assert result.counts == Counts(read=2, filtered=1, delivered=1, messages=1)
    assert result.messages.column("offset").to_pylist() == [2]


def test_a_poisoned_record_is_a_dead_letter_as_it_came() -> None:
    """Its bytes, its headers and the reason; the others of the batch go their way."""
    poisoned = {"topic": "in.x.y", "value": b'{"n": 1', "headers": [("Kind", "odd")]}

    result = program().run(batch([{"value": OULU}, poisoned, {"value": OULU}]))

    *delivered, (topic, id_, value, headers) = sent(result.messages)
    context = dict(headers)
    assert len(delivered) == 2
    assert (topic, value, context["Kind"]) == ("dead", b'{"n": 1', b"odd")
    assert id_ is not None
    assert context["__connect.errors.topic"] == b"in.x.y"
    assert context["__connect.errors.offset"] == b"2"
    assert context["__connect.errors.stage"] == b"VALUE_CONVERTER"
    assert context["__connect.errors.connector.name"] == b"test"
    assert result.counts == Counts(read=3, delivered=2, dead_lettered=1, messages=2)


def test_without_a_dead_letter_topic_failures_are_discarded() -> None:
    """Counted, as the law demands."""
    result = program(SINK, "errors: {tolerance: all}\n").run(batch([{"value": b"{"}, {"value": OULU}]))

    assert result.counts == Counts(read=2, delivered=1, discarded=1, messages=1)
    assert result.counts.conserved


def test_tolerance_none_stops_with_place_and_reason() -> None:
    """The first failed record of the batch is named."""
    records = batch([{"value": OULU}, {"topic": "in.x.y", "value": b"{"}])

    with pytest.raises(RunError, match=r"topic in\.x\.y, partition 0, offset 2: VALUE_CONVERTER: .*JsonConverter"):
        program(SINK).run(records)


def test_weights_may_lose_records() -> None:
    """The draw of each record decides, identically in every repetition."""
    records = [{"topic": "half.x", "value": OULU} for _ in range(1000)]

    first = program().run(batch(records)).counts
    again = program().run(batch(records)).counts

    assert 400 < first.lost_by_weight < 600
    assert first == again
    assert first.conserved


def test_each_subscription_gets_its_message() -> None:
    """One message for each record, subscription and destination; unmatched records are counted."""
    index = subscribed(
        oulu=all_of(kiwi("town", "Oulu"), not_(kiwi("Kind", "odd"))), all=exists("subject"), none=kiwi("town", "Turku")
    )
    records: list[dict[str, object]] = [
        {"value": OULU},
        {"value": OULU, "headers": [("Kind", "odd")]},
        {"value": {"n": 2, "city": "Rauma"}},
    ]

    result = program(SINK, DEAD, WANTED).run(batch(records), index)

    topics = sorted(zip(result.messages.column("offset").to_pylist(), result.messages.topics.to_pylist(), strict=True))
    assert topics == [(1, "out.all"), (1, "out.oulu"), (2, "out.all"), (3, "out.all")]
    assert result.counts == Counts(read=3, delivered=3, messages=4)
    assert len(set(result.messages.ids.to_pylist())) == 4
    # Encoded once for each record, however many messages there are.
    assert result.messages.records.num_rows == 3


def test_elements_of_arrays_are_several_values() -> None:
    """A condition on ``value.items[].sku`` is true where one element makes it true, beside records with one value."""
    index = subscribed(
        either=kiwi("sku", "A*"),
        both=all_of(kiwi("sku", "A*"), kiwi("sku", "B2")),
        without=all_of(exists("sku"), not_(kiwi("sku", "A*"))),
        none=all_of(exists("subject"), not_(exists("sku"))),
    )
    values: list[Any] = [["A1", "B2"], ["C3"], [], None, ["A1", None, "A1"], ["C3", "C4"], "A1"]
    records: list[dict[str, Any]] = [
        {"value": {"items": own if own is None else [{"sku": sku} for sku in own]}} for own in values[:-1]
    ]
    records.append({"value": {"items": {"sku": values[-1]}}})
    text = ROUTE.replace(', schema: "n INT, city STRING, secret STRING"', "")
    wanted = 'subscriptions: {store: "memory://engine", metadata: {sku: "value.items[].sku"}}\n'

    result = program(SINK, DEAD, wanted, text=text).run(batch(records), index)

    found = sorted(zip(result.messages.column("offset").to_pylist(), result.messages.topics.to_pylist(), strict=True))
    assert found == [
        (1, "out.both"),
        (1, "out.either"),
        (2, "out.without"),
        (3, "out.none"),
        (4, "out.none"),
        (5, "out.either"),
        (6, "out.without"),
        (7, "out.either"),
    ]


@pytest.mark.parametrize(
    ("policy", "topics", "counts"),
    [
        ("drop", ["out.oulu"], Counts(read=2, delivered=1, unmatched=1, messages=1)),
        ("pass", ["out.oulu", "mapped.b.a"], Counts(read=2, delivered=2, messages=2)),
        ("deadLetter", ["out.oulu", "dead"], Counts(read=2, delivered=1, dead_lettered=1, messages=1)),
    ],
)
def test_what_nobody_wants(policy: str, topics: list[str], counts: Counts) -> None:
    """``unmatched`` drops it, passes it on under its own topic, or makes a dead letter of it."""
    records = batch([{"value": OULU}, {"value": {"n": 2, "city": "Rauma"}}])

    result = program(SINK, DEAD, WANTED, f"unmatched: {policy}\n").run(records, subscribed(oulu=kiwi("town", "Oulu")))

    assert result.messages.topics.to_pylist() == topics
    assert result.counts == counts


def test_a_destination_may_name_its_sink() -> None:
    """``name:topic`` goes there, all else to the first sink; where a route has one sink, a colon is a character."""
    sinks = 'sinks: {one: {format: nats, servers: "nats://a"}, two: {format: json, path: /tmp/x}}\n'
    index = Index.of([Subscription(destinations=("a", "two:b", "one:c"), condition=exists("subject"), id="s")])

    messages = program(sinks, DEAD, WANTED).run(batch([{"value": OULU}]), index).messages
    alone = program(SINK, DEAD, WANTED).run(batch([{"value": OULU}]), index).messages

    by_sink = [messages.of_sink(place).topics.to_pylist() for place in (0, 1)]
    assert by_sink == [["a", "c"], ["b"]]
    assert sorted(alone.topics.to_pylist()) == ["a", "one:c", "two:b"]


def test_the_log_shows_failures_where_it_is_asked_to() -> None:
    """Place, stage, class and message; the record only where messages are included."""
    records = batch([{"value": b"{", "key": b"k"}])

    quiet = program(SINK, DEAD).run(records)
    logged = program(SINK, "errors: {tolerance: all, log: true}\n").run(records)
    whole = program(SINK, "errors: {tolerance: all, log: true, logMessages: true}\n").run(records)

    assert not quiet.failures
    (line,) = logged.failures
    assert (line["topic"], line["offset"], line["stage"]) == ("in.a.b", "1", "VALUE_CONVERTER")
    assert "value" not in line
    assert (whole.failures[0]["key"], whole.failures[0]["value"]) == ("k", "{")


def test_keys_are_decoded_and_written_as_their_format_says() -> None:
    """``ExtractField$Key`` works where keys are JSON, and a sink that has keys gets them."""
    text = ROUTE.replace("transforms:\n", "transforms:\n  - {name: id, type: ExtractField$Key, field: id}\n")
    files = "sink: {format: json, path: /tmp/x}\n"
    engine = program("key: {format: json}\n", files, DEAD, text=text)

    result = engine.run(batch([{"value": OULU, "key": b'{"id": 7}'}, {"value": OULU, "key": b"{"}]))

    assert result.messages.column("key").to_pylist() == [b"7", b"{"]
    assert dict(sent(result.messages)[1][3])["__connect.errors.stage"] == b"KEY_CONVERTER"


def test_origins_of_other_sources() -> None:
    """Without a stream the id begins with topic, partition and offset, and is null where there is none."""
    records = batch([{"topic": "t", "value": OULU}, {"topic": "t", "value": OULU}], stream=None)
    unknown = records.set_column(2, "offset", pa.array([5, None], pa.int64()))

    ids = program().run(unknown).messages.ids.to_pylist()

    assert ids[0].startswith("t:0:5:")
    assert ids[1] is None


def test_an_empty_batch() -> None:
    """Nothing in, nothing out."""
    result = program(SINK, DEAD, WANTED).run(batch([]), subscribed(all=exists("subject")))

    assert (len(result.messages), result.counts) == (0, Counts())


def test_a_pickled_program_does_the_same() -> None:
    """It is sent to the tasks as its route."""
    records = batch([{"value": OULU}, {"value": b"{"}])
    engine = program()
    engine.run(records)

    copy: Program = pickle.loads(pickle.dumps(engine))

    assert sent(copy.run(records).messages) == sent(engine.run(records).messages)


values = st.one_of(
    st.just(b"{"),
    st.none(),
    st.fixed_dictionaries({"n": st.integers(-5, 5)}, optional={"city": st.sampled_from(["Oulu", "Turku"])}),
)
records_drawn = st.lists(
    st.fixed_dictionaries(
        {"topic": st.sampled_from(["in.a.b", "in.b.c", "half.x", "other"]), "value": values},
        optional={"headers": st.sampled_from([[("Old", "1")], [("Kind", "odd")], [("a", "1"), ("a", "2")]])},
    ),
    max_size=12,
)


@given(records_drawn, st.data())
def test_it_does_not_matter_how_records_are_cut_into_batches(drawn: list[dict[str, Any]], data: st.DataObject) -> None:
    """All at once, one by one or in two parts: each record has the same messages, and the counts add up."""
    index = subscribed(oulu=kiwi("town", "Oulu"), odd=kiwi("Kind", "odd"), not_odd=not_(kiwi("Kind", "odd")))
    engine = program(SINK, DEAD, WANTED)
    at = data.draw(st.integers(0, len(drawn)))
    whole = engine.run(batch(drawn), index)
    parts = [engine.run(batch(drawn[:at]), index), engine.run(batch(drawn[at:], first=at + 1), index)]
    fresh = program(SINK, DEAD, WANTED)
    single = [fresh.run(batch([one], first=n), index) for n, one in enumerate(drawn, 1)]

    for others in (parts, single):
        messages = sorted((message for other in others for message in sent(other.messages)), key=str)
        assert messages == sorted(sent(whole.messages), key=str)
        assert sum((other.counts for other in others), Counts()) == whole.counts
    assert whole.counts.conserved


_GZIP = """
name: test
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: raw}
transforms: [{name: unpack, type: GzipDecompress$Value}]
"""


def test_a_batch_with_too_much_decompressed_content_is_divided(monkeypatch) -> None:
    """Each record is delivered, and no more than the limit and one record are held decompressed at a time."""
    monkeypatch.setattr(transforms_of_contents, "MAX_BATCH", 2_000)
    contents = [bytes([65 + number]) * 900 for number in range(9)]
    records = batch([{"topic": f"in.a.{n}", "value": gzip.compress(text)} for n, text in enumerate(contents)])

    results = list(program(SINK, DEAD, text=_GZIP).results(records))

    assert [body for result in results for _, _, body, _ in sent(result.messages)] == contents
    assert sum(result.counts.read for result in results) == 9
    assert max(result.counts.read for result in results) <= 3


def test_a_batch_that_cannot_be_divided_is_bounded(monkeypatch) -> None:
    """Without a run, the records beyond the limit fail with its number and a cure."""
    monkeypatch.setattr(transforms_of_contents, "MAX_BATCH", 1_000)
    records = batch([{"topic": "in.a.b", "value": gzip.compress(b"x" * 900)}] * 3)

    trace = program(SINK, DEAD, text=_GZIP).trace(records)

    assert trace.counts.dead_lettered == 1
    (failure,) = trace.failures.values()
    assert "at most 1,000: take fewer records at a time" in failure.message
