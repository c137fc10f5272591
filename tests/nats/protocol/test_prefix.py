"""Prefixes of the JetStream API."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError
from turnout.nats.protocol.prefix import Prefix


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
