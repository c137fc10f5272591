"""Effect of a changed route on its checkpoint, determined before it is applied.

A checkpoint holds nothing but places in the source: the next sequence of each stream, the next offset of each Kafka
partition, the files that were read. What happens to a record afterwards has no state. So a change is safe *for the
checkpoint* unless the places would mean something else, or nothing; what it does to records is another question, of
which one part is answered here: whether masked content is uncovered.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path

from pydantic import BaseModel

from turnout.history.masking import describe_path, uncovered_by
from turnout.records.types import DynamicValue
from turnout.routes import Route
from turnout.routes.endpoints import Source, secrets_of
from turnout.runtime.checkpoint import checkpoint_of
from turnout.runtime.endpoints import Change, Start, adapter_of, safe_change, unsafe_change
from turnout.secrets import is_secret, masked_url
from turnout.server.errors import ConflictError


def checked_start(route: Route, start: Start) -> Start:
    """Return the start position if the route's source can begin there.

    Raises:
        ConfigError: it is no place of this source.
        ConflictError: the position of this source cannot be set.
    """
    adapter = adapter_of(route.source)
    if adapter.fixed_start is not None:
        raise ConflictError(f"route {route.name}: {adapter.fixed_start}")
    return adapter.checked_start(start)


def resolved(route: Route, start: Start) -> Start:
    """Return the start with a lasting meaning: of NATS as sequences, as ``latest`` and times change theirs.

    Raises:
        ConnectionLostError: the server is away.
        StreamError: a stream does not exist.
    """
    return adapter_of(route.source).resolved(start)


def begun_at(route: Route, start: Start | None) -> Route:
    """Return the route with another start; it has an effect only without a checkpoint."""
    return route if start is None else replace(route, source=adapter_of(route.source).begun_at(start))


def set_aside(checkpoint: Path) -> Path | None:
    """Rename a checkpoint, so that the next run begins a new one; return its new path, None if it is missing."""
    if not checkpoint.exists():
        return None
    numbers = _numbers_after(checkpoint)
    aside = checkpoint.with_name(f"{checkpoint.name}.{max(numbers, default=0) + 1}")
    return checkpoint.rename(aside)


def _numbers_after(checkpoint: Path) -> list[int]:
    siblings = checkpoint.parent.glob(f"{checkpoint.name}.*")
    return [int(path.suffix[1:]) for path in siblings if path.suffix[1:].isdigit()]


def is_safe(changes: list[Change]) -> bool:
    """Return True if all changes are safe."""
    return all(change.safe for change in changes)


def compatibility(old: Route, new: Route, *, masked: bool = False) -> list[Change]:
    """Return every difference that has an effect; empty for equivalent routes.

    Those that uncover masked content are first, the others in the order of the file.

    With *masked*, secrets do not count, as a caller could find one out by comparing guesses with it.
    """
    if masked:
        old, new = _without_secrets(old), _without_secrets(new)
    uncovered = [
        Change("transforms", "safe", f"{describe_path(path)} was {how} and may be delivered as it is", uncovers=True)
        for path, how in uncovered_by(old.chain, new.chain)
    ]
    return [*uncovered, *_whole(old, new), *_source(old.source, new.source), *_work(old, new)]


def _without_secrets(value: DynamicValue, *, secret: bool = False) -> DynamicValue:
    """Return a copy of a part of a route with a mask in place of every secret."""
    if value is not None and secret:
        return "***"
    if isinstance(value, str):
        return masked_url(value)
    if isinstance(value, BaseModel):
        names = secrets_of(type(value))
        return value.model_copy(update={name: _without_secrets(part, secret=name in names) for name, part in value})
    if isinstance(value, Mapping):
        return {key: _without_secrets(part, secret=is_secret(str(key))) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_secrets(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        # Not dataclasses.replace, which would check values that have changed.
        masked = copy.copy(value)
        for field in fields(value):
            part, option = getattr(value, field.name), field.metadata.get("option")
            # Of fields that are no options, the tokens of a subject are no secret.
            secret = option.secret if option is not None else isinstance(part, str) and is_secret(field.name)
            object.__setattr__(masked, field.name, _without_secrets(part, secret=secret))
        return masked
    return value


def _whole(old: Route, new: Route) -> Iterator[Change]:
    if old.name != new.name:
        yield unsafe_change("name", "the checkpoint and the messages' ids belong to the name: this is another route")
    elif str(checkpoint_of(old)) != str(checkpoint_of(new)):
        yield unsafe_change("checkpoint", "the new folder does not hold the place where the old run stopped")


def _source(old: Source, new: Source) -> Iterator[Change]:
    if old == new:
        return
    adapter = adapter_of(old)
    if type(old) is not type(new) or old.format != new.format:
        reason = f"a place in {adapter.label} means nothing to {adapter_of(new).label}"
        yield unsafe_change("source.format", reason)
    else:
        yield from adapter.changes(new)


_STATELESS = "what happens to a record has no state: it holds from the next micro-batch on"
_WORK = (
    ("key", "key", _STATELESS),
    ("value", "value", _STATELESS),
    ("chain", "transforms", _STATELESS),
    ("mappings", "mappings", _STATELESS),
    ("cluster", "cluster", _STATELESS),
    ("unmatched", "unmatched", _STATELESS),
    ("sinks", "sink", "delivered messages stay, the next micro-batch goes to the new sink"),
    (
        "webhooks",
        "webhooks",
        "a delivery that waits keeps its subject; a dispatcher started anew has the new block",
    ),
    ("dead_letter", "deadLetter", _STATELESS),
    ("trigger", "trigger", "it affects the start of micro-batches, not their records"),
    ("health", "health", "it affects the server's view, not the records"),
    ("spark", "spark", "a route keeps no state in Spark that depends on it"),
    ("tables", "tables", "the next run reads it, and a micro-batch that is done again has its rows"),
)


def _work(old: Route, new: Route) -> Iterator[Change]:
    for field, name, reason in _WORK[:5]:
        if _differs(old, new, field):
            yield safe_change(name, reason)
    if old.subscriptions != new.subscriptions:
        yield safe_change("subscriptions", _subscriptions(old, new))
    for field, name, reason in _WORK[5:]:
        if _differs(old, new, field):
            yield safe_change(name, reason)


def _differs(old: Route, new: Route, field: str) -> bool:
    return bool(getattr(old, field) != getattr(new, field))


def _subscriptions(old: Route, new: Route) -> str:
    if old.subscriptions and new.subscriptions and old.subscriptions.store != new.subscriptions.store:
        return "a micro-batch that is done again is matched with the newest of the new store"
    return _STATELESS
