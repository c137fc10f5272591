"""Protobuf ↔ model, both directions, total: what comes off the wire is a valid value or a clear error."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

from turnout.conditions import Cidr, Compare, Condition, Exists, Group, Kiwi, Logic
from turnout.errors import ConditionError, SubscriptionInvalidError
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.subscriptions import Changes, Subscription

__all__ = ["changes_from", "condition_from", "data_from", "data_to", "subscription_from", "subscription_to"]

_LOGICS = tuple(Logic)
"""In the order of the proto's enum."""


def data_from(data: Any, id: str = "") -> Subscription:  # noqa: A002 - the field's own name
    """The subscription of a SubscriptionDataInput or a SubscriptionDataOutput.

    Raises:
        SubscriptionInvalidError: it has no condition, or one that means nothing; the message names the place.
    """
    condition = condition_from(data.route.condition, "route.condition")
    return Subscription(list(data.route.destinations), condition, dict(data.metadata), id)


def subscription_from(message: subscriptions_pb2.Subscription) -> Subscription:
    """The subscription with the ids that it has on the wire."""
    return data_from(message.data, message.id)


def changes_from(message: matching_pb2.Changes) -> Changes:
    """One part of the changes."""
    return Changes(
        message.revision,
        tuple(map(subscription_from, message.created)),
        tuple(message.deleted_ids),
        message.reset,
    )


def condition_from(message: Any, place: str = "condition") -> Condition:
    """The condition of a ConditionInput or a ConditionOutput.

    Raises:
        SubscriptionInvalidError: it means nothing; the message begins with the place.
    """
    kind = message.WhichOneof("condition")
    if kind is None:
        kinds = ", ".join(sorted(_READERS))
        raise SubscriptionInvalidError(f"{place}: a condition is missing; there are {kinds}")
    try:
        return _READERS[kind](getattr(message, kind), place)
    except ConditionError as problem:
        raise SubscriptionInvalidError(f"{place}.{kind}: {problem}") from problem


def _common(body: Any) -> dict[str, Any]:
    # The inputs have no ids: the service gives them.
    return {"negated": getattr(body, "not"), "id": getattr(body, "id", "")}


def _group_from(body: Any, place: str) -> Condition:
    if not 0 <= body.logic < len(_LOGICS):
        known = ", ".join(f"{number} ({logic})" for number, logic in enumerate(_LOGICS))
        raise ConditionError(f"logic is one of {known}, found {body.logic}")
    # A group of one passes here and is refused by the service's rules, which say more.
    children = (
        condition_from(child, f"{place}.groupCondition.group[{number}]") for number, child in enumerate(body.group)
    )
    return Group(_LOGICS[body.logic], tuple(children), **_common(body))


def _kiwi_from(body: Any, _place: str, *, tree: bool = False) -> Condition:
    return Kiwi(
        body.key,
        body.pattern,
        partial=body.partial,
        ignore_case=body.ignoreCase,
        tree=tree or getattr(body, "tree", False),
        **_common(body),
    )


def _compare_from(body: Any, _place: str) -> Condition:
    return Compare(body.key, body.op, body.number, **_common(body))


_READERS: dict[str, Callable[[Any, str], Condition]] = {
    "groupCondition": _group_from,
    "kiwiTreeCondition": lambda body, place: _kiwi_from(body, place, tree=True),
    "kiwiCondition": _kiwi_from,
    "compareCondition": _compare_from,
    "existsCondition": lambda body, _: Exists(body.key, **_common(body)),
    "cidrCondition": lambda body, _: Cidr(body.key, body.network, **_common(body)),
}


def subscription_to(subscription: Subscription) -> subscriptions_pb2.Subscription:
    """The message with the id beside the data."""
    return subscriptions_pb2.Subscription(id=subscription.id, data=data_to(subscription))


def data_to(subscription: Subscription) -> subscriptions_pb2.SubscriptionDataOutput:
    """The message without the subscription's own id, as Read answers it."""
    message = subscriptions_pb2.SubscriptionDataOutput(metadata=dict(subscription.metadata))
    message.route.destinations.extend(subscription.destinations)
    _fill(subscription.condition, message.route.condition)
    return message


@singledispatch
def _fill(node: Condition, out: subscriptions_pb2.ConditionOutput) -> None:
    """Write the node into the message."""
    raise TypeError(f"not a condition: {node!r}, for {type(out).__name__}")


def _named(node: Condition, body: Any) -> None:
    body.id = node.id
    # The field's name is a keyword of Python.
    setattr(body, "not", node.negated)


@_fill.register
def _(node: Group, out: subscriptions_pb2.ConditionOutput) -> None:
    body = out.groupCondition
    _named(node, body)
    body.logic = subscriptions_pb2.GroupLogic.Value(node.logic.value)
    for child in node.children:
        _fill(child, body.group.add())


@_fill.register
def _(node: Kiwi, out: subscriptions_pb2.ConditionOutput) -> None:
    body = out.kiwiCondition
    _named(node, body)
    body.key, body.pattern, body.partial = node.key, node.pattern, node.partial
    body.ignoreCase, body.tree = node.ignore_case, node.tree


@_fill.register
def _(node: Compare, out: subscriptions_pb2.ConditionOutput) -> None:
    body = out.compareCondition
    _named(node, body)
    body.key, body.op, body.number = node.key, node.op.value, node.number


@_fill.register
def _(node: Exists, out: subscriptions_pb2.ConditionOutput) -> None:
    body = out.existsCondition
    _named(node, body)
    body.key = node.key


@_fill.register
def _(node: Cidr, out: subscriptions_pb2.ConditionOutput) -> None:
    body = out.cidrCondition
    _named(node, body)
    body.key, body.network = node.key, node.network
