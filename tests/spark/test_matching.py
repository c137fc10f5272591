"""Matching on Spark finds what the interpreter says, each subscription once, and loses no record."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as F

from tests.conditions.strategies import KEYS, conditions, messages
from turnout.conditions import all_of, any_of, evaluate, kiwi, not_
from turnout.errors import ConfigError
from turnout.spark.conditions import to_column
from turnout.spark.matching import Matching, match
from turnout.subscriptions import Snapshot, Subscription
from turnout.subscriptions.stores.memory import MemoryStore

SCHEMA = "topic string, offset long, key string, value struct<a:string,n:double>, headers array<struct<key:string,value:binary>>"


def record(offset, topic="t", key=None, value=None, **headers):
    return (topic, offset, key, value, [(k, v if isinstance(v, bytes) else v.encode()) for k, v in headers.items()])


def snapshot(*wanted):
    return Snapshot(tuple(Subscription([f"d{n}"], condition, id=f"s{n}") for n, condition in enumerate(wanted)))


@settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(conditions, min_size=300, max_size=500), st.lists(messages, min_size=40, max_size=80))
def test_is_the_interpreter(spark, wanted, given_messages):
    """Hundreds of random conditions on dozens of messages: exactly the pairs that the interpreter finds."""
    rows = [(n, [(key, value.encode()) for key, value in one.items()]) for n, one in enumerate(given_messages)]
    records = spark.createDataFrame(rows, "n int, headers array<struct<key:string,value:binary>>")
    found = (
        Matching(spark, snapshot(*wanted), {}).match(records, unmatched="keep").select("n", "subscription_id").collect()
    )
    pairs = sorted((row.n, row.subscription_id or "") for row in found)
    expected = []
    for n, message in enumerate(given_messages):
        true = [f"s{m}" for m, condition in enumerate(wanted) if evaluate(condition, message)]
        expected += [(n, id_) for id_ in true or [""]]

    assert sorted(expected) == pairs


@settings(max_examples=3, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(st.lists(conditions, min_size=20, max_size=40), st.lists(messages, min_size=40, max_size=60))
def test_columns_are_the_interpreter(spark, wanted, given_messages):
    """A condition compiled to a column of its own says what the interpreter says."""
    rows = [tuple(one.get(key) for key in KEYS) for one in given_messages]
    records = spark.createDataFrame(rows, ", ".join(f"`{key}` string" for key in KEYS)).coalesce(1)
    metadata = {key: F.col(f"`{key}`") for key in KEYS}
    found = records.select(*(to_column(one, metadata).alias(str(n)) for n, one in enumerate(wanted))).collect()

    assert [[evaluate(one, message) for one in wanted] for message in given_messages] == [list(row) for row in found]
