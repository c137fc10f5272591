"""Tokens of OAUTHBEARER: where they are from, and when they are renewed."""

from __future__ import annotations

import json
import shlex
import sys
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path

import pytest

from turnout.errors import ConfigError, StreamError
from turnout.kafka.options import KafkaOptions
from turnout.kafka.tokens import ALLOWED, AWS, COMMAND, FILE, tokens_of

OAUTH = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def token(subject: str, seconds: float) -> str:
    """An unsecured JWT."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": subject, "iat": now, "exp": now + seconds})
    return ".".join([*(urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), ""])


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    """Its end and its principal are those of the JWT; without a new one the last is used as long as it lasts."""
    file = tmp_path / "token"
    file.write_text(token("eve", 100) + "\n")
    options = KafkaOptions.of("a:9092", OAUTH | {"sasl.oauthbearer.token.endpoint.url": f"file://{file}"})
    tokens = tokens_of(options.properties, options.servers)
    assert tokens is not None

    first, until, principal, _ = tokens("")
    assert (first, principal) == (file.read_text().strip(), "eve")
    assert 90 < until - time.time() <= 100
    file.write_text(token("eve", 50))
    second = tokens("")
    assert second[0] != first
    file.unlink()
    assert tokens("")[0] == second[0]
    file.write_text(token("eve", -1))
    with pytest.raises(StreamError, match="gives no token: the token has expired"):
        tokens_of(options.properties, options.servers)("")  # type: ignore[misc]


def test_a_command_prints_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also an answer of OAuth 2; only a process that allows it runs commands of routes."""
    text = json.dumps({"access_token": "opaque", "expires_in": 60})
    code = f"print({text!r})"
    security = OAUTH | {"sasl.oauthbearer.token.command": shlex.join([sys.executable, "-c", code])}
    with pytest.raises(ConfigError, match=f"only with {ALLOWED}=1"):
        KafkaOptions.of("a:9092", security)

    monkeypatch.setenv(ALLOWED, "1")
    options = KafkaOptions.of("a:9092", security)
    assert COMMAND in options.properties
    tokens = tokens_of(options.properties, options.servers)
    assert tokens is not None
    found, until, principal, _ = tokens("")

    assert (found, principal) == ("opaque", "")
    assert 50 < until - time.time() <= 60


def test_a_command_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has its name and its status, not what it prints."""
    monkeypatch.setenv(ALLOWED, "1")
    command = f"{sys.executable} -c 'print(\"hidden\"); raise SystemExit(3)'"
    tokens = tokens_of({COMMAND: command}, ["a:9092"])
    assert tokens is not None

    with pytest.raises(StreamError, match="gives no token: it ended with 3") as failed:
        tokens("")

    assert "hidden" not in str(failed.value)


def test_amazon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library signs a request for the region in the servers' names."""
    pytest.importorskip("aws_msk_iam_sasl_signer", reason="needs the extra msk")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "example")
    security = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
    options = KafkaOptions.of("b-1.x.kafka.eu-west-1.amazonaws.com:9098", security)
    assert options.properties == {"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER", AWS: "{}"}
    tokens = tokens_of(options.properties, options.servers)
    assert tokens is not None

    signed, until, _, _ = tokens("")

    url = urlsafe_b64decode(signed + "==").decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/")
    assert "X-Amz-Signature=" in url
    assert until > time.time()


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("sasl.oauthbearer.token.endpoint.url", "file://host/x", "absolute path"),
        ("sasl.jaas.config", 'x.IAMLoginModule required awsDebugCreds="true";', "awsDebugCreds cannot be used here"),
    ],
)
def test_mistakes(name: str, text: str, problem: str) -> None:
    """They are found before a client is made."""
    with pytest.raises(ConfigError, match=problem):
        KafkaOptions.of("a:9092", OAUTH | {name: text})


def test_a_url_of_a_server_is_librdkafkas() -> None:
    """Only file URLs are read here."""
    url = "https://login/token"
    options = KafkaOptions.of("a:9092", OAUTH | {"sasl.oauthbearer.token.endpoint.url": url})

    assert options.properties["sasl.oauthbearer.token.endpoint.url"] == url
    assert FILE not in options.properties
