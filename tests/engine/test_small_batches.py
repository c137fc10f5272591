"""A batch of a few records goes plain ways where a large one goes through arrays: the result is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, SINK, WANTED, batch, program, sent
from turnout.codecs import json_nodes
from turnout.conditions import compare, exists, kiwi, not_
from turnout.engine import deliveries, writing
from turnout.engine import messages as messages_module
from turnout.engine.messages import ListedMessages, Messages, message_ids, origins, record_ids
from turnout.records import headers as headers_module
from turnout.records import spans
from turnout.records.batch import ListedRecords
from turnout.records.headers import Headers, headers_type
from turnout.records.text import iso_of
from turnout.routes.endpoints import NatsSink
from turnout.runtime.nats.sink import SinkOptions, lines_of, lines_of_listed
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.index import layers as layers_module

THRESHOLDS = (
    (headers_module, "_MAX_LISTED_HEADERS"),
    (deliveries, "_MAX_LISTED_DELIVERIES"),
    (messages_module, "_MAX_JOINED_RECORDS"),
    (messages_module, "_MAX_LISTED_HEADERS"),
    (writing, "_MAX_LISTED_RECORDS"),
    (layers_module, "_FEW_NUMBERS"),
    (spans, "_FEW_NUMBERS"),
)

TIMES = """
name: times
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
value: {format: json, schema: "at TIMESTAMP"}
"""

SUBSCRIPTIONS = [
    Subscription(("out.a", "out.b"), kiwi("town", "O*"), id="o"),
    Subscription(("out.b", "a b"), compare("n", ">", 1), id="n"),
    Subscription(("out.c",), exists("Tag"), id="tag"),
    Subscription(("out.d",), not_(kiwi("Tag", "x")), id="other"),
]

_values = st.sampled_from(
    [{"n": 1, "city": "Oulu"}, {"n": 2, "city": "Rauma", "secret": "s"}, {"n": 3}, None, b"{", {"n": "no number"}]
)
_headers = st.lists(
    st.tuples(
        st.sampled_from(["Tag", "Old", "tag", "bad name", "Turnout-Redriven"]),
        st.sampled_from([b"x", b"", b"\xff", b"y"]),
    ),
    max_size=3,
)
_records = st.lists(
    st.tuples(st.sampled_from(["in.a.b", "half.x", "other"]), _values, _headers), min_size=1, max_size=6
)


def by_arrays(task: Any) -> Any:
    """Do a task as if no batch were small."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in THRESHOLDS:
            patch.setattr(module, name, -1)
        return task()


@given(_records, st.booleans(), st.sampled_from(["S", None]))
def test_a_small_batch_is_a_batch(records: list[Any], subscribed: bool, stream: str | None) -> None:
    """Messages, ids, dead letters and counts do not depend on how few the records are."""
    records_of = batch([{"topic": topic, "value": value} for topic, value, _ in records], stream=stream)
    lists = pa.array([[{"key": name, "value": value} for name, value in own] for _, _, own in records], headers_type())
    records_of = records_of.set_column(records_of.schema.get_field_index("headers"), "headers", lists)
    parts = (SINK, DEAD, WANTED) if subscribed else (SINK, DEAD)

    def run() -> Any:
        index = Index.of(SUBSCRIPTIONS) if subscribed else None
        result = program(*parts).run(records_of, index)
        return sorted(sent(result.messages), key=repr), result.counts

    assert by_arrays(run) == run()


@given(_records, st.booleans(), st.sampled_from(["", "lineage: true"]), st.sampled_from(["deadLetter", "drop"]))
def test_records_as_lists(records: list[Any], subscribed: bool, lineage: str, bad_headers: str) -> None:
    """A few records as lists have the messages, frames, dead letters and counts of their record batch."""
    records_of = batch([{"topic": topic, "value": value} for topic, value, _ in records])
    lists = pa.array([[{"key": name, "value": value} for name, value in own] for _, _, own in records], headers_type())
    records_of = records_of.set_column(records_of.schema.get_field_index("headers"), "headers", lists)
    few = ListedRecords(
        record_ids(records_of).to_pylist(),
        [topic for topic, _, _ in records],
        [0] * len(records),
        records_of.column("offset").to_pylist(),
        records_of.column("timestamp").cast(pa.int64()).to_pylist(),
        [None] * len(records),
        records_of.column("value").to_pylist(),
        [own for _, _, own in records],
        lambda: records_of,
    )
    sink = SINK.replace("}", f", {lineage}}}") if lineage else SINK
    dead = DEAD.replace("tolerance: all", f"tolerance: all, badHeaders: {bad_headers}")
    parts = (sink, dead, WANTED) if subscribed else (sink, dead)
    index = Index.of(SUBSCRIPTIONS) if subscribed else None
    of_batch, of_few = (program(*parts).run(source, index) for source in (records_of, few))

    assert sent(of_few.messages) == sent(of_batch.messages)
    assert of_few.counts == of_batch.counts
    listed = of_few.outgoing
    if isinstance(listed, ListedMessages):
        whole = of_batch.messages
        assert (list(listed.topics), listed.ids) == (whole.topics.to_pylist(), whole.ids.to_pylist())
        assert [listed.values[row] for row in listed.rows] == whole.column("value").to_pylist()
        (sink_of_route,) = program(*parts).route.sinks.values()
        assert isinstance(sink_of_route, NatsSink)
        options = SinkOptions.of(sink_of_route)
        lines = lines_of(whole, options)
        assert (lines_of_listed(listed, options) or []) == ([] if lines is None else lines.to_pylist())


def test_records_as_lists_stay_lists() -> None:
    """Deliveries of a few records to one sink are lists; with a dead letter they are arrays."""
    of_batch = batch([{}])
    for value, kind in ((b'{"n": 1}', ListedMessages), (b"{", Messages)):
        few = ListedRecords(["S:1"], ["in.a.b"], [0], [1], [0], [None], [value], [[]], lambda: of_batch)
        assert type(program().run(few).outgoing) is kind


@given(st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15)), max_size=5))
def test_moments(given_moments: list[int | None]) -> None:
    """Several moments are written as each of them is."""
    each = [None if moment is None else iso_of(moment) for moment in given_moments]
    assert json_nodes.timestamps_as_text(given_moments) == each


@given(st.lists(st.tuples(st.one_of(st.none(), st.sampled_from(["s", "t"])), st.one_of(st.none(), st.integers(0, 9)))))
def test_origins(parts: list[tuple[str | None, int | None]]) -> None:
    """The origin of a record is null where a part is unknown, and the same for few and for many."""
    offsets = pa.array([offset for _, offset in parts], pa.int64())
    names = pa.array([name for name, _ in parts], pa.string())
    from_nats = pa.RecordBatch.from_arrays([names, offsets], names=["stream", "offset"])
    topics = names.cast(pa.binary())
    from_kafka = pa.RecordBatch.from_arrays([topics, offsets, offsets], names=["topic", "partition", "offset"])
    for records in (from_nats, from_kafka):

        def texts(records: Any = records) -> Any:
            rows = np.arange(len(parts)).repeat(2)
            suffixes = pa.array([":A" if row % 3 else None for row in rows.tolist()], pa.string())
            return origins(records).to_pylist(), message_ids(records, rows, suffixes).to_pylist()

        assert by_arrays(texts) == texts()


@given(
    st.lists(
        st.lists(
            st.tuples(
                st.one_of(st.none(), st.sampled_from(["a", "b"])),
                st.one_of(st.none(), st.sampled_from([b"1", b"\xff", b""])),
            ),
            max_size=3,
        ),
        max_size=4,
    )
)
def test_headers(lists: list[list[tuple[str | None, bytes | None]]]) -> None:
    """A few headers are found and read as many are; null names and values, and those that are no UTF-8, too."""
    column = pa.array([[{"key": name, "value": value} for name, value in own] for own in lists], headers_type())

    def read() -> Any:
        headers = Headers.of_arrow(column)
        rows, everything = np.flatnonzero(np.arange(len(lists)) % 2), np.arange(len(lists))
        arrow = [headers.to_arrow(rows).to_pylist(), headers.to_arrow(everything).to_pylist()]
        headers.drop(["a"], rows)
        headers.append(everything, "c", None, [number * 0.5 for number in range(len(lists))])
        headers.append(rows, "b", None, [None] * len(rows))
        arrow += [headers.to_arrow(rows).to_pylist(), headers.to_arrow(everything).to_pylist()]
        return arrow, [(headers.has(name).tolist(), headers.last(name)) for name in ("a", "b", "c")]

    assert by_arrays(read) == read()
    arrow, _ = read()
    assert [[(pair["key"], pair["value"]) for pair in pairs] for pairs in arrow[1]] == lists
