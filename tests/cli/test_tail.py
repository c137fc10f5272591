"""``turnout tail`` on a real server, as a user calls it."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.certificates import make_certificates
from tests.nats.jetstream.support import fresh
from turnout.cli.app import build_app
from turnout.cli.tail import start
from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import DeliverPolicy, StorageType, StreamConfig, connect
from turnout.nats.jetstream.errors import NoMatchingStreamError

APP = build_app()
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def call(*arguments: str, fails: type[Exception] | None = None, stdin: bytes | None = None) -> Result:
    result = CliRunner().invoke(APP, arguments, input=stdin)
    assert isinstance(result.exception, fails or type(None)), result.output
    return result


def lines(result: Result) -> list[dict[str, object]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def filled(nats_server: NatsServer) -> str:
    """A stream with three messages; the first token of its subjects."""
    name = fresh("TAIL")

    async def fill() -> None:
        async with connect(nats_server.url) as js:
            await js.create_stream(StreamConfig(name=name, subjects=[f"{name}.*"], storage=StorageType.MEMORY))
            await js.publish(f"{name}.a", b"one", headers={"H": "v"})
            await js.publish(f"{name}.b", b"\xff\x00")
            await js.publish(f"{name}.a", "drei ü\x1b[31m".encode())

    asyncio.run(fill())
    return name


def test_tail_json(nats_server: NatsServer, filled: str) -> None:
    """JSON lines hold the whole message, bytes too."""
    printed = lines(call("tail", f"{filled}.*", "-s", nats_server.url, "--from", "all", "-n", "3", "--json"))

    assert [line["sequence"] for line in printed] == [1, 2, 3]
    assert (printed[0]["data"], printed[0]["headers"], printed[1]["data_base64"]) == ("one", {"H": ["v"]}, "/wA=")


def test_tail_pretty(nats_server: NatsServer, filled: str) -> None:
    """Text shows place, subject, headers and data, and never controls the terminal."""
    text = call("tail", f"{filled}.a", "-s", nats_server.url, "--from", "10m", "--wait", "0.3").stdout

    assert f"{filled}.a\n  H: v\none\n" in text
    assert "\x1b" not in text
    assert "\\x1b[31m" in text


def test_no_message_controls_the_terminal(nats_server: NatsServer) -> None:
    """Neither its headers nor its payload do, and a header forges no line; JSON escapes the same characters."""
    name = fresh("HOSTILE")

    async def fill() -> None:
        async with connect(nats_server.url) as js:
            await js.create_stream(StreamConfig(name=name, subjects=[f"{name}.*"], storage=StorageType.MEMORY))
            await js.publish(f"{name}.a", "\x9b31m\u202eabc\nd".encode(), headers={"H": "\x1b]0;owned\x07\u202e"})

    asyncio.run(fill())
    for form in ((), ("--json",)):
        text = call("tail", f"{name}.a", "-s", nats_server.url, "--from", "all", "-n", "1", *form).stdout

        assert not set(text) & set("\x1b\x07\x9b\u202e")
        assert "]0;owned" in text


def test_tail_a_subject_without_a_stream(nats_server: NatsServer) -> None:
    """A subject that no stream takes is an error that says so."""
    call("tail", "nobody.has.it", "-s", nats_server.url, fails=NoMatchingStreamError)


@pytest.mark.parametrize(
    ("text", "policy", "sequence", "moment"),
    [
        ("all", DeliverPolicy.ALL, None, None),
        ("new", DeliverPolicy.NEW, None, None),
        ("last", DeliverPolicy.LAST, None, None),
        ("last-per-subject", DeliverPolicy.LAST_PER_SUBJECT, None, None),
        ("17", DeliverPolicy.BY_START_SEQUENCE, 17, None),
        ("10m", DeliverPolicy.BY_START_TIME, None, NOW - timedelta(minutes=10)),
        ("1.5h", DeliverPolicy.BY_START_TIME, None, NOW - timedelta(minutes=90)),
        ("2026-01-01T00:00:00Z", DeliverPolicy.BY_START_TIME, None, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_from(text: str, policy: DeliverPolicy, sequence: int | None, moment: datetime | None) -> None:
    """Every form of a beginning is understood."""
    config = start(text, NOW)

    assert (config.deliver_policy, config.opt_start_seq, config.opt_start_time) == (policy, sequence, moment)


@pytest.mark.parametrize("text", ["", "yesterday", "10 m", "-5", "9999999999999d"])
def test_from_nonsense(text: str) -> None:
    """Any other is refused."""
    with pytest.raises(ConfigError, match="--from"):
        start(text, NOW)


def test_tls(tmp_path: Path) -> None:
    """With the server's authority, and our own certificate where the server asks for one."""
    pems = make_certificates(tmp_path)
    names = {"cert_file": "server.pem", "key_file": "server.key", "ca_file": "ca.pem"}
    files = ", ".join(f'{name}: "{pems / file}"' for name, file in names.items())
    own = ("--tls-cert", str(pems / "client.pem"), "--tls-key", str(pems / "client.key"))
    with NatsServer(config=f"tls {{ {files}, verify: true }}") as server:
        there = ("-s", f"tls://localhost:{server.port}", "--tls-ca", str(pems / "ca.pem"), *own)
        call("kv", *there, "create-bucket", "secured")
        call("kv", *there, "put", "secured", "k", "v")
        printed = lines(call("tail", "$KV.secured.>", "--from", "all", "-n", "1", "--json", *there))

        assert [line["data"] for line in printed] == ["v"]


def test_tls_files_that_cannot_be(tmp_path: Path) -> None:
    """A certificate without its key, and a file that is none, are mistakes in the request."""
    (tmp_path / "no.pem").write_text("nothing")
    for wrong in (["--tls-cert", "c.pem"], ["--tls-ca", str(tmp_path / "no.pem")], ["--tls-ca", "nowhere.pem"]):
        call("kv", *wrong, "put", "b", "k", "v", fails=ConfigError)
