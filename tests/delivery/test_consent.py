"""Consent of endpoints that subscriptions name: what they are asked, and that nothing is posted before they agree."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks import Webhook

from tests.delivery.receiver import SECRET, Hooks, Receiver, Request
from turnout.delivery import consent
from turnout.delivery.client import Response
from turnout.delivery.consent import allowed, is_echoed
from turnout.delivery.dispatcher import opened_queue
from turnout.delivery.lane import EndpointLimits
from turnout.embedded import NatsServer
from turnout.errors import RouteError

FAST = {"retry": [0.05, 0.05], "jitter": 0}


def run(
    nats_server: NatsServer, answer: Callable[[Request], Any], work: Callable[[Hooks, Receiver], Any], **webhooks: Any
) -> Receiver:
    receiver = Receiver(answer)

    async def all_of_it() -> None:
        async with receiver.serving():
            hooks = Hooks(nats_server.url, receiver)
            hooks.endpoint = {"url": receiver.url.replace("/in", "/own")}
            hooks.webhooks = webhooks
            await work(hooks, receiver)

    asyncio.run(all_of_it())
    return receiver


def agrees(request: Request) -> web.Response:
    if request.method == "OPTIONS":
        return web.Response(headers={"WebHook-Allowed-Origin": "turnout.example", "WebHook-Allowed-Rate": "6000"})
    if b"turnout.challenge" in request.body:
        return web.json_response({"response": json.loads(request.body)["challenge"]})
    return web.Response(status=204)


CLOUDEVENTS = {"consent": "cloudevents", "origin": "turnout.example"}


def test_cloudevents(nats_server: NatsServer) -> None:
    """An endpoint is asked once by OPTIONS with origin and rate; the answer holds for the next dispatcher too."""

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("s", rate=50, **FAST)
        await hooks.publish(*(b"%d" % number for number in range(5)), to=receiver.url, subscription="s")
        assert (await hooks.deliver()).delivered == 5
        await hooks.publish(b"again", to=receiver.url, subscription="s")
        assert (await hooks.deliver()).delivered == 1

    requests = run(nats_server, agrees, work, **CLOUDEVENTS).requests

    assert [request.method for request in requests] == ["OPTIONS", *["POST"] * 6]
    assert requests[0].headers["WebHook-Request-Origin"] == "turnout.example"
    assert requests[0].headers["WebHook-Request-Rate"] == "3000"


def test_challenge(nats_server: NatsServer) -> None:
    """A signed random text is posted first, and the endpoint repeats it; another URL is asked anew."""

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        await hooks.publish(b"1", b"2", to=receiver.url)
        await hooks.publish(b"3", to=f"{receiver.url}/changed")
        assert (await hooks.deliver()).delivered == 3

    requests = run(nats_server, agrees, work, consent="challenge").requests
    asked = {request.path: request for request in requests if b"turnout.challenge" in request.body}

    assert len(requests) == 5
    assert set(asked) == {"/in", "/in/changed"}
    assert len({json.loads(request.body)["challenge"] for request in asked.values()}) == 2
    assert min(map(requests.index, asked.values())) == 0
    headers = {name.lower(): text for name, text in asked["/in"].headers.items()}
    assert Webhook(SECRET).verify(asked["/in"].body, headers)


def test_each_tenant_asks(nats_server: NatsServer) -> None:
    """The consent to the messages of one tenant is none to those of another."""

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("@a/s", **FAST)
        hooks.subscribe("@b/s", **FAST)
        await hooks.publish(b"1", to=receiver.url, subscription="@a/s")
        await hooks.publish(b"2", to=receiver.url, subscription="@b/s")
        assert (await hooks.deliver()).delivered == 2

    requests = run(nats_server, agrees, work, **CLOUDEVENTS).requests

    assert [request.method for request in requests].count("OPTIONS") == 2


def test_no_consent(nats_server: NatsServer) -> None:
    """Nothing is posted to who does not agree: the attempt has the reason, and the endpoint is not asked each time."""

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("s", **FAST)
        await hooks.publish(b"1", b"2", to=receiver.url, subscription="s")
        counts = await hooks.deliver()
        assert (counts.dead, counts.requests, counts.not_sent) == (2, 0, 6)
        letters = await hooks.dead()
        assert all("did not allow the origin turnout.example: status 404" in h["Turnout-Attempts"] for _, h in letters)
        async with opened_queue(hooks.route) as queue:
            stored = await (await queue.attempts()).consent(receiver.url)
            assert stored is not None
            assert not stored.is_granted

    requests = run(nats_server, lambda _: web.Response(status=404), work, **CLOUDEVENTS).requests

    assert [request.method for request in requests] == ["OPTIONS"]


def test_consent_that_comes_later(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal is asked again with a later attempt."""
    monkeypatch.setattr(consent, "_AGAIN_SECONDS", 0.0)

    def answer(request: Request) -> web.Response:
        return web.Response(status=404) if request.number == 1 else agrees(request)

    async def work(hooks: Hooks, receiver: Receiver) -> None:
        hooks.subscribe("s", **FAST)
        await hooks.publish(b"1", to=receiver.url, subscription="s")
        assert (await hooks.deliver()).delivered == 1

    requests = run(nats_server, answer, work, **CLOUDEVENTS).requests

    assert [request.method for request in requests] == ["OPTIONS", "OPTIONS", "POST"]


def test_endpoints_of_the_route_are_not_asked(nats_server: NatsServer) -> None:
    """Neither by their name nor by their URL: the operator has chosen them."""

    async def work(hooks: Hooks, _: Receiver) -> None:
        await hooks.publish(b"1")
        await hooks.publish(b"2", to=hooks.endpoint["url"])
        assert (await hooks.deliver()).delivered == 2

    requests = run(nats_server, lambda _: web.Response(status=204), work, **CLOUDEVENTS).requests

    assert [request.method for request in requests] == ["POST", "POST"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"webhook-allowed-origin": "a.example, Turnout.Example"}, ("", None)),
        ({"webhook-allowed-origin": "*", "webhook-allowed-rate": "*"}, ("", None)),
        ({"webhook-allowed-origin": "*", "webhook-allowed-rate": "30"}, ("", 0.5)),
        (
            {"webhook-allowed-origin": "*", "webhook-allowed-rate": "0"},
            ("the endpoint allows no rate: found '0'", None),
        ),
        ({"webhook-allowed-origin": "*", "webhook-allowed-rate": "-1"}, ("the endpoint allows no rate", None)),
        ({"webhook-allowed-origin": "other.example"}, ("the endpoint did not allow the origin turnout.example", None)),
        ({}, ("the endpoint did not allow the origin turnout.example: status 200", None)),
    ],
)
def test_answers_to_the_validation(headers: dict[str, str], expected: tuple[str, float | None]) -> None:
    """Only the origin, or *, is consent; the rate is of a minute."""
    problem, rate = allowed(Response(200, headers=headers), "turnout.example")

    assert rate == expected[1]
    assert problem.startswith(expected[0])
    assert bool(problem) == bool(expected[0])


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (Response(200, body=b" text\n"), True),
        (Response(200, body=b'{"response": "text"}'), True),
        (Response(200, body=b'{"type": "turnout.challenge", "challenge": "text"}'), False),
        (Response(200, body=b"text and more"), False),
        (Response(200, body=b"\xff"), False),
        (Response(400, body=b"text"), False),
    ],
)
def test_answers_to_a_challenge(response: Response, expected: bool) -> None:
    """The text alone, or as response, is consent; an echo of the request is none."""
    assert is_echoed(response, "text") is expected


def test_the_allowed_rate_holds() -> None:
    """The lowest rate that an endpoint has allowed is that of all its lanes."""
    limits = EndpointLimits()
    limits.allow(None)
    limits.allow(2.0)
    limits.allow(4.0)

    assert limits.rate is not None
    assert limits.rate.rate == 2.0


def test_the_origin_is_needed(nats_server: NatsServer) -> None:
    """CloudEvents' validation names the sender, so the route has to."""
    hooks = Hooks(nats_server.url, Receiver(url="http://127.0.0.1:1/in"))
    hooks.webhooks = {"consent": "cloudevents"}

    with pytest.raises(RouteError, match="origin: missing; consent: cloudevents needs the DNS name of the sender"):
        _ = hooks.route
