"""Total conversion between Protobuf and the model: each message yields a valid value or a clear error."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from google.protobuf.json_format import MessageToDict

from turnout.base.clocks import microseconds_since_epoch
from turnout.base.multivalued import MAX_VALUES, Metadata, Texts, metadata_of, texts_or_none
from turnout.base.untrusted import JsonObject
from turnout.conditions import Condition, Group, Logic
from turnout.conditions.codec import KINDS, kind_of
from turnout.errors import ConditionError, SubscriptionInvalidError
from turnout.records.text import texts_of_values
from turnout.rpc.v1 import matching_pb2, subscriptions_pb2
from turnout.subscriptions import Changes, Subscription
from turnout.subscriptions.import_set import Effect, ImportPlan
from turnout.subscriptions.model import ExpiryClock, settings_from_mapping
from turnout.subscriptions.past import AuditEntry, Creation, time_of
from turnout.subscriptions.search import Edited, Search
from turnout.subscriptions.store import ChangeSet

SettingsMessage: TypeAlias = (
    subscriptions_pb2.SubscriptionDataInput
    | subscriptions_pb2.SubscriptionDataOutput
    | subscriptions_pb2.ConditionMatch
)

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
        settings["expires"] = {"at": time_of(message.expires.at), "by": _CLOCKS[number]}
    if message.start:
        settings["from"] = message.start
    if message.keepPaused:
        settings["pause"] = {"keep": True}
    if message.HasField("delivery"):
        try:
            settings["delivery"] = _whole(MessageToDict(message.delivery))
        except ValueError as problem:
            # NaN and infinities, which JSON does not have.
            raise SubscriptionInvalidError(f"delivery: {problem}") from None
    if message.project:
        settings["project"] = message.project
    if message.deliveriesQuota:
        settings["quota"] = {"deliveries": message.deliveriesQuota}
    return settings_from_mapping(settings)


def _whole(value: object) -> object:
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
        message.expires.by = subscriptions_pb2.ExpiryClock.Value(subscription.expires.by.capitalize())
    if subscription.start is not None:
        message.start = str(subscription.start.to_plain())
    message.keepPaused = subscription.keep
    if subscription.delivery is not None:
        # On the way to a service secrets are plain; what a service has read from a store is encrypted.
        message.delivery.update(subscription.delivery.to_mapping(plain=True))
    message.project = subscription.project
    message.deliveriesQuota = subscription.deliveries or 0


ConditionMessage: TypeAlias = subscriptions_pb2.ConditionInput | subscriptions_pb2.ConditionOutput
GroupMessage: TypeAlias = subscriptions_pb2.GroupConditionInput | subscriptions_pb2.GroupConditionOutput

_LOGICS = tuple(Logic)
"""In the order of the proto's enum."""


def data_from(data: SettingsMessage, id: str = "") -> Subscription:
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


def search_from(query: matching_pb2.Query) -> Search:
    """Return the search of a message.

    Raises:
        SubscriptionInvalidError: a part means nothing.
    """
    given = {name: getattr(query, name) for name in _OPTIONAL if query.HasField(name)}
    return Search(metadata=dict(query.metadata), partial=query.partial, **given)


def search_to(search: Search) -> matching_pb2.Query:
    """Return the message of a search."""
    given = {name: value for name in _OPTIONAL if (value := getattr(search, name)) is not None}
    return matching_pb2.Query(metadata=dict(search.metadata), partial=search.partial, **given)


_OPTIONAL = ("key", "pattern", "leaf", "kind", "destination", "text", "enabled")
"""Parts of a search that may be left out."""

_IDS = 5_000
"""Ids of one message: of 321 characters each they are 1.6 MB, and clients take 4 MB."""


def change_parts(changes: ChangeSet) -> Iterator[matching_pb2.ApplyRequest]:
    """Yield a change set as messages."""
    for created in batches(changes.created):
        yield matching_pb2.ApplyRequest(created=created)
    for updated in batches(changes.updated):
        yield matching_pb2.ApplyRequest(updated=updated)
    deletions = (matching_pb2.Deletion(id=id_, revision=at) for id_, at in changes.deleted.items())
    while part := list(islice(deletions, _IDS)):
        yield matching_pb2.ApplyRequest(deleted=part)


def plan_parts(plan: ImportPlan, effect: Effect | None = None) -> Iterator[matching_pb2.ReplaceResponse]:
    """Yield the result of an import as messages, the numbers in the first one."""
    first = matching_pb2.ReplaceResponse(revision=plan.revision, unchanged=plan.unchanged, kept=plan.kept)
    if effect is not None:
        numbers = {name: getattr(effect, name) for name in ("records", "changed", "gained", "lost")}
        first.effect.CopyFrom(matching_pb2.Effect(**numbers, gainers=dict(effect.gainers), losers=dict(effect.losers)))
    yield first
    kinds: dict[str, tuple[str, ...]] = {"added": plan.added, "removed": plan.removed, "adopted": plan.adopted}
    for name, listed in kinds.items():
        for start in range(0, len(listed), _IDS):
            part = matching_pb2.ReplaceResponse(revision=plan.revision)
            getattr(part, name).extend(listed[start : start + _IDS])
            yield part
    for start in range(0, len(plan.changed), _IDS):
        ids = plan.changed[start : start + _IDS]
        changed = [matching_pb2.Changed(id=id_, fields=plan.fields[id_]) for id_ in ids]
        yield matching_pb2.ReplaceResponse(revision=plan.revision, changed=changed)


def edited_parts(edited: Edited) -> Iterator[matching_pb2.EditManyResponse]:
    """Yield the result of an edit as messages."""
    for start in range(0, max(len(edited.ids), 1), _IDS):
        ids = edited.ids[start : start + _IDS]
        yield matching_pb2.EditManyResponse(revision=edited.revision, found=edited.found, ids=ids)


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
        if name == "groupCondition":
            return _group_from(body, path)
        # The inputs have no ids, because the service gives them, and their names say the dialect of a pattern.
        return KINDS[name].read(lambda field, default: getattr(body, field, default))
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


def metadata_to(metadata: Mapping[str, object]) -> JsonObject:
    """Return the fields of a request that hold the metadata of a message."""
    texts = texts_of_values(metadata)
    return {
        "metadata": {key: value for key, value in texts.items() if isinstance(value, str)},
        "lists": {key: matching_pb2.Values(values=value) for key, value in texts.items() if not isinstance(value, str)},
    }


_BYTES = 1 << 20
_DELETED = 10_000
_BIRTHS = 10_000


def batches(subscriptions: Sequence[Subscription]) -> Iterator[list[subscriptions_pb2.Subscription]]:
    """The messages in lists of about a megabyte; one empty list for none."""
    batch: list[subscriptions_pb2.Subscription] = []
    size = 0
    for subscription in subscriptions:
        message = subscription_to(subscription)
        batch.append(message)
        size += message.ByteSize()
        if size >= _BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def line_parts(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines to texts of about a megabyte."""
    part: list[bytes] = []
    size = 0
    for line in lines:
        if part and size + len(line) > _BYTES:
            yield b"\n".join(part)
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    if part:
        yield b"\n".join(part)


def changes_parts(changes: Changes) -> Iterator[matching_pb2.Changes]:
    """The changes as messages: deletions first, *more* on all but the last."""
    starts = range(0, len(changes.deleted_ids), _DELETED)
    reset = changes.reset
    for start in starts:
        deleted = changes.deleted_ids[start : start + _DELETED]
        yield matching_pb2.Changes(revision=changes.revision, deleted_ids=deleted, reset=reset, more=True)
        reset = False
    previous: matching_pb2.Changes | None = None
    for batch in batches(changes.created):
        if previous is not None:
            yield previous
        previous = matching_pb2.Changes(revision=changes.revision, created=batch, reset=reset, more=True)
        reset = False
    assert previous is not None
    previous.more = False
    yield previous


def births_parts(births: Mapping[str, Creation]) -> Iterator[matching_pb2.BirthsPart]:
    """The births as messages."""
    messages = (
        matching_pb2.Birth(
            id=id_, revision=birth.revision, time=None if birth.at is None else microseconds_since_epoch(birth.at)
        )
        for id_, birth in births.items()
    )
    while part := list(islice(messages, _BIRTHS)):
        yield matching_pb2.BirthsPart(births=part)


def births_of(parts: Iterable[matching_pb2.BirthsPart]) -> dict[str, Creation]:
    """Convert messages to births."""
    return {
        birth.id: Creation.of(birth.revision, birth.time if birth.HasField("time") else None)
        for part in parts
        for birth in part.births
    }


def audit_message(entry: AuditEntry) -> matching_pb2.AuditEntry:
    """Convert an entry of the audit log to its message."""
    return matching_pb2.AuditEntry(
        revision=entry.revision,
        time=None if entry.at is None else microseconds_since_epoch(entry.at),
        actor=entry.actor,
        before=None if entry.before is None else subscription_to(entry.before),
        after=None if entry.after is None else subscription_to(entry.after),
    )


def audit_entry(message: matching_pb2.AuditEntry) -> AuditEntry:
    """Convert a message to an entry of the audit log."""
    before, after = (
        subscription_from(getattr(message, name)) if message.HasField(name) else None for name in ("before", "after")
    )
    at = time_of(message.time) if message.HasField("time") else None
    return AuditEntry(message.revision, at, message.actor, before, after)


def changes_of(parts: Iterator[matching_pb2.Changes]) -> Iterator[Changes]:
    """Reassemble changes from the messages with their parts."""
    created: list[Subscription] = []
    deleted: list[str] = []
    reset = False
    for message in parts:
        part = changes_from(message)
        created += part.created
        deleted += part.deleted_ids
        reset = reset or part.reset
        if not message.more:
            yield Changes(part.revision, tuple(created), tuple(deleted), reset)
            created, deleted, reset = [], [], False
