"""Connection options: what they mean, all mistakes at once, and no secret in sight."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import ConfigError
from turnout.nats.protocol.options import ConnectionOptions


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
