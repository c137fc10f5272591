"""Total conversion between Protobuf and the model: each message yields a valid value or a clear error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from google.protobuf.message import Message

from turnout.base.multivalued import MAX_VALUES, Metadata, Texts, metadata_of, texts_or_none
from turnout.conditions import Condition, Group, Logic
from turnout.conditions.fields import KINDS, kind_of
from turnout.errors import ConditionError, SubscriptionInvalidError
from turnout.records.text import texts_of_values
from turnout.rpc.settings_messages import SettingsMessage, settings_from, write_settings
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.subscriptions import Changes, Subscription

ConditionMessage: TypeAlias = subscriptions_pb2.ConditionInput | subscriptions_pb2.ConditionOutput
GroupMessage: TypeAlias = subscriptions_pb2.GroupConditionInput | subscriptions_pb2.GroupConditionOutput

_LOGICS = tuple(Logic)
"""In the order of the proto's enum."""


def data_from(data: SettingsMessage, id: str = "") -> Subscription:  # noqa: A002 - the field's own name
    """The subscription of a SubscriptionDataInput, a SubscriptionDataOutput or a ConditionMatch.

    Raises:
        SubscriptionInvalidError: it has no condition, or one that means nothing; the message names the place.
    """
    condition = condition_from(data.route.condition, "route.condition")
    # Subscriptions to store have no revision.
    return Subscription(
        list(data.route.destinations),
        condition,
        dict(data.metadata),
        id,
        getattr(data, "revision", 0),
        **settings_from(data),
    )


def subscription_from(message: subscriptions_pb2.Subscription) -> Subscription:
    """The subscription with the ids that it has on the wire."""
    return data_from(message.data, message.id)


def changes_from(message: matching_pb2.Changes) -> Changes:
    """Convert one part of the changes."""
    return Changes(
        message.revision,
        tuple(map(subscription_from, message.created)),
        tuple(message.deleted_ids),
        message.reset,
    )


def condition_from(message: ConditionMessage, path: str = "condition") -> Condition:
    """The condition of a ConditionInput or a ConditionOutput.

    Raises:
        SubscriptionInvalidError: it means nothing; the message begins with the place.
    """
    name = message.WhichOneof("condition")
    if name is None:
        kinds = ", ".join(sorted(["groupCondition", *KINDS]))
        raise SubscriptionInvalidError(f"{path}: a condition is missing; there are {kinds}")
    try:
        body = getattr(message, name)
        return _group_from(body, path) if name == "groupCondition" else _leaf_from(name, body)
    except ConditionError as problem:
        raise SubscriptionInvalidError(f"{path}.{name}: {problem}") from problem


def _group_from(body: GroupMessage, path: str) -> Condition:
    if not 0 <= body.logic < len(_LOGICS):
        known = ", ".join(f"{number} ({logic})" for number, logic in enumerate(_LOGICS))
        raise ConditionError(f"logic is one of {known}, found {body.logic}")
    # A group of one passes here and is refused by the service's rules, which say more.
    children = (
        condition_from(child, f"{path}.groupCondition.group[{number}]") for number, child in enumerate(body.group)
    )
    return Group(_LOGICS[body.logic], tuple(children), getattr(body, "not"), getattr(body, "id", ""))


def _leaf_from(name: str, body: Message) -> Condition:
    # The inputs have no ids, because the service gives them, and their names say the dialect of a pattern.
    return KINDS[name].read(lambda field, default: getattr(body, field, default))


def subscription_to(subscription: Subscription) -> subscriptions_pb2.Subscription:
    """Return the message with both the id and the data."""
    return subscriptions_pb2.Subscription(id=subscription.id, data=data_to(subscription))


def data_to(subscription: Subscription) -> subscriptions_pb2.SubscriptionDataOutput:
    """The message without the subscription's own id, as Read answers it."""
    message = subscriptions_pb2.SubscriptionDataOutput(
        metadata=dict(subscription.metadata), revision=subscription.revision
    )
    message.route.destinations.extend(subscription.destinations)
    _fill(subscription.condition, message.route.condition)
    write_settings(subscription, message)
    return message


def _fill(node: Condition, out: subscriptions_pb2.ConditionOutput) -> None:
    """Write the node into the message."""
    if isinstance(node, Group):
        body = out.groupCondition
        body.logic = subscriptions_pb2.GroupLogic.Value(node.logic.value)
        for child in node.children:
            _fill(child, body.group.add())
    else:
        kind = kind_of(node)
        # Both dialects of a pattern are one message, with a flag.
        body = getattr(out, _OUTPUTS[kind.leaf])
        for name, value in (("key", node.key), *kind.values(node), *kind.implied.items()):
            setattr(body, name, value)
    body.id = node.id
    # The field's name is a keyword of Python.
    setattr(body, "not", node.negated)


_OUTPUTS = {kind.leaf: name for name, kind in reversed(KINDS.items())}


def metadata_from(request: matching_pb2.MatchRequest | matching_pb2.ExplainRequest) -> Metadata:
    """Return the metadata of a message, with the keys of several values.

    Raises:
        SubscriptionInvalidError: a key has one value and several, or more than `MAX_VALUES`.
    """
    metadata: dict[str, Texts] = dict(request.metadata)
    for key, listed in request.lists.items():
        if len(listed.values) > MAX_VALUES:
            raise SubscriptionInvalidError(
                f"lists[{key!r}]: {len(listed.values)} values, at most {MAX_VALUES} are taken"
            )
        if key in metadata:
            raise SubscriptionInvalidError(f"lists[{key!r}]: is in metadata too; expected the key in one of them")
        texts = texts_or_none(listed.values)
        if texts is not None:
            metadata[key] = texts
    return metadata_of(metadata)


def metadata_to(metadata: Mapping[str, object]) -> dict[str, Any]:
    """Return the fields of a request that hold the metadata of a message."""
    texts = texts_of_values(metadata)
    return {
        "metadata": {key: value for key, value in texts.items() if isinstance(value, str)},
        "lists": {key: matching_pb2.Values(values=value) for key, value in texts.items() if not isinstance(value, str)},
    }
