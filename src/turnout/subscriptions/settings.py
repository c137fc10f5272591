"""Settings of a subscription as plain values: life cycle, deliveries and projection, without the defaults.

One form for all stores, for JSON lines, REST and gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subscriptions.delivery import DeliverySettings
from turnout.subscriptions.expiry import Expiry

if TYPE_CHECKING:
    from turnout.subscriptions.model import Subscription

SETTINGS: Final = ("enabled", "expires", "delivery", "project")
"""Their names, as fields of a `Subscription` and in its JSON."""


def settings_to_mapping(subscription: Subscription) -> dict[str, Any]:
    """Return the settings that are not defaults, from which `settings_from_mapping` restores them."""
    settings: dict[str, Any] = {}
    if not subscription.enabled:
        settings["enabled"] = False
    if subscription.expires is not None:
        settings["expires"] = subscription.expires.to_mapping()
    if subscription.delivery is not None:
        settings["delivery"] = subscription.delivery.to_mapping()
    if subscription.project:
        settings["project"] = subscription.project
    return settings


def settings_from_mapping(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings in a mapping, which may hold other names, as arguments of a `Subscription`.

    Raises:
        SubscriptionInvalidError: one means nothing; the message names the field, the value and the expectation.
    """
    settings: dict[str, Any] = {}
    if "enabled" in mapping:
        enabled = mapping["enabled"]
        if not isinstance(enabled, bool):
            raise SubscriptionInvalidError(f"enabled: expected true or false, found {enabled!r:.60}")
        settings["enabled"] = enabled
    if mapping.get("expires") is not None:
        settings["expires"] = Expiry.from_mapping(mapping["expires"])
    if mapping.get("delivery") is not None:
        try:
            settings["delivery"] = DeliverySettings.from_mapping(mapping["delivery"])
        except ConfigError as problem:
            mistakes = (f"{'.'.join(filter(None, ('delivery', one.path)))}: {one.problem}" for one in problem.mistakes)
            raise SubscriptionInvalidError("; ".join(mistakes)) from problem
    if mapping.get("project") is not None:
        project = mapping["project"]
        if not isinstance(project, str):
            raise SubscriptionInvalidError(f"project: expected an expression of CEL as a text, found {project!r:.60}")
        settings["project"] = project
    return settings
