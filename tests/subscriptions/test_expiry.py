"""Disabled and expired subscriptions match nothing, whichever way messages are matched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from tests.subscriptions.index.asking import columns_of
from turnout.base.clocks import EPOCH
from turnout.conditions import evaluate, kiwi
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Index, IndexFolder
from turnout.subscriptions.lines import subscription_from_json, subscription_to_json
from turnout.subscriptions.model import Expiry, Start
from turnout.subscriptions.stores.memory import MemoryStore

_TIMES = st.integers(-2, 6)
"""Milliseconds since 1970: few, so that they often meet."""

expiries = st.none() | st.builds(
    lambda time, micros, by: Expiry(EPOCH + timedelta(milliseconds=time, microseconds=micros), by),
    _TIMES,
    st.sampled_from([0, 0, 1, 999]),
    st.sampled_from(["record", "wall"]),
)
subscriptions = st.lists(
    st.tuples(conditions, st.booleans(), expiries).map(
        lambda parts: Subscription(["d"], parts[0], enabled=parts[1], expires=parts[2])
    ),
    max_size=24,
)


@given(subscriptions, st.lists(st.tuples(messages, _TIMES | st.none()), min_size=1, max_size=4), _TIMES)
def test_every_way_of_matching_agrees(given_subscriptions, timed, now):
    """The index, row by row and all together, and the matcher give what the interpreter and the times say."""
    store = MemoryStore(given_subscriptions)
    stored, asked = store.snapshot().subscriptions, [message for message, _ in timed]
    times = [time for _, time in timed]
    expected = sorted(
        (row, one.id)
        for row, (message, time) in enumerate(timed)
        for one in stored
        if not one.inactive(now if time is None else time, now) and evaluate(one.condition, message)
    )

    def pairs(index: Index) -> list[tuple[int, str]]:
        matches = index.match(columns_of(asked), len(asked), times=times, now=now)
        ids = index.subscription_ids(matches.subscriptions).to_pylist()
        return sorted(zip(matches.rows.tolist(), ids, strict=True))

    index, matcher = Index.of(store), Matcher.from_store(store)
    late = Matcher()
    late.refresh(store)
    assert pairs(index) == expected
    assert len(index) == len(matcher) == sum(one.enabled for one in stored)
    for follower in (matcher, late):
        one_by_one = [
            (row, match.subscription_id)
            for row, (message, time) in enumerate(timed)
            for match in follower.match(message, time=time, now=now)
        ]
        many = follower.match_many(asked, times=times, now=now).ids()
        assert sorted(one_by_one) == expected
        assert sorted((row, id_) for row, ids in enumerate(many) for id_ in ids) == expected


def test_a_pause_is_a_bitmap_and_no_rebuild(tmp_path):
    """Pausing writes no segment, resuming one of a single subscription; each takes effect with the next revision."""
    store = MemoryStore(Subscription(["d"], kiwi("k", "v"), id=f"s{number}") for number in range(50))
    with IndexFolder(tmp_path / "index", store) as folder:

        def matched() -> tuple[int, int]:
            index = Index.open(folder.folder, folder.refresh())
            segments = len(list(folder.folder.glob("segment-*.index")))
            return len(index.match(columns_of([{"k": "v"}]), 1).rows), segments

        seen = [matched()]
        for enabled in (False, True):
            store.update("s7", Subscription(["d"], kiwi("k", "v"), enabled=enabled))
            seen.append(matched())

    assert seen == [(50, 1), (49, 1), (50, 2)]


def test_an_expiry_needs_no_revision(tmp_path):
    """An index that is open stops matching at the time of an expiry, by the record's time or by the clock."""
    at = datetime(2030, 1, 1, tzinfo=UTC)
    store = MemoryStore(Subscription([by], kiwi("k", "v"), id=by, expires=Expiry(at, by)) for by in ("record", "wall"))
    with IndexFolder(tmp_path / "index", store) as folder:
        index = Index.open(folder.folder, folder.revision)
    moment = int(at.timestamp() * 1_000)

    def matched(time: int, now: int) -> list[str]:
        matches = index.match(columns_of([{"k": "v"}]), 1, times=[time], now=now)
        assert matches.rows.dtype == np.int64
        return sorted(index.subscription_ids(matches.subscriptions).to_pylist())

    assert matched(moment - 1, moment - 1) == ["record", "wall"]
    assert matched(moment, moment - 1) == ["wall"]
    assert matched(moment - 1, moment) == ["record"]
    assert matched(moment, moment) == []


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"expires": "soon"}, "expires: expected an object, found 'soon'"),
        ({"expires": {}}, "expires.at: is required and missing"),
        ({"expires": {"at": "soon"}}, "expires.at: expected an ISO 8601 time, found 'soon'"),
        ({"expires": {"at": 5}}, "expires.at: expected an ISO 8601 time, found 5"),
        ({"expires": {"at": 20260101}}, "expires.at: expected an ISO 8601 time, found 20260101"),
        ({"expires": {"at": "9999-12-31T23:59:59-12:00"}}, "expires.at: expected an ISO 8601 time"),
        ({"expires": {"at": "2030-01-01", "by": "sun"}}, "expires.by: expected record or wall, found 'sun'"),
        ({"expires": {"at": "2030-01-01", "on": 1}}, "expires.on: unknown field; there are at, by"),
        ({"from": True}, "from: expected latest, earliest, an ISO 8601 time or a sequence from 1 on, found True"),
        ({"pause": {"keep": 1}}, "pause: expected {'keep': true} or {'keep': false}, found {'keep': 1}"),
        ({"enabled": "no"}, "enabled: expected true or false, found 'no'"),
        ({"delivery": {"timeout": -1}}, "delivery.timeout: expected a duration"),
    ],
)
def test_settings_that_mean_nothing(settings_, words):
    """Are refused with the field, what was found, and what was expected."""
    line = {"route": {"destinations": ["d"], "condition": {"kiwiCondition": {"key": "k", "pattern": "v"}}}, **settings_}
    with pytest.raises(SubscriptionInvalidError) as refused:
        subscription_from_json(line)

    assert words in str(refused.value)


def test_settings_in_lines():
    """An export has the settings that are no defaults, and an import restores them; times are in UTC."""
    at = datetime(2030, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    one = Subscription(["d"], kiwi("k", "v"), id="a", enabled=False, expires=Expiry(at), start=Start(7), keep=True)
    line = subscription_to_json(one)

    assert (line["enabled"], line["expires"]) == (False, {"at": "2030-01-01T00:00:00+00:00", "by": "record"})
    assert (line["from"], line["pause"]) == (7, {"keep": True})
    assert subscription_from_json(line) == one
    assert subscription_to_json(Subscription(["d"], kiwi("k", "v"), id="a")).keys() == {"id", "metadata", "route"}
