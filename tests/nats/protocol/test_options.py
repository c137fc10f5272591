"""Connection options: what they mean, all mistakes at once, and no secret in sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import ConfigError, StreamError
from turnout.nats.protocol.options import ConnectionOptions, Prefix, Server, begins_tls


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("nats://a:1", Server("a", 1)),
        ("a", Server("a", 4222)),
        ("tls://a", Server("a", 4222, tls=True)),
        ("nats://[::1]:5", Server("::1", 5)),
        ("nats://u:p%40ss@a:1", Server("a", 1, user="u", password="p@ss")),
    ],
)
def test_addresses(url: str, expected: Server) -> None:
    """With and without scheme, port and credentials."""
    assert Server.parse(url) == expected


@pytest.mark.parametrize(
    ("greeting", "required", "expected"),
    [
        ({}, False, False),
        ({"tls_available": True}, False, False),
        ({"tls_required": True}, False, True),
        ({"tls_available": True}, True, True),
        ({"tls_required": True}, True, True),
    ],
)
def test_when_a_handshake_follows(greeting: dict[str, object], required: bool, expected: bool) -> None:
    """A handshake follows if the server requires it, or if both sides want it."""
    assert begins_tls(greeting, requested=required, server="a:1") is expected


@pytest.mark.parametrize("greeting", [{}, {"tls_required": False, "tls_available": False}])
def test_tls_that_is_not_offered(greeting: dict[str, object]) -> None:
    """Asked for and not offered is a refusal that names the server."""
    with pytest.raises(StreamError, match="a:1 offers no TLS"):
        begins_tls(greeting, requested=True, server="a:1")


def test_a_domain_is_a_prefix() -> None:
    """ADR-19: objects have none unless it is asked for."""
    hub = Prefix.of(domain="HUB")

    assert (hub.api("STREAM.LIST"), hub.view("$KV.b.k"), hub.object("$O.b.M")) == (
        "$JS.HUB.API.STREAM.LIST",
        "$JS.HUB.API.$KV.b.k",
        "$O.b.M",
    )


def test_a_prefix_and_a_domain_exclude_each_other() -> None:
    """The rule is the same in every client."""
    with pytest.raises(ConfigError):
        Prefix.of(prefix="fromA", domain="HUB")


def test_secrets_are_in_no_repr() -> None:
    """Neither of the options nor of what they are made of."""
    options = ConnectionOptions.from_mapping(
        {"servers": "nats://me:hunter2@h:1,tls://h2", "user": "u", "password": "s3cret"}
    )

    shown = f"{options!r} {options.servers[0]}"

    assert "hunter2" not in shown
    assert "s3cret" not in shown


def test_all_mistakes_come_at_once_without_what_may_be_secret(tmp_path: Path) -> None:
    """One message names every wrong option."""
    with pytest.raises(ConfigError) as wrong:
        ConnectionOptions.from_mapping(
            {
                "servers": "http://me:hunter2@h",
                "user": "u",
                "token": "t0ken",
                "timeout": "soon",
                "tls": "maybe",
                "credentials": str(tmp_path / "none.creds"),
                "apiPrefix": "fromA",
                "domain": "HUB",
            }
        )

    assert {mistake.path for mistake in wrong.value.mistakes} == {
        "servers", "token", "timeout", "tls", "credentials", "domain",
    }  # fmt: skip
    assert "hunter2" not in str(wrong.value)
    assert "t0ken" not in str(wrong.value)


def test_a_broken_credentials_file_is_not_repeated(tmp_path: Path) -> None:
    """The message names the missing section."""
    path = tmp_path / "user.creds"
    path.write_text("-----BEGIN NATS USER JWT-----\nSECRETJWT\n------END NATS USER JWT------\n", encoding="utf-8")

    with pytest.raises(ConfigError, match="USER NKEY SEED") as wrong:
        ConnectionOptions.from_mapping({"servers": "a", "credentials": str(path)})

    assert "SECRETJWT" not in str(wrong.value)


@pytest.mark.parametrize(
    ("options", "prefix"),
    [({}, "$JS.API"), ({"apiPrefix": "fromA."}, "fromA"), ({"domain": "HUB"}, "$JS.HUB.API")],
)
def test_prefixes(options: dict[str, str], prefix: str) -> None:
    """ADR-19: a final dot makes no difference, a domain is a prefix."""
    assert ConnectionOptions.from_mapping({"servers": "a", **options}).api_prefix == prefix


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, False),
        ({"tls": "false"}, False),
        ({"tls": "true"}, True),
        ({"servers": "tls://a"}, True),
        ({"tlsHostname": "b"}, True),
        ({"tls": "false", "tlsHostname": "b"}, False),
    ],
)
def test_when_tls_is_asked_for(options: dict[str, str], expected: bool) -> None:
    """By the option, by the address, or by naming what only TLS needs; an explicit no counts."""
    assert (ConnectionOptions.from_mapping({"servers": "a", **options}).tls is not None) == expected
