"""Pydantic model of a route file: names, types and mutually exclusive parts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from turnout.base.multivalued import split_kind
from turnout.base.untrusted import JsonObject
from turnout.records.field_paths import is_prefix, kind_problem, parse_path
from turnout.routes.endpoints import AnySink, AnySource, DeltaSink, IcebergSink, LookupPart, Part, SparkSink
from turnout.routes.limits import HealthPart
from turnout.routes.values import StoreUrl, interval
from turnout.routes.webhooks import WebhooksPart
from turnout.secrets import Secrecy
from turnout.subjects import is_publishable
from turnout.subscriptions.destinations import DURATION, check_path, duration_of
from turnout.transforms import ErrorPolicy

_POLICYS = {"predicates": "failed_predicates"}
"""Names in an ``errors`` block that `ErrorPolicy` has another one for."""
_STEP = re.compile(r"`(?:[^`]|`(?!\.|$|\[\]))*`(?:\[\])*|[^.]+")
_VALUE_PATH = re.compile(r"(value|key)(\.[^.]+)+|topic|partition|offset|timestamp")


class FeedsPart(Part):
    """Matches as rows of a table: time, position, subscription, revision, destination, and columns of the record.

    Attributes:
        table: the table; its columns are added to those of a match.
        store: whether the matches are stored for feeds as well.
    """

    table: Annotated[DeltaSink | IcebergSink | SparkSink, Field(discriminator="format")]
    store: bool = False


class SubscriptionsPart(Part):
    """Subscriptions of a route: the store, and the metadata that conditions see.

    Attributes:
        store: ``sqlite:///subscriptions.db``, ``mongodb://…``, ``grpc://host:port`` or ``memory://``.
        metadata: the name a condition uses → the value path it stands for; ``detail.*`` → ``value.detail.*`` for all
            paths of which that is the beginning; a path that ends with ``:number``, ``:text`` or ``:boolean`` has
            values of that kind alone.
        feeds: store the matches, so that the messages of each subscription can be read as a feed; or ``table`` with a
            sink of a table, which gets a row for each match.
    """

    store: StoreUrl
    metadata: dict[str, str] = Field(default_factory=dict)
    feeds: bool | FeedsPart = False

    @field_validator("metadata")
    @classmethod
    def _paths(cls, metadata: dict[str, str]) -> dict[str, str]:
        wrong = [f"{name}: {path}" for name, path in metadata.items() if not _VALUE_PATH.fullmatch(path)]
        if wrong:
            raise ValueError(f"a path reads value.<field>[.<field>…] or key.<field>; found {', '.join(wrong)}")
        for name, path in metadata.items():
            _check_steps(name, path)
        return metadata


def _check_steps(name: str, path: str) -> None:
    """Refuse a path to one element of an array, which never has a value; ``name[]`` stands for each element.

    Raises:
        ValueError: a step is an index or has other brackets, and no backticks around it; or a prefix has a name that
            is none; or a path or its name ends with a kind that is none, or not the other's.
    """
    if (problem := kind_problem(path)) is not None:
        raise ValueError(f"{name}: {problem}")
    path, kind = split_kind(path)
    if split_kind(name)[1] not in ("", kind):
        raise ValueError(
            f"{name}: conditions put the kind behind a name, and list it as {split_kind(name)[0]}, or the path ends "
            f"with the same kind"
        )
    parse_path(path)
    if is_prefix(path) and not name.endswith("*"):
        raise ValueError(
            f"{name}: {path} stands for all paths below {path[:-2]}, and so does a name that ends with *, as in "
            f"{name}.*; a field that is called so is written {path[:-1]}`*`"
        )
    steps = _STEP.findall(path)
    escaped = [f"`{step}`" if _is_element(step) else step for step in steps]
    if escaped != steps:
        raise ValueError(
            f"{name}: {path} leads to an element of an array, and paths read fields, or each element as in "
            f"value.items[].sku; a field that is called so is written {'.'.join(escaped)}"
        )


def _is_element(step: str) -> bool:
    name = step
    while name.endswith("[]"):
        name = name.removesuffix("[]")
    return not step.startswith("`") and (name.isdecimal() or "[" in name or not name)


class DeadLetterPart(Part):
    """Destination of failing records.

    Attributes:
        topic: the topic; ``name:topic`` for one of several sinks.
        context_headers: add Connect's ``__connect.errors.*`` headers.
        secret: seals dead letters and the notes of redrives, so that no other publisher can make some: 16 characters
            or more, the same wherever the route runs or is redriven; none trusts all messages of the topic.
    """

    topic: str = Field(min_length=1)
    context_headers: bool = True
    secret: Annotated[str | None, Field(min_length=16), Secrecy.SECRET] = None

    @model_validator(mode="before")
    @classmethod
    def _as_read(cls, block: object) -> object:
        if isinstance(block, dict) and {"key", "value"} & block.keys():
            problem = "dead letters are the bytes that were read, so that redrive reads them again"
            raise ValueError(f"{problem}: leave out key and value")
        return block


class ErrorsPart(Part):
    """Handling of failing records: Connect's ``errors.*`` properties.

    Attributes:
        tolerance: ``all`` dead-letters it and continues, ``none`` stops the run.
        log: say failed records on the log: stage, class, message and place.
        log_messages: say their keys and values too.
        predicates: ``fail`` (Kafka as released) or ``not-matched`` (the draft of KIP-585).
        bad_headers: effect of a header that NATS cannot carry on its record: ``deadLetter``, or ``drop``: the header
            is left out and counted.
        registry: policy for a record whose schema is needed while the schema registry is down: ``wait`` for
            the registry, or ``deadLetter``.
    """

    tolerance: Literal["none", "all"] = "none"
    log: bool = False
    log_messages: bool = False
    predicates: Literal["fail", "not-matched"] = "fail"
    bad_headers: Literal["deadLetter", "drop"] = "deadLetter"
    registry: Literal["wait", "deadLetter"] = "wait"

    def policy(self, base: ErrorPolicy) -> ErrorPolicy:
        """Return *base*, the policy of a connector's own properties, overridden by the route's settings."""
        overrides = {_POLICYS.get(name, name): getattr(self, name) for name in self.model_fields_set - {"registry"}}
        return replace(base, **overrides)


class TriggerPart(Part):
    """Trigger of micro-batches; by default they start as soon as records are available.

    Attributes:
        available_now: do all there is, then stop.
        processing_time: an interval: ``1 second``.
        latency: ``low`` delivers messages as they arrive where source and sinks are NATS, and makes micro-batches short
            elsewhere.
    """

    available_now: bool | None = None
    processing_time: str | None = None
    latency: Literal["low"] | None = None

    @field_validator("processing_time")
    @classmethod
    def _interval(cls, text: str | None) -> str | None:
        return text if text is None else interval(text)

    @model_validator(mode="after")
    def _one_choice(self) -> TriggerPart:
        if self.available_now and (self.processing_time or self.latency):
            raise ValueError("availableNow excludes processingTime and latency")
        return self


def _waiting_subject(subject: str) -> str:
    if not is_publishable(subject) or subject.startswith("$"):
        raise ValueError(f"found {subject!r}, expected the first tokens of subjects, without wildcards")
    return subject


def _id_path(path: str | None) -> str | None:
    if path is not None:
        check_path(path)
    return path


def _grace(text: str | float) -> str:
    written = f"{text}"
    if duration_of(written) is None:
        raise ValueError(f"found {written!r:.80}, expected {DURATION}")
    return written


class ScheduledPart(Part):
    """Messages that are delivered later, by ``delay`` and ``deliverAt`` of sinks and destinations.

    Attributes:
        subject: first tokens of the subjects under which they wait.
        stream: the delay stream, from which ``turnout scheduled run`` or a server publishes them; without it, the
            streams of sinks of format nats publish them, up to 0.25 s late.
        sink: name of the sink of format nats that has the delay stream; the first of that format if not given.
        id: path of the id by which a message is replaced and cancelled; its record's origin if not given.
        grace: how long before its record's time a message may be due; it is then delivered at once.
    """

    subject: Annotated[str, AfterValidator(_waiting_subject)] = "scheduled"
    stream: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9_-]{1,200}$")] = None
    sink: str | None = None
    id: Annotated[str | None, AfterValidator(_id_path)] = None
    grace: Annotated[str | int | float, AfterValidator(_grace)] = "1h"

    @property
    def grace_microseconds(self) -> int:
        """The grace in microseconds."""
        return duration_of(f"{self.grace}") or 0

    def sink_name(self, formats: Mapping[str, str]) -> str | None:
        """Return the name of the sink that has the delay stream; None if there is none.

        Args:
            formats: name of each sink → its format.
        """
        if self.sink is not None:
            return self.sink if formats.get(self.sink) == "nats" else None
        return next((name for name, format_ in formats.items() if format_ == "nats"), None)


class RouteDocument(Part):
    """One route file. `transforms`, `mappings`, `key` and `value` are checked by their own packages.

    Attributes:
        name: letters, digits, '_', '.', '-'; the checkpoint is stored under this name.
        source: source of the records.
        tables: name → table whose rows ``lookup(…)`` finds in the expressions of Set.
        cluster: the cluster whose mappings apply.
        subscriptions: the store of subscriptions; without it every record is sent under its own topic.
        unmatched: handling of a record that no subscription matches: ``drop`` (the default), ``pass`` or
            ``deadLetter``.
        sink: sink of the messages.
        sinks: name → sink; a destination ``name:topic`` chooses one, others go to the first.
        webhooks: how messages for HTTP endpoints are stored, and delivered by ``turnout deliver``.
        scheduled: where messages wait that are delivered later.
        dead_letter: destination of failed records.
        errors: effect of a failing record on the run.
        trigger: when micro-batches start; as soon as there are records if not given.
        health: shares of lost records above which the server shows the route as unhealthy.
        checkpoint: the folder of the run's progress, or its URL; ``.turnout/<name>/checkpoint`` beside the file if not
            given.
        spark: more Spark properties.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    source: AnySource
    key: JsonObject = Field(default_factory=lambda: {"format": "raw"})
    value: JsonObject = Field(default_factory=lambda: {"format": "raw"})
    transforms: list[object] | JsonObject | str | None = None
    tables: dict[str, Annotated[LookupPart, Field(discriminator="format")]] = Field(default_factory=dict)
    mappings: JsonObject | str | None = None
    cluster: str | None = None
    subscriptions: SubscriptionsPart | None = None
    unmatched: Literal["drop", "pass", "deadLetter"] | None = None
    sink: AnySink | None = None
    sinks: dict[str, AnySink] | None = None
    webhooks: WebhooksPart | None = None
    scheduled: ScheduledPart | None = None
    dead_letter: DeadLetterPart | None = None
    errors: ErrorsPart | None = None
    trigger: TriggerPart = Field(default_factory=TriggerPart)
    health: HealthPart = Field(default_factory=HealthPart)
    checkpoint: str | None = None
    spark: dict[str, str | int | float | bool] = Field(default_factory=dict)
    tests: object = Field(None, description="the route's tests, read by turnout.history; a run passes over them")

    @model_validator(mode="after")
    def _parts_fit(self) -> RouteDocument:
        wrong = [*self._source_fits(), *self._sinks_fit(), *self._subscriptions_fit()]
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    def _source_fits(self) -> list[str]:
        if self.source.format != "avro":
            return []
        expected = "connect-json" if getattr(self.source, "schemas", None) else "json"
        found = self.value.get("format", "raw")
        return [] if found == expected else [f"value: values of these Avro files are {expected}, found format: {found}"]

    def _sinks_fit(self) -> list[str]:
        if (self.sink is None) == (self.sinks is None):
            return ["needs exactly one of sink and sinks"]
        if self.sinks is not None and not self.sinks:
            return ["sinks: at least one is needed"]
        return [f"sinks: the name {name!r} holds a colon" for name in self.sinks or () if ":" in name]

    def _subscriptions_fit(self) -> list[str]:
        wrong = []
        if self.unmatched is not None and self.subscriptions is None:
            wrong.append("unmatched: has a meaning only with subscriptions")
        if self.unmatched == "deadLetter" and self.dead_letter is None:
            wrong.append("unmatched: deadLetter needs a deadLetter block")
        if self.source.pushes_down:
            if self.subscriptions is None:
                wrong.append("source: pushDown needs subscriptions, which decide the records to filter")
            elif self.unmatched not in (None, "drop"):
                wrong.append(f"source: pushDown needs unmatched: drop, found {self.unmatched}")
        return wrong
