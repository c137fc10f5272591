"""Effect of a changed route on its checkpoint, determined before it is applied.

A checkpoint holds nothing but places in the source: the next sequence of each stream, the next offset of each Kafka
partition, the files that were read. What happens to a record afterwards has no state. So a change is safe unless the
places would mean something else, or nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal

from pydantic import BaseModel

from turnout.routes import Route
from turnout.routes.endpoints import Endpoint, FileSource, KafkaSource, NatsSource
from turnout.routes.values import listed
from turnout.runtime.checkpoint import checkpoint_of
from turnout.secrets import is_secret, masked_url

Verdict = Literal["safe", "needs_new_checkpoint"]


@dataclass(frozen=True, slots=True)
class Change:
    """Difference between two versions of a route.

    Attributes:
        change: path of the changed setting in the file.
        verdict: ``safe`` if the new version can continue from the checkpoint of the old one.
        reason: reason of the verdict, as a sentence.
    """

    change: str
    verdict: Verdict
    reason: str

    @property
    def safe(self) -> bool:
        """True if the new version can continue from the checkpoint."""
        return self.verdict == "safe"


def is_safe(changes: list[Change]) -> bool:
    """Return True if all changes are safe."""
    return all(change.safe for change in changes)


def compatibility(old: Route, new: Route, *, masked: bool = False) -> list[Change]:
    """Return every difference that has an effect, in the order of the file; empty for equivalent routes.

    With *masked*, secrets do not count, as a caller could find one out by comparing guesses with it.
    """
    if masked:
        old, new = _without_secrets(old), _without_secrets(new)
    return [*_whole(old, new), *_source(old.source, new.source), *_work(old, new)]


def _without_secrets(value: Any, name: str = "") -> Any:
    """Return a copy of a part of a route with a mask in place of every secret; *name* is the option's."""
    if value is not None and is_secret(name):
        return "***"
    if isinstance(value, str):
        return masked_url(value)
    if isinstance(value, BaseModel):
        return value.model_copy(update={field: _without_secrets(part, field) for field, part in value})
    if isinstance(value, Mapping):
        return {key: _without_secrets(part, str(key)) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_without_secrets(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        # Not dataclasses.replace, which would check values that are no more what they were.
        masked = copy.copy(value)
        for field in fields(value):
            part = getattr(value, field.name)
            # The tokens of a subject are no secret.
            option = field.name if isinstance(part, str) else ""
            object.__setattr__(masked, field.name, _without_secrets(part, option))
        return masked
    return value


def _unsafe(change: str, reason: str) -> Change:
    return Change(change, "needs_new_checkpoint", reason)


def _safe(change: str, reason: str) -> Change:
    return Change(change, "safe", reason)


def _whole(old: Route, new: Route) -> Iterator[Change]:
    if old.name != new.name:
        yield _unsafe("name", "the checkpoint and the messages' ids belong to the name: this is another route")
    elif str(checkpoint_of(old)) != str(checkpoint_of(new)):
        yield _unsafe("checkpoint", "the new folder does not hold the place where the old run stopped")


def _source(old: Endpoint, new: Endpoint) -> Iterator[Change]:
    if old == new:
        return
    if type(old) is not type(new) or old.format != new.format:
        reason = f"a place in {_kind(old)} means nothing to {_kind(new)}"
        yield _unsafe("source.format", reason)
    elif isinstance(old, NatsSource) and isinstance(new, NatsSource):
        yield from _nats(old, new)
    elif isinstance(old, KafkaSource) and isinstance(new, KafkaSource):
        yield from _kafka(old, new)
    elif isinstance(old, FileSource) and isinstance(new, FileSource):
        yield from _files(old, new)


def _kind(source: Endpoint) -> str:
    return {"nats": "a stream", "kafka": "a Kafka topic"}.get(source.format, f"{source.format} files")


def _nats(old: NatsSource, new: NatsSource) -> Iterator[Change]:
    yield from _servers(old.servers, new.servers, "sequences of another server's stream are not those of this one")
    if (old.api_prefix, old.domain) != (new.api_prefix, new.domain):
        yield _unsafe("source.apiPrefix", "another JetStream answers under another prefix, with other sequences")
    streams, others = old.streams, new.streams
    removed, added = [name for name in streams if name not in others], [name for name in others if name not in streams]
    if removed:
        reason = f"the checkpoint holds the place in {', '.join(removed)}, which would be forgotten"
        yield _unsafe("source.stream", reason)
    if added and not removed:
        yield _safe("source.stream", f"{', '.join(added)} begins at {new.start}; the others go on where they are")
    if old.filters != new.filters:
        yield _safe("source.filterSubject", "the place is a sequence: the filter holds for messages behind it")
    handled = {"servers", "apiPrefix", "domain", "stream", "filterSubject"}
    yield from _rest(old, new, handled)


def _kafka(old: KafkaSource, new: KafkaSource) -> Iterator[Change]:
    yield from _servers(old.servers, new.servers, "offsets of another cluster's topics are not those of this one")
    for field, name in (("topics", "topics"), ("topic_pattern", "topicPattern")):
        before, after = listed(getattr(old, field)), listed(getattr(new, field))
        if sorted(before) != sorted(after):
            yield _unsafe(f"source.{name}", "the checkpoint holds the offsets of the topics that were named before")
    yield from _rest(old, new, {"servers", "topics", "topicPattern"})


def _files(old: FileSource, new: FileSource) -> Iterator[Change]:
    if old.path != new.path:
        yield _unsafe("source.path", "the checkpoint lists the files that were read in the other folder")
    if old.stream != new.stream:
        yield _unsafe("source.stream", "a source that is read once keeps no checkpoint")
    yield from _rest(old, new, {"path", "stream"})


def _servers(old: str | Iterable[str], new: str | Iterable[str], reason: str) -> Iterator[Change]:
    before, after = {_host(url) for url in listed(old)}, {_host(url) for url in listed(new)}
    if before == after and listed(old) == listed(new):
        return
    if before & after:
        yield _safe("source.servers", "at least one address is as before: it is the same cluster")
    else:
        yield _unsafe("source.servers", reason)


def _host(url: str) -> str:
    """The address in a URL, without the credentials."""
    return url.rpartition("://")[2].rpartition("@")[2].rstrip("/").lower()


_ONLY_AT_FIRST = "it has an effect where there is no checkpoint; reset the offsets to go elsewhere"


def _rest(old: Endpoint, new: Endpoint, handled: set[str]) -> Iterator[Change]:
    """Yield changes of options that do not affect positions."""
    before, after = (version.model_dump(by_alias=True) for version in (old, new))
    for name in before:
        if name in handled or before[name] == after[name]:
            continue
        if name == "start":
            yield _safe("source.start", _ONLY_AT_FIRST)
        elif is_secret(name):
            yield _safe(f"source.{name}", "who reads does not change what is read")
        else:
            yield _safe(f"source.{name}", "it changes how the source is read, and not where")


_STATELESS = "what happens to a record has no state: it holds from the next micro-batch on"
_WORK = (
    ("key", "key", _STATELESS),
    ("value", "value", _STATELESS),
    ("chain", "transforms", _STATELESS),
    ("mappings", "mappings", _STATELESS),
    ("cluster", "cluster", _STATELESS),
    ("unmatched", "unmatched", _STATELESS),
    ("sinks", "sink", "what was delivered stays where it is, the next micro-batch goes to the new sink"),
    ("dead_letter", "deadLetter", _STATELESS),
    ("trigger", "trigger", "it says when micro-batches start, and not what they hold"),
    ("spark", "spark", "a route keeps no state in Spark that depends on it"),
)


def _work(old: Route, new: Route) -> Iterator[Change]:
    for field, name, reason in _WORK[:5]:
        if _differs(old, new, field):
            yield _safe(name, reason)
    if old.subscriptions != new.subscriptions:
        yield _safe("subscriptions", _subscriptions(old, new))
    for field, name, reason in _WORK[5:]:
        if _differs(old, new, field):
            yield _safe(name, reason)


def _differs(old: Route, new: Route, field: str) -> bool:
    return bool(getattr(old, field) != getattr(new, field))


def _subscriptions(old: Route, new: Route) -> str:
    if old.subscriptions and new.subscriptions and old.subscriptions.store != new.subscriptions.store:
        return "a micro-batch that is done again is matched with the newest of the new store"
    return _STATELESS
