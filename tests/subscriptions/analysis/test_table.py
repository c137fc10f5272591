"""Subscriptions as a DataFrame."""

from __future__ import annotations

from turnout import spark as ts
from turnout.conditions import parse
from turnout.subscriptions import Subscription
from turnout.subscriptions.stores.memory import MemoryStore


def test_a_row_for_each_subscription(spark) -> None:
    """Its parts, the digest of its normal form, what it is looked up by, its tenant, and when it was created."""
    store = MemoryStore()
    store.create(Subscription(["d", "e"], parse("city:Oulu AND n>5"), {"name": "one"}, "one"))
    store.for_tenant("acme").create(Subscription(["d"], parse("NOT n<=5 AND n>0 AND city:Oulu"), id="two"))

    frame = ts.subscriptions_table(spark, store)
    rows = {row["id"]: row.asDict() for row in frame.collect()}
    then = ts.subscriptions_table(spark, store.as_of(1)).select("id", "created_revision").collect()

    assert rows["one"]["destinations"] == ["d", "e"]
    assert (rows["one"]["tenant"], rows["one"]["metadata"]) == (None, {"name": "one"})
    assert (rows["one"]["condition"], rows["one"]["anchors"]) == ("city:Oulu AND n>5", ["city = 'Oulu'"])
    assert (rows["@acme/two"]["tenant"], rows["@acme/two"]["created_revision"]) == ("acme", 2)
    assert rows["one"]["digest"] == rows["@acme/two"]["digest"]
    assert rows["one"]["created_at"] <= rows["@acme/two"]["created_at"]
    assert [tuple(row) for row in then] == [("one", None)]
