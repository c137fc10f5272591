"""Keys that end with a kind see values of that kind alone, whatever way they are read."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.base.multivalued import Texts, metadata_of, texts_or_none
from turnout.conditions import Compare, Condition, Exists, Group, Kiwi, Logic, Operator, evaluate
from turnout.engine.metadata import Metadata, texts_of
from turnout.records import Batch, Field, Float32, Moment, Schema
from turnout.records.batch import Record
from turnout.records.schema import TIMESTAMP
from turnout.records.text import text_of
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.transforms.community import condition

KINDS = {"text": (str,), "number": (int, float), "boolean": (bool,)}
PATHS = {"n": "value.n", "only": "value.n:number", "each": "value.items[].n", "below.*": "value.*"}
SUFFIXES = ("", ":number", ":text", ":boolean")

_scalars = st.sampled_from([100, 100.0, "100", "x", True, "true", None, 1 << 70])
_keys = st.sampled_from([f"{name}{suffix}" for name in ("n", "each", "below.n") for suffix in SUFFIXES] + ["only"])
_conditions = st.recursive(
    st.one_of(
        st.builds(Kiwi, _keys, st.sampled_from(["100", "true", "1*", "*"]), negated=st.booleans()),
        st.builds(Compare, _keys, st.sampled_from(list(Operator)), st.sampled_from([1.0, 100.0])),
        st.builds(Exists, _keys, negated=st.booleans()),
    ),
    lambda children: st.builds(Group, st.sampled_from(list(Logic)), st.lists(children, min_size=2, max_size=3)),
    max_leaves=5,
)
_values = st.fixed_dictionaries(
    {},
    optional={
        "n": st.one_of(_scalars, st.lists(_scalars, max_size=2), st.just({"n": 100})),
        "items": st.lists(st.fixed_dictionaries({}, optional={"n": _scalars}), max_size=3),
    },
)


def _is(value: object, kind: str) -> bool:
    return not kind or (type(value) in KINDS[kind])


def _reference(value: dict[str, Any]) -> dict[str, Texts]:
    """Return all metadata of a record, by a reading of its own."""
    seen: dict[str, Texts | None] = {}
    for suffix in SUFFIXES:
        kind = suffix.removeprefix(":")
        own = value.get("n")
        one = text_of(own) if _is(own, kind) else None
        seen[f"n{suffix}"] = seen[f"below.n{suffix}"] = one
        each = [item.get("n") for item in value.get("items") or ()]
        seen[f"each{suffix}"] = texts_or_none(text_of(found) for found in each if _is(found, kind))
    seen["only"] = seen["n:number"]
    return {key: texts for key, texts in seen.items() if texts is not None}


@given(st.lists(_conditions, min_size=1, max_size=8), st.lists(_values, min_size=1, max_size=8))
def test_fast_path_is_the_reference(conditions: list[Condition], values: list[dict[str, Any]]) -> None:
    """The index over columns of a batch finds what the interpreter finds on metadata read one by one."""
    batch = Batch.of_records([Record("t", value, "k") for value in values])
    index = Index.of([Subscription(["d"], condition, id=str(n)) for n, condition in enumerate(conditions)])
    matches = index.match(Metadata(PATHS).columns(batch, batch.alive, index.keys), len(values))
    found = set(zip(matches.rows.tolist(), index.subscription_ids(matches.subscriptions).to_pylist(), strict=True))

    assert found == {
        (row, str(n))
        for row, value in enumerate(values)
        for n, condition in enumerate(conditions)
        if evaluate(condition, metadata_of(_reference(value)))
    }


@given(st.lists(_values, min_size=1, max_size=6))
def test_every_key_is_read_alike(values: list[dict[str, Any]]) -> None:
    """In a batch of one shape or of many, and by a predicate's condition."""
    batch = Batch.of_records([Record("t", value, "k") for value in values])
    keys = [f"{name}{suffix}" for name in ("n", "each", "below.n") for suffix in SUFFIXES] + ["only"]
    columns = Metadata(PATHS).columns(batch, batch.alive, keys)
    assert [dict(texts_of(columns, row)) for row in range(len(values))] == [_reference(value) for value in values]
    for suffix in SUFFIXES:
        expected = [_reference(value).get(f"n{suffix}") for value in values]
        assert list(condition.texts_of(batch, f"value.n{suffix}")) == expected


@pytest.mark.parametrize(
    ("value", "type_", "kind"),
    [
        (Moment(0), Schema("int64", name=TIMESTAMP), ""),
        (Decimal("1.50"), Schema("bytes", name="org.apache.kafka.connect.data.Decimal"), "number"),
        (Float32(1.5), Schema("float32"), "number"),
        (7, Schema("int32"), "number"),
        ("7", Schema("string"), "text"),
        (True, Schema("boolean"), "boolean"),
        (b"7", Schema("bytes"), ""),
    ],
)
def test_kinds_of_typed_values(value: object, type_: Schema, kind: str) -> None:
    """Times and bytes are of no kind."""
    schema = Schema("struct", fields=(Field("f", type_),))
    batch = Batch.of_records([Record("t", {"f": value}, "k", value_schema=schema)] * 2)
    columns = Metadata({"f": "value.f"}).columns(batch, batch.alive, [f"f:{name}" for name in KINDS])
    assert [set(texts_of(columns, row)) for row in range(2)] == [{f"f:{kind}"} - {"f:"}] * 2


def test_parts_of_the_address() -> None:
    """The topic is a text, the partition a number, and a key is what it was decoded as; headers have no kinds."""
    batch = Batch.of_records([Record("t", {}, 7)])
    keys = ["topic:text", "topic:number", "key:number", "key:text", "part:number", "part:text", "trace:text"]
    columns = Metadata({"part": "partition", "*": "value.*"}).columns(batch, batch.alive, keys)
    assert set(texts_of(columns, 0)) == {"topic:text", "key:number"} | (
        {"part:number"} if batch.partitions[0] is not None else set()
    )


def test_a_path_of_its_own_comes_first() -> None:
    """A kind behind a name whose path has another one is a name below a prefix, or nothing."""
    batch = Batch.of_records([Record("t", {"n": 1, "d": {"n": "x"}}, "k")])
    paths = {"n": "value.n:number", "n:text": "value.d.n:text"}
    columns = Metadata(paths).columns(batch, batch.alive, ["n", "n:text", "n:boolean"])
    assert dict(texts_of(columns, 0)) == {"n": "1", "n:text": "x"}
