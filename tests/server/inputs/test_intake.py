"""``POST /v1/in/NAME`` with a real nats-server: what is answered is what is stored."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.documentation import blocks
from tests.nats.jetstream.support import fresh
from tests.server.conftest import Bench, bench, wait_for
from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import Message, StreamConfig, connect
from turnout.rpc.tokens import entry_of, new_token
from turnout.server.app import build_app, guarded
from turnout.server.config import ServerConfig
from turnout.server.inputs.config import InputPart
from turnout.server.inputs.intake import Intake
from turnout.server.principal import TokenFile

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
    block = next(block for block in blocks("webhooks.md", "yaml") if block.text.startswith("inputs:"))
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
