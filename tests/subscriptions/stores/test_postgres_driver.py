"""PostgreSQL's driver: options that it refuses, and servers that cannot be reached."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError, StoreUnavailableError
from turnout.subscriptions import open_store

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("options", ["retention=long", "schema=", "sslmode=perhaps", "unknown=1"])
def test_bad_urls(options):
    """An option that means nothing is a wrong request, with its name."""
    with pytest.raises((ConfigError, StoreUnavailableError), match=options.partition("=")[0]):
        open_store(f"postgresql://127.0.0.1:1/db?{options}")


def test_nobody_there():
    """A server that cannot be reached is an error that a retry may cure; the password is not shown."""
    with pytest.raises(StoreUnavailableError, match="PostgreSQL is away") as refused:
        open_store("postgresql://ann:secret@127.0.0.1:1/db")
    assert "secret" not in str(refused.value)
