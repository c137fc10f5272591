"""``turnout tail`` on a real server, as a user calls it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.certificates import make_certificates
from tests.nats.jetstream.support import fresh
from turnout.cli.app import build_app
from turnout.cli.jetstream import start
from turnout.embedded import NatsServer
from turnout.errors import ConfigError
from turnout.nats.jetstream import DeliverPolicy, StorageType, StreamConfig, connect
from turnout.nats.jetstream.errors import NoMatchingStreamError, WrongLastSequenceError
from turnout.nats.jetstream.kv import KeyExistsError, KeyNotFoundError

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
        ("2026-01-01T00:00:00", DeliverPolicy.BY_START_TIME, None, datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
@pytest.mark.usefixtures("far_zone")
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


def test_kv(nats_server: NatsServer) -> None:
    """A bucket's life on the command line."""
    bucket = fresh("kvcli")
    kv = ("kv", "--server", nats_server.url)
    call(*kv, "create-bucket", bucket, "--history", "5", "--memory")
    assert bucket in call(*kv, "buckets").stdout.split()
    assert call(*kv, "put", bucket, "a.b", "one").stdout == "1\n"
    assert call(*kv, "update", bucket, "a.b", "two", "--revision", "1").stdout == "2\n"
    call(*kv, "update", bucket, "a.b", "three", "--revision", "1", fails=WrongLastSequenceError)
    call(*kv, "create", bucket, "a.b", "x", fails=KeyExistsError)
    assert call(*kv, "get", bucket, "a.b").stdout == "two\n"
    assert call(*kv, "get", bucket, "a.b", "--revision", "1").stdout == "one\n"
    call(*kv, "put", bucket, "c", "-", stdin=b"from stdin")
    (entry,) = lines(call("kv", "--server", nats_server.url, "--json", "get", bucket, "c"))
    assert (entry["value"], entry["revision"], entry["operation"]) == ("from stdin", 3, "PUT")
    assert lines(call(*kv, "get", bucket, "c", "--json")) == [entry]
    assert call(*kv, "keys", bucket).stdout == "a.b\nc\n"
    assert call(*kv, "keys", bucket, "c").stdout == "c\n"
    assert call(*kv, "watch", bucket, "--once").stdout == "[2] PUT a.b = two\n[3] PUT c = from stdin\n"
    call(*kv, "delete", bucket, "a.b")
    assert call(*kv, "history", bucket, "a.b").stdout.splitlines()[-1] == "[4] DEL a.b"
    call(*kv, "purge", bucket, "c")
    call(*kv, "get", bucket, "c", fails=KeyNotFoundError)
    assert call(*kv, "watch", bucket, "--updates-only", "--wait", "0.1").stdout == ""
    call(*kv, "delete-bucket", bucket)
    assert bucket not in call(*kv, "buckets").stdout.split()


REPLY = "$JS.ACK.DOM.szMpdrwD.S.P.2.7.9.1795250826106239342.3"


def test_json() -> None:
    """Each reply is a JSON line; the tokens alone will do."""
    result = CliRunner().invoke(build_app(), ["ack-format", "--json", REPLY, REPLY.removeprefix("$JS.ACK.")])
    first, second = (json.loads(line) for line in result.stdout.splitlines())

    assert first == second
    assert (first["version"], first["domain"], first["stream_seq"], first["consumer_seq"]) == (2, "DOM", 7, 9)
    assert first["timestamp"].startswith("2026-11-21T")


def test_text() -> None:
    """For people, a line for each fact."""
    text = CliRunner().invoke(build_app(), ["ack-format", "$JS.ACK.S.C.1.2.3.4.5"]).stdout

    assert "stream         S\n" in text
    assert "domain         -\n" in text


def test_wrong(turnout: Callable[..., tuple[int, str, str]]) -> None:
    """A text that is not a JSAck is reported with the reason, and exit code 2."""
    code, _, err = turnout("ack-format", "$JS.ACK.a.b.1.1.1.1", "$JS.FC.x")

    assert code == 2
    assert "8 tokens" in err
    assert "does not begin" in err
