"""Reserved headers: a record brings none of them into a route."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, SINK, WANTED, batch, program, sent
from turnout.conditions import parse
from turnout.engine import Counts
from turnout.engine.dead_letters import DESTINATION, ORIGIN, SUBSCRIPTION
from turnout.engine.messages import VALUE_LEFT_OUT, is_reserved, without_reserved
from turnout.records.batch import TOPIC_ID
from turnout.records.headers import headers_type
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index

OULU = {"n": 1, "city": "Oulu"}
FORGED = [
    ("Turnout-Redriven", "1"),
    ("TURNOUT-redrive-tries", "9" * 5000),
    ("turnout-source", "OTHER:9"),
    (SUBSCRIPTION, "theirs"),
    (DESTINATION.upper(), "theirs"),
]


def any_case(name: str) -> st.SearchStrategy[str]:
    """A name with each letter in either case."""
    return st.tuples(*(st.sampled_from((letter.lower(), letter.upper())) for letter in name)).map("".join)


@pytest.mark.parametrize("stream", ["S", None], ids=["nats", "kafka"])
def test_reserved_headers_are_dropped_and_counted(stream: str | None) -> None:
    """Neither a delivered message nor a dead letter has one of the record's; its other headers stay in their order."""
    mixed = [("Kind", "odd"), *FORGED, ("Kind", "even")]
    records = batch(
        [{"value": OULU, "headers": mixed}, {"value": b"{", "headers": mixed}, {"value": OULU}], stream=stream
    )

    result = program().run(records)

    expected = Counts(read=3, delivered=2, dead_lettered=1, messages=2, reserved_headers=10)
    assert result.counts == expected
    assert result.counts.conserved
    first, second, letter = (headers for _, _, _, headers in sent(result.messages))
    assert (first, second) == ([("Kind", b"odd"), ("Kind", b"even")], [])
    assert letter[:2] == first
    assert letter[2] == (ORIGIN, b"S:2" if stream else b"in.a.b:0:2")
    assert SUBSCRIPTION not in dict(letter)


def test_origin_of_a_letter_has_the_id_of_its_topic() -> None:
    """So a redrive of it gives its messages the ids that they had."""
    records = batch([{"value": b"{"}], stream=None)
    records = records.append_column(TOPIC_ID, pa.array(["x"]))

    (letter,) = sent(program().run(records).messages)

    assert letter[3][0] == (ORIGIN, b"in.a.b:0:1:x")
    assert str(letter[1]).startswith("in.a.b:0:1:x:")


def test_conditions_and_predicates_do_not_see_them() -> None:
    """A record cannot choose its subscriptions or its transforms with a reserved header."""
    index = Index.of([Subscription(["out"], parse("Turnout-Route:mine"), id="s")])

    result = program(SINK, DEAD, WANTED).run(batch([{"value": OULU, "headers": [("Turnout-Route", "mine")]}]), index)

    assert (result.counts.unmatched, result.counts.delivered) == (1, 0)


def test_a_batch_without_reserved_headers_is_not_copied() -> None:
    """The usual case costs a comparison of the different names."""
    records = batch([{"value": OULU, "headers": [("Kind", "odd")]}])

    assert without_reserved(records) == (records, 0)
    assert without_reserved(records)[0] is records
    bare = records.drop_columns(["headers"])
    assert without_reserved(bare) == (bare, 0)


def test_a_part_of_a_batch_keeps_its_own_headers() -> None:
    """Slices and null lists are read right: each record keeps what was its own."""
    lists = [[("a", b"0"), ("Turnout-X", b"0")], None, [("Turnout-X", b"2"), ("b", b"2")], [], [("c", b"4")]]
    column = pa.array(
        [None if some is None else [{"key": k, "value": v} for k, v in some] for some in lists], headers_type()
    )
    whole = pa.RecordBatch.from_arrays([column], names=["headers"])

    kept, dropped = without_reserved(whole.slice(1))

    assert dropped == 1
    assert [[h["key"] for h in some or ()] for some in kept.column("headers").to_pylist()] == [[], ["b"], [], ["c"]]


@given(st.sampled_from(("Turnout-Redriven", SUBSCRIPTION, VALUE_LEFT_OUT, "turnout-", "__turnout.x")).flatmap(any_case))
def test_names_are_reserved_in_any_case(name: str) -> None:
    """NATS keeps names as they are written, and clients and proxies write them in several ways."""
    assert is_reserved(name)
    assert not is_reserved(f"x{name}")


def test_the_topic_of_dead_letters_takes_no_delivery() -> None:
    """A record that is mapped there would be read among the dead letters with headers of its publisher's choice."""
    result = program().run(batch([{"topic": "dead", "value": OULU}, {"value": OULU}]))

    assert result.counts == Counts(read=2, delivered=1, dead_lettered=1, messages=1, undeliverable=1)
    *_, (_, _, _, headers) = sent(result.messages)
    assert b"the route's dead letters go there" in dict(headers)["__connect.errors.exception.message"]
