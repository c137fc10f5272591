"""Settings of a subscription as plain values: life cycle, deliveries and projection, without the defaults.

One form for all stores, for JSON lines, REST and gRPC.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subscriptions.delivery_settings import DeliverySettings
from turnout.subscriptions.expiry import Expiry
from turnout.subscriptions.start import Start

if TYPE_CHECKING:
    from turnout.subscriptions.model import Subscription

MAX_DELIVERIES: Final = 1_000_000
"""Largest quota of deliveries, in requests of a second."""

SETTINGS: Final = ("enabled", "expires", "delivery", "from", "pause", "project", "quota")
"""Their names in the JSON of a subscription."""


def settings_to_mapping(subscription: Subscription, *, plain: bool = False) -> JsonObject:
    """Return the settings that are not defaults, from which `settings_from_mapping` restores them.

    Args:
        subscription: has them.
        plain: with secrets that are not encrypted; see `DeliverySettings.to_mapping`.
    """
    settings: JsonObject = {}
    if not subscription.enabled:
        settings["enabled"] = False
    if subscription.expires is not None:
        settings["expires"] = subscription.expires.to_mapping()
    if subscription.delivery is not None:
        settings["delivery"] = subscription.delivery.to_mapping(plain=plain)
    if subscription.start is not None:
        settings["from"] = subscription.start.to_plain()
    if subscription.keep:
        settings["pause"] = {"keep": True}
    if subscription.project:
        settings["project"] = subscription.project
    if subscription.deliveries is not None:
        settings["quota"] = {"deliveries": subscription.deliveries}
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
    if mapping.get("from") is not None:
        settings["start"] = Start.from_plain(mapping["from"])
    if mapping.get("pause") is not None:
        settings["keep"] = _keep(mapping["pause"])
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
    if mapping.get("quota") is not None:
        settings["deliveries"] = _deliveries(mapping["quota"])
    return settings


def _deliveries(quota: object) -> int:
    """Return the one quota that is recorded with a subscription."""
    value = quota.get("deliveries") if isinstance(quota, Mapping) and set(quota) == {"deliveries"} else None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_DELIVERIES:
        raise SubscriptionInvalidError(
            f"quota: expected {{'deliveries': 1 to {MAX_DELIVERIES:,}}}, found {quota!r:.60}"
        )
    return value


def _keep(pause: object) -> bool:
    """Return the one setting of pauses."""
    keep = pause.get("keep", False) if isinstance(pause, Mapping) and set(pause) <= {"keep"} else None
    if not isinstance(keep, bool):
        raise SubscriptionInvalidError(f"pause: expected {{'keep': true}} or {{'keep': false}}, found {pause!r:.60}")
    return keep
