"""Errors and gRPC's statuses."""

from __future__ import annotations

import threading
from dataclasses import replace

import grpc
import pytest

from tests.contracts.store import subscription
from turnout.conditions import all_of, kiwi
from turnout.errors import (
    ConditionError,
    HistoryForgottenError,
    StoreUnavailableError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
    TurnoutError,
)
from turnout.rpc import status
from turnout.rpc.client import Channel, MatchingClient
from turnout.rpc.server import subscriptions_server
from turnout.rpc.status import STATUS, status_of
from turnout.rpc.v1 import matching_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.subscriptions import Subscription
from turnout.subscriptions.matcher import LiveMatcher


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (SubscriptionNotFoundError("x"), grpc.StatusCode.NOT_FOUND),
        (SubscriptionExistsError("x"), grpc.StatusCode.ALREADY_EXISTS),
        (SubscriptionInvalidError("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (ConditionError("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (HistoryForgottenError("x"), grpc.StatusCode.OUT_OF_RANGE),
        (StoreUnavailableError("x"), grpc.StatusCode.UNAVAILABLE),
        (TurnoutError("x"), grpc.StatusCode.INTERNAL),
    ],
)
def test_each_error_has_a_status(failure: TurnoutError, code: grpc.StatusCode) -> None:
    """The first row whose class it is."""
    assert status_of(failure) is code


def test_no_row_hides_a_later_one() -> None:
    """A class stands before those that it derives from."""
    kinds = [kind for kind, _ in STATUS]

    assert not [(one, later) for at, one in enumerate(kinds) for later in kinds[at + 1 :] if issubclass(later, one)]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"k": "x" * 65_537}, r"metadata\['k'\]: 65537 characters, at most 65536"),
        ({"k" * 1_025: "x"}, "a key of 1025 characters, at most 1024"),
        ({f"k{number}": "x" for number in range(1_001)}, "1001 keys, at most 1000"),
    ],
)
def test_messages(store, client, message, words):
    """A message beyond a bound is INVALID_ARGUMENT, with the bound, before anything is looked for in it."""
    created = store.create(subscription())
    for attempt in (
        lambda: client.match(message),
        lambda: list(client.match_stream([message])),
        lambda: client.explain(created, message),
    ):
        with pytest.raises(SubscriptionInvalidError, match=words):
            attempt()
    assert client.match({"k": "x" * 65_536}) == []


def test_value_bound_is_a_setting(backing, settings):
    """The bound on values is the operator's."""
    with subscriptions_server(backing, replace(settings, max_value=10)) as server:
        client = MatchingClient(Channel(f"127.0.0.1:{server.port}", timeout=10))
        assert client.match({"k": "x" * 10}) == []
        with pytest.raises(SubscriptionInvalidError, match="at most 10"):
            client.match({"k": "x" * 11})
        client.close()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Subscription(["d"], kiwi("k", "x" * 1_025)), "a pattern of 1025 characters, at most 1024"),
        (Subscription(["d"], kiwi("k", "*a" * 17)), r"17 stars in the pattern '\*a\*a.*at most 16"),
        (Subscription([f"d{n}" for n in range(101)], kiwi("k", "v")), "101 destinations, at most 100"),
        (Subscription(["d"], kiwi("k", "v"), {"a": "x" * 65_536}), "characters in all its texts, at most 65536"),
        (
            Subscription(["d"], all_of(*(kiwi("k", f"{n}{'x' * 1_000}") for n in range(66)))),
            "characters in all its texts",
        ),
    ],
)
def test_subscriptions(store, wrong, words):
    """A subscription beyond a bound is INVALID_ARGUMENT, with the bound."""
    with pytest.raises(SubscriptionInvalidError, match=words):
        store.create(wrong)
    assert len(store.snapshot()) == 0


def test_stars_that_are_text(store):
    """Escaped stars are text, and stars in a row are one."""
    store.create(Subscription(["d"], kiwi("k", "\\*" * 100 + "*" * 50)))


def test_searches(store):
    """A search by more pairs than a store's query takes is INVALID_ARGUMENT."""
    with pytest.raises(SubscriptionInvalidError, match="65 pairs, a search takes at most 64"):
        store.search_by_metadata({f"k{number}": "v" for number in range(65)})
    assert store.search_by_metadata({f"k{number}": "v" for number in range(64)}).items == ()


def test_a_small_call_beside_large_ones(backing, settings, monkeypatch):
    """While as many large messages as there are threads are being matched, a small one is answered."""
    begun, release = threading.Semaphore(0), threading.Event()
    match = LiveMatcher.match

    def slow(self, metadata):
        if len(metadata.get("k", "")) > 50_000:
            begun.release()
            release.wait(60)
        return match(self, metadata)

    monkeypatch.setattr(LiveMatcher, "match", slow)
    small = replace(settings, workers=4)
    with (
        subscriptions_server(backing, small) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        stub = MatchingStub(channel)
        large = matching_pb2.MatchRequest(metadata={"k": "x" * 60_000})
        calls = [stub.Match.future(large, timeout=60) for _ in range(20)]
        assert begun.acquire(timeout=30)
        answer = stub.Match(matching_pb2.MatchRequest(metadata={"k": "x"}, tag="small"), timeout=30)
        assert answer.tag == "small"
        assert not all(call.done() for call in calls)
        release.set()
        codes = [call.code().name for call in calls]

    assert set(codes) == {"OK", "RESOURCE_EXHAUSTED"}


def test_a_stream_of_large_messages_waits_for_its_turn(backing, settings, monkeypatch):
    """In a stream, which has a thread of its own, a large message waits where a single one would be refused."""
    backing.create(subscription("*needle*"))
    texts = [{"subject": "x" * 40_000 + "needle"}] * 3
    counts: list[int] = []
    with subscriptions_server(backing, replace(settings, workers=4)) as server:
        client = MatchingClient(Channel(f"127.0.0.1:{server.port}", timeout=30))

        def ask() -> None:
            counts.extend(len(matches) for matches in client.match_stream(texts))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        client.close()

    assert counts == [1] * 9
    assert status.is_large(texts[0])
