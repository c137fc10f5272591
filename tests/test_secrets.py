"""What must not be shown, and that nothing shows it."""

import dataclasses
import pickle

import pytest

from turnout.secrets import Secret, is_secret, masked_url


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nats://127.0.0.1:4222", "nats://127.0.0.1:4222"),
        ("nats://ann:pw@host:4222", "nats://***@host:4222"),
        ("grpc://token@host", "grpc://***@host"),
        ("nats://ann:p@ss/w:rd@host", "nats://***@host"),
        ("nats://a:1@x,tls://b:2@y z mongodb+srv://c:3@w/db", "nats://***@x,tls://***@y z mongodb+srv://***@w/db"),
        ("sqlite:///home/a@b/x.db", "sqlite:///home/a@b/x.db"),
        ("mongodb://h/d?w=1&authToken=abc", "mongodb://h/d?w=1&authToken=***"),
        ("ann@example.org asked", "ann@example.org asked"),
    ],
)
def test_masked_url(text: str, expected: str) -> None:
    """User info goes from every URL, however it is written; the rest of the text stays."""
    assert expected == masked_url(text)


@pytest.mark.parametrize(
    "name",
    ["password", "pass", "kafka.sasl.jaas.config", "nkeySeed", "credentials", "clientSecret", "ssl.private-key", "jwt"],
)
def test_secret_names(name: str) -> None:
    """An option is secret by what its name holds, in any spelling."""
    assert is_secret(name)
    assert is_secret(name.upper())


@pytest.mark.parametrize("name", ["servers", "user", "key", "stream", "apiPrefix", "timeout", "passThrough"])
def test_plain_names(name: str) -> None:
    """Other options are shown."""
    assert not is_secret(name)


def test_a_secret_is_shown_by_nothing_but_reveal() -> None:
    """repr, str, format and asdict keep the text; reveal gives it."""

    @dataclasses.dataclass
    class Holder:
        secret: Secret

    secret = Secret("s3cr3t-1")
    shown = f"{secret} {secret!r} {Holder(secret)} {dataclasses.asdict(Holder(secret))}"

    assert "s3cr3t" not in shown
    assert secret.reveal() == "s3cr3t-1"


def test_a_secret_is_a_value() -> None:
    """It can be compared, hashed, sent to another process, and asked whether there is anything in it."""
    assert Secret("a") == Secret("a") != Secret("b")
    assert {Secret("a")} == {Secret("a")}
    assert pickle.loads(pickle.dumps(Secret("a"))).reveal() == "a"
    assert not Secret("")
