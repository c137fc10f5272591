"""Initial files of a new route: the commented route, its tests, and servers to try it on."""

from __future__ import annotations

import json
import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import yaml

from turnout.base.terminal import did_you_mean
from turnout.codecs.ddl import parse_ddl
from turnout.codecs.pairs import NEEDS_SCHEMA
from turnout.errors import ConfigError, Mistake, RecordError
from turnout.records import Schema
from turnout.routes.drafts.route_draft import from_environment
from turnout.routes.yaml_text import Document
from turnout.subjects import MappingTable, collide, has_wildcard, with_placeholders

WRITTEN: Final = ("json", "connect-json", "msgpack", "avro", "jsonSchema", "protobuf", "string", "raw")
"""Formats of the values that a sink gets."""

T = TypeVar("T")

Shape: TypeAlias = "str | dict[str, Shape] | list[Shape]"
"""The name of a type, empty where only null was seen; the fields of a struct; the one shape of an array's elements."""

_UNKNOWN = ""
_ANY = "VARIANT"
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")
_LONG_BOUND = 1 << 63


def columns_of(objects: Iterable[Mapping[str, object]]) -> str:
    """Return columns that fit all of these objects; ``VARIANT`` for fields of several types or without values.

    >>> columns_of([{"n": 1, "town": "Oulu"}, {"n": 1.5, "tags": ["a"], "at": {"x": None}}])
    'n DOUBLE, town STRING, tags ARRAY<STRING>, at STRUCT<x: VARIANT>'
    """
    whole = _common(objects)
    return ", ".join(f"{_name(name)} {_ddl(shape)}" for name, shape in whole.items()) if isinstance(whole, dict) else ""


def _shape_of(value: object) -> Shape:
    match value:
        case bool():
            return "BOOLEAN"
        case int():
            return "BIGINT" if -_LONG_BOUND <= value < _LONG_BOUND else _ANY
        case float():
            return "DOUBLE"
        case str():
            return "STRING"
        case list():
            return [_common(value)]
        case dict():
            return {str(name): _shape_of(inner) for name, inner in value.items()}
    return _UNKNOWN


def _common(values: Iterable[object]) -> Shape:
    """Return the shape that all of them fit into."""
    shape: Shape = _UNKNOWN
    for value in values:
        shape = _merged(shape, _shape_of(value))
    return shape


def _merged(one: Shape, other: Shape) -> Shape:
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        names = dict.fromkeys((*one, *other))
        return {name: _merged(one.get(name, _UNKNOWN), other.get(name, _UNKNOWN)) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    numbers = ("BIGINT", "DOUBLE")
    return "DOUBLE" if one in numbers and other in numbers else _ANY


def _ddl(shape: Shape) -> str:
    if isinstance(shape, list):
        return f"ARRAY<{_ddl(shape[0])}>"
    if isinstance(shape, dict):
        fields = ", ".join(f"{_name(name)}: {_ddl(inner)}" for name, inner in shape.items())
        return f"STRUCT<{fields}>" if fields else _ANY
    return shape or _ANY


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class SampledMessage:
    """Message sampled from a stream."""

    topic: str
    value: bytes


@dataclass(frozen=True, slots=True)
class SampledStream:
    """Stream with a sample of its messages.

    Attributes:
        subjects: subjects of the stream.
        messages: its latest with values; tombstones have no format.
    """

    subjects: tuple[str, ...] = ()
    messages: tuple[SampledMessage, ...] = ()

    def columns(self) -> str:
        """Return the DDL of the values; empty for change events, and if those that are JSON are not all objects."""
        if self.format() != "json" or self.has_change_events():
            return ""
        objects = self._objects()
        return columns_of(objects) if len(objects) == len(self._readable()) else ""

    def is_json(self) -> bool:
        """True if the sampled values are JSON, but for a few of them that are malformed."""
        return _are_few(self.malformed(), len(self.messages))

    def malformed(self) -> int:
        """Return the number of sampled values that are not JSON."""
        return len(self.messages) - len(self._readable())

    def format(self) -> str:
        """Return the format of the sampled values: ``json``, Connect's ``connect-json``, or ``raw``."""
        if not self.is_json():
            return "raw"
        return "connect-json" if self._are(_has_schema) else "json"

    def has_change_events(self) -> bool:
        """True if the values are change events of Debezium, but for a few."""
        return self.is_json() and self._are(_is_change_event)

    def _are(self, is_one: Callable[[Document], bool]) -> bool:
        """Return True if most values that can be read are such objects, and there is one."""
        found, count = sum(map(is_one, self._objects())), len(self._readable())
        return found > 0 and _are_few(count - found, count)

    def example(self) -> SampledMessage | None:
        """Return the shortest readable message, for generated tests; None without one."""
        candidates = self._readable() if self.is_json() else self.messages
        return min(candidates, key=lambda message: len(message.value), default=None)

    def _readable(self) -> Sequence[SampledMessage]:
        return [message for message in self.messages if _json(message.value) is not _NO_JSON]

    def _objects(self) -> Sequence[Document]:
        values = [_json(message.value) for message in self.messages]
        return [value for value in values if isinstance(value, dict)]


_NO_JSON = object()
_MOST_MALFORMED = 0.1
"""Share of malformed values up to which a stream's values are JSON, and the others are dead letters."""


def _are_few(others: int, count: int) -> bool:
    """Return True if so many of *count* values are exceptions: a tenth, or one of three or more."""
    return others <= count * _MOST_MALFORMED or (others == 1 and count > 2)


_CHANGE_EVENT = frozenset(("before", "after", "source", "op"))


def _has_schema(value: Document) -> bool:
    return value.keys() == {"schema", "payload"}


def _is_change_event(value: Document) -> bool:
    event = value["payload"] if _has_schema(value) else value
    return isinstance(event, dict) and event.keys() >= _CHANGE_EVENT


def _json(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return _NO_JSON


_PREFIX = "routed"


@dataclass(frozen=True, slots=True)
class Starter:
    """Minimal route that takes records from a source to a sink, for its author to extend.

    Attributes:
        name: name of the route and of its files.
        source: as `source_of` gives it.
        sink: as `sink_of` gives it.
        sampled: known facts of the source's stream.
        sink_subjects: the subjects of the sink's stream, where they are known.
        sink_format: format of the values that the sink gets; None for that of the source.
    """

    name: str
    source: Document
    sink: Document
    sampled: SampledStream = field(default_factory=SampledStream)
    sink_subjects: tuple[str, ...] = ()
    sink_format: str | None = None

    def route(self) -> str:
        """Return the text of ``NAME.yaml``."""
        name = self.name
        return "\n".join(
            [
                f"# `turnout check {name}.yaml` names every mistake, and with --connect queries the servers;",
                f"# `turnout test {name}.yaml` runs {name}.test.yaml; `turnout run {name}.yaml` runs the route.",
                f"name: {_flow(name)}",
                "",
                "# Source of the records.",
                _block({"source": from_environment(self.source) | self._start()}),
                *self._value(),
                "",
                "# Kafka Connect's transforms, in order, each with a predicate if it is not for every record.",
                *self._transforms(),
                *self._mappings(),
                "",
                "# Stored subscriptions, and the value paths that their conditions may name.",
                "# subscriptions: {store: 'sqlite:///subscriptions.db', metadata: {city: value.city}}",
                "",
                "# Where messages go.",
                _block({"sink": from_environment(self.sink, self._sink_variable()) | self._written()}),
                "",
                "# Failed records go here unchanged, with the reason in headers. A stream has to accept this subject.",
                _block({"deadLetter": {"topic": f"dead.{name}"}, "errors": {"tolerance": "all"}}),
                "",
            ]
        )

    def tests(self) -> str:
        """Return the text of ``NAME.test.yaml``."""
        message = self.sampled.example() or SampledMessage(self._topic(), b'{"n": 1}')
        record = {"topic": message.topic, **_content(message.value)}
        cases = [{"name": "a record is delivered", "record": record, "expect": {"topic": self._mapped(message.topic)}}]
        if self._format() != "raw":
            cut = {"topic": message.topic, "value": '{"cut'}
            expect = {"outcome": "dead_lettered", "stage": "VALUE_CONVERTER"}
            cases.append({"name": "invalid JSON is dead-lettered", "record": cut, "expect": expect})
        lines = [
            f"# What {self.name}.yaml does with single records. `turnout test {self.name}.yaml` runs these without",
            "# Spark and servers; with --update it accepts what happens now.",
        ]
        if self.sampled.messages:
            lines.append("# The first record is one of the stream: replace it if it is confidential.")
        return "\n".join([*lines, _block({"cases": cases}), ""])

    def compose(self) -> str:
        """Return the text of ``compose.yaml``: the route and, if it has a NATS end, a nats-server, in containers."""
        nats = "nats" in (self.source["format"], self.sink["format"])
        kafka = "kafka" in (self.source["format"], self.sink["format"])
        route = {
            "image": "turnout",
            "command": ["run", f"/routes/{self.name}.yaml", "--checkpoint", "/var/lib/turnout/checkpoint"],
            "environment": {
                **dict.fromkeys(self._variables(), "nats://nats:4222"),
                **({"KAFKA_SERVERS": "${KAFKA_SERVERS:?where Kafka's brokers are}"} if kafka else {}),
            },
            "volumes": ["./:/routes:ro", "turnout:/var/lib/turnout"],
            **({"depends_on": {"nats": {"condition": "service_healthy"}}} if nats else {}),
            "restart": "unless-stopped",
            "stop_grace_period": "1m",
            "read_only": True,
            "tmpfs": ["/tmp:exec"],  # noqa: S108 - of the container, for Spark's native libraries
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges:true"],
        }
        server = {
            "image": "nats:2-alpine",
            "command": ["--jetstream", "--store_dir=/data", "--http_port=8222"],
            "ports": ["127.0.0.1:4222:4222"],
            "volumes": ["nats:/data"],
            "healthcheck": {"test": ["CMD", "wget", "-qO-", "http://127.0.0.1:8222/healthz"], "interval": "5s"},
        }
        services = {**({"nats": server} if nats else {}), "turnout": route}
        document = {"services": services, "volumes": {name: {} for name in services}}
        lines = ["# `make image` in turnout's source builds the image of the route."]
        if nats:
            lines += [
                "# A nats-server to try the route on. The streams that it reads and writes are not made here: see",
                "# `nats stream add`.",
            ]
        if kafka:
            lines.append("# Kafka's brokers are yours: the variable KAFKA_SERVERS says where they are.")
        return "\n".join([*lines, _block(document), ""])

    def schema_file(self) -> tuple[str, str] | None:
        """Return the name and the text of the file of the sink's schema; None if there is none.

        Raises:
            ConfigError: the samples have no such schema.
        """
        return (f"{self.name}.proto", self._schema(proto_of)) if self.sink_format == "protobuf" else None

    # Parts of the route

    def _written(self) -> Document:
        """Return the sink's ``value``, with the schema of the sampled values if its format needs one."""
        if self.sink_format is None:
            return {}
        if self.sink_format not in WRITTEN:
            known = ", ".join(WRITTEN)
            problem = f"expected {known}, found {self.sink_format!r}{did_you_mean(self.sink_format, WRITTEN)}"
            raise ConfigError([Mistake("--sink-format", problem)])
        if self.sink_format not in NEEDS_SCHEMA:
            return {"value": {"format": self.sink_format}}
        file = self.schema_file()
        if file is not None:
            return {"value": {"format": "protobuf", "schema": file[0]}}
        make: Callable[[Schema], object]
        if self.sink_format == "avro":
            from turnout.codecs.avro.connect_schema import avro_schema_of as make
        else:
            from turnout.codecs.json_schema.codec import definition_of
            from turnout.codecs.json_schema.kind import JsonSchemaOptions

            make = lambda schema: json.loads(definition_of(schema, JsonSchemaOptions()))  # noqa: E731
        return {"value": {"format": self.sink_format, "schema": self._schema(make)}}

    def _schema(self, make: Callable[[Schema], T]) -> T:
        columns = self.sampled.columns()
        count = f"{len(self.sampled.messages):,} sampled records"
        later = f"create the route without it, and give its sink a value: {{format: {self.sink_format}, schema: …}}"
        if not columns:
            problem = f"{self.sink_format} needs a schema, and none can be derived of {count}: {later}"
            raise ConfigError([Mistake("--sink-format", problem)])
        try:
            return make(parse_ddl(columns).schema.with_(optional=False))
        except RecordError as failure:
            problem = f"{count} give no {self.sink_format} schema: {failure}; {later}"
            raise ConfigError([Mistake("--sink-format", problem)]) from None

    def _start(self) -> Document:
        return {} if self.source["format"] not in ("nats", "kafka") else {"start": "earliest"}

    def _format(self) -> str:
        return self.sampled.format()

    def _value(self) -> Iterator[str]:
        yield ""
        columns = self.sampled.columns()
        count, malformed = len(self.sampled.messages), self.sampled.malformed()
        if malformed and self._format() != "raw":
            yield f"# Of {count:,} records {malformed:,} are not JSON: such records are dead letters."
        if self._format() == "raw":
            yield "# Decoding of values: none, as not all sampled ones are JSON."
            yield _block({"value": {"format": "raw"}})
        elif self._format() == "connect-json":
            yield "# What values are: JSON with its schema, as Connect's JsonConverter writes it."
            yield _block({"value": {"format": "connect-json"}})
        elif columns:
            yield f"# What values are, by {count:,} of the latest records. A field that is not listed"
            yield "# is left out: add it; or remove the schema, which keeps every field."
            wrapped = textwrap.wrap(columns, 110, break_long_words=False, break_on_hyphens=False)
            yield from ["value:", "  format: json", "  schema: >-", *(f"    {line}" for line in wrapped)]
        else:
            yield "# What values are: JSON. With a schema (carrier STRING, delay INT) they have the columns of it."
            yield _block({"value": {"format": "json"}})

    def _transforms(self) -> Iterator[str]:
        if self.sampled.has_change_events():
            yield "# The records are change events of Debezium: this takes the new row, or of a deletion the old one."
            row = {"name": "row", "type": "ExtractNewRecordState", "delete.tombstone.handling.mode": "rewrite"}
            yield _block({"transforms": [{**row, "add.fields": "op,table"}]})
            return
        yield "# transforms:"
        yield "#   - {name: private, type: MaskField$Value, fields: card, predicate: {type: HasHeaderKey, name: EU}}"

    def _mappings(self) -> Iterator[str]:
        table = self._table()
        if table:
            yield ""
            yield "# nats-server's subject mappings: the first match. A route may not publish to its source."
            yield _block({"mappings": table})

    def _table(self) -> dict[str, str]:
        """Return a mapping for each subject of the source, to a subject that the source does not read."""
        if self.source["format"] != self.sink["format"] or self.source["format"] not in ("nats", "kafka"):
            return {}
        return {subject: f"{self._prefix()}.{with_placeholders(subject)}" for subject in self._subjects()}

    def _subjects(self) -> tuple[str, ...]:
        if self.source["format"] == "kafka":
            topics = self.source["topics"]
            return (topics,) if isinstance(topics, str) else tuple(topics)
        return self.sampled.subjects or (f"{str(self.source['stream']).lower()}.>",)

    def _prefix(self) -> str:
        """Return the first token of the sink's stream's subjects, or one that the source's stream does not have."""
        heads = [subject.removesuffix(".>") for subject in self.sink_subjects if subject.endswith(".>")]
        free = [head for head in (*heads, _PREFIX, f"{_PREFIX}-{self.name}") if self._is_free(head)]
        return free[0] if free else f"{_PREFIX}-{self.name}"

    def _is_free(self, head: str) -> bool:
        return not has_wildcard(head) and not any(collide(f"{head}.>", subject) for subject in self._subjects())

    def _sink_variable(self) -> str | None:
        """Return the variable of the address of the sink's server; None if the source has the same."""
        same = self.sink.get("servers") == self.source.get("servers")
        return None if same or self.source["format"] != self.sink["format"] else "SINK_URL"

    def _variables(self) -> list[str]:
        names = ["NATS_URL"] if "nats" in (self.source["format"], self.sink["format"]) else []
        return [*names, "SINK_URL"] if self._sink_variable() and self.sink["format"] == "nats" else names

    # Parts of the tests

    def _topic(self) -> str:
        if self.source["format"] not in ("nats", "kafka"):
            return "topic"
        return self._subjects()[0].replace("*", "a").replace(">", "a")

    def _mapped(self, topic: str) -> str | None:
        return MappingTable.from_config(self._table()).apply(topic)


def _content(value: bytes) -> Document:
    """Return a value as a test's record has it."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"valueBase64": b64encode(value).decode()}
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError):
        return {"value": text}
    return {"value": loaded if isinstance(loaded, dict | list) else text}


def _block(document: Document) -> str:
    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=110)).rstrip("\n")


def _flow(text: str) -> str:
    return str(yaml.safe_dump(text)).partition("\n")[0]


def proto_of(schema: Schema) -> str:
    """Return the Protobuf file of a message for the values of a schema.

    Raises:
        RecordError: Protobuf has no such field; names it.
    """
    return "\n".join(['syntax = "proto3";', "", *_message("Value", schema, "", ""), ""])


def _message(name: str, schema: Schema, path: str, margin: str) -> Iterator[str]:
    yield f"{margin}message {name} {{"
    inner = margin + "  "
    for number, member in enumerate(schema.fields, 1):
        at = f"{path}{member.name}"
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", member.name):
            raise RecordError(f"{at}: a field of Protobuf has a name of letters, digits and _")
        repeated = member.schema.type == "array" and member.schema.values is not None
        one = member.schema.values if repeated and member.schema.values is not None else member.schema
        kind = _PROTO.get(one.type)
        if one.type == "struct":
            kind = f"{member.name[0].upper()}{member.name[1:]}"
            yield from _message(kind, one, f"{at}.", inner)
        if kind is None:
            problem = "a list of lists" if repeated and one.type == "array" else "a field of several types, or of none"
            raise RecordError(f"{at} is {problem}, which Protobuf does not have")
        yield f"{inner}{'repeated' if repeated else 'optional'} {kind} {member.name} = {number};"
    yield f"{margin}}}"


_PROTO = {"int64": "int64", "float64": "double", "boolean": "bool", "string": "string"}
