"""Messages of requests, by the kind of the input."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.delivery.requests import request_of
from turnout.server.inputs.messages import MOST_MESSAGES, BodyError, Incoming, messages_of
from turnout.subscriptions.delivery_settings import BodyFormat, DeliverySettings

CE = {"ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-specversion": "1.0"}
EVENT = {"id": "1", "source": "/s", "type": "t", "specversion": "1.0"}
STRUCTURED = {"content-type": "application/cloudevents+json; charset=UTF-8"}
BATCHED = {"content-type": "application/cloudevents-batch+json"}


def test_signed_kinds() -> None:
    """The body is stored unchanged, with the sender's id and its kind."""
    (standard,) = messages_of("standard-webhooks", {"webhook-id": "msg_1", "content-type": "a/b"}, b"\xff")
    (github,) = messages_of("github", {"x-github-delivery": "d", "x-github-event": "push", "cookie": "x"}, b"{}")
    (stripe,) = messages_of("stripe", {}, b'{"id": "evt_1", "big": 1e999}')

    assert standard == Incoming(b"\xff", {"Content-Type": "a/b", "webhook-id": "msg_1"}, "msg_1")
    assert github == Incoming(b"{}", {"X-GitHub-Event": "push", "X-GitHub-Delivery": "d"}, "d")
    assert (stripe.identity, stripe.body) == ("evt_1", b'{"id": "evt_1", "big": 1e999}')


def test_json_and_lines() -> None:
    """A key makes a request idempotent; of lines each has an id of its own."""
    (plain,) = messages_of("json", {"idempotency-key": "k"}, b" [1] ")
    lines = messages_of("lines", {"idempotency-key": "k"}, b'{"a": 1}\r\n\n"b"\n3')

    assert (plain.body, plain.identity) == (b" [1] ", "k")
    assert [(line.body, line.identity) for line in lines] == [(b'{"a": 1}', "k:1"), (b'"b"', "k:3"), (b"3", "k:4")]
    assert messages_of("json", {}, b"1")[0].msg_id("n") is None


def test_cloudevents_have_one_form() -> None:
    """Binary, structured and batched requests give the same message: attributes as headers, data as the body."""
    binary = messages_of("cloudevents", {**CE, "ce-subject": "a%20%C3%BC", "content-type": "a/json"}, b'{"n":1}')
    event = {**EVENT, "subject": "a ü", "datacontenttype": "a/json", "data": {"n": 1}}
    body = json.dumps(event, separators=(",", ":")).encode()

    assert binary == messages_of("cloudevents", STRUCTURED, body) == messages_of("cloudevents", BATCHED, b"[%b]" % body)
    assert binary[0].headers["ce-subject"] == "a ü"
    assert binary[0].identity == "/s 1"
    assert messages_of("cloudevents", BATCHED, b"[]") == []


@pytest.mark.parametrize(
    ("more", "body"),
    [
        ({"data": "x"}, b'"x"'),
        ({"data": "x", "datacontenttype": "text/plain"}, b"x"),
        ({"data": {"n": 1}, "datacontenttype": "text/plain"}, b'{"n": 1}'),
        ({"data_base64": "/w=="}, b"\xff"),
        ({"data": None}, b"null"),
        ({}, b""),
    ],
)
def test_data(more: dict[str, object], body: bytes) -> None:
    """Data is the event's: JSON unchanged, a text of another type itself, or bytes in base64."""
    (message,) = messages_of("cloudevents", STRUCTURED, json.dumps({**EVENT, **more}).encode())

    assert message.body == body


@pytest.mark.parametrize("format_", ["cloudevents-binary", "cloudevents-structured", "cloudevents-batched"])
@given(body=st.binary(max_size=50) | st.from_type(int).map(lambda n: b'{"n": %d}' % n), subject=st.text(max_size=20))
def test_what_we_send_is_taken(format_: BodyFormat, body: bytes, subject: str) -> None:
    """Messages sent by the dispatcher are received unchanged, in each mode of CloudEvents."""
    if not subject.isprintable() or not subject:
        subject = "plain"
    settings = DeliverySettings(format=format_)
    sent, content = request_of(settings, "m", {"ce_subject": [subject]}, body, lambda: datetime.now(UTC), "s")
    lowered = {name.lower(): text for name, text in sent.items()}
    (message,) = messages_of("cloudevents", lowered, content)

    assert message.body == body
    assert message.headers["ce-subject"] == subject
    assert message.identity == "/subscriptions/s m"


@pytest.mark.parametrize(
    ("kind", "headers", "body", "problem"),
    [
        ("stripe", {}, b"{}", "id: expected"),
        ("stripe", {}, b'{"id": [1]}', "id: expected"),
        ("stripe", {}, b"[]", "expected a JSON object"),
        ("stripe", {}, b'{"id":"\xff"}', "in UTF-8"),
        ("stripe", {}, b'{"\xff":"id"}', "expected a JSON object"),
        ("lines", {}, b'1\n{"id":"\xff"}\n', "line 2: a JSON text"),
        ("cloudevents", STRUCTURED, b'{"id":"\xff"}', "in UTF-8"),
        ("cloudevents", STRUCTURED, b'{"data":"\xff"}', "in UTF-8|needs id"),
        ("cloudevents", BATCHED, b'[{"id":"\xff"}]', "in UTF-8"),
        ("json", {}, b"", "expected a JSON text"),
        ("json", {}, b"[" * 1_000_000, "expected a JSON text"),
        ("json", {}, b'"\xff"', "expected a JSON text"),
        ("lines", {}, b"\n\n", "found none"),
        ("lines", {}, b"1\n{\n", "line 2: a JSON text"),
        ("lines", {}, b"\n" * (MOST_MESSAGES + 1), "at most 1,000 lines"),
        ("cloudevents", {}, b"{}", "needs id, source, specversion, type"),
        ("cloudevents", {**CE, "ce-specversion": "0.3"}, b"", "expected 1.0"),
        ("cloudevents", {**CE, "ce-subject": "a%0Ab"}, b"", "without control characters"),
        ("cloudevents", {**CE, "ce-a_b": "x"}, b"", "names of attributes"),
        ("cloudevents", {**CE, **{f"ce-a{n}": "x" for n in range(70)}}, b"", "at most 64 attributes"),
        ("cloudevents", STRUCTURED, b"[]", "a CloudEvent"),
        ("cloudevents", STRUCTURED, b'{"id": {}}', "'id': expected a text"),
        ("cloudevents", STRUCTURED, b'{"id": "\\ud800"}', "expected"),
        ("cloudevents", STRUCTURED, json.dumps({**EVENT, "data": 1, "data_base64": ""}).encode(), "found both"),
        ("cloudevents", STRUCTURED, json.dumps({**EVENT, "data_base64": "!"}).encode(), "expected base64"),
        ("cloudevents", STRUCTURED, json.dumps({**EVENT, "datacontenttype": "a\nb"}).encode(), "without control"),
        ("cloudevents", BATCHED, b"[" + b"{}," * MOST_MESSAGES + b"{}]", "at most 1,000 events"),
        ("cloudevents", BATCHED, json.dumps([EVENT, {}]).encode(), "event 2: a CloudEvent needs"),
    ],
)
def test_bad_bodies(kind: str, headers: dict[str, str], body: bytes, problem: str) -> None:
    """A body without messages is an error that says what was expected."""
    with pytest.raises(BodyError, match=problem) as raised:
        messages_of(kind, headers, body)

    assert raised.value.status == (413 if "at most 1,000" in problem else 400)


@given(st.binary(max_size=300))
def test_any_body(body: bytes) -> None:
    """Every body yields messages or a BodyError."""
    for kind, headers in (("cloudevents", STRUCTURED), ("cloudevents", BATCHED), ("lines", {}), ("stripe", {})):
        with suppress(BodyError):
            messages_of(kind, headers, body)
