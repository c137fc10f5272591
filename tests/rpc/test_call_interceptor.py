"""Malformed requests: the server answers each with a status, and continues."""

from __future__ import annotations

import random
import socket
import threading
import urllib.request
from contextlib import ExitStack
from dataclasses import replace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from tests.rpc.sockets import read_to_end
from tests.server.conftest import wait_for
from turnout.rpc import call_interceptor
from turnout.rpc.server import subscriptions_server
from turnout.rpc.v1 import subscriptions_pb2 as pb


def raw(server, method: str, data: bytes) -> tuple[str, str]:
    """Send these bytes as a request, and give the status."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        call = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        try:
            call(data, timeout=10)
        except grpc.RpcError as refused:
            return refused.code().name, refused.details()
        return "OK", ""


def health(channel, service: str = "") -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status


METHODS = [
    f"/{service}/{method}"
    for service, methods in {
        "subscriptions.Service": ("Create", "Read", "Delete", "SearchByCondition", "SearchByMetadata"),
        "turnout.subscriptions.v1.Matching": ("Match", "Explain"),
        "turnout.subscriptions.v1.Storage": ("Revision",),
    }.items()
    for method in methods
]


@pytest.mark.parametrize("method", METHODS)
def test_not_a_message(server, method):
    """Bytes that are no message are the caller's mistake."""
    code, details = raw(server, method, b"\xff\xff\xff\xff")

    assert code == "INVALID_ARGUMENT"
    assert "not a message" in details


def test_not_a_message_in_a_stream(server, backing):
    """The same where requests are a stream, and nothing of the stream is stored."""
    good = pb.Subscription(id="x", data={"route": {"destinations": ["d"]}})
    good.data.route.condition.existsCondition.key = "k"
    sent = [good.SerializeToString(), b"\xff\xff\xff\xff"]
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT") as refused:
            channel.stream_unary("/turnout.subscriptions.v1.Storage/CreateMany")(iter(sent), timeout=10)
        assert "not a message" in refused.value.details()
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            list(channel.stream_stream("/turnout.subscriptions.v1.Matching/MatchStream")(iter(sent[1:]), timeout=10))
        with pytest.raises(grpc.RpcError, match="INVALID_ARGUMENT"):
            list(channel.unary_stream("/turnout.subscriptions.v1.Matching/Watch")(sent[1], timeout=10))
    assert len(backing.snapshot()) == 0


def test_a_stream_that_breaks_off(server, backing):
    """A bulk whose client goes away in the middle stores nothing."""
    good = pb.Subscription(data={"route": {"destinations": ["d"]}})
    good.data.route.condition.existsCondition.key = "k"
    gone = threading.Event()

    def some():
        for _ in range(100):
            yield good.SerializeToString()
        gone.set()
        threading.Event().wait(1)

    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        create = channel.stream_unary("/turnout.subscriptions.v1.Storage/CreateMany")
        call = create.future(some(), timeout=10, metadata=[("turnout-count", "101")])
        gone.wait(10)
        call.cancel()
    server.stop()

    assert backing.revision() == 0


def test_a_stream_that_ends_early(server, backing):
    """A bulk of less than its client has announced is refused as a whole."""
    good = pb.Subscription(data={"route": {"destinations": ["d"]}})
    good.data.route.condition.existsCondition.key = "k"
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        create = channel.stream_unary("/turnout.subscriptions.v1.Storage/CreateMany")
        sent = [good.SerializeToString()]
        with pytest.raises(grpc.RpcError, match="the stream broke off: got 1 of 2"):
            create(iter(sent), timeout=10, metadata=[("turnout-count", "2")])
        create(iter(sent), timeout=10, metadata=[("turnout-count", "1")])

    assert backing.revision() == 1


def test_no_such_method(server):
    """An unknown method is unimplemented."""
    assert raw(server, "/subscriptions.Service/Replace", b"")[0] == "UNIMPLEMENTED"


def test_deep_nesting(server):
    """Groups a thousand deep are refused, whether the parser or a rule does it."""
    for depth in (42, 49, 60, 1_000, 20_000):
        data = pb.ConditionInput(kiwiTreeCondition=pb.KiwiTreeConditionInput(key="k", pattern="p"))
        encoded = data.SerializeToString()
        for _ in range(depth):
            encoded = _field(1, _field(3, encoded) + _field(3, data.SerializeToString()))
        request = _field(2, _field(1, b"d") + _field(2, encoded))
        code, _ = raw(server, "/subscriptions.Service/Create", request)

        assert code == "INVALID_ARGUMENT", depth


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field."""
    length, size = b"", len(content)
    while True:
        length += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return bytes([number << 3 | 2]) + length + content


def test_fuzzed_bytes(server):
    """Thousands of requests, random or almost right, never make the server fail: it says what is wrong."""
    good = {
        "Create": pb.SubscriptionDataInput(
            metadata={"a": "b"},
            route=pb.RouteInput(
                destinations=["d"],
                condition=pb.ConditionInput(
                    groupCondition=pb.GroupConditionInput(
                        logic=pb.Or,
                        group=[
                            pb.ConditionInput(kiwiTreeCondition=pb.KiwiTreeConditionInput(key="k", pattern="p*")),
                            pb.ConditionInput(compareCondition=pb.CompareConditionInput(key="n", op="<", number=1.5)),
                            pb.ConditionInput(cidrCondition=pb.CidrConditionInput(key="c", network="10.0.0.0/8")),
                            pb.ConditionInput(regexCondition=pb.RegexConditionInput(key="r", regex="^(a|b)")),
                            pb.ConditionInput(elementCondition=pb.ElementConditionInput(key="*", where="a:b AND *:c")),
                        ],
                    )
                ),
            ),
        ).SerializeToString(),
        "SearchByCondition": pb.SearchByConditionRequest(
            limit=3, kiwiConditionQuery=pb.KiwiConditionQuery(key="k", pattern="p*")
        ).SerializeToString(),
        "Match": b"\n\x06\n\x01k\x12\x01p",
    }
    rolls = random.Random(30)
    allowed = {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        calls = {method: channel.unary_unary(method) for method in METHODS}
        pending = []
        for number in range(4_000):
            method = METHODS[number % len(METHODS)]
            data = bytearray(good.get(method.rpartition("/")[2], b"\n\x01x"))
            for _ in range(rolls.randint(1, 6)):
                data[rolls.randrange(len(data))] = rolls.randrange(256)
            if number % 5 == 0:
                data = bytearray(rolls.randbytes(rolls.randint(0, 60)))
            pending.append((method, bytes(data), calls[method].future(bytes(data), timeout=60)))
            if len(pending) == 200 or number == 3_999:
                for sent_to, sent, call in pending:
                    assert call.code().name in allowed, (sent_to, sent, call.details())
                pending.clear()
        assert health(channel) == health_pb2.HealthCheckResponse.SERVING


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KIWI = st.builds(
    lambda negated, key, pattern, partial: {"not": negated, "key": key, "pattern": pattern, "partial": partial},
    st.booleans(),
    TEXTS,
    TEXTS,
    st.booleans(),
)


@given(
    TEXTS,
    st.lists(TEXTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
    st.lists(KIWI, max_size=3),
    st.integers(min_value=-(2**31), max_value=2**31 - 1),
)
def test_any_message_is_converted_or_refused(id_, destinations, metadata, kiwis, logic):
    """Any message becomes a subscription that is returned unchanged, or it is refused."""
    from turnout.errors import SubscriptionInvalidError
    from turnout.rpc.convert import subscription_from, subscription_to

    message = pb.Subscription(id=id_)
    message.data.metadata.update(metadata)
    message.data.route.destinations.extend(destinations)
    group = message.data.route.condition.groupCondition
    group.logic = logic
    for kiwi in kiwis:
        group.group.add(kiwiCondition=pb.KiwiConditionOutput(**kiwi))
    try:
        subscription = subscription_from(message)
    except SubscriptionInvalidError as problem:
        refused: str | None = str(problem)
    else:
        refused = None

    assert "route.condition" in refused if refused is not None else subscription_to(subscription) == message


def scraped(port: int | None) -> bytes:
    """The metrics; nothing where a slot is about to be given back."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            return page.read()
    except OSError:
        return b""


def test_slow_clients_of_metrics_hold_few_threads(backing, settings, monkeypatch, capfd):
    """Half-open connections to the metrics port are closed in time or at once, and Prometheus is answered again."""
    monkeypatch.setattr(call_interceptor._Handler, "timeout", 0.3)
    # Few clients: those beyond the queue of the listening socket connect again only seconds later.
    monkeypatch.setattr(call_interceptor, "_SCRAPES", 3)
    with subscriptions_server(backing, replace(settings, metrics_port=0)) as server, ExitStack() as clients:
        address = ("127.0.0.1", server.metrics_port)
        for client in [clients.enter_context(socket.create_connection(address, timeout=30)) for _ in range(9)]:
            read_to_end(client)
        assert b"turnout_subscriptions" in wait_for(lambda: scraped(server.metrics_port))
    assert "Traceback" not in capfd.readouterr().err


def test_many_clients_of_metrics_connect_at_once():
    """Before the first is answered: none is turned away to connect again seconds later."""
    with (
        call_interceptor._server_class("127.0.0.1")(("127.0.0.1", 0), call_interceptor._Handler) as server,
        ExitStack() as clients,
    ):
        for _ in range(100):
            clients.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=5))
