"""Matching on Spark finds what the interpreter says, each subscription once, and loses no record."""

from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F
from tests.conditions.strategies import KEYS, conditions, messages

from turnout.conditions import all_of, any_of, evaluate, kiwi, not_
from turnout.conditions.anchor import Kind
from turnout.conditions.pattern import escape, fold, lexemes
from turnout.errors import ConfigError
from turnout.spark.conditions import folded, to_column
from turnout.spark.conditions import lexemes as lexemes_column
from turnout.spark.matching import Matching, access, match
from turnout.spark.matching.overlay import Base
from turnout.spark.matching.table import Layout
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.stores.memory import MemoryStore

SCHEMA = """topic string, offset long, key string, value struct<a:string,n:double>,
    headers array<struct<key:string,value:binary>>"""


HOWS = ["broadcast", "resident"]


def record(offset, topic="t", key=None, value=None, **headers):
    return (topic, offset, key, value, [(k, v if isinstance(v, bytes) else v.encode()) for k, v in headers.items()])


def snapshot(*wanted):
    return Snapshot(tuple(Subscription([f"d{n}"], condition, id=f"s{n}") for n, condition in enumerate(wanted)))


@settings(max_examples=4, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(conditions, min_size=80, max_size=120), st.lists(messages, min_size=40, max_size=80))
def test_is_the_interpreter(spark, wanted, given_messages):
    """Hundreds of random conditions on dozens of messages: exactly the pairs that the interpreter finds."""
    rows = [(n, [(key, value.encode()) for key, value in one.items()]) for n, one in enumerate(given_messages)]
    records = spark.createDataFrame(rows, "n int, headers array<struct<key:string,value:binary>>")
    expected = []
    for n, message in enumerate(given_messages):
        true = [f"s{m}" for m, condition in enumerate(wanted) if evaluate(condition, message)]
        expected += [(n, id_) for id_ in true or [""]]

    ways = [{"how": "broadcast"}, {"how": "resident"}, {"sample": given_messages}]
    for way in ways:
        found = Matching(spark, snapshot(*wanted), **way).match(records, unmatched="keep").collect()

        assert sorted(expected) == sorted((row.n, row.subscription_id or "") for row in found), way


@settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(conditions, min_size=80, max_size=120), st.lists(messages, min_size=40, max_size=80), st.booleans())
def test_is_the_interpreter_in_pairs(spark, wanted, given_messages, sampled):
    """The same where probes cost nothing, so that whatever can be looked up by two anchors is."""
    for message in given_messages:
        # What the message itself asks for: whole values, and the beginnings and ends of them.
        wanted += [
            all_of(kiwi(one, escape(a)), kiwi(other, f"{escape(b[:2])}*{escape(b[2:])}"))
            for (one, a), (other, b) in pairwise(message.items())
        ]
    rows = [(n, [(key, value.encode()) for key, value in one.items()]) for n, one in enumerate(given_messages)]
    records = spark.createDataFrame(rows, "n int, headers array<struct<key:string,value:binary>>")
    expected = [
        (n, f"s{m}")
        for n, message in enumerate(given_messages)
        for m, condition in enumerate(wanted)
        if evaluate(condition, message)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access, "PROBE", 0.0)
        matching = Matching(spark, snapshot(*wanted), sample=given_messages if sampled else ())

    pairs = [slot for slot in matching._base_layout.slots if len(slot) == 2]
    assert pairs or not any(len(message) > 1 for message in given_messages)
    assert sorted(expected) == sorted((row.n, row.subscription_id) for row in matching.match(records).collect())


@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(conditions, min_size=20, max_size=40), st.lists(messages, min_size=40, max_size=60))
def test_columns_are_the_interpreter(spark, wanted, given_messages):
    """A condition compiled to a column of its own says what the interpreter says."""
    rows = [tuple(one.get(key) for key in KEYS) for one in given_messages]
    records = spark.createDataFrame(rows, ", ".join(f"`{key}` string" for key in KEYS)).coalesce(1)
    metadata = {key: F.col(f"`{key}`") for key in KEYS}
    found = records.select(*(to_column(one, metadata).alias(str(n)) for n, one in enumerate(wanted))).collect()

    assert [[evaluate(one, message) for one in wanted] for message in given_messages] == [list(row) for row in found]


@pytest.mark.parametrize("how", HOWS)
def test_what_conditions_see(spark, how):
    """The topic under both names, the key, headers and listed paths; a path wins over a header of its name."""
    wanted = {
        "topic": kiwi("topic", "a.b"),
        "subject": kiwi("subject", "a.*"),
        "key": kiwi("key", "k1"),
        "header": kiwi("h", "né"),
        "last": kiwi("twice", "second"),
        "path": kiwi("a", "from value"),
        "number": kiwi("n", "1.5"),
        "not utf-8": not_(kiwi("bad", "*")),
        "header hidden": kiwi("a", "from header"),
        "first": kiwi("twice", "first"),
    }
    headers = {"h": "né", "bad": b"\xff", "a": "from header"}
    twice = [("twice", b"first"), ("twice", b"second")]
    (row,) = [record(1, "a.b", "k1", ("from value", 1.5), **headers)]
    records = spark.createDataFrame([(*row[:4], row[4] + twice)], SCHEMA)
    subscriptions = [Subscription(["d"], condition, id=name) for name, condition in wanted.items()]
    matching = Matching(spark, Snapshot(tuple(subscriptions)), {"a": "value.a", "n": "value.n"}, how=how)
    found = {one.subscription_id for one in matching.match(records).collect()}

    assert set(wanted) - {"header hidden", "first"} == found
    assert {"topic", "subject", "key", "h", "twice", "a", "n", "bad"} == set(matching.needed_metadata)


@pytest.mark.parametrize("how", HOWS)
def test_no_record_is_lost(spark, how):
    """With keep, a record that nobody wants comes out once; the flag is on one row of each record."""
    subscriptions = [Subscription(["x", "y"], kiwi("topic", f"t{n}"), id=f"s{n}") for n in (1, 1.5, 2)]
    everything = Subscription(["z"], not_(kiwi("topic", "t3")), id="z")
    records = spark.createDataFrame([record(n, f"t{n}") for n in range(5)], SCHEMA)
    matching = Matching(spark, Snapshot((*subscriptions, everything)), how=how)
    rows = matching.match(records, unmatched="keep", where=F.col("offset") != 4, first="first").collect()

    assert records.columns == list(rows[0].asDict())[:5]
    assert sorted((row.offset, row.subscription_id, row.destination) for row in rows if row.subscription_id) == [
        (0, "z", "z"),
        (1, "s1", "x"),
        (1, "s1", "y"),
        (1, "z", "z"),
        (2, "s2", "x"),
        (2, "s2", "y"),
        (2, "z", "z"),
    ]
    assert [row.offset for row in rows if row.subscription_id is None] == [3, 4]
    assert sorted(row.offset for row in rows if row.first) == [0, 1, 2, 3, 4]
    dropped = matching.match(records, where=F.col("offset") != 4).select("offset").collect()
    assert sorted(row.offset for row in dropped) == [0, 1, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("how", HOWS)
def test_follows_its_store(spark, how):
    """New subscriptions are found and deleted ones are not after a refresh, without a new base."""
    store = MemoryStore(Subscription(["d"], kiwi("k", f"v{n}"), id=f"s{n}") for n in range(5))
    matching = Matching(spark, store, how=how)
    base = matching._overlay.base
    records = spark.createDataFrame([record(n, k=f"v{n}", other="x") for n in range(7)], SCHEMA)

    def found():
        return sorted((row.offset, row.subscription_id) for row in matching.match(records).collect())

    assert not matching.refresh()
    store.delete("s1")
    store.create(Subscription(["d"], all_of(kiwi("k", "v6"), kiwi("other", "?")), id="new"))
    store.delete("s2")
    store.create(Subscription(["d"], any_of(kiwi("k", "v5"), kiwi("k", "v2*")), id="s2"))
    assert [(n, f"s{n}") for n in range(5)] == found()
    assert matching.refresh()
    assert found() == [(0, "s0"), (2, "s2"), (3, "s3"), (4, "s4"), (5, "s2"), (6, "new")]
    assert (store.revision(), base) == (matching.revision, matching._overlay.base)


def test_a_large_change_makes_a_new_base(spark):
    """When more has changed than is worth laying over, the index is built anew and finds the same."""
    store = MemoryStore([Subscription(["d"], kiwi("k", "v0"), id="s0")])
    matching = Matching(spark, store)
    base = matching._overlay.base
    store.create_many(Subscription(["d"], kiwi("k", f"v{n}"), id=f"s{n}") for n in range(1, 1500))
    records = spark.createDataFrame([record(n, k=f"v{n}") for n in (0, 7, 1499, 1500)], SCHEMA)

    assert matching.refresh()
    assert base is not matching._overlay.base
    assert sorted((row.offset, row.subscription_id) for row in matching.match(records).collect()) == [
        (0, "s0"),
        (7, "s7"),
        (1499, "s1499"),
    ]


def test_small_batches_stay_in_the_workers(spark):
    """After a query of few records on a larger index, the next one uses the workers' own; and finds the same."""
    subscriptions = tuple(Subscription(["d"], kiwi("k", f"v{n}"), id=f"s{n}") for n in range(25_000))
    matching = Matching(spark, Snapshot(subscriptions), how="auto")
    records = spark.createDataFrame([record(n, k=f"v{n}") for n in range(10)], SCHEMA)
    plans, found = [], []
    for _ in range(2):
        out = matching.match(records)
        plans.append("ArrowEvalPython" in out._jdf.queryExecution().toString())
        found.append(sorted((row.offset, row.subscription_id) for row in out.collect()))

    assert plans == [False, True]
    assert found[0] == found[1] == [(n, f"s{n}") for n in range(10)]


def test_variants_and_binary_keys(spark):
    """Paths lead into variants; a key of bytes is its text."""
    records = spark.sql("""SELECT 't' topic, cast('k' as binary) key,
        parse_json('{"a": {"b c": 7}, "t": true, "n": null, "o": {"x": 1}}') value""")
    wanted = {
        "deep": kiwi("deep", "7"),
        "true": kiwi("t", "true"),
        "null": not_(kiwi("n", "*")),
        "key": kiwi("key", "k"),
    }
    subscriptions = tuple(Subscription(["d"], condition, id=name) for name, condition in wanted.items())
    paths = {"deep": "value.a.b c", "t": "value.t", "n": "value.n"}
    found = match(records, Snapshot(subscriptions), paths).collect()

    assert set(wanted) == {row.subscription_id for row in found}


def test_refuses_paths_that_lead_nowhere(spark):
    """Every path that the records cannot have is named, with what they have."""
    records = spark.createDataFrame([record(1)], SCHEMA)
    matching = Matching(spark, snapshot(kiwi("a", "x")), {"a": "valeu.a", "b": "topic.b"})

    with pytest.raises(ConfigError) as caught:
        matching.match(records)
    assert [mistake.path for mistake in caught.value.mistakes] == ["metadata.a", "metadata.b"]


def test_parses_a_value_once(spark):
    """JSON that is parsed in the same query is parsed once for a record, not once for each of its fields."""
    keys = [f"k{n}" for n in range(8)]
    raw = spark.createDataFrame([('{"k0": "x", "k7": "y"}',)], "raw string")
    records = raw.select(F.from_json("raw", ", ".join(f"{key} string" for key in keys)).alias("value"))
    condition = all_of(*(kiwi(key, "x") for key in keys))
    plan = Matching(spark, snapshot(condition), {key: f"value.{key}" for key in keys}).match(records)
    text = plan._jdf.queryExecution().executedPlan().toString()

    assert text.count("from_json") == 1


def test_characters_are_the_same_everywhere(spark):
    """Case and lexemes are the same in Python and Java for each character that both have met."""
    characters = [chr(code) for code in range(1, 0x2FFFF) if not 0xD800 <= code < 0xE000]
    rows = spark.createDataFrame([(one,) for one in characters], "c string").coalesce(1)
    c = F.col("c")
    rows = rows.where(~c.rlike(r"\p{Cn}"))
    found = rows.select(c, folded(c).alias("f"), F.size(lexemes_column(c)).alias("n")).collect()
    met = [row for row in found if unicodedata.category(row.c) != "Cn"]

    assert len(met) > 100_000
    assert [row.c for row in met if row.f != fold(row.c)] == []
    assert [row.c for row in met if row.n != len(lexemes(row.c))] == []


def test_plan(spark):
    """Index and entries broadcast, no shuffle; all from the look-up to the fan-out is compiled code of one stage."""
    matching = Matching(spark, snapshot(all_of(kiwi("h", "a*"), kiwi("topic", "t", partial=True))), how="broadcast")
    out = matching.match(spark.createDataFrame([record(1, h="abc")], SCHEMA), unmatched="keep")
    out.collect()
    plan = out._jdf.queryExecution().executedPlan().toString().split("== Initial Plan ==")[0]
    steps = [line.strip(" :+-") for line in plan.splitlines()]

    # One for what is looked up, one for what is verified: in between a record's candidates are a column.
    assert sum("BroadcastNestedLoopJoin BuildRight" in step for step in steps) == 2
    assert not any("hashpartitioning" in step or "SortMergeJoin" in step for step in steps)
    compiled = [step for step in steps if "Generate posexplode" in step or "NestedLoopJoin" in step]
    assert len(compiled) == 3
    assert len({step.partition(")")[0] for step in compiled}) == 1
    assert all(step.startswith("*(") for step in compiled)


def test_many_rare_anchors_make_no_pairs():
    """Each of many entries asks for something else: how few are looked at must not make that look common."""
    keys = ("k0", "k1", "k2")
    wanted = [all_of(kiwi(keys[n % 3], f"a{n}"), kiwi(keys[(n + 1) % 3], f"b{n}")) for n in range(30_000)]

    layout = Layout.of(Base(snapshot(*wanted)).placed)

    assert layout.slots == tuple(((key, Kind("=")),) for key in keys)


def test_pairs_stand_where_one_anchor_lets_too_much_through(spark):
    """Conditions on a few carriers and many flights are looked up by both; on one key, by that alone."""
    wanted = [all_of(kiwi("carrier", f"C{n % 4}"), kiwi("day", f"D{n % 9}*")) for n in range(400)]
    wanted += [kiwi("flight", str(n)) for n in range(400)]
    layout = Layout.of(Base(snapshot(*wanted)).placed)

    assert layout.slots == (
        (("carrier", Kind("=")), ("day", Kind("^", 2))),
        (("flight", Kind("=")),),
    )
    assert layout.ops == ()
    messages = [{"carrier": "C1", "day": f"D{n % 9}0", "flight": str(n)} for n in range(100)]
    records = spark.createDataFrame(
        [record(n, **one) for n, one in enumerate(messages)],
        SCHEMA,
    )
    found = Matching(spark, snapshot(*wanted)).match(records).collect()
    assert len(found) == sum(evaluate(one, message) for one in wanted for message in messages)


def test_a_slot_that_is_not_worth_its_probes_is_done_without():
    """One pattern with its text in the middle is looked at for every record, rather than a dozen runs looked up."""
    few = [kiwi("subject", "*.AS.*"), all_of(kiwi("subject", "*.UA.*"), kiwi("day", "1*"))]
    sample = [{"subject": f"ops.jfk.LAX.{'AS' if n % 9 else 'UA'}.{n}", "day": str(n % 30)} for n in range(300)]

    def kinds(wanted):
        layout = Layout.of(Base(snapshot(*wanted), sample).placed)
        return {str(kind) for slot in (*layout.slots, *layout.many) for _, kind in slot}

    assert "~" not in kinds(few[1:])
    many = [kiwi("subject", f"*.{n:03}.*") for n in range(100)]
    assert "~" in kinds(few + many)


def test_later_micro_batches_compile_nothing(spark):
    """The plan of one micro-batch after the other becomes the same code, also when subscriptions have changed."""
    store = MemoryStore(Subscription(["d"], kiwi("k", f"v{n}"), id=f"s{n}") for n in range(5))
    matching = Matching(spark, store)
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()

    def run():
        records = spark.createDataFrame([record(n, k=f"v{n}") for n in range(7)], SCHEMA)
        return sorted(row.subscription_id for row in matching.match(records).collect())

    store.create(Subscription(["d"], kiwi("k", "v5"), id="s5"))
    matching.refresh()
    run()
    before = compiled.getCount()
    assert len(run()) == 6
    store.create(Subscription(["d"], kiwi("k", "v6"), id="s6"))
    matching.refresh()
    assert len(run()) == 7
    assert compiled.getCount() == before
