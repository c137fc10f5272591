"""Fields of structs and of nested objects."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transforms.drawn import structs, value_of

from turnout.codecs import parse_ddl
from turnout.errors import ConfigError, RecordError
from turnout.records import Block, Failure, Field, Moment, Record, Schema, Struct
from turnout.records.schema import DATE, DECIMAL
from turnout.transforms import Chain
from turnout.transforms.base import Errors
from turnout.transforms.fields import Memo, convert, copied, default_value, read, store
from turnout.transforms.schemas import unknown_fields

OPTIONAL = Field("a", Schema("int32", optional=True, default=7))


def block(column: list[Any], field: Field, *, checked: bool = True) -> Block:
    schema = Schema("struct", fields=(field,))
    return Block(np.arange(len(column)), schema, columns={field.name: column}, checked=checked)


def test_nulls_are_read_as_defaults() -> None:
    """Nulls are replaced if the option is set."""
    values = block([1, None], OPTIONAL)

    assert read(values, OPTIONAL) == [1, 7]
    assert read(values, OPTIONAL, defaults=False) == [1, None]


def test_a_column_without_nulls_is_not_copied() -> None:
    """A column without nulls is returned as it is."""
    column = [1, 2]

    assert column is read(block(column, OPTIONAL), OPTIONAL)


def test_defaults_of_dates_are_moments() -> None:
    """A default is milliseconds in a schema, and a date object where it is read."""
    default = default_value(Schema("int32", name=DATE, default=86_400_000))

    assert (Moment, 86_400_000) == (type(default), default)


def test_a_null_in_a_required_field_is_told_by_its_place() -> None:
    """A default does not help."""
    errors: Errors = {}
    copied(block([1, None, 3], Field("a", Schema("int32", default=7))), errors, defaults=False)

    assert list(errors) == [1]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema("int8"), 128),
        (Schema("int32"), True),
        (Schema("int32", name=DATE), 5),
        (Schema("bytes", name=DECIMAL), b""),
        (Schema("string"), 1),
        (Schema("float64"), 1),
        (Schema("array", values=Schema("string")), [None]),
        (Schema("map", keys=Schema("string"), values=Schema("int32")), {"a": "b"}),
        (Schema("map", keys=Schema("string"), values=Schema("int32")), {1: 1}),
        (Schema("struct", fields=(Field("x", Schema("int32")),)), {"x": None}),
        (Schema("struct", fields=(Field("x", Schema("int32")),)), Struct(Schema("struct"), {})),
    ],
)
def test_unchecked_values_must_fit_their_schema(schema: Schema, value: Any) -> None:
    """The rules are those of ``ConnectSchema.validateValue``; values checked by a codec are not checked again."""
    errors: Errors = {}
    store(Field("a", schema), [value], errors, checked=False)
    checked: Errors = {}
    store(Field("a", schema), [value], checked)

    assert (list(errors), list(checked)) == ([0], [])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (Schema("int8"), -128),
        (Schema("bytes", name=DECIMAL), Decimal("1.234")),
        (Schema("array"), [1, "x"]),
        (Schema("struct", fields=(Field("x", Schema("int32", default=1)),)), {"x": None}),
    ],
)
def test_what_fits_is_stored(schema: Schema, value: Any) -> None:
    """The scale of a decimal is not checked, nor is a null that was never stored."""
    errors: Errors = {}
    store(Field("a", schema), [value], errors, checked=False)

    assert not errors


def failing(value: Any) -> Any:
    if value == "bad":
        raise RecordError("bad")
    return f"{type(value).__name__} {value}"


@pytest.mark.parametrize("function", [failing, Memo(failing)])
def test_what_cannot_be_converted_is_told_by_its_place(function: Any) -> None:
    """All others are converted, and nulls stay."""
    errors: Errors = {}
    converted = convert(["x", None, "bad", "x", "bad"], function, errors)

    assert (converted, list(errors)) == (["str x", None, None, "str x", None], [2, 4])


def test_a_memo_keeps_types_apart() -> None:
    """1, 1.0 and true are three values, and so are 0.0 and -0.0."""
    memo = Memo(failing)
    columns: list[list[Any]] = [[1, 1], [1.0], [True], [Moment(1)], [0.0, -0.0, 0.0], [1, 1.0, True]]

    converted = [convert(column, memo, {}) for column in columns]

    assert [[failing(value) for value in column] for column in columns] == converted


def test_a_memo_computes_what_repeats_once() -> None:
    """Across the columns that it is asked for."""
    requested: list[str] = []
    memo = Memo(lambda value: requested.append(value) or value.upper())

    assert [convert(column, memo, {}) for column in (["a", "b", "a"], ["b"])] == [["A", "B", "A"], ["B"]]
    assert requested == ["a", "b"]


def test_a_memo_stays_small_and_gives_up() -> None:
    """The results are also correct if no value repeats."""
    memo = Memo(lambda value: value + 1)
    for start in range(0, 120_000, 10_000):
        column = list(range(start, start + 10_000))

        assert list(range(start + 1, start + 10_001)) == convert(column, memo, {})
    assert convert([None, 5], memo, {}) == [None, 6]


FLAT: dict[str, tuple[dict[str, str], ...]] = {
    "Cast": ({"spec": "{}a:string,{}b:int64"}, {"spec": "{}c:float64"}),
    "MaskField": ({"fields": "{}a,{}b"}, {"fields": "{}c", "replacement": "7"}),
    "ReplaceField": ({"exclude": "{}a"}, {"include": "{}a,{}b"}, {"renames": "{}a:x,{}b:y", "exclude": "{}c"}),
    "TimestampConverter": ({"field": "{}a", "target.type": "unix"}, {"field": "{}b", "target.type": "Timestamp"}),
    "InsertField": ({"topic.field": "{}t", "offset.field": "{}o!"}, {"partition.field": "{}a"}),
    "HoistField": ({"hoisted": "{}a", "field": "w"}, {"hoisted": "{}b", "field": "a"}),
}
STAGES = [(name, options) for name, drawn in FLAT.items() for options in drawn]


def stage(name: str, options: dict[str, str], parent: str) -> Chain:
    at = {option: text.replace("{}", parent) for option, text in options.items()}
    return Chain.from_route([{"type": f"{name}$Value", **at, "field.syntax.version": "V2"}])


def record(value: object, schema: Schema | None = None) -> Record:
    return Record("orders", value=value, value_schema=schema, partition=3, offset=7)


@given(
    chosen=st.sampled_from(STAGES),
    values=st.lists(
        st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["x", "12", 5, 1.5, True, None])), max_size=6
    ),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_path_does_inside_of_an_object_what_a_name_does_at_the_root(
    chosen: tuple[str, dict[str, str]], values: list[dict[str, Any]]
) -> None:
    """Schemaless, in batches of several shapes, two steps down; only `include` drops what is beside the object."""
    name, options = chosen
    flat = stage(name, options, "").apply([record(value) for value in values])
    nested = stage(name, options, "p.`q.r`.").apply([record({"n": 1, "p": {"q.r": value}}) for value in values])

    for one, other in zip(flat, nested, strict=True):
        if isinstance(one, Record):
            assert isinstance(other, Record)
            beside = {} if "include" in options else {"n": 1}
            assert other.value == {**beside, "p": {"q.r": one.value}}
            assert list(other.value["p"]["q.r"]) == list(one.value)
        else:
            assert isinstance(other, Failure)
            assert isinstance(one, Failure)
            assert other.message == one.message


@given(chosen=st.sampled_from(STAGES), data=st.data())
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
def test_the_same_with_a_schema(chosen: tuple[str, dict[str, str]], data: st.DataObject) -> None:
    """The struct inside gets the schema that it would get at the root, and stays as optional as it was."""
    name, options = chosen
    schema = data.draw(structs(1)).with_(default=None)
    values = data.draw(st.lists(value_of(schema).filter(lambda value: value is not None), max_size=3))
    outer = Schema("struct", fields=(Field("n", Schema("int64")), Field("p", schema)))
    flat = stage(name, options, "").apply([record(value, schema) for value in values])
    nested = stage(name, options, "p.").apply([record({"n": 1, "p": value}, outer) for value in values])

    for one, other in zip(flat, nested, strict=True):
        if isinstance(other, Record):
            assert isinstance(one, Record)
            assert one.value_schema is not None
            assert other.value_schema is not None
            assert other.value_schema.field("p") == one.value_schema.with_(optional=schema.optional)
            assert repr(other.value["p"]) == repr(one.value)
        else:
            assert isinstance(one, Failure)


def test_a_struct_with_a_default_cannot_change_inside() -> None:
    """Its default would have the old types."""
    inner = Schema("struct", fields=(Field("a", Schema("string")),))
    outer = Schema("struct", fields=(Field("p", inner),), default={"p": {"a": "1"}})
    (outcome,) = stage("Cast", {"spec": "{}a:int64"}, "p.").apply([record({"p": {"a": "1"}}, outer)])

    assert isinstance(outcome, Failure)
    assert "a struct with a default cannot change inside" in outcome.message


def test_a_predicate_leaves_the_others_as_they_are() -> None:
    """This holds even if the schema of the others changes."""
    chain = Chain.from_route(
        [
            {
                "type": "Cast$Value",
                "spec": "p.a:int64",
                "field.syntax.version": "V2",
                "predicate": {"type": "TopicNameMatches", "pattern": "yes"},
            }
        ]
    )
    schema = parse_ddl("p STRUCT<a: STRING>").schema
    given = [Record(topic, value={"p": {"a": "1"}}, value_schema=schema) for topic in ("yes", "no", "yes")]

    values = [outcome.value if isinstance(outcome, Record) else None for outcome in chain.apply(given)]

    assert values == [{"p": {"a": 1}}, {"p": {"a": "1"}}, {"p": {"a": 1}}]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"type": "MaskField$Value", "fields": "a.b,a"}, "expected fields that are not nested"),
        ({"type": "MaskField$Value", "fields": "a.`b"}, "the backtick opened at position 2 of 'a.`b' is never closed"),
        ({"type": "ReplaceField$Value", "renames": "a.b:c.d"}, "expected a new name for 'a.b' in the same object"),
        ({"type": "ValueToKey", "fields": "a.x,b.x"}, "two are named 'x'"),
        ({"type": "InsertField$Value", "static.field": "!", "static.value": "a"}, "found an empty path"),
        ({"type": "Cast$Value", "spec": "a:string", "field.syntax.version": "V3"}, "expected one of V1, V2"),
    ],
)
def test_paths_that_cannot_be_meant_are_mistakes(options: dict[str, str], problem: str) -> None:
    """They are found while the chain is built, with the option's name."""
    with pytest.raises(ConfigError, match=problem.replace(".", r"\.").replace("`", "`")) as raised:
        Chain.from_route([{"field.syntax.version": "V2", **options}])

    assert raised.value.mistakes[0].path.startswith("transforms[0].")


def test_check_looks_nested_fields_up() -> None:
    """A mistyped step is named with the fields that there are in its object."""
    schema = parse_ddl("card STRUCT<number: STRING, owner: STRING>").schema
    chain = Chain.from_route([{"type": "MaskField$Value", "fields": "card.nubmer", "field.syntax.version": "V2"}])

    problems = [mistake.problem for mistake in unknown_fields(chain, None, schema, {})]

    assert problems == [
        "no value has a field 'card.nubmer' at that point; there are number, owner; did you mean \"number\"?"
    ]
