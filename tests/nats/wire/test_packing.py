"""Header lines in columns are those of the single form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.errors import ConfigError
from turnout.loops.frames import write_frames
from turnout.nats.protocol import headers
from turnout.nats.protocol.frames import frame
from turnout.nats.wire import packing
from turnout.nats.wire._window import TrackedChunk
from turnout.nats.wire.packing import (
    PublishedColumns,
    PublishedLists,
    PublishedMessages,
    header_lines,
    id_lines,
    pack,
    small_enough,
)
from turnout.records.headers import headers_type


@pytest.fixture(autouse=True, params=[0, 48], ids=["in columns", "one by one"], scope="module")
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways of writing messages give the same bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_MAX_LISTED_MESSAGES", request.param)
        yield


_names = st.text(alphabet="abcXYZ-_09", min_size=1, max_size=8)
_values = st.binary(max_size=12).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b"").lstrip(b" \t"))
_lists = st.lists(st.tuples(_names, _values), max_size=4)


@given(st.lists(st.one_of(st.none(), _lists), min_size=1, max_size=5))
def test_columns_of_headers_give_the_same_lines(rows: list[list[tuple[str, bytes]] | None]) -> None:
    """The vector form and the single form are one format; a null list is no header."""
    column = pa.array(
        [None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows],
        type=headers_type(),
    )

    assert header_lines(column).to_pylist() == [headers.lines(row or []) for row in rows]


def test_headers_of_a_slice_are_those_of_its_rows() -> None:
    """A record batch that was cut has offsets that do not begin at zero."""
    rows = [[{"key": f"k{n}", "value": b"v"}] * n for n in range(5)]

    assert header_lines(pa.array(rows, type=headers_type()).slice(2, 2)).to_pylist() == [
        b"k2: v\r\n" * 2,
        b"k3: v\r\n" * 3,
    ]


def test_headers_about_another_stream_are_left_out() -> None:
    """A name that is excluded goes, its neighbours stay."""
    rows = pa.array([[{"key": "Nats-Msg-Id", "value": b"1"}, {"key": "a", "value": b"b"}]], type=headers_type())

    assert header_lines(rows, "Nats-Msg-Id".__eq__).to_pylist() == [b"a: b\r\n"]


@pytest.mark.parametrize(
    ("name", "value"),
    [("a b", "x"), ("", "x"), ("a:b", "x"), ("a", "x\r\nEvil: 1"), ("a\n", ""), ("ä", "4"), ("a\x7f", "5")],
)
def test_a_header_cannot_break_out_of_its_line(name: str, value: str) -> None:
    """Neither form lets a line break or a blank name through; the value is not repeated."""
    column = pa.array([[{"key": name, "value": value.encode()}]], type=headers_type())

    with pytest.raises(ConfigError) as single:
        headers.encode([(name, value)])
    with pytest.raises(ConfigError) as many:
        header_lines(column)

    assert "Evil" not in str(single.value) + str(many.value)


def test_ids_that_a_header_cannot_carry_are_written_as_digits() -> None:
    """They stay apart from each other; null and empty ids give no line."""
    ids = pa.array([b"plain", None, b"", b"a\nb", b" a", b"\xff"], type=pa.binary())

    assert id_lines(ids).to_pylist() == [
        b"Nats-Msg-Id: plain\r\n",
        b"",
        b"",
        b"Nats-Msg-Id: 0x610a62\r\n",
        b"Nats-Msg-Id: 0x2061\r\n",
        b"Nats-Msg-Id: \xff\r\n",
    ]


@pytest.mark.parametrize(("first", "ends"), [(-1, [b"", b""]), (9, [b"9", b"10"])], ids=["shared", "numbered"])
def test_frames(first: int, ends: list[bytes]) -> None:
    """With headers and without; each begins where the edges say."""
    lead, inboxes = b"_INBOX.a.", [b"_INBOX.a." + end for end in ends]
    subjects, payloads = pa.array(["skipped", "a.b", "c"]).slice(1), pa.array([b"hello", b""], pa.binary())
    lines = pa.array([b"A: 1\r\n", b""], pa.binary())
    data, edges = pack(subjects, payloads, lines, lead, first)
    plain, _ = pack(subjects, payloads, None, lead, first)

    frames = [
        b"HPUB a.b %b 18 23\r\nNATS/1.0\r\nA: 1\r\n\r\nhello\r\n" % inboxes[0],
        b"HPUB c %b 12 12\r\nNATS/1.0\r\n\r\n\r\n" % inboxes[1],
    ]
    assert memoryview(data).tobytes() == b"".join(frames)
    assert edges.tolist() == [0, len(frames[0]), len(frames[0] + frames[1])]
    assert memoryview(plain).tobytes() == b"PUB a.b %b 5\r\nhello\r\nPUB c %b 0\r\n\r\n" % tuple(inboxes)


_messages = st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=120), st.binary(max_size=30)), max_size=5)


@pytest.mark.parametrize("compiled", [False, True])
@given(_messages, st.booleans(), st.integers(-1, 100) | st.integers(10**18, 2**63 - 10), st.binary(max_size=20))
def test_frames_are_those_of_single_messages(
    compiled: bool, messages: list[tuple[str, bytes, bytes]], headed: bool, first: int, padding: bytes
) -> None:
    """Of any contents and numbers, and of arrays that are slices."""
    subjects, payloads, blocks = map(list, zip(("skipped", padding, padding), *messages, strict=True))
    columns = pa.array(subjects), pa.array(payloads, pa.binary()), pa.array(blocks, pa.binary())
    own_subjects, own_payloads, own_lines = (column.slice(1) for column in columns)
    expected = [
        frame(subject, payload, "r." if first < 0 else f"r.{first + row}", headers.block_of(block) if headed else b"")
        for row, (subject, payload, block) in enumerate(messages)
    ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_frames, "_run", write_frames.dispatcher() if compiled else write_frames.interpreted)
        data, edges = pack(own_subjects, own_payloads, own_lines if headed else None, b"r.", first)

    assert memoryview(data).tobytes() == b"".join(expected)
    assert edges.tolist() == [0, *accumulate(map(len, expected))]


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    ("reason", "operation"), [(b"MaxAge", b"PURGE"), (b"Purge", b"PURGE"), (b"Remove", b"DEL"), (b"x", None)]
)
def test_a_servers_mark_of_a_deletion(count: int, reason: bytes, operation: bytes | None) -> None:
    """Where it is left out, the clients' mark is in its place, once."""
    pairs = [("Nats-Marker-Reason", reason), ("a", b"1")]
    marked = [(*pairs, ("KV-Operation", b"DEL")), pairs, [("a", b"2")]]
    column = pa.array([[{"key": k, "value": v} for k, v in own] for own in marked * count], headers_type())

    lines = header_lines(column, lambda name: name.startswith("Nats-")).to_pylist()

    mark = b"" if operation is None else b"KV-Operation: %b\r\n" % operation
    assert lines == [b"a: 1\r\nKV-Operation: DEL\r\n", b"a: 1\r\n" + mark, b"a: 2\r\n"] * count


_LINES = st.sampled_from([b"", b"Nats-Msg-Id: 1\r\n", b"A: b\r\n"])
_MESSAGES = st.lists(
    st.tuples(st.sampled_from(["a", "b.c", "Ä"]), st.binary(max_size=4), _LINES), min_size=1, max_size=4
)


@given(_MESSAGES, st.booleans(), st.integers(10, 60))
def test_messages_as_lists(messages: list[tuple[str, bytes, bytes]], headed: bool, limit: int) -> None:
    """Messages as lists are sent, refused and found as those with arrays are."""
    subjects, payloads, lines = map(list, zip(*messages, strict=True))

    def of(few: bool) -> tuple[PublishedMessages, list[int]]:
        refused: list[int] = []
        heads = lines if headed else None
        if few:
            return PublishedLists(subjects, payloads, heads, lambda row, _: refused.append(row)), refused
        columns = pa.array(subjects), pa.array(payloads, pa.binary()), pa.array(heads, pa.binary()) if headed else None
        rows = np.arange(len(messages))
        return PublishedColumns(*columns, lambda row, _: refused.append(row), rows), refused

    (few, few_refused), (many, many_refused) = of(True), of(False)
    assert few.have_ids() == many.have_ids()
    assert set(few.distinct_subjects()) == set(many.distinct_subjects())
    for first in (-1, 7):
        (one, edges), (other, other_edges) = few.frames(b"r", first), many.frames(b"r", first)
        assert (bytes(memoryview(one)), list(edges)) == (bytes(memoryview(other)), list(other_edges))
    rest, other_rest = small_enough(few, limit), small_enough(many, limit)
    assert few_refused == many_refused
    assert rest.subjects.to_pylist() == other_rest.subjects.to_pylist()
    chunk, other_chunk = (TrackedChunk(own, b"i.", 1) for own in (few, many))
    assert chunk.waiting_on("a") == other_chunk.waiting_on("a")
    assert chunk.waiting() == other_chunk.waiting()
