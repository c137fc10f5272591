"""Settings of a subscription as plain values: those of its life cycle and of its deliveries, without the defaults.

One form for all stores, for JSON lines, REST and gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subscriptions.delivery import DeliverySettings
from turnout.subscriptions.expiry import Expiry
from turnout.untrusted import JsonMapping, JsonObject

if TYPE_CHECKING:
    from turnout.subscriptions.model import Subscription

SETTINGS: Final = ("enabled", "expires", "delivery")
"""Their names, as fields of a `Subscription` and in its JSON."""


def settings_to_mapping(subscription: Subscription) -> JsonObject:
    """Return the settings that are not defaults, from which `settings_from_mapping` restores them."""
    settings: JsonObject = {}
    if not subscription.enabled:
        settings["enabled"] = False
    if subscription.expires is not None:
        settings["expires"] = subscription.expires.to_mapping()
    if subscription.delivery is not None:
        settings["delivery"] = subscription.delivery.to_mapping()
    return settings


def settings_from_mapping(mapping: JsonMapping) -> JsonObject:
    """Return the settings in a mapping, which may hold other names, as arguments of a `Subscription`.

    Raises:
        SubscriptionInvalidError: one means nothing; the message names the field, the value and the expectation.
    """
    settings: JsonObject = {}
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
    return settings
