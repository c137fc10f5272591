"""The server's settings, from the environment and from options."""

from __future__ import annotations

from typing import Any

import pytest

from turnout.errors import ConfigError
from turnout.rpc.server import OPTIONS, ServerSettings
from turnout.rpc.tokens import AcceptedToken
from turnout.subscriptions.store_url import store_url


def test_settings_from_the_environment(tmp_path):
    """The variables are read, and what is given on the command line comes first."""
    tokens = tmp_path / "tokens"
    tokens.write_text("s3cret\n\n other \n")
    environment = {
        "API_PORT": "9000",
        "API_WORKERS": "4",
        "API_TOKENS_FILE": str(tokens),
        "API_GRACE_SECONDS": "1.5",
        "LOG_LEVEL": "WARNING",
        "API_HOST": "",
    }
    read = ServerSettings.from_environment(environment, port=9001, workers=None)

    assert (read.port, read.workers, read.grace_seconds) == (9001, 4, 1.5)
    assert read.tokens == (AcceptedToken.plain("s3cret"), AcceptedToken.plain("other"))
    assert (read.log_level, read.host) == ("warning", "127.0.0.1")
    assert "s3cret" not in repr(read)


def test_every_wrong_variable_is_listed():
    """One error names all of them."""
    wrong = {"API_PORT": "grpc", "API_WORKERS": "0", "API_GRACE_SECONDS": "-1", "API_TOKENS_FILE": "/nowhere/tokens"}
    with pytest.raises(ConfigError) as refused:
        ServerSettings.from_environment(wrong)

    assert sorted(mistake.path for mistake in refused.value.mistakes) == sorted(wrong)


def test_destinations_are_patterns():
    """Several stand with commas; one that is no subject is refused."""
    read = ServerSettings.from_environment({"API_ALLOW_DESTINATIONS": "deliver.>, $KV.desk.*"})

    assert read.allow_destinations == ("deliver.>", "$KV.desk.*")
    with pytest.raises(ConfigError, match=r"API_ALLOW_DESTINATIONS: .*'deliver\.\.x'"):
        ServerSettings.from_environment({"API_ALLOW_DESTINATIONS": "deliver..x"})


def test_every_variable_is_documented():
    """Each option's variable and text are in the page about the service."""
    from pathlib import Path

    page = (Path(__file__).parents[2] / "docs" / "subscriptions-service.md").read_text("utf-8")
    for option in OPTIONS:
        assert f"| `{option.name}` | {option.doc} |" in page


@pytest.mark.parametrize(
    ("environment", "url"),
    [
        ({}, "sqlite:///subscriptions.db"),
        ({"DB_URI": "sqlite:////data/s.db", "DB_NAME": "ignored"}, "sqlite:////data/s.db"),
        (
            {"DB_URI": "mongodb://h/?retryWrites=true&w=majority", "DB_NAME": "subs", "DB_TABLE_NAME": "t x"},
            "mongodb://h/subs?retryWrites=true&w=majority&table=t%20x",
        ),
        ({"DB_URI": "mongodb+srv://u:p@h", "DB_TABLE_NAME": "t"}, "mongodb+srv://u:p@h/?table=t"),
    ],
)
def test_store_url(environment, url):
    """The original's variables name the store."""
    assert store_url(environment, "sqlite:///subscriptions.db") == url


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"tls_certificate": "x.pem"}, "both"),
        ({"tls_client_ca": "x.pem"}, "client certificates need"),
        ({"workers": 1}, "expected 2 or more"),
        ({"log_level": "loud"}, "expected one of debug, info"),
    ],
)
def test_settings_that_cannot_be(fields, words, tmp_path):
    """Contradictory settings are refused when they are built."""
    from pathlib import Path

    paths: dict[str, Any] = {
        name: Path(value) if isinstance(value, str) and "tls" in name else value for name, value in fields.items()
    }
    with pytest.raises(ConfigError, match=words):
        ServerSettings(**paths)
