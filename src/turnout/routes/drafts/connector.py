"""A connector of Kafka Connect as a route: its topics, converters, transforms, predicates and what failures do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from turnout.codecs import Format, converters_of
from turnout.codecs.schema_registry import RegistryOptions
from turnout.errors import ConfigError, Mistake
from turnout.routes.connector import DEBEZIUM_SERVER, MIRROR, Connector
from turnout.routes.drafts.route_draft import (
    SINK,
    Adoption,
    Change,
    Draft,
    Loss,
    Omission,
    named_after,
    route_name,
    stage_of,
)
from turnout.routes.variables import escaped, placeholders_in
from turnout.routes.yaml_text import Document
from turnout.secrets import is_secret, masked_url
from turnout.transforms.config import OPTIONS as POLICY
from turnout.transforms.config import read_properties
from turnout.transforms.java.values import split_list
from turnout.transforms.options import BOOLEAN

_KAFKA = {"format": "kafka", "servers": "${KAFKA_SERVERS:-localhost:9092}"}
_ERRORS = {
    "errors.tolerance": "tolerance",
    "errors.log.enable": "log",
    "errors.log.include.messages": "logMessages",
    "errors.predicates": "predicates",
}
_LETTER = {
    "errors.deadletterqueue.topic.name": "topic",
    "errors.deadletterqueue.context.headers.enable": "contextHeaders",
}
_REASONS = {
    "connector.class": "turnout reads and writes NATS, Kafka and files: --from and --to say where",
    "tasks.max": "Spark decides how many tasks run",
    "header.converter": "headers stay the bytes that they are",
    "errors.retry.timeout": "nothing here fails for a passing reason",
    "errors.retry.delay.max.ms": "nothing here fails for a passing reason",
    "errors.deadletterqueue.topic.replication.factor": "topics are not created",
}
_CLASSES = {
    "io.debezium.": (
        "Debezium reads the database's log, which turnout does not: let it write to Kafka as before, and route its "
        "topics with --from kafka://HOST:9092/TOPIC; the transform ExtractNewRecordState takes its envelopes apart"
    ),
}
"""Next steps by prefix of a connector's class."""
_CONVERTERS = {
    "cloudevents": (
        "structured CloudEvents are read with value: {format: json}; the transform ExtractField$Value with field: data "
        "gives the event that Debezium wraps"
    ),
    "avro": (
        "values with Confluent's header are read with value: {format: avro, registry: http://HOST:8081}; Apicurio's "
        "registry offers that interface under /apis/ccompat/v7"
    ),
}
"""Next steps by part of the class name of an unknown converter."""
_PLAIN_HEADERS = ("simpleheaderconverter", "stringconverter", "bytearrayconverter")
_VARIABLE = re.compile(r"\$\{[^{}]*\}")
_MARKS = ("connector.class", "topics", "topics.regex", "transforms", "key.converter", "value.converter")
"""Properties, at least one of which a connector has."""
_OF_THE_CLIENT = ("deserializer", "serializer", "group.id", "enable.auto.commit", "interceptor.classes", "client.id")
"""Settings that Spark's connector controls."""
_OF_CONNECT = ("config.storage.", "offset.storage.", "status.storage.")
"""Prefixes of settings of a Connect worker, which files of MirrorMaker have beside those of a cluster's client."""
_OF_STRIMZI = ("tls", "authentication")
"""Settings of a cluster that Strimzi's operator turns into those of a client."""
_OF_THE_WORKER = (
    "not there, the worker's configuration has it: values are bytes until value: {format: …} says otherwise"
)


_REPLICATOR = "io.confluent.connect.replicator.ReplicatorSourceConnector"
_REPLICATOR_UTIL = "io.confluent.connect.replicator.util"
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_COPIES = {MIRROR: ("source.cluster.", "target.cluster."), _REPLICATOR: ("src.kafka.", "dest.kafka.")}
"""Prefixes of the settings of both clusters, by class of a connector that copies topics."""
_COPIED_BY = {
    "offset-syncs.": "consumer groups keep their own offsets in each cluster: a group begins by a time in the copy",
    "emit.": "consumer groups keep their own offsets in each cluster: a group begins by a time in the copy",
    "sync.": "topics, their settings and rights are not created: create them in the target",
    "refresh.": "new topics of the pattern are found by each micro-batch",
    "replication.factor": "topics are not created: create them in the target",
    "topic.auto.create": "topics are not created: create them in the target",
    "topic.config.": "topics, their settings and rights are not created: create them in the target",
    "topic.preserve.": "topics are not created: create them in the target",
    "groups": "consumer groups keep their own offsets in each cluster: a group begins by a time in the copy",
    "spec.mirrors.groups": "consumer groups keep their own offsets: a group begins by a time in the copy",
    "spec.mirrors.checkpointConnector": "the route's checkpoint has its offsets",
    "spec.mirrors.heartbeatConnector": "a route's own metrics say how far it is behind",
    "heartbeats.": "a route's own metrics say how far it is behind",
    "checkpoints.": "the route's checkpoint has its offsets",
}
"""Reasons by prefix of a setting of a connector that copies topics."""
_UNCOPIED = r".*[\-.]internal|.*\.replica|__.*"
"""Topics that MirrorMaker leaves out unless its settings say otherwise."""
_DEBEZIUM_STREAM = "DebeziumStream"
"""Stream that Debezium Server creates."""


def draft_of_connector(
    file: Path,
    *,
    connector: str | None = None,
    name: str | None = None,
    source: Document | None = None,
    sink: Document | None = None,
) -> Draft:
    """Return the route equivalent to a connector.

    A sink connector's route reads the topics from Kafka, a source connector's route writes to Kafka. The other end,
    which only the connector knows, is NATS unless it is given.

    Args:
        file: a file with the connector, see `turnout.routes.connector`.
        connector: its name, where the file has several.
        name: name of the route; the connector's if not given.
        source: source of the records, if not the file's.
        sink: sink of the messages, likewise.

    Raises:
        ConfigError: the file cannot be read as a connector's, or has no property that a connector has.
        OSError: it cannot be read at all.
    """
    found = Connector.load(file, connector)
    if not any(mark in found.properties for mark in _MARKS):
        raise ConfigError([Mistake("", f"{file} is no connector: expected at least one of {', '.join(_MARKS)}")])
    return _ConnectorDrafter(found, file).draft(name, source, sink)


_UNWRAP = ("ExtractNewRecordState", "UnwrapFromEnvelope", "ExtractNewDocumentState")
_TOMBSTONES = {
    ("true", "drop"): "drop",
    ("false", "drop"): "tombstone",
    ("true", "rewrite"): "rewrite",
    ("false", "rewrite"): "rewrite-with-tombstone",
    ("true", "none"): "delete-to-tombstone",
}
"""Value of ``delete.tombstone.handling.mode`` by those of ``drop.tombstones`` and ``delete.handling.mode``."""


class _NewNames:
    """Options under the names that Kafka 4.0 (KIP-629), Debezium 2.5 and Confluent's serializers gave them.

    Attributes:
        properties: a connector's properties, with today's names.
        changes: each change.
    """

    def __init__(self, properties: Mapping[str, str | None]) -> None:
        self.properties = dict(properties)
        self.changes: list[Change] = []
        for alias in split_list(properties.get("transforms") or ""):
            prefix = f"transforms.{alias}."
            class_name = (properties.get(f"{prefix}type") or "").rpartition(".")[2]
            if class_name.partition("$")[0] == "ReplaceField":
                self._rename(prefix, "blacklist", "exclude")
                self._rename(prefix, "whitelist", "include")
            elif class_name in _UNWRAP:
                self._unwrap(prefix, class_name)
            elif class_name == "TimescaleDb":
                for name in [
                    name for name in self.properties if name.startswith((f"{prefix}database.", f"{prefix}driver."))
                ]:
                    del self.properties[name]
                    self.changes.append(
                        Change(name, "hypertables and aggregates, which have what the database would say")
                    )
        for side in ("key", "value"):
            if self.properties.get(f"{side}.converter") == f"{_REPLICATOR_UTIL}.ByteArrayConverter":
                self._rename("", f"{side}.converter", f"{side}.converter", _BYTES)
            for option in ("basic.auth.user.info", "basic.auth.credentials.source"):
                self._rename(f"{side}.converter.", f"schema.registry.{option}", option)

    def _rename(self, prefix: str, old: str, new: str, text: str | None = None) -> None:
        if f"{prefix}{old}" in self.properties and (old == new or f"{prefix}{new}" not in self.properties):
            found = self.properties.pop(f"{prefix}{old}")
            self.properties[f"{prefix}{new}"] = found if text is None else text
            shown = "" if is_secret(new) else f" = {found if text is None else text}"
            self.changes.append(Change(f"{prefix}{old}", f"{new}{shown}"))

    def _unwrap(self, prefix: str, class_name: str) -> None:
        """Rename the options of ExtractNewRecordState."""
        if class_name == "UnwrapFromEnvelope":
            self.properties[f"{prefix}type"] = "io.debezium.transforms.ExtractNewRecordState"
            self.changes.append(Change(f"{prefix}type", "ExtractNewRecordState, its name since Debezium 1.0"))
        pair = [(self.properties.get(f"{prefix}{name}") or default).lower() for name, default in _DELETES]
        mode = _TOMBSTONES.get((pair[0], pair[1]))
        former = [f"{prefix}{name}" for name, _ in _DELETES if f"{prefix}{name}" in self.properties]
        if mode is not None and former and f"{prefix}{_MODE}" not in self.properties:
            self.properties[f"{prefix}{_MODE}"] = mode
            for name in former:
                del self.properties[name]
                self.changes.append(Change(name, f"{_MODE} = {mode}"))
        if (self.properties.get(f"{prefix}operation.header") or "").lower() == "true":
            self._rename(prefix, "operation.header", "add.headers", "op")
        for old in ("add.source.fields", "add.source.headers"):
            names = [name for name in split_list(self.properties.get(f"{prefix}{old}") or "") if name]
            new = old.replace("source.", "")
            if names:
                also = self.properties.pop(f"{prefix}{new}", None)
                text = ",".join([*([also] if also else []), *(f"source.{name}:{name}" for name in names)])
                self._rename(prefix, old, new, text)


_DELETES = (("drop.tombstones", "true"), ("delete.handling.mode", "drop"))
"""Former options about deleted rows, with their defaults."""
_MODE = "delete.tombstone.handling.mode"


def _as_in_a_route(properties: Mapping[str, str | None]) -> tuple[dict[str, str | None], list[Omission]]:
    """Return the properties with each ``${…}`` that is text in Connect written as text, and a remark for each."""
    result: dict[str, str | None] = {}
    literals: list[Omission] = []
    for name, text in properties.items():
        known = frozenset({"topic"}) if name == "topic.rename.format" else placeholders_in(name, properties)
        result[name] = text if text is None else escaped(text, known)
        if result[name] != text:
            literals.append(Omission(name, "${…} without a provider is text in Connect, and stays text by $${"))
    return result, literals


class _Marks:
    """Texts without colons in the place of variables, while properties are parsed."""

    def __init__(self) -> None:
        self._variables: dict[str, str] = {}

    def marked(self, properties: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the properties with marks in the place of the variables of converters."""
        return {
            name: self._marked(name, text) if text is not None and ".converter." in name else text
            for name, text in properties.items()
        }

    def _marked(self, name: str, text: str) -> str:
        def mark(found: re.Match[str]) -> str:
            marker = f"variable{len(self._variables)}x"
            self._variables[marker] = found[0]
            return marker

        marked = _VARIABLE.sub(mark, text)
        if marked in self._variables and name.endswith(".url"):
            return f"http://{marked}"
        return f"{marked}:{marked}" if marked in self._variables and name.endswith("user.info") else marked

    def restored(self, text: str) -> str:
        """Return a text with its variables again."""
        for marker, variable in self._variables.items():
            text = text.replace(f"http://{marker}", variable) if text == f"http://{marker}" else text
            text = text.replace(marker, variable)
        return text


class _ConnectorDrafter:
    """Conversion of one connector to a draft."""

    def __init__(self, connector: Connector, file: Path) -> None:
        self.is_debezium_server = any(name.startswith(DEBEZIUM_SERVER) for name in connector.properties)
        # Of Debezium Server's properties ${NAME} is a variable.
        properties, literals = (
            (dict(connector.properties), []) if self.is_debezium_server else _as_in_a_route(connector.properties)
        )
        renamed = _NewNames(properties)
        self.properties = renamed.properties
        self.origins = connector.origins
        self.name = connector.name or named_after(file)
        self.taken: list[Adoption] = []
        self.left: list[Omission] = [*literals, *renamed.changes]
        self.variables: list[str] = []
        self.used_names: set[str] = set()

    def draft(self, name: str | None, source: Document | None, sink: Document | None) -> Draft:
        self._take("name", "name")
        document: Document = {"name": name or route_name(self.name)}
        own_source, own_sink, prefix = self._ends()
        document["source"] = source or own_source
        codecs = self._codecs()
        written = {side: codecs.pop(side) for side in self._written_sides(codecs)}
        document |= codecs
        stages = [*self._stages(), *prefix]
        document |= {"transforms": stages} if stages else {}
        document["sink"] = {**(sink or own_sink), **written}
        document |= self._failures()
        self._rest()
        taken = tuple(Adoption(self._origin(name), path) for name, path in self.taken)
        left = tuple(item._replace(name=self._origin(item.name)) for item in self.left)
        return Draft(document, taken, left, tuple(self.variables))

    def _written_sides(self, codecs: Document) -> list[str]:
        """Return the sides of a source connector whose converter says what Kafka gets, and not how records are read.

        JSON is taken for both, as it may be.
        """
        class_name = self.properties.get("connector.class") or ""
        if class_name in _COPIES or self.is_debezium_server or self._reads_kafka():
            return []
        sides = [side for side, format_ in codecs.items() if format_["format"] != "connect-json"]
        for side in sides:
            note = f"the converter says what Kafka gets; {side}: {{format: …}} of the route says how records are read"
            self.left.append(Omission(f"{side}.converter", note))
            self.taken = [one._replace(path=f"sink.{side}") if one.path == side else one for one in self.taken]
        return sides

    def _reads_kafka(self) -> bool:
        """Return True for a sink connector."""
        return bool(self.properties.get("topics") or self.properties.get("topics.regex") or "Sink" in self._class())

    def _origin(self, name: str) -> str:
        """Return the name that a property, or a transform or a predicate, has in the file."""
        is_prefixed = self.is_debezium_server and name.startswith(("transforms", "predicates"))
        return self.origins.get(name, f"{DEBEZIUM_SERVER}{name}" if is_prefixed else name)

    def _ends(self) -> tuple[Document, Document, list[Document]]:
        """Return the source, the sink, and the stages that give topics the names of a copy."""
        class_name = self.properties.get("connector.class") or ""
        if class_name in _COPIES:
            return self._copy(class_name)
        if self.is_debezium_server:
            return self._debezium_source(), SINK, []
        if self._reads_kafka():
            return self._kafka_source(), SINK, []
        return self._nats_source(), self._kafka_sink(), []

    def _class(self) -> str:
        return (self.properties.get("connector.class") or "").rpartition(".")[2]

    def _take(self, name: str, path: str) -> str | None:
        """Return a property's value, and note that the route has it at *path*; None if it is not set."""
        if name not in self.properties:
            return None
        self.used_names.add(name)
        self.taken.append(Adoption(name, path))
        return self.properties[name]

    def _leave(self, name: str, reason: str, *, lossy: bool = False) -> None:
        self.used_names.add(name)
        self.left.append(Loss(name, reason) if lossy else Omission(name, reason))

    # The ends

    def _kafka_source(self) -> Document:
        source = {**_KAFKA, **self._client("consumer.override.", "source")}
        topics = [topic for topic in split_list(self._take("topics", "source.topics") or "") if topic]
        pattern = self._take("topics.regex", "source.topicPattern")
        if topics:
            source["topics"] = topics
        elif pattern:
            source["topicPattern"] = pattern
        return source

    def _nats_source(self) -> Document:
        stream = "".join(char if char.isalnum() or char in "-_" else "_" for char in self.name).upper()
        self.left.append(Omission("source", f"a guess: the stream {stream}; --from sets the source"))
        return {**SINK, "stream": stream}

    def _kafka_sink(self) -> Document:
        return {**_KAFKA, **self._client("producer.override.", "sink")}

    def _copy(self, class_name: str) -> tuple[Document, Document, list[Document]]:
        """Return the ends of a connector that copies topics from one cluster of Kafka to another."""
        ends = []
        for path, prefix in zip(("source", "sink"), _COPIES[class_name], strict=True):
            alias = self.properties.get(f"{prefix}alias")
            variable = re.sub(r"\W", "_", alias or path).upper()
            end = {"format": "kafka", **self._client(prefix, path)}
            default = f":-{end['servers']}" if "servers" in end else ""
            end["servers"] = f"${{KAFKA_{variable}{default}}}"
            ends.append(end)
        source, sink = ends
        source |= {"topicPattern": self._copied_topics(class_name), "start": "earliest"}
        sink["partitionBy"] = "record"
        for name in [name for name in self.properties if name not in self.used_names]:
            reason = next((reason for start, reason in _COPIED_BY.items() if name.startswith(start)), None)
            if reason is not None:
                self._leave(name, reason)
        self._leave("connector.class", "the route copies the records itself")
        replacement = self._copied_name(class_name)
        stage = {"name": "copy", "type": "RegexRouter", "regex": ".+", "replacement": replacement}
        return source, sink, [] if replacement == "$0" else [stage]

    def _copied_topics(self, class_name: str) -> str:
        """Return the pattern of the topics that are copied."""

        def named(*names: str) -> list[str]:
            texts = [self._take(name, "source.topicPattern") or "" for name in names if name in self.properties]
            return [part for text in texts for part in split_list(text) if part]

        if class_name == MIRROR:
            chosen = named("topics") or [".*"]
            without = named("topics.exclude", "topics.blacklist") or [_UNCOPIED]
        else:
            chosen = [re.escape(name) for name in named("topic.whitelist")]
            chosen += [pattern for pattern in [self._take("topic.regex", "source.topicPattern")] if pattern]
            without = [re.escape(name) for name in named("topic.blacklist")]
        pattern = "|".join(chosen)
        return f"(?!(?:{'|'.join(without)})$)(?:{pattern})" if without else pattern

    def _copied_name(self, class_name: str) -> str:
        """Return the name of a topic's copy, ``$0`` for the topic's own."""
        if class_name == _REPLICATOR:
            name = self._take("topic.rename.format", "transforms") or "${topic}"
            return name.replace("\\", r"\\").replace("${topic}", "$0")
        policy = (self._take("replication.policy.class", "transforms") or "").rpartition(".")[2]
        separator = self._take("replication.policy.separator", "transforms")
        if policy == "IdentityReplicationPolicy":
            return "$0"
        if policy not in ("", "DefaultReplicationPolicy"):
            problem = "a class of another vendor: topics get the source's alias"
            self._leave("replication.policy.class", problem, lossy=True)
        alias = self.properties.get("source.cluster.alias") or "source"
        return f"{alias}{'.' if separator is None else separator}$0"

    def _debezium_source(self) -> Document:
        """Return the source with what Debezium Server writes, which continues to read the database."""
        kind = self._take("debezium.sink.type", "source.format") or ""
        prefix = f"debezium.sink.{kind}."
        self._leave_to_debezium(prefix)
        if self.properties.get("transforms"):
            note = "the route does them: remove them from Debezium Server, or records pass through them twice"
            self.left.append(Omission("transforms", note))
        if kind == "kafka":
            topics = re.escape(self.properties.get("debezium.source.topic.prefix") or "")
            source = {**_KAFKA, **self._client(f"{prefix}producer.", "source"), "topicPattern": rf"{topics}\..*"}
            return {**source, "start": "earliest"}
        if kind != "nats-jetstream":
            problem = f"turnout reads NATS and Kafka, not {kind or 'nothing'}: let it write to nats-jetstream or kafka"
            self._leave("debezium.sink.type", problem, lossy=True)
            return self._nats_source()
        source = {**SINK}
        if f"{prefix}url" in self.properties:
            url = self._take(f"{prefix}url", "source.servers") or ""
            source["servers"] = url if url.startswith("${") else f"${{NATS_URL:-{url}}}"
        for option, key in (("auth.user", "user"), ("auth.password", "password"), ("auth.jwt", ""), ("auth.seed", "")):
            if f"{prefix}{option}" in self.properties and not key:
                self._leave(f"{prefix}{option}", "name a file of both by source.credentials", lossy=True)
            elif f"{prefix}{option}" in self.properties:
                source[key] = self._value(f"{prefix}{option}", f"source.{key}")
        source["stream"] = _DEBEZIUM_STREAM
        if (self._take(f"{prefix}create-stream", "source.stream") or "").lower() != "true":
            self.left.append(Omission("source", f"a guess: the stream {_DEBEZIUM_STREAM}; --from sets the source"))
        return source

    def _leave_to_debezium(self, prefix: str) -> None:
        """Report the settings that stay Debezium Server's own."""
        for name in self.properties:
            if name.startswith((f"{DEBEZIUM_SERVER}source.", "quarkus.", f"{DEBEZIUM_SERVER}format.")):
                self._leave(name, "Debezium Server continues to read the database, with this setting")
            elif name in (f"{prefix}subjects", f"{prefix}storage"):
                self._leave(name, "Debezium Server continues to write its stream, with this setting")
            elif name.startswith(f"{prefix}auth.tls."):
                self._leave(name, "name PEM files by source.tlsCert, source.tlsKey and source.tlsCa", lossy=True)

    def _client(self, prefix: str, path: str) -> Document:
        """Servers, start and options of Kafka's client."""
        end: Document = {}
        options: Document = {}
        for name in [name for name in self.properties if name.startswith(prefix)]:
            inner = name.removeprefix(prefix)
            if inner.endswith(_OF_THE_CLIENT):
                self._leave(name, "turnout sets it itself")
            elif inner.startswith(_OF_CONNECT):
                self._leave(name, "a topic of Connect's own, which turnout does not have")
            elif inner in _OF_STRIMZI:
                self._leave(name, f"write it as {path}.security, with Kafka's names", lossy=True)
            elif inner == "alias":
                self._take(name, path)
            elif inner == "bootstrap.servers":
                end["servers"] = self._take(name, f"{path}.servers")
            elif inner == "auto.offset.reset":
                end["start"] = self._take(name, f"{path}.start")
            else:
                options[f"kafka.{inner}"] = self._value(name, f"{path}.options")
        return {**end, "options": options} if options else end

    def _value(self, name: str, path: str) -> str:
        """Return the value of an option, with a variable in place of a secret."""
        value = self._take(name, path) or ""
        if not is_secret(name) or value.startswith("${"):
            return value
        variable = name.rpartition("override.")[2].upper().replace(".", "_").replace("-", "_")
        self.variables.append(f"KAFKA_{variable}")
        self.left.append(Omission(name, f"its value is a secret: set the variable KAFKA_{variable}"))
        return f"${{KAFKA_{variable}}}"

    # What happens to a record

    def _codecs(self) -> Document:
        marks = _Marks()
        converters = converters_of(marks.marked(self.properties))
        sides = (("key", converters.key), ("value", converters.value))
        for mistake in converters.mistakes:
            class_name = (self.properties.get(mistake.path) or "").lower()
            steps = [step for name, step in _CONVERTERS.items() if name in class_name.rpartition(".")[2]]
            # Headers are the bytes that a converter of texts or bytes would write again.
            lossy = mistake.path != "header.converter" or class_name.rpartition(".")[2] not in _PLAIN_HEADERS
            self._leave(mistake.path, "; ".join([marks.restored(mistake.problem), *steps]), lossy=lossy)
        for side, format_ in sides:
            names = [
                name for name in self.properties if name.startswith(f"{side}.converter") and name not in self.used_names
            ]
            for name in names if format_ is not None else ():
                self._take(name, side)
        if "value.converter" not in self.properties and self.properties.get("connector.class") not in _COPIES:
            self.left.append(Omission("value.converter", _OF_THE_WORKER))
        return {
            side: {"format": format_.format, **self._settings(side, format_, marks)}
            for side, format_ in sides
            if format_ is not None
        }

    def _settings(self, side: str, format_: Format, marks: _Marks) -> Document:
        """Return a codec's settings as a route has them, secrets as variables."""
        return {
            name: self._registry(side, value, marks)
            if isinstance(value, RegistryOptions)
            else marks.restored(value)
            if isinstance(value, str)
            else value
            for name, value in format_.settings.items()
        }

    def _registry(self, side: str, options: RegistryOptions, marks: _Marks) -> Document:
        """Return the block of a schema registry; secrets of it are variables."""
        urls = [marks.restored(url) if masked_url(url) == url else self._secret(side, "URL") for url in options.urls]
        block: Document = {"url": urls[0] if len(urls) == 1 else urls}
        password = "" if options.password is None else options.password.reveal()
        if options.token is not None:
            token = marks.restored(options.token.reveal())
            block["auth"] = {"token": token if token.startswith("${") else self._secret(side, "TOKEN")}
        elif options.user is not None and options.user == password and marks.restored(password) != password:
            # One variable has both.
            block["auth"] = {"userInfo": marks.restored(password)}
        elif options.user is not None:
            restored = marks.restored(password)
            shown = restored if restored.startswith("${") else self._secret(side, "PASSWORD")
            block["auth"] = {"user": marks.restored(options.user), "password": shown}
        return block

    def _secret(self, side: str, what: str) -> str:
        variable = f"SCHEMA_REGISTRY_{what}"
        self.left.append(Omission(f"{side}.converter", f"its value is a secret: set the variable {variable}"))
        if variable not in self.variables:
            self.variables.append(variable)
        return f"${{{variable}}}"

    def _stages(self) -> list[Document]:
        specs, mistakes = read_properties(self.properties, strict=False)
        for mistake in mistakes:
            self._leave(mistake.option, mistake.problem)
        for unused in specs.unused:
            self._leave(f"predicates.{unused.alias}", "no transform uses it")
        for at, spec in enumerate(specs.stages):
            self.taken.append(Adoption(f"transforms.{spec.alias}", f"transforms[{at}]"))
            used = [predicate.prefix.removesuffix(".") for predicate in spec.predicates]
            self.taken += [
                Adoption(prefix, f"transforms[{at}].predicate") for prefix in used if "predicates." in prefix
            ]
        for kind in ("transforms", "predicates"):
            aliases = split_list(self.properties.get(kind) or "")
            read = tuple(f"{kind}.{alias}." for alias in aliases if alias)
            self.used_names |= {kind, *(name for name in self.properties if name.startswith(read))}
        return [stage_of(spec) for spec in specs.stages]

    def _failures(self) -> Document:
        """``errors`` and ``deadLetter``."""
        parts: Document = {}
        errors = self._typed(_ERRORS, "errors")
        letter = self._typed(_LETTER, "deadLetter")
        if letter.get("topic"):
            # Connect's default, which is not a route's.
            parts["deadLetter"] = {"topic": letter["topic"], "contextHeaders": letter.get("contextHeaders", False)}
            self.left.append(
                Omission("errors.deadletterqueue.topic.name", "its dead letters go to the sink of the route")
            )
        return {**parts, "errors": errors} if errors else parts

    def _typed(self, names: Mapping[str, str], path: str) -> Document:
        kinds = {option.name: option.kind for option in POLICY}
        block: Document = {}
        for name, key in names.items():
            value = self._take(name, f"{path}.{key}")
            if value is not None:
                block[key] = value.lower() == "true" if kinds[name] is BOOLEAN else value
        return block

    def _rest(self) -> None:
        """Report every property that no part of the route was made from."""
        for name in [name for name in self.properties if name not in self.used_names]:
            kind, _, alias = name.partition(".")
            unlisted = kind in ("transforms", "predicates") and "." in alias
            reason = (
                f"{alias.partition('.')[0]!r} is not listed in {kind!r}" if unlisted else "an option of the connector"
            )
            steps = [step for start, step in _CLASSES.items() if (self.properties[name] or "").startswith(start)]
            self._leave(name, steps[0] if name == "connector.class" and steps else _REASONS.get(name, reason))
