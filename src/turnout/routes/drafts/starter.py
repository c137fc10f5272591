"""Initial files of a new route: the commented route, its tests, and servers to try it on."""

from __future__ import annotations

import json
import textwrap
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from turnout.routes.drafts.addresses import from_environment
from turnout.routes.drafts.samples import SampledMessage, SampledStream
from turnout.routes.line_numbers import Document
from turnout.subjects import MappingTable, collide, has_wildcard, with_placeholders

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
    """

    name: str
    source: Document
    sink: Document
    sampled: SampledStream = field(default_factory=SampledStream)
    sink_subjects: tuple[str, ...] = ()

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
                _block({"sink": from_environment(self.sink, self._sink_variable())}),
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

    # Parts of the route

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
