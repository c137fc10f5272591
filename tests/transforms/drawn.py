"""Strategies for the comparison with Kafka's classes: schemas, records, configurations, predicates."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from turnout.records import BigInt, Field, Float32, Header, Int8, Int16, Int32, Moment, Record, Schema
from turnout.records.schema import DATE, DECIMAL, TIME, TIMESTAMP
from turnout.transforms.registry import RELEASED

T = "org.apache.kafka.connect.transforms."
P = T + "predicates."
DAY = 86_400_000
NAMES = ("a", "b", "c", "d", "e.f", "e", "f", "ä")
TOPICS = ("orders", "orders.eu", "a.b.c", "x-1", "foo", "", "Ünï")

names = st.sampled_from(NAMES)
_topics = st.sampled_from(TOPICS)


def _single(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


floats = st.sampled_from(
    [0.0, -0.0, 1.0, 0.1, -3.75, 1e7, 1e10, 1e-7, 123456.789, 1e300, 2.0**63, float("nan"), float("inf"), -5e9]
)
singles = st.sampled_from([_single(n) for n in (0.0, -0.0, 1.0, 0.1, -3.75, 1e10, 1e-7)] + [float("nan")])
texts = st.sampled_from(
    ["", "x", "12", "-7", "true", "TRUE", " 5", "1.5", "300", "2013-01-01", "2013-13-45 25:61:61", "ünï \U0001f680"]
)
decimals = st.sampled_from([Decimal(text) for text in ("0", "1.50", "-12.345", "5E+3", "1E-9", "12345678901234567890")])
moments = st.sampled_from([0, 1, -1, 1_356_998_400_123, 15_730 * DAY, DAY, 61_000]).map(Moment)
blobs = st.sampled_from([b"", b"\x00\xff", b"text"])


def _integers(bits: int) -> st.SearchStrategy[int]:
    half = 1 << bits - 1
    return st.sampled_from([0, 1, -1, 5, 100, half - 1, -half])


# --- with schema ------------------------------------------------------------------------------------------------------

_PLAIN: dict[str, Any] = {
    "int8": _integers(8),
    "int16": _integers(16),
    "int32": _integers(32),
    "int64": _integers(64),
    "float32": singles,
    "float64": floats,
    "boolean": st.booleans(),
    "string": texts,
    "bytes": blobs,
}
_LOGICAL = {
    DATE: ("int32", st.sampled_from([0, 1, 15_730, -1]).map(lambda day: Moment(day * DAY))),
    TIME: ("int32", st.sampled_from([0, 1, 61_000, DAY - 1]).map(Moment)),
    TIMESTAMP: ("int64", moments),
    DECIMAL: ("bytes", decimals),
}


@st.composite
def _scalar(draw: st.DrawFn) -> Schema:
    if draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(sorted(_LOGICAL)))
        parameters = (("scale", "2"),) if name == DECIMAL else ()
        schema = Schema(_LOGICAL[name][0], name=name, version=1, parameters=parameters)
    else:
        named = draw(st.sampled_from([None, None, None, "Named"]))
        doc = draw(st.sampled_from([None, None, "about it"]))
        schema = Schema(draw(st.sampled_from(sorted(_PLAIN))), name=named, doc=doc)
    schema = schema.with_(optional=draw(st.booleans()))
    default = draw(value_of(schema)) if draw(st.integers(0, 3)) == 0 else None
    return schema.with_(default=default)


@st.composite
def _schema(draw: st.DrawFn, depth: int = 2) -> Schema:
    kind = draw(st.integers(0, 9))
    if depth == 0 or kind > 2:
        return draw(_scalar())
    optional = draw(st.booleans())
    if kind == 0:
        return Schema("array", optional, values=draw(_schema(depth - 1)))
    if kind == 1:
        return Schema("map", optional, keys=Schema("string"), values=draw(_schema(depth - 1)))
    return draw(structs(depth - 1))


@st.composite
def structs(draw: st.DrawFn, depth: int = 2) -> Schema:
    """A struct's schema, without a default of its own."""
    chosen = draw(st.lists(names, max_size=5, unique=True))
    return Schema(
        "struct",
        draw(st.booleans()),
        name=draw(st.sampled_from([None, "Struct"])),
        version=draw(st.sampled_from([None, 3])),
        doc=draw(st.sampled_from([None, "a struct"])),
        fields=tuple(Field(name, draw(_schema(depth))) for name in chosen),
    )


@st.composite
def value_of(draw: st.DrawFn, schema: Schema, *, stored: bool = True) -> Any:
    """Draw a value of a schema; a null may be stored in a required field too, unless it was set explicitly."""
    if schema.optional and draw(st.integers(0, 3)) == 0:
        return None
    if stored is False and schema.default is not None and draw(st.booleans()):
        return None
    if schema.name in _LOGICAL:
        return draw(_LOGICAL[schema.name][1])
    if schema.type == "struct":
        return {field.name: draw(value_of(field.schema, stored=False)) for field in schema.fields}
    if schema.type == "array":
        assert schema.values is not None
        return [draw(value_of(schema.values)) for _ in range(draw(st.integers(0, 2)))]
    if schema.type == "map":
        assert schema.values is not None
        return {key: draw(value_of(schema.values)) for key in draw(st.lists(names, max_size=2, unique=True))}
    return draw(_PLAIN[schema.type])


# --- schemaless -------------------------------------------------------------------------------------------------------

_LEAF = st.one_of(
    st.none(),
    st.booleans(),
    _integers(64),
    floats,
    texts,
    blobs,
    decimals,
    moments,
    _integers(8).map(Int8),
    _integers(16).map(Int16),
    _integers(32).map(Int32),
    singles.map(Float32),
    st.sampled_from([0, 10**30]).map(BigInt),
)
_keys = st.one_of(names, names, names, names, names, st.sampled_from([7, Int32(7)]))
schemaless = st.recursive(
    _LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(names, inner, max_size=3),
        st.dictionaries(_keys, inner, max_size=2),
    ),
    max_leaves=5,
)
maps = st.dictionaries(names, schemaless, max_size=5)


# --- records ----------------------------------------------------------------------------------------------------------


@st.composite
def _sides(draw: st.DrawFn, count: int) -> list[tuple[Schema | None, Any]]:
    """Keys or values of several records: mostly objects, of one or two schemas or none."""
    kind = draw(st.integers(0, 9))
    if kind < 5:
        schemas = draw(st.lists(structs(), min_size=1, max_size=2))
        chosen = [draw(st.sampled_from(schemas)) for _ in range(count)]
        return [(schema, draw(value_of(schema, stored=False))) for schema in chosen]
    if kind < 9:
        some = st.one_of(maps, maps, maps, schemaless)
        return [(None, draw(some)) for _ in range(count)]
    schema = draw(_schema())
    return [(schema, draw(value_of(schema))) for _ in range(count)]


@st.composite
def batches(draw: st.DrawFn) -> list[Record]:
    """Records of a topic's kind: few schemas, some headers, nulls among them."""
    count = draw(st.integers(1, 5))
    keys, values = draw(_sides(count)), draw(_sides(count))
    headers = st.lists(
        st.builds(Header, st.sampled_from(["h", "x", "y"]), schemaless.filter(lambda one: one is not None)), max_size=2
    )
    return [
        Record(
            draw(_topics),
            None if draw(st.integers(0, 9)) == 0 else value,
            key,
            draw(headers),
            draw(st.sampled_from([0, 3])),
            at,
            draw(st.sampled_from([None, 0, 1_356_998_400_123, 1_356_998_400_123])),
            key_schema,
            value_schema,
        )
        for at, ((key_schema, key), (value_schema, value)) in enumerate(zip(keys, values, strict=True))
    ]


# --- configurations ---------------------------------------------------------------------------------------------------

_lists = st.lists(names, min_size=1, max_size=3).map(",".join)
_nulls = st.sampled_from(["true", "true", "false"])
_types = st.sampled_from(["int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string"])
_patterns = st.sampled_from(
    [".*", "orders.*", "foo|bar", "([a-z]+)\\.(.*)", "(?i)ORDERS", "a|ab", "(\\w+)", "(?<n>.)(.*)", "(?u)\\w+", "x*+x"]
)
_formats = st.sampled_from(["yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "HH:mm:ss.SSS", "yyyyMMdd", "EEE, d MMM yyyy z"])
_literals = st.sampled_from(
    [
        *("", "1", "300", "1.5", "x", "true", "null", "[1, 2]", "[null,1]", '{"a": 1}', '{"a":null,"b":1}', "1e400"),
        *("[12:30:00.123Z ]", "2013-01-01", "12:30:00.123Z", "[a]", "1,000", "10:20", '["x", "y"]', "[1.5, 2]", "1e3"),
    ]
)


def _of(**options: Any) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({name.replace("_", "."): draws for name, draws in options.items()})


def _some(**options: Any) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={name.replace("_", "."): draws for name, draws in options.items()})


def _both(one: st.SearchStrategy[dict[str, str]], other: st.SearchStrategy[dict[str, str]]) -> Any:
    return st.tuples(one, other).map(lambda pair: {**pair[0], **pair[1]})


_pairs = st.lists(st.tuples(names, names).map(":".join), min_size=1, max_size=3).map(",".join)
_specs = st.one_of(_types, st.lists(st.tuples(names, _types).map(":".join), min_size=1, max_size=3).map(",".join))
_rdn = _some(replace_null_with_default=_nulls)
_suffixed = st.tuples(names, st.sampled_from(["", "?", "!"])).map("".join)

OPTIONS: dict[str, Any] = {
    "Cast": _both(_of(spec=_specs), _rdn),
    "ExtractField": _both(
        st.one_of(
            _of(field=names),
            st.fixed_dictionaries(
                {
                    "field": st.lists(st.sampled_from(["a", "b", "c", "`e.f`", "e", ""]), min_size=1, max_size=3).map(
                        ".".join
                    ),
                    "field.syntax.version": st.just("V2"),
                }
            ),
        ),
        _rdn,
    ),
    "Flatten": _some(delimiter=st.sampled_from([".", "_", "", "::"])),
    "HeaderFrom": _both(
        st.integers(1, 2).flatmap(
            lambda n: _of(
                fields=st.lists(names, min_size=n, max_size=n).map(",".join),
                headers=st.lists(st.sampled_from(["h", "z"]), min_size=n, max_size=n).map(",".join),
                operation=st.sampled_from(["move", "copy"]),
            )
        ),
        _rdn,
    ),
    "HoistField": _of(field=st.one_of(names, st.just(""))),
    "InsertField": _both(
        _some(
            topic_field=_suffixed,
            partition_field=_suffixed,
            offset_field=_suffixed,
            timestamp_field=_suffixed,
            static_field=_suffixed,
            static_value=texts,
        ),
        _rdn,
    ),
    "MaskField": _both(
        _both(
            _of(fields=_lists),
            _some(replacement=st.sampled_from(["7", "-7.25", "300", "1e3", "x", "1.29e2", "99999999999999999999"])),
        ),
        _rdn,
    ),
    "ReplaceField": _both(_some(exclude=_lists, include=_lists, renames=_pairs), _rdn),
    "SetSchemaMetadata": _both(
        _some(schema_name=st.sampled_from(["New", "", "Ünï"]), schema_version=st.sampled_from(["9", "0"])), _rdn
    ),
    "TimestampConverter": _both(
        _both(
            _of(target_type=st.sampled_from(["string", "unix", "Date", "Time", "Timestamp"])),
            _some(
                field=names,
                format=_formats,
                unix_precision=st.sampled_from(["seconds", "milliseconds", "microseconds", "nanoseconds"]),
            ),
        ),
        _rdn,
    ),
    "DropHeaders": _of(headers=st.sampled_from(["h", "x,y", "h,z"])),
    "Filter": st.just({}),
    "InsertHeader": st.fixed_dictionaries({"header": st.sampled_from(["h", "n"]), "value.literal": _literals}),
    "RegexRouter": _of(
        regex=_patterns, replacement=st.sampled_from(["$1", "$2-$1", "x", "", "${n}", "\\$1", "$0$0", "$", "a\\"])
    ),
    "TimestampRouter": _some(
        topic_format=st.sampled_from(["${topic}-${timestamp}", "x", "${timestamp}${timestamp}"]),
        timestamp_format=_formats,
    ),
    "ValueToKey": _both(_of(fields=_lists), _rdn),
}
"""Options of each transform that Kafka ships; one without an entry here fails every comparison."""

CONFIGS: dict[str, st.SearchStrategy[dict[str, str]]] = {
    label: OPTIONS[name].map(lambda drawn_options, t=label: {"type": T + t, **drawn_options})
    for name, kind in RELEASED.items()
    for label in ([f"{name}$Key", f"{name}$Value"] if kind.sided else [name])
}
predicates = st.one_of(
    st.none(),
    _patterns.map(lambda pattern: {"type": P + "TopicNameMatches", "pattern": pattern}),
    st.sampled_from(["h", "x", "z"]).map(lambda name: {"type": P + "HasHeaderKey", "name": name}),
    st.just({"type": P + "RecordIsTombstone"}),
)


def stages(config: st.SearchStrategy[dict[str, str]]) -> st.SearchStrategy[dict[str, Any]]:
    """A transform with or without a predicate."""
    return st.fixed_dictionaries({"transform": config, "predicate": predicates, "negate": st.booleans()})
