"""Webhook destinations in a route: one delivery for each, under a subject that other destinations cannot use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engine.batches import batch, program, sent
from turnout.conditions import exists
from turnout.errors import RouteError
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.destinations import delivery_subject
from turnout.subscriptions.index import Index

STORE = 'subscriptions: {store: "memory://engine"}\n'
TOLERANT = "errors: {tolerance: all}\ndeadLetter: {topic: dead}\n"
ONE = 'sink: {format: nats, servers: "nats://a"}\n'
TWO = 'sinks: {one: {format: nats, servers: "nats://b"}, two: {format: nats, servers: "nats://a"}}\n'
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ENDPOINTS = f'{{billing: {{url: "https://b.example/in", secrets: ["{SECRET}"]}}}}'
URL = "https://a.example/in"
RECORD = {"topic": "orders.1", "value": {"n": 1}}


def to(*destinations: str, id: str = "s") -> Subscription:
    return Subscription(destinations, exists("subject"), id=id)


@pytest.mark.parametrize(("sinks", "block", "sink"), [(ONE, "{}", 0), (TWO, "{sink: two, subject: out.hooks}", 1)])
def test_one_delivery_each(sinks: str, block: str, sink: int) -> None:
    """Each pair of subscription and endpoint is one message, with an id of its own, in the sink that is named."""
    route = program(STORE, TOLERANT, sinks, f"webhooks: {block}\n")
    result = route.run(
        batch([RECORD]), Index.of([to(URL, "webhook:billing"), to(URL, id="other"), to("plain", id="p")])
    )
    prefix = "out.hooks" if sink else "deliver"
    expected = {
        delivery_subject(prefix, URL, "s"),
        delivery_subject(prefix, "webhook:billing", "s"),
        delivery_subject(prefix, URL, "other"),
    }

    assert {topic for topic, *_ in sent(result.messages)} == {*expected, "plain"}
    assert len(set(result.messages.ids.to_pylist())) == 4
    assert dict(zip(result.messages.topics.to_pylist(), result.messages.sinks.tolist(), strict=True)) == {
        **dict.fromkeys(expected, sink),
        "plain": 0,
    }


@pytest.mark.parametrize(
    ("destination", "block", "reason"),
    [
        (URL, "", "is a webhook, and the route has no webhooks block"),
        ("https:///in", "webhooks: {}\n", "is no URL of a webhook: it has no host"),
        (delivery_subject("deliver", "webhook:billing", "s"), "webhooks: {}\n", "deliveries to webhooks go there"),
        ("deliver-dead.a.b", "webhooks: {}\n", "deliveries to webhooks go there"),
    ],
)
def test_refused(destination: str, block: str, reason: str) -> None:
    """An invalid webhook is a dead letter, and so is a destination that imitates another one's delivery."""
    result = program(STORE, TOLERANT, ONE, block).run(batch([RECORD]), Index.of([to(destination)]))
    ((topic, _, _, headers),) = sent(result.messages)

    assert topic == "dead"
    assert reason in dict(headers)["__connect.errors.exception.message"].decode()


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ((STORE, ONE, "webhooks: {sink: two}\n"), "found 'two'"),
        ((STORE, "sink: {format: json, path: /tmp/x}\n", "webhooks: {}\n"), "needs a sink of format nats or kafka"),
        ((STORE, ONE.replace("}", ", messageId: none}"), "webhooks: {}\n"), "stores each message once"),
        ((ONE, "webhooks: {}\n"), "needs subscriptions"),
        ((STORE, ONE, "webhooks: {subject: $JS.a}\n"), "expected a subject"),
        ((STORE, ONE, "webhooks: {allow: [10.0.0.1/8]}\n"), "has host bits set"),
        ((STORE, ONE, "webhooks: {secrets: [whsec_hidden]}\n"), "expected base64 behind whsec_"),
        ((STORE, ONE, "webhooks: {secrets: [hidden]}\n"), "expected whsec_"),
        ((STORE, ONE, "webhooks: {endpoints: {a: {url: 'ftp://hidden'}}}\n"), "expected https://"),
        ((STORE, ONE, "webhooks: {endpoints: {a: {url: 'https://a', delivery: {rate: 0}}}}\n"), "rate: expected"),
    ],
)
def test_route_mistakes(parts: tuple[str, ...], problem: str) -> None:
    """A webhooks block that cannot work is a mistake of the route with its path; secrets are not shown."""
    text = f'name: r\nsource: {{format: nats, servers: "nats://a", stream: S}}\n{"".join(parts)}'
    with pytest.raises(RouteError) as raised:
        Route.parse(text)

    assert problem in str(raised.value)
    assert "webhooks" in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_secrets_are_not_printed() -> None:
    """A route's text form has no secret."""
    route = program(STORE, ONE, f"webhooks: {{secrets: [{SECRET}], endpoints: {ENDPOINTS}}}\n").route

    assert SECRET not in repr(route)


def test_a_delivery_has_the_body_that_its_subscription_computes() -> None:
    """The queue holds what is posted: a webhook beside a plain destination gets the same body, others the record's."""
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    route = program(STORE, TOLERANT, ONE, "webhooks: {}\n")
    computed = replace(to(URL, "plain"), project="{'number': value.n}")
    result = route.run(batch([RECORD]), Index.of([computed, to(URL, id="other")]))
    bodies = dict(zip(result.messages.topics.to_pylist(), result.messages.column("value").to_pylist(), strict=True))

    assert bodies == {
        delivery_subject("deliver", URL, "s"): b'{"number":1}',
        "plain": b'{"number":1}',
        delivery_subject("deliver", URL, "other"): b'{"n":1,"town":null,"secret":null}',
    }
