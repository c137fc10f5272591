"""Pydantic model of a route file: names, types and mutually exclusive parts; and the mistakes that pydantic finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from turnout.base.multivalued import split_kind
from turnout.base.terminal import did_you_mean, nearest
from turnout.base.untrusted import JsonObject
from turnout.errors import MOST_MISTAKES, Mistake
from turnout.records.field_paths import is_prefix, kind_problem, parse_path
from turnout.routes.endpoints import (
    FORMATS,
    TAGS,
    AnySink,
    AnySource,
    DeltaSink,
    IcebergSink,
    LookupPart,
    Part,
    SparkSink,
    secrets_of,
)
from turnout.routes.limits import HealthPart
from turnout.routes.values import StoreUrl, interval
from turnout.routes.webhooks import WebhooksPart
from turnout.routes.yaml_text import Path, dotted, line_of
from turnout.secrets import Secrecy, is_secret, masked_url
from turnout.subjects import is_publishable
from turnout.subscriptions.destinations import DURATION, check_path, duration_of
from turnout.transforms import ErrorPolicy

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a block of names and values",
    "mapping_type": "a block of names and values",
    "list_type": "a list",
    "model_type": "a block of names and values",
    "model_attributes_type": "a block of names and values",
}
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


def from_validation(
    failure: ValidationError, document: object, lines: dict[Path, int], model: type[BaseModel] = RouteDocument
) -> Iterator[Mistake]:
    """Yield the mistakes that pydantic found in a document of *model*, in the author's words and without repetitions.

    Only the first of thousands are sorted, more than are ever shown.
    """
    problems_by_path: dict[Path, list[str]] = {}
    for error in failure.errors(include_url=False)[:_MOST_ERRORS]:
        where = _authors_path(error["loc"], document)
        for path, problem in _parts(where, _problem(error, where, document, model), document):
            problems = problems_by_path.setdefault(path, [])
            if problem not in problems:
                problems.append(problem)
    for path, problems in problems_by_path.items():
        for problem in _together(problems):
            yield Mistake(dotted(path), problem, line_of(lines, path))
    if failure.error_count() > _MOST_ERRORS:
        yield Mistake("", f"there are {failure.error_count() - _MOST_ERRORS:,} more mistakes")


def _together(problems: Sequence[str]) -> Iterator[str]:
    """Join the problems of one value that fits none of several types."""
    expected: dict[str, list[str]] = {}
    for problem in problems:
        start, cut, type_ = problem.partition(", expected ")
        expected.setdefault(start, []).extend([type_] if cut else [])
    for start, types in expected.items():
        yield f"{start}, expected {' or '.join(types)}" if types else start


def _parts(path: Path, problem: str, document: object) -> Iterator[tuple[Path, str]]:
    """Yield the problems of a whole block, under the key that each one begins with."""
    if path or not isinstance(document, dict):
        yield path, problem
        return
    for part in problem.split("; "):
        name, colon, rest = part.partition(": ")
        yield ((name,), rest) if colon and name in document else ((), part)


def _authors_path(loc: Sequence[str | int], document: object) -> Path:
    """Return the error's place without what pydantic added to it: the chosen member of a union."""
    path: list[str | int] = []
    node: Any = document
    for step in loc:
        try:
            node = node[step]
        except (KeyError, IndexError, TypeError):
            if step in TAGS or step in _UNION_MEMBERS:
                continue
            node = None
        path.append(step)
    return tuple(path)


_MOST_ERRORS = 10 * MOST_MISTAKES
"""Errors of pydantic; several may be about one path."""
_UNION_MEMBERS = frozenset({"str", "int", "float", "bool", "list[str]", "dict[str,any]", "list[any]"})


def _problem(error: ErrorDetails, path: Path, document: object, model: type[BaseModel]) -> str:
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        names = names_at(path[:-1], document, model)
        return f"unknown name{did_you_mean(str(path[-1]), names)} (known here: {', '.join(names)})"
    if kind == "missing":
        return "is required and missing"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _wrong_format(value)
    if kind == "value_error":
        return str(context["error"])
    if kind == "invalid_key":
        return f"found {path[-1]!r}, expected a name: put it in quotes"
    prefix = f"found {describe_value(value, path, model)}, expected "
    if kind == "literal_error":
        return prefix + str(context["expected"]) + _near_literal(value, str(context["expected"]))
    if kind in _EXPECTED:
        return prefix + _EXPECTED[kind]
    message = error["msg"].removeprefix("Input should be ")
    return prefix + message[0].lower() + message[1:]


def _wrong_format(value: object) -> str:
    name = value.get("format") if isinstance(value, dict) else None
    expected = ", ".join(FORMATS)
    if not isinstance(value, dict):
        return f"found {masked_url(repr(value))}, expected a block with a format"
    if name is None:
        key_guess = next((key for key in map(str, value) if nearest(key, ["format"], 0.7)), None)
        guess = f'; found {key_guess!r}, did you mean "format"?' if key_guess else ""
        return f"format is required and missing, one of {expected}{guess}"
    return f"format: found {name!r}, expected one of {expected}{did_you_mean(str(name), FORMATS)}"


def _near_literal(value: object, expected: str) -> str:
    literals = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    return did_you_mean(value, literals) if isinstance(value, str) else ""


def describe_value(value: object, path: Path, top: type[BaseModel]) -> str:
    """Return a value for an error: short, without passwords; not at all where its place may hold a secret."""
    # A server's address may be a token and a host.
    if any(step == "servers" or step in secret_names(top) or is_secret(str(step)) for step in path):
        return "a value that is not shown"
    text = masked_url(repr(value))
    return text if len(text) <= 80 else text[:77] + "..."


@cache
def secret_names(top: type[BaseModel] = RouteDocument) -> frozenset[str]:
    """Return the names of the fields that no view shows, of a model and of those inside it."""
    inside = {model for field in top.model_fields.values() for model in _models_in(field.annotation)}
    return secrets_of(top).union(*map(secret_names, inside))


def names_at(path: Path, document: object, top: type[BaseModel]) -> list[str]:
    """Return the keys that the block at *path* may have."""
    model: object = top
    node: Any = document
    for step in path:
        node = node[step]
        if isinstance(model, type) and issubclass(model, BaseModel):
            fields = model.model_fields.items()
            model = next((field.annotation for name, field in fields if step in (field.alias, name)), model)
        model = _model_of(model, node)
    if isinstance(model, type) and issubclass(model, BaseModel):
        return [field.alias or name for name, field in model.model_fields.items()]
    return []


def _model_of(annotation: object, block: object) -> object:
    """Return the model that reads *block*: through Optional, dict values and the choice by format."""
    format_name = block.get("format") if isinstance(block, dict) else None
    for model in _models_in(annotation):
        field = model.model_fields.get("format")
        if field is None or format_name in get_args(field.annotation):
            return model
    return annotation


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
