"""Matching on Spark finds what the interpreter says, each subscription once, without a shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.conditions.strategies import conditions, messages
from tests.examples import drawn

from turnout.conditions import Condition, all_of, any_of, compare, evaluate, exists, kiwi, not_
from turnout.errors import ConfigError
from turnout.spark.frames import match
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.stores.memory import MemoryStore

SCHEMA = """topic string, offset long, key string, value struct<a:string,n:double,rest:interval second>,
    headers array<struct<key:string,value:binary>>, place struct<city:string>"""


def record(
    offset: int, topic: str = "t", key: Any = None, value: Any = None, **headers: str | bytes
) -> tuple[Any, ...]:
    pairs = [(k, v if isinstance(v, bytes) else v.encode()) for k, v in headers.items()]
    return (topic, offset, key, value, pairs, ("Oulu",))


def snapshot(*stored_conditions: Condition) -> Snapshot:
    return Snapshot(
        tuple(Subscription((f"d{n}",), condition, id=f"s{n}") for n, condition in enumerate(stored_conditions))
    )


def named(stored_conditions: Mapping[str, Condition]) -> Snapshot:
    return Snapshot(tuple(Subscription(("d",), condition, id=name) for name, condition in stored_conditions.items()))


def ids(frame: DataFrame) -> set[str]:
    return {row["subscription_id"] for row in frame.collect()}


def test_is_the_interpreter(spark: SparkSession) -> None:
    """Hundreds of random conditions on a hundred messages: exactly the pairs that the interpreter finds."""
    stored_conditions, given_messages = drawn(conditions, 200), drawn(messages, 100)
    rows = [(n, [(key, value.encode()) for key, value in message.items()]) for n, message in enumerate(given_messages)]
    records = spark.createDataFrame(rows, "n int, headers array<struct<key:string,value:binary>>")
    expected = [
        (n, f"s{m}", f"d{m}")
        for n, message in enumerate(given_messages)
        for m, condition in enumerate(stored_conditions)
        if evaluate(condition, message)
    ]

    matched = match(records, snapshot(*stored_conditions)).select("n", "subscription_id", "destination").collect()

    assert sorted(expected) == sorted(map(tuple, matched))


def test_what_conditions_see(spark: SparkSession) -> None:
    """The topic under both names, the key, headers and listed paths; a path wins over a header of its name."""
    conditions = {
        "topic": kiwi("topic", "a.b"),
        "subject": kiwi("subject", "a.*"),
        "key": kiwi("key", "k1"),
        "header": kiwi("h", "né"),
        "last": kiwi("twice", "second"),
        "path": kiwi("a", "from value"),
        "number": kiwi("n", "1.5"),
        "other column": kiwi("city", "Oulu"),
        "offset": kiwi("at", "1"),
        "not utf-8": not_(kiwi("bad", "*")),
        "below a prefix": kiwi("all.city", "Oulu"),
        "of a kind": all_of(compare("n:number", "=", 1.5), kiwi("all.city:text", "Oulu"), kiwi("key:text", "k1")),
        "of a listed kind": all_of(kiwi("text", "from value"), not_(exists("number"))),
        "of another kind": any_of(exists("n:text"), exists("a:number"), exists("all.city:boolean")),
        "any path": all_of(kiwi("*", "from value"), kiwi("*", "1.5"), kiwi("*", "Oulu")),
        "any part": all_of(kiwi("*", "a.b"), kiwi("*", "k1"), kiwi("*", "né"), kiwi("*", "second")),
        "any is first": all_of(kiwi("*", "first"), kiwi("*", "a.b")),
        "header hidden": kiwi("a", "from header"),
        "hidden from any": kiwi("*", "from header"),
        "first": kiwi("twice", "first"),
    }
    headers: dict[str, str | bytes] = {"h": "né", "bad": b"\xff", "a": "from header"}
    row = record(1, "a.b", "k1", ("from value", 1.5, None), **headers)
    twice = [("twice", b"first"), ("twice", b"second")]
    records = spark.createDataFrame([(*row[:4], row[4] + twice, row[5])], SCHEMA)

    paths = {"a": "value.a", "n": "value.n", "city": "place.city", "at": "offset", "all.*": "place.*"}
    paths |= {"text": "value.a:text", "number": "value.a:number"}

    matched = match(records, named(conditions), paths)

    wrong = {"header hidden", "hidden from any", "first", "any is first", "of another kind"}
    assert set(conditions) - wrong == ids(matched)


def test_each_destination_has_a_row(spark: SparkSession) -> None:
    """The other columns are copied unchanged to each row; an unmatched record has no row."""
    subscriptions = [Subscription(("x", "y"), kiwi("topic", f"t{n}"), id=f"s{n}") for n in (1, 2)]
    everything = Subscription(("z",), not_(kiwi("topic", "t3")), id="z")
    records = spark.createDataFrame([record(n, f"t{n}") for n in range(1, 4)], SCHEMA)

    matched = match(records, Snapshot((*subscriptions, everything)))
    rows = matched.collect()

    assert [*records.columns, "subscription_id", "destination"] == matched.columns
    assert sorted((row["offset"], row["subscription_id"], row["destination"]) for row in rows) == [
        (1, "s1", "x"), (1, "s1", "y"), (1, "z", "z"), (2, "s2", "x"), (2, "s2", "y"), (2, "z", "z"),
    ]  # fmt: skip
    kept = {row["offset"]: row for row in records.collect()}
    assert all(kept[row["offset"]].asDict().items() <= row.asDict().items() for row in rows)


def test_the_subscriptions_are_those_of_the_call(spark: SparkSession) -> None:
    """A store is asked once; who wants later ones asks again."""
    store = MemoryStore(Subscription(("d",), kiwi("k", f"v{n}"), id=f"s{n}") for n in range(3))
    records = spark.createDataFrame([record(n, k=f"v{n}") for n in range(4)], SCHEMA)

    before = match(records, store)
    store.delete("s1")
    store.create(Subscription(("d",), kiwi("k", "v3"), id="s3"))

    assert ids(before) == {"s0", "s1", "s2"}
    assert ids(match(records, store)) == {"s0", "s2", "s3"}


def test_no_subscriptions_want_nothing(spark: SparkSession) -> None:
    """An empty store is no mistake."""
    assert match(spark.createDataFrame([record(1)], SCHEMA), Snapshot(())).collect() == []


def test_variants_and_binary_keys(spark: SparkSession) -> None:
    """Paths lead into variants and maps; a key of bytes is its text."""
    records = spark.sql("""SELECT 't' topic, cast('k' as binary) key, map('x.y', 5) counts,
        parse_json('{"a": {"b c": 7}, "t": true, "n": null, "o": {"x": [1, "two"]}, "f": 1.50}') value""")
    conditions = {
        "deep": kiwi("deep", "7"),
        "true": kiwi("t", "true"),
        "null": not_(kiwi("n", "*")),
        "nested": kiwi("o", '{"x":[[]1,"two"]}'.replace("[[]", "[")),
        "fraction": kiwi("f", "1.5"),
        "map": kiwi("xy", "5"),
        "key": kiwi("key", "k"),
    }
    paths = {
        "deep": "value.a.b c",
        "t": "value.t",
        "n": "value.n",
        "o": "value.o",
        "f": "value.f",
        "xy": "counts.`x.y`",
    }

    assert set(conditions) == ids(match(records, named(conditions), paths))


def test_streaming_frames_are_matched(spark: SparkSession) -> None:
    """A stream of records is one of deliveries."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 4).load()
    records = ticks.selectExpr("concat('t', value) topic", "timestamp", "value n")
    matched = match(records, snapshot(kiwi("topic", "t1"), kiwi("topic", "t?")))
    query = matched.writeStream.format("memory").queryName("matched").trigger(once=True).start()
    query.awaitTermination()

    rows = spark.table("matched").collect()

    assert sorted((row["n"], row["subscription_id"]) for row in rows) == [
        (0, "s1"), (1, "s0"), (1, "s1"), (2, "s1"), (3, "s1"),
    ]  # fmt: skip


def test_refuses_paths_that_lead_nowhere(spark: SparkSession) -> None:
    """Every path that the records cannot have is named, with what they have."""
    records = spark.createDataFrame([record(1)], SCHEMA)
    paths = {"a": "valeu.a", "b": "topic.b", "c": "value.rest", "d": "value.`a", "fine": "value.a"}

    with pytest.raises(ConfigError) as caught:
        match(records, snapshot(kiwi("a", "x")), paths)

    assert [mistake.path for mistake in caught.value.mistakes] == [f"metadata.{name}" for name in "abcd"]


def test_no_row_changes_its_partition(spark: SparkSession) -> None:
    """Records go to the index and not the other way round."""
    subscriptions = snapshot(all_of(kiwi("h", "a*"), kiwi("topic", "t", partial=True)))
    plan = match(spark.createDataFrame([record(1, h="abc")], SCHEMA), subscriptions)._jdf.queryExecution()

    text = plan.executedPlan().toString()

    assert "MapInArrow" in text
    assert "Exchange" not in text
    assert "Join" not in text


@pytest.fixture(params=["false", "true"])
def case_sensitive(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[bool]:
    """Return Spark's rule for names, set for the session."""
    before = spark.conf.get("spark.sql.caseSensitive")
    assert before is not None
    spark.conf.set("spark.sql.caseSensitive", request.param)
    yield request.param == "true"
    spark.conf.set("spark.sql.caseSensitive", before)


def test_names_in_another_case(spark: SparkSession, case_sensitive: bool) -> None:
    """Columns and fields are found as Spark finds them, and keep their names; others are refused."""
    ddl = "Topic string, VALUE struct<Town:string,items:array<struct<Sku:string>>,m:map<string,string>>, Subject int"
    frame = spark.createDataFrame([("t", ("Oulu", [("s1",)], {"Town": "Turku"}), 1)], ddl)
    conditions = {
        "topic": kiwi("topic", "t"),
        "town": kiwi("town", "Oulu"),
        "sku": kiwi("sku[]", "s1"),
        "map": kiwi("m", "Turku"),
        "no map": kiwi("n", "Turku"),
    }
    paths = {"town": "value.town", "sku[]": "Value.ITEMS[].sku", "m": "value.m.Town", "n": "value.m.town"}
    if case_sensitive:
        with pytest.raises(ConfigError, match="begins with 'value'; the records have Topic, VALUE, Subject"):
            match(frame, named(conditions), paths)
        with pytest.raises(ConfigError, match="looks for 'town' in 'VALUE', whose fields are Town, items, m"):
            match(frame, named(conditions), {"town": "VALUE.town"})
        exact = {"town": "VALUE.Town", "sku[]": "VALUE.items[].Sku", "m": "VALUE.m.Town", "n": "VALUE.m.town"}
        assert ids(match(frame, named(conditions), exact)) == {"town", "sku", "map"}
        return

    matched = match(frame, named(conditions), paths)

    assert ids(matched) == {"topic", "town", "sku", "map"}
    assert matched.columns == ["Topic", "VALUE", "Subject", "subscription_id", "destination"]


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("value.aa", "looks for 'aa' in 'value', whose fields are a, n, rest"),
        ("value.a.b", "looks into 'a', which is string: it has no fields"),
        ("place.city.name:text", "looks into 'city', which is string"),
        ("place.town.*", "looks for 'town' in 'place', whose fields are city"),
        ("headers.key", "looks into 'headers', which is array<struct<key:string,value:binary>>: write headers[]"),
        ("`value`.`a.b`", "looks for 'a.b'"),
    ],
)
def test_paths_that_no_value_has(spark: SparkSession, path: str, problem: str) -> None:
    """Structs have the fields of their type: another one is refused while planning, not matched with nothing."""
    with pytest.raises(ConfigError) as wrong:
        match(spark.createDataFrame([record(1)], SCHEMA), snapshot(kiwi("a", "x")), {"a": path})

    assert problem in str(wrong.value)


def test_matching_twice(spark: SparkSession, case_sensitive: bool) -> None:
    """The frame would have two columns of one name."""
    once = match(spark.createDataFrame([record(1)], SCHEMA), snapshot(kiwi("topic", "t")))
    with pytest.raises(ConfigError, match="destination: the frame has this column already"):
        match(once, snapshot(kiwi("topic", "t")))
    renamed = once.withColumnRenamed("subscription_id", "first").withColumnRenamed("destination", "Destination")
    if case_sensitive:
        again = match(renamed, snapshot(kiwi("topic", "t")))
        assert again.columns[-3:] == ["Destination", "subscription_id", "destination"]
    else:
        with pytest.raises(ConfigError, match="Destination: the frame has this column already"):
            match(renamed, snapshot(kiwi("topic", "t")))
    again = match(once.drop("subscription_id", "destination"), snapshot(kiwi("topic", "t")))
    assert again.count() == 1
