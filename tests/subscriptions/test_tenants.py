"""Tenants of a store."""

from __future__ import annotations

import pytest

from turnout.conditions import parse
from turnout.errors import SubscriptionInvalidError, SubscriptionNotFoundError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.tenants import check_tenant, prefix_end, prefix_of, tenant_of


def test_ids_carry_their_tenant() -> None:
    """All ids of a tenant are in one range."""
    prefix = prefix_of("acme")

    assert tenant_of(f"{prefix}x") == "acme"
    assert tenant_of("x") == ""
    assert prefix <= f"{prefix}x" < prefix_end(prefix) <= prefix_of("acmf")


@pytest.mark.parametrize("name", ["", "a/b", "a@b", "x" * 500])
def test_names_that_no_tenant_has(name: str) -> None:
    """They would be read as another tenant's ids."""
    with pytest.raises(SubscriptionInvalidError):
        check_tenant(name)


def test_a_tenant_sees_nothing_of_others() -> None:
    """The whole store has both."""
    with open_store("memory://") as store:
        acme, bolt = store.for_tenant("acme"), store.for_tenant("bolt")
        acme.create(Subscription(["d"], parse("a:1"), id="x"))

        assert acme.read("x").id == "x"
        with pytest.raises(SubscriptionNotFoundError):
            bolt.read("x")
        assert [one.id for one in store.snapshot()] == ["@acme/x"]
