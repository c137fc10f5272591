"""Settings of subscriptions ↔ the fields of their messages."""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf.json_format import MessageToDict

from turnout.base.clocks import microseconds_since_epoch
from turnout.base.untrusted import JsonObject
from turnout.errors import SubscriptionInvalidError
from turnout.rpc.v1 import subscriptions_pb2 as pb
from turnout.subscriptions import Subscription
from turnout.subscriptions.expiry import Expiry, ExpiryClock
from turnout.subscriptions.past import time_of
from turnout.subscriptions.settings import settings_from_mapping

SettingsMessage: TypeAlias = pb.SubscriptionDataInput | pb.SubscriptionDataOutput | pb.ConditionMatch

_CLOCKS: tuple[ExpiryClock, ...] = ("record", "wall")
"""In the order of the proto's enum."""


def settings_from(message: SettingsMessage) -> JsonObject:
    """Return the settings in a message as arguments of a `Subscription`.

    Raises:
        SubscriptionInvalidError: one means nothing; the message names the field.
    """
    settings: JsonObject = {"enabled": message.enabled} if message.HasField("enabled") else {}
    if message.HasField("expires"):
        number = int(message.expires.by)
        if not 0 <= number < len(_CLOCKS):
            raise SubscriptionInvalidError(f"expires.by: expected 0 (record) or 1 (wall), found {number}")
        settings["expires"] = Expiry(time_of(message.expires.at), _CLOCKS[number])
    if message.start:
        settings |= settings_from_mapping({"from": message.start})
    if message.keepPaused:
        settings["keep"] = True
    if message.HasField("delivery"):
        try:
            delivery = MessageToDict(message.delivery)
        except ValueError as problem:
            # NaN and infinities, which JSON does not have.
            raise SubscriptionInvalidError(f"delivery: {problem}") from None
        settings |= settings_from_mapping({"delivery": _whole(delivery)})
    if message.project:
        settings["project"] = message.project
    if message.deliveriesQuota:
        settings |= settings_from_mapping({"quota": {"deliveries": message.deliveriesQuota}})
    return settings


def _whole(value: Any) -> Any:
    """Return JSON with its integers as such: the message holds every number as a floating-point one."""
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_whole(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def write_settings(subscription: Subscription, message: SettingsMessage) -> None:
    """Write the settings that are not defaults into a message."""
    if not subscription.enabled:
        message.enabled = False
    if subscription.expires is not None:
        message.expires.at = microseconds_since_epoch(subscription.expires.at)
        message.expires.by = pb.ExpiryClock.Value(subscription.expires.by.capitalize())
    if subscription.start is not None:
        message.start = str(subscription.start.to_plain())
    message.keepPaused = subscription.keep
    if subscription.delivery is not None:
        # On the way to a service secrets are plain; what a service has read from a store is encrypted.
        message.delivery.update(subscription.delivery.to_mapping(plain=True))
    message.project = subscription.project
    message.deliveriesQuota = subscription.deliveries or 0
