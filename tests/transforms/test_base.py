"""Paths of content, and objects of several shapes."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.base.clocks import Milliseconds
from turnout.codecs import EncodeErrors, Format, codec_of, plain_json
from turnout.records import Batch, Block, Headers
from turnout.records.block import rows_of
from turnout.transforms import Chain, Transform
from turnout.transforms.base import Move, moved_back, moved_on
from turnout.transforms.chain import ChainRunner, StageRunner
from turnout.transforms.kafka.replace_field import ReplaceField


def test_moves_are_followed_both_ways() -> None:
    """A part of what moves goes with it, and what holds a part that moves is at both paths."""
    moves = [Move(("value", "a"), ("headers", "A")), Move(("value", "b"), ("value", "c"), copy=True)]

    assert moved_on(moves, ("value", "a", "x")) == {("headers", "A", "x")}
    assert moved_on(moves, ("value",)) == {("value",), ("headers", "A"), ("value", "c")}
    assert moved_on(moves, ("value", "b")) == {("value", "b"), ("value", "c")}
    assert moved_back(moves, ("value", "c")) == {("value", "c"), ("value", "b")}
    assert moved_back(moves, ("headers",)) == {("headers",), ("value", "a")}


JSON = codec_of(Format("json"))
ISO = "yyyy-MM-dd'T'HH:mm:ssX"
TOPICS = ("a.1", "b.2")
NAMES = ("a", "b", "c", "at", "ü", "")

SCALARS: st.SearchStrategy[str] = st.one_of(
    st.sampled_from(
        ["null", "true", "0", "-0", "-0.0", "1e5", "1.50", "9223372036854775807", "9223372036854775808",
         "123456789012345678901234567890", "1e308", "1e999", "5e-324", '"\\u0041\\/\\n"', '"\\ud83d\\ude00"',
         '"2013-01-01T10:00:00Z"', "1357034400000", '""', "NaN", "01", '"\\ud800"', "tru", '"\\x"']
    ),
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(max_size=4).map(json.dumps),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(st.sampled_from(NAMES), inner), max_size=3).map(lambda pairs: object_text(pairs)),
    ),
    max_leaves=6,
)


def object_text(pairs: list[tuple[str, str]], space: str = "") -> str:
    """A JSON object with these names, of which some may come twice."""
    return "{" + f",{space}".join(f"{json.dumps(name)}:{space}{value}" for name, value in pairs) + "}"


OBJECTS = st.builds(
    object_text,
    st.lists(st.tuples(st.sampled_from(NAMES), st.one_of(SCALARS, VALUES)), max_size=6),
    st.sampled_from(["", " ", "\n\t"]),
).map(lambda text: text.encode("utf-8", "surrogatepass"))
TEXTS = st.one_of(
    OBJECTS,
    VALUES.map(str.encode),
    st.none(),
    st.sampled_from([b"", b"{", b'{"a":1', b'{"a":"\xff"}', b'{"\xc3":1}', b"[" * 3_000 + b"]" * 3_000, b"{} {}"]),
)

STAGES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(
        [
            {"type": "InsertField$Value", "static.field": "a", "static.value": "x", "topic.field": "b"},
            {"type": "InsertField$Value", "timestamp.field": "at", "partition.field": "p"},
            {"type": "InsertField$Value", "offset.field": "o"},
            {"type": "ReplaceField$Value", "renames": "a:b,c:a", "exclude": "at"},
            {"type": "ReplaceField$Value", "include": "a,b,at", "renames": "b:at"},
            {"type": "MaskField$Value", "fields": "a,b"},
            {"type": "MaskField$Value", "fields": "b,c", "replacement": "7"},
            {"type": "TimestampConverter$Value", "field": "at", "target.type": "unix", "format": ISO},
            {"type": "TimestampConverter$Value", "field": "a", "target.type": "Timestamp"},
            {"type": "Cast$Value", "spec": "a:string"},
            {"type": "Flatten$Value", "delimiter": "_"},
            {"type": "HoistField$Value", "field": "h"},
            {"type": "ExtractField$Value", "field": "a"},
            {"type": "ValueToKey", "fields": "a"},
            {"type": "MaskField$Key", "fields": "a"},
            {"type": "Filter", "predicate": {"type": "Condition", "when": {"key": "value.b", "exists": True}}},
            {"type": "RegexRouter", "regex": "a\\.(.*)", "replacement": "c.$1"},
        ]
    )
)  # fmt: skip
GUARDS = st.sampled_from(
    [
        None,
        {"type": "TopicNameMatches", "pattern": "a\\..*"},
        {"type": "Condition", "when": {"key": "value.a", "exists": True}},
    ]
)


def guarded(stages: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> Chain:
    return Chain.from_route(
        [
            {"name": f"s{at}", **stage, **({"predicate": guard} if guard and "predicate" not in stage else {})}
            for at, (stage, guard) in enumerate(stages)
        ]
    )


def batch_of(texts: list[bytes | None]) -> Batch:
    rows = rows_of(len(texts))
    values, errors = JSON.decode(rows, texts)
    keys, _ = JSON.decode(rows, [None if text is None or row in errors else text for row, text in enumerate(texts)])
    batch = Batch(
        [TOPICS[row % 2] for row in range(len(texts))],
        [None if row % 3 == 0 else row for row in range(len(texts))],
        None,
        [None if row % 5 == 0 else Milliseconds(row) for row in range(len(texts))],
        keys,
        values,
        Headers(len(texts)),
    )
    batch.filter(np.array(sorted(errors), np.intp))
    return batch


def written(side: list[Block]) -> dict[int, bytes | str | None]:
    texts: dict[int, bytes | str | None] = {}
    for block in side:
        try:
            texts |= dict(zip(block.rows.tolist(), JSON.encode(block), strict=True))
        except EncodeErrors as errors:
            texts |= dict(zip(block.rows.tolist(), errors.texts, strict=True))
            texts |= {int(block.rows[index]): str(error) for index, error in errors.errors.items()}
    return texts


def outcome(chain: Chain, texts: list[bytes | None]) -> tuple[object, ...]:
    batch = batch_of(texts)
    ChainRunner(chain).apply(batch)
    return batch.outcomes.tolist(), batch.failures, batch.topics, written(batch.key), written(batch.value)


def unmixed() -> Any:
    """Without mixed blocks: a block for each shape."""
    return patch.object(plain_json, "SMALL", 0)


@given(st.lists(TEXTS, max_size=30), st.lists(st.tuples(STAGES, GUARDS), max_size=4))
def test_mixed_objects_come_out_as_those_of_each_shape(
    texts: list[bytes | None], stages: list[tuple[dict[str, Any], dict[str, Any] | None]]
) -> None:
    """Bytes, failures and topics are equal for any JSON: names twice, escapes, large numbers, broken texts."""
    chain = guarded(stages)
    fast = outcome(chain, texts)

    with unmixed():
        plain = outcome(chain, texts)

    assert plain == fast


@given(st.lists(TEXTS, max_size=30))
def test_each_text_is_read_and_written_as_it_is_alone(texts: list[bytes | None]) -> None:
    """Neighbours of other shapes change nothing: a text that fails alone fails here, and the others are equal."""
    together, errors = JSON.decode(rows_of(len(texts)), texts)
    alone = [JSON.decode(rows_of(1), [text]) for text in texts]

    assert {row: str(failed[0]) for row, (_, failed) in enumerate(alone) if failed} == {
        row: str(error) for row, error in errors.items()
    }
    assert {row: written(single)[0] for row, (single, failed) in enumerate(alone) if not failed} == written(together)


def of_own_shapes(count: int) -> list[bytes | None]:
    return [json.dumps({f"n{row}": row, "at": row, "a": "x"}).encode() for row in range(count)]


@pytest.mark.parametrize("count", [500, 4_000])
def test_work_by_shape_does_not_grow_with_the_shapes(count: int) -> None:
    """However many shapes there are, a stage plans and runs once for each batch, and there is one block."""
    chain = guarded(
        [
            ({"type": "InsertField$Value", "static.field": "set", "static.value": "x"}, None),
            ({"type": "ReplaceField$Value", "renames": "a:b"}, None),
            ({"type": "MaskField$Value", "fields": "b"}, None),
            ({"type": "TimestampConverter$Value", "field": "at", "target.type": "Timestamp"}, None),
        ]
    )
    calls: list[str] = []
    run = StageRunner._run

    def counted(self: StageRunner, *arguments: Any) -> list[Block]:
        calls.append(self.stage.name)
        return run(self, *arguments)

    with patch.object(StageRunner, "_run", counted):
        batch = batch_of(of_own_shapes(count))
        ChainRunner(chain).apply(batch)

    assert [len(batch.value), calls] == [1, ["s0", "s2", "s3"]]
    assert len(written(batch.value)) == count


def test_whole_objects_are_copies() -> None:
    """A copy taken between two stages does not change: stages change the objects of a mixed block in place."""
    batch = batch_of(of_own_shapes(3))
    before = batch.record(1).value

    ChainRunner(guarded([({"type": "MaskField$Value", "fields": "a"}, None)])).apply(batch)

    assert (before, batch.record(1).value) == ({"n1": 1, "at": 1, "a": "x"}, {"n1": 1, "at": 1, "a": ""})


def test_a_transform_that_has_to_know_the_shape_gets_one_at_a_time() -> None:
    """Mixed blocks are split before a transform that says nothing of them."""
    seen: list[Any] = []
    plan = ReplaceField.plan

    def seeing(self: ReplaceField, shape: Any) -> Any:
        seen.append(shape.names)
        return plan(self, shape)

    with patch.object(ReplaceField, "plan", seeing), patch.object(ReplaceField, "mixed", Transform.mixed):
        ChainRunner(guarded([({"type": "ReplaceField$Value", "exclude": "at"}, None)])).apply(
            batch_of(of_own_shapes(2))
        )

    assert sorted(seen) == [("n0", "at", "a"), ("n1", "at", "a")]
