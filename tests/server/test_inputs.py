"""Signatures of inputs: published vectors, what a signer would send, and what is refused."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import signal
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from starlette.testclient import TestClient

from tests.documentation import blocks
from tests.nats.jetstream.support import fresh
from tests.server.conftest import Bench, bench, wait_for
from turnout.delivery.requests import Signer, request_of
from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import Message, StreamConfig, connect
from turnout.rpc.tokens import entry_of, new_token
from turnout.server.config import InputPart, ServerConfig, check_secret
from turnout.server.inputs import MOST_MESSAGES, BodyError, Incoming, Intake, Signed, messages_of, problem_of
from turnout.server.rest.app import build_app, guarded
from turnout.server.security import TokenFile
from turnout.subscriptions.delivery_settings import BodyFormat, DeliverySettings

WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = f"whsec_{b64encode(bytes(range(32))).decode()}"
NOW = 1_614_265_330.0


def signed(body: bytes, now: float = NOW, **headers: Any) -> Signed:
    return Signed({name.replace("_", "-"): text for name, text in headers.items()}, body, now, 300.0)


STANDARD: dict[str, Any] = {
    "webhook_id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook_timestamp": "1614265330",
    "webhook_signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""Example of the libraries of Standard Webhooks."""


@pytest.mark.parametrize("secrets", [[WHSEC], [OTHER, WHSEC], [WHSEC, OTHER]])
def test_standard_vector(secrets: list[str]) -> None:
    """The published signature is accepted, by any of the secrets."""
    assert problem_of("standard-webhooks", secrets, signed(b'{"test": 2432232314}', **STANDARD)) is None


def test_github_vector() -> None:
    """The published example: "Hello, World!" under a known secret gives a known digest."""
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    request = signed(b"Hello, World!", x_hub_signature_256=f"sha256={digest}")

    assert problem_of("github", ["It's a Secret to Everybody"], request) is None
    assert problem_of("github", ["another secret, of that length"], request) is not None


def test_standard_library_and_ours() -> None:
    """Signatures of the reference library and of the dispatcher are accepted, with HMAC and with Ed25519."""
    moment = datetime.now(UTC)
    seconds = int(moment.timestamp())
    by_library = Webhook(WHSEC).sign("msg_1", moment, "body")
    private = Ed25519PrivateKey.generate()
    seed = private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    by_us = Signer([OTHER, f"whsk_{b64encode(seed).decode()}"]).signature("msg_1", seconds, b"body")
    whpk = f"whpk_{b64encode(public).decode()}"

    for signature, secret in ((by_library, WHSEC), (by_us, OTHER), (by_us, whpk)):
        headers = {"webhook_id": "msg_1", "webhook_timestamp": f"{seconds}", "webhook_signature": signature}
        assert problem_of("standard-webhooks", [secret], signed(b"body", seconds, **headers)) is None
        assert problem_of("standard-webhooks", [secret], signed(b"bodY", seconds, **headers)) is not None


def stripe(body: bytes, secret: str = "whsec_of_an_endpoint", seconds: int = int(NOW)) -> str:
    digest = hmac.new(secret.encode(), b"%d.%b" % (seconds, body), hashlib.sha256).hexdigest()
    return f"t={seconds},v1={'0' * 64},v1={digest},v0=x"


def test_stripe() -> None:
    """One of several v1 signatures is enough; time, body and secret have to be those that were signed."""
    header = stripe(b"{}")
    secrets = ["whsec_of_an_endpoint"]

    assert problem_of("stripe", secrets, signed(b"{}", stripe_signature=header)) is None
    assert problem_of("stripe", ["whsec_of_another_one"], signed(b"{}", stripe_signature=header)) is not None
    assert problem_of("stripe", secrets, signed(b"{ }", stripe_signature=header)) is not None
    assert problem_of("stripe", secrets, signed(b"{}", stripe_signature=header.replace("v1=", "v0="))) is not None
    assert problem_of("stripe", secrets, signed(b"{}", stripe_signature=header.replace("t=16", "t=17"))) is not None


def test_stripe_vector() -> None:
    """The signed event of Stripe's own libraries is accepted; their v0 is no signature, and a blank more is refused."""
    invoice = {
        "id": "ii_123",
        "object": "invoiceitem",
        "amount": 1000,
        "currency": "usd",
        "customer": "cus_123",
        "date": 1533204620,
        "description": "Test Invoice Item",
        "discountable": False,
        "invoice": "in_123",
        "livemode": False,
        "metadata": {},
        "period": {"start": 1533204620, "end": 1533204620},
        "plan": None,
        "proration": False,
        "quantity": None,
        "subscription": None,
    }
    event = {
        "id": "evt_123",
        "object": "event",
        "account": "acct_123",
        "api_version": "2017-05-25",
        "created": 1533204620,
        "data": {"object": invoice},
        "livemode": False,
        "pending_webhooks": 1,
        "request": {"id": "req_123", "idempotency_key": "idempotency-key-123"},
        "type": "invoiceitem.created",
    }
    body = json.dumps(event, indent=2).encode() + b"\n"
    v1 = "f0bdba6d4eacbd8ad8a3bbadd7248e633ec1477f7899c124c51b39405fa36613"
    v0 = "63f3a72374a733066c4be69ed7f8e5ac85c22c9f0a6a612ab9a025a9e4ee7eef"

    def problem(sent: bytes, signature: str) -> str | None:
        return problem_of("stripe", ["webhook_secret"], signed(sent, 1_533_204_720, stripe_signature=signature))

    assert problem(body, f"t=1533204620,v1={v1},v0={v0}") is None
    assert problem(body, f"t=1533204620,v0={v1}") is not None
    assert problem(body, f"t=1533204620,v1={v0}") is not None
    assert problem(body + b" ", f"t=1533204620,v1={v1}") is not None


@pytest.mark.parametrize("away", [-301.0, 301.0, -300.0, 300.0])
def test_tolerance(away: float) -> None:
    """A signature holds as long as the tolerance says, into the future too."""
    standard = problem_of("standard-webhooks", [WHSEC], signed(b'{"test": 2432232314}', NOW + away, **STANDARD))
    striped = problem_of("stripe", ["whsec_of_an_endpoint"], signed(b"", NOW + away, stripe_signature=stripe(b"")))

    for problem in (standard, striped):
        assert (problem is None) == (abs(away) <= 300)
        assert problem is None or "more than 300 s away" in problem


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("standard-webhooks", {}),
        ("standard-webhooks", {**STANDARD, "webhook_id": ""}),
        ("standard-webhooks", {**STANDARD, "webhook_id": "msg_2"}),
        ("standard-webhooks", {**STANDARD, "webhook_timestamp": "9" * 5_000}),
        ("standard-webhooks", {**STANDARD, "webhook_timestamp": "²"}),
        ("standard-webhooks", {**STANDARD, "webhook_signature": "v1,"}),
        ("standard-webhooks", {**STANDARD, "webhook_signature": " " * 8 + STANDARD["webhook_signature"]}),
        ("standard-webhooks", {**STANDARD, "webhook_signature": "v1,ü"}),
        ("github", {}),
        ("github", {"x_hub_signature_256": "sha1=00"}),
        ("github", {"x_hub_signature_256": "ü"}),
        ("stripe", {}),
        ("stripe", {"stripe_signature": ","}),
        ("stripe", {"stripe_signature": "t=,v1="}),
        ("stripe", {"stripe_signature": f"t={int(NOW)}"}),
        ("json", {}),
        ("lines", {"authorization": "Basic eA=="}),
        ("cloudevents", {"authorization": "Bearer"}),
        ("json", {"authorization": f"Bearer {WHSEC}x"}),
    ],
)
def test_refused(kind: str, headers: dict[str, Any]) -> None:
    """An invalid proof is refused with a message that shows no secret and no expected signature."""
    request = signed(b'{"test": 2432232314}', **headers)
    problem = problem_of(kind, [WHSEC], request)

    assert problem is not None
    assert WHSEC[6:] not in problem
    assert "g0hM9SsE" not in problem


@pytest.mark.parametrize(
    ("kind", "secret"),
    [
        ("standard-webhooks", "secret-without-prefix"),
        ("standard-webhooks", "whsec_c2hvcnQ="),
        ("standard-webhooks", "whpk_c2hvcnQ="),
        ("standard-webhooks", "whsec_!"),
        ("github", "short"),
        ("json", "with a space inside it"),
        ("json", "mit-ümlaut-ümlaut-ümlaut"),
    ],
)
def test_bad_secrets(kind: str, secret: str) -> None:
    """An invalid secret of its kind is refused, and not shown."""
    with pytest.raises(ValueError, match="expected") as raised:
        check_secret(kind, secret)

    assert secret not in str(raised.value)


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


__all__ = ["bench"]

TOKEN = "0123456789abcdef-token"
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Scene:
    """An input with a stream of its own."""

    def __init__(self, bench: Bench, url: str, **settings: Any) -> None:
        self.bench, self.url, self.stream = bench, url, fresh("IN")
        sink = {"format": "nats", "servers": url, "stream": self.stream, "timeout": 1.0, "connectTimeout": 1.0}
        document = {"kind": "json", "secrets": [TOKEN], "subject": f"{self.stream}.new", "sink": sink, **settings}
        self.part = InputPart.model_validate(document)
        self.now = [0.0]
        self.intake = Intake({"shop": self.part}, clock=lambda: self.now[0])

    @contextmanager
    def serving(self, **gate: Any) -> Iterator[TestClient]:
        parts = self.bench.parts
        object.__setattr__(parts, "intake", self.intake)
        self.intake.start()
        try:
            app = guarded(build_app(parts), inputs={"shop": self.part.max_body}, **gate)
            yield TestClient(app, base_url="http://127.0.0.1:8090")
        finally:
            self.intake.close()

    def make_stream(self, **config: Any) -> None:
        async def work() -> None:
            async with connect(self.url) as js:
                await js.create_stream(StreamConfig(name=self.stream, subjects=(f"{self.stream}.>",), **config))

        asyncio.run(work())

    def stored(self) -> list[Message]:
        async def work() -> list[Message]:
            async with connect(self.url) as js:
                stream = await js.stream(self.stream)
                last = (await stream.info()).state.last_seq
                return [await stream.get_message(number + 1) for number in range(last)]  # type: ignore[misc]

        return asyncio.run(work())


def test_stored_before_the_answer(bench: Bench, nats_server: NatsServer) -> None:
    """A request is answered when its message is in the stream; the same id again is stored once and reported."""
    scene = Scene(bench, nats_server.url)
    scene.make_stream()
    with scene.serving() as client:
        headers = {**BEARER, "Idempotency-Key": "k"}
        first = client.post("/v1/in/shop", content=b'{"n": 1}', headers=headers)
        again = client.post("/v1/in/shop", content=b'{"n": 1}', headers=headers)
        other = client.post("/v1/in/shop", content=b'{"n": 1}', headers=BEARER)

        assert (first.status_code, first.json()) == (200, {"messages": 1, "duplicates": 0})
        assert again.json() == {"messages": 1, "duplicates": 1}
        assert other.json() == {"messages": 1, "duplicates": 0}
    assert [message.data for message in scene.stored()] == [b'{"n": 1}', b'{"n": 1}']
    assert scene.intake.messages == {"shop": 2}


def test_batch_in_order(bench: Bench, nats_server: NatsServer) -> None:
    """Lines are stored in their order; a batch that is sent again adds only what was missing."""
    scene = Scene(bench, nats_server.url, kind="lines")
    scene.make_stream()
    lines = [b'{"n": %d}' % number for number in range(1_000)]
    with scene.serving() as client:
        headers = {**BEARER, "Idempotency-Key": "k", "Content-Type": "application/x-ndjson"}
        part = client.post("/v1/in/shop", content=b"\n".join(lines[:300]), headers=headers)
        whole = client.post("/v1/in/shop", content=b"\n".join(lines), headers=headers)

        assert part.json() == {"messages": 300, "duplicates": 0}
        assert whole.json() == {"messages": 1_000, "duplicates": 300}
    assert [message.data for message in scene.stored()] == lines


def test_signed_request_needs_no_token_of_the_server(bench: Bench, nats_server: NatsServer, tmp_path: Path) -> None:
    """The signature replaces a token, for any content type; all other paths still need a token."""
    secret = "a-secret-of-the-hook"
    scene = Scene(bench, nats_server.url, kind="github", secrets=["another-old-secret", secret])
    scene.make_stream()
    (tmp_path / "tokens.yaml").write_text(entry_of(new_token()[1], "*", (), ()))
    body = b"payload=%7B%7D"
    signature = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"
    headers = {
        "X-Hub-Signature-256": signature,
        "X-GitHub-Event": "push",
        "X-GitHub-Delivery": "d-1",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    with scene.serving(authenticator=TokenFile(tmp_path / "tokens.yaml")) as client:
        assert client.post("/v1/in/shop", content=body, headers=headers).status_code == 200
        assert client.post("/v1/in/shop", content=body + b"x", headers=headers).status_code == 401
        assert client.post("/v1/in/none", content=body, headers=headers).status_code == 401
        assert client.get("/v1/in/shop").status_code == 405
        assert client.get("/v1/routes").status_code == 401
    (message,) = scene.stored()
    assert (message.data, message.header("X-GitHub-Event")) == (body, "push")


def test_refusals(bench: Bench, nats_server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    """Each refusal has its status and a sentence; nothing of it is stored, and no secret is shown or logged."""
    scene = Scene(bench, nats_server.url, maxBody=1_000)
    scene.make_stream()
    with scene.serving() as client, caplog.at_level("DEBUG"):
        answers = [
            client.post("/v1/in/shop", content=b"{}", headers={"Authorization": "Bearer wrong-wrong-wrong"}),
            client.post("/v1/in/shop", content=b"{}"),
            client.post("/v1/in/shop", content=b"{", headers=BEARER),
            client.post("/v1/in/shop", content=b"1" * 1_001, headers=BEARER),
            client.post("/v1/in/none", content=b"{}", headers=BEARER),
        ]

        assert [answer.status_code for answer in answers] == [401, 401, 400, 413, 404]
        assert all(answer.headers["content-type"] == "application/problem+json" for answer in answers)
        assert [answer.json()["detail"] for answer in answers[:4]] == [
            "the token is not one of this input",
            "a token is needed: Authorization: Bearer …",
            "expected a JSON text",
            "a request has at most 1,000 bytes",
        ]
    assert scene.stored() == []
    said = "".join(answer.text for answer in answers) + caplog.text + repr(scene.part)
    assert TOKEN not in said


def test_rate(bench: Bench, nats_server: NatsServer) -> None:
    """Requests beyond the rate get a time to retry; refused ones do not count."""
    scene = Scene(bench, nats_server.url, rate=0.5)
    scene.make_stream()
    with scene.serving() as client:

        def status(headers: dict[str, str] = BEARER) -> int:
            return client.post("/v1/in/shop", content=b"1", headers=headers).status_code

        assert [status({}) for _ in range(3)] == [401] * 3
        assert [status(), status()] == [200, 429]
        refused = client.post("/v1/in/shop", content=b"1", headers=BEARER)
        assert refused.headers["Retry-After"] == "2"
        scene.now[0] = 2.0
        assert [status(), status()] == [200, 429]
    assert len(scene.stored()) == 2
    assert scene.intake.counts == {("shop", "refused"): 3, ("shop", "stored"): 2, ("shop", "limited"): 3}


def test_absent_server(bench: Bench, tmp_path: Path) -> None:
    """Without a server, or without a stream for the subject, the answer is 503; later the same request is stored."""
    server = NatsServer(tmp_path)
    with server:
        pass
    scene = Scene(bench, server.url)
    with scene.serving() as client:
        headers = {**BEARER, "Idempotency-Key": "k"}
        absent = client.post("/v1/in/shop", content=b"1", headers=headers)
        with server:
            without_stream = client.post("/v1/in/shop", content=b"1", headers=headers)
            scene.make_stream()
            stored = client.post("/v1/in/shop", content=b"1", headers=headers)

            assert [absent.status_code, without_stream.status_code, stored.status_code] == [503, 503, 200]
            assert absent.headers["Retry-After"]
            assert stored.json() == {"messages": 1, "duplicates": 0}
            assert len(scene.stored()) == 1


def freeze(pid: int) -> None:
    """Stop a process, and wait until each of its threads has stopped."""
    os.kill(pid, signal.SIGSTOP)
    states = lambda: {  # noqa: E731
        task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")
    }
    wait_for(lambda: states() == {"T"})


def test_frozen_server(bench: Bench, tmp_path: Path) -> None:
    """A frozen server confirms nothing: 503. When it continues, the repeated message is stored once."""
    with NatsServer(tmp_path) as server:
        scene = Scene(bench, server.url)
        scene.make_stream()
        with scene.serving() as client:
            headers = {**BEARER, "Idempotency-Key": "k"}
            assert client.post("/v1/in/shop", content=b"0", headers=BEARER).status_code == 200
            freeze(server.pid)
            try:
                assert client.post("/v1/in/shop", content=b"1", headers=headers).status_code == 503
            finally:
                os.kill(server.pid, signal.SIGCONT)
            assert client.post("/v1/in/shop", content=b"1", headers=headers).status_code == 200
        assert [message.data for message in scene.stored()] == [b"0", b"1"]


def test_full_or_wrong_stream(bench: Bench, nats_server: NatsServer) -> None:
    """Messages that the stream refuses are not confirmed: it is full, or another stream has the subject."""
    scene = Scene(bench, nats_server.url)
    scene.make_stream(max_msgs=1, discard="new")
    with scene.serving() as client:
        statuses = [client.post("/v1/in/shop", content=b"1", headers=BEARER).status_code for _ in range(2)]

        assert statuses == [200, 503]
    other = Scene(bench, nats_server.url, subject=f"{scene.stream}.new")
    with other.serving() as client:
        assert client.post("/v1/in/shop", content=b"1", headers=BEARER).status_code == 503
    assert len(scene.stored()) == 1


def test_message_larger_than_the_server_takes(bench: Bench, nats_server: NatsServer) -> None:
    """A message above the server's limit is 413, and not tried for ever."""
    scene = Scene(bench, nats_server.url, maxBody=2 << 20)
    scene.make_stream()
    with scene.serving() as client:
        answer = client.post("/v1/in/shop", content=b'"%b"' % (b"x" * (1 << 20)), headers=BEARER)

        assert answer.status_code == 413


def test_documented_settings(tmp_path: Path) -> None:
    """The page's settings are valid."""
    block = next(block for block in blocks("http-source.md", "yaml") if block.text.startswith("inputs:"))
    file = tmp_path / "turnout.yaml"
    file.write_text(block.text)
    variables = {"SHOP_SECRET": "whsec_of_an_endpoint", "SENSORS_TOKEN": TOKEN}

    assert set(ServerConfig.load(file, variables).inputs) == {"shop", "sensors"}


def test_settings(tmp_path: Path) -> None:
    """Secrets come from variables of the environment; mistakes name the place and no secret."""
    file = tmp_path / "turnout.yaml"
    sink = {"format": "nats", "servers": "nats://127.0.0.1:4222"}
    part = {"kind": "json", "secrets": ["${SHOP}"], "subject": "a.b", "sink": sink}

    def load(**changes: Any) -> ServerConfig:
        file.write_text(json.dumps({"inputs": {"shop": {**part, **changes}}}))
        return ServerConfig.load(file, {"SHOP": TOKEN})

    assert load().inputs["shop"].secrets == [TOKEN]
    (tmp_path / "token.txt").write_text(f"{TOKEN}\n")
    for written in ("${file:token.txt}", f"${{NONE:-{TOKEN}}}"):
        assert load(secrets=[written]).inputs["shop"].secrets == [TOKEN]
    for changes, place in (
        ({"secrets": ["${NONE}"]}, "inputs.shop.secrets.0"),
        ({"secrets": ["${file:none.txt}"]}, "inputs.shop.secrets.0"),
        ({"secrets": []}, "inputs.shop.secrets"),
        ({"secrets": ["hidden"]}, "inputs.shop"),
        ({"subject": "a.*"}, "inputs.shop.subject"),
        ({"kind": "gitlab"}, "inputs.shop.kind"),
        ({"maxBody": 1 << 30}, "inputs.shop.maxBody"),
        ({"secret": "x"}, "inputs.shop.secret"),
    ):
        with pytest.raises(ConfigError) as raised:
            load(**changes)
        assert place in str(raised.value)
        assert "hidden" not in str(raised.value)
