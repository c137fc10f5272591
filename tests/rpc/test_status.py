"""Errors and gRPC's statuses."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tests.contracts.store import subscription
from turnout.conditions import all_of, kiwi
from turnout.errors import (
    ConditionError,
    HistoryForgottenError,
    QuotaExceededError,
    StoreUnavailableError,
    SubscriptionConflictError,
    SubscriptionExistsError,
    SubscriptionInvalidError,
    SubscriptionNotFoundError,
    TurnoutError,
)
from turnout.rpc import status
from turnout.rpc.client import Channel, MatchingClient
from turnout.rpc.server import subscriptions_server
from turnout.rpc.status import STATUS, RefusedError, status_of
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.rpc.v1.matching_pb2_grpc import MatchingStub
from turnout.rpc.v1.subscriptions_pb2_grpc import ServiceStub
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


def rich(failure: BaseException, code: grpc.StatusCode, message: str) -> tuple[dict[str, Any], status_pb2.Status]:
    """The details by their kind, as JSON, and the whole."""
    ((_, written),) = status.rich_status(failure, code, message)
    found = status_pb2.Status.FromString(written)
    details = json_format.MessageToDict(found)["details"]
    return {one.pop("@type").rpartition(".")[2]: one for one in details}, found


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (
            SubscriptionConflictError("a/b", 3, 4),
            {
                "ErrorInfo": {
                    "domain": "turnout",
                    "reason": "SUBSCRIPTION_CONFLICT",
                    "metadata": {"expected": "3", "found": "4"},
                },
                "ResourceInfo": {"resourceType": "subscription", "resourceName": "a/b"},
            },
        ),
        (
            SubscriptionInvalidError("route.destinations[0]: is empty: not a subject"),
            {
                "ErrorInfo": {"domain": "turnout", "reason": "SUBSCRIPTION_INVALID"},
                "BadRequest": {
                    "fieldViolations": [{"field": "route.destinations[0]", "description": "is empty: not a subject"}]
                },
            },
        ),
        (
            QuotaExceededError("subscriptions", 5, 6),
            {
                "ErrorInfo": {
                    "domain": "turnout",
                    "reason": "QUOTA_EXCEEDED",
                    "metadata": {"quota": "subscriptions", "limit": "5", "used": "6"},
                },
            },
        ),
    ],
)
def test_details_of_errors(failure: TurnoutError, expected: dict[str, Any]) -> None:
    """Reason, subscription, field and description, as google.rpc has them."""
    code = status_of(failure)
    details, whole = rich(failure, code, str(failure))

    assert details == expected
    assert (whole.code, whole.message) == (code.value[0], str(failure))


def test_details_of_refusals() -> None:
    """What may be tried again says when; an error without a place names no field."""
    refused = RefusedError(grpc.StatusCode.RESOURCE_EXHAUSTED, "full", 1.5)
    details, _ = rich(refused, refused.code, refused.details)
    of_request, _ = rich(ConditionError("no condition"), grpc.StatusCode.INVALID_ARGUMENT, "no condition")

    assert details["RetryInfo"] == {"retryDelay": "1.500s"}
    assert details["ErrorInfo"]["reason"] == "RESOURCE_EXHAUSTED"
    assert of_request["BadRequest"] == {"fieldViolations": [{"description": "no condition"}]}


def test_large_details_are_left_out() -> None:
    """Clients refuse trailers of more than 8 kB, and would have another error."""
    text = "é" * 2_000
    assert status.rich_status(SubscriptionInvalidError(text), grpc.StatusCode.INVALID_ARGUMENT, text) == ()


def test_clients_get_the_details(store, server):
    """The library that reads them agrees with the call's code and message."""
    store.create(subscription())
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        stub = ServiceStub(channel)
        with pytest.raises(grpc.RpcError) as missing:
            stub.Read(subscriptions_pb2.ReadRequest(id="x\u00e9"), timeout=10)
        with pytest.raises(grpc.RpcError) as invalid:
            stub.Create(subscriptions_pb2.SubscriptionDataInput(), timeout=10)

    reasons = []
    for failure in (missing, invalid):
        found = rpc_status.from_call(failure.value)
        info = error_details_pb2.ErrorInfo()
        assert found.details[0].Unpack(info)
        reasons.append(info.reason)
    assert reasons == ["SUBSCRIPTION_NOT_FOUND", "SUBSCRIPTION_INVALID"]
    assert found.details[1].Is(error_details_pb2.BadRequest.DESCRIPTOR)


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
