"""Reader of a route document, part by part, so that all mistakes are reported and not only the first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path as FilePath
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import ValidationError

from turnout.base.terminal import nearest
from turnout.base.untrusted import decimal
from turnout.codecs import Converters, Format, codec_of, converters_of
from turnout.errors import MOST_MISTAKES, ConfigError, Mistake, SubjectError
from turnout.nats.protocol.headers import NAME_RULE, UNFIT_NAME, instructs_server
from turnout.records import Schema
from turnout.records.types import DynamicValue
from turnout.routes.connector import Connector
from turnout.routes.document import (
    DeadLetterPart,
    FeedsPart,
    RouteDocument,
    ScheduledPart,
    SubscriptionsPart,
    from_validation,
)
from turnout.routes.endpoints import (
    KafkaSink,
    KafkaSource,
    LakeSink,
    Lookup,
    NatsSink,
    NatsSource,
    Part,
    Sink,
    SparkSink,
    TableSink,
)
from turnout.routes.endpoints.formats import TYPED, WITH_DELIVERIES
from turnout.routes.endpoints.tables import MATCH_COLUMNS, MATCHES
from turnout.routes.files import FileNames, mappings_of, transforms_of
from turnout.routes.rows import plan_rows, value_after
from turnout.routes.variables import Variables
from turnout.routes.webhooks import WebhooksPart
from turnout.routes.written_formats import WrittenFormats, with_registry, written_format
from turnout.routes.yaml_text import Document, Path, dotted, line_of
from turnout.secrets import is_secret
from turnout.subjects import MappingTable, MappingTableError, is_publishable
from turnout.subjects.mapping_readers import mapping_warnings
from turnout.subjects.pattern import FULL, PARTIAL, Rights, collide, is_subset
from turnout.subscriptions.destinations import is_webhook, split_timing
from turnout.transforms import Chain, ErrorPolicy, unknown_fields
from turnout.transforms.base import Side, Transform
from turnout.transforms.chain import DottedName
from turnout.transforms.schemas import removed_fields, unmet_topics, useless_stages

DEFAULT_SINK = ""
"""The name of a route's only sink, where it was given as ``sink:``."""

_COMPARED = 1_000
"""Number of mappings, from the first one, that are compared with what the source reads."""

_SHOWN_TOPICS = 5
"""Most filters or topics of the source that a warning lists."""

Made = TypeVar("Made")


class _Format(NamedTuple):
    """Format of keys or values, and the schema that all of them have."""

    format: Format
    schema: Schema | None


class _Written(NamedTuple):
    """Formats of sinks by their names, and of webhooks' bodies."""

    sinks: Mapping[str, WrittenFormats]
    webhooks: Format | None


_SOURCE = re.compile(r'"(.+)"(?:\[(\d+)\])?')
"""Pattern of a mapping source in an error, with the index of one of its destinations."""


class RouteReader:
    """Reads every part of one document and collects the mistakes.

    Args:
        document: parsed file, its variables filled in.
        lines: the line of each path.
        folder: base folder of relative file names.
        variables: fills in the texts of a connector's file.
    """

    def __init__(
        self,
        document: Mapping[str, object],
        lines: dict[Path, int],
        folder: FilePath,
        variables: Variables | None = None,
    ) -> None:
        self.document = document
        self.variables = variables or Variables({}, folder)
        self.lines = lines
        self.folder = folder
        self.mistakes: list[Mistake] = []
        self.notes: list[str] = []
        self.warnings: list[Mistake] = []

    def add(self, path: Path, problem: str) -> None:
        """Note a mistake at *path*."""
        self.mistakes.append(Mistake(dotted(path), problem, line_of(self.lines, path)))

    def read(self, kind: Callable[..., Made]) -> Made | None:
        """The route, or None when some part cannot be read."""
        checked = self._checked()
        transforms = self._part("transforms", lambda part: transforms_of(part, self.folder), default=[])
        if isinstance(transforms, Connector) and transforms.file is not None:
            transforms, warnings = transforms.filled(self.variables)
            self.warnings += warnings
        converters = self._converters(transforms)
        key, value = self._format("key", converters.key), self._format("value", converters.value)
        chain = (
            self._part("transforms", lambda _: self._chain(transforms), default=[]) if transforms is not None else None
        )
        table = self._mappings()
        files = FileNames(self.folder)
        for path, problem in files.mistakes(self.document):
            self.add(path, problem)
        written = self._written(checked, key, value, files, is_changed=chain is None or bool(chain.stages))
        if checked is None or key is None or value is None or chain is None or table is None or written is None:
            return None
        self._fields(checked, chain, (key.schema, value.schema), self._unread(transforms, converters))
        self._chain_warnings(checked, chain, {Side.KEY: key.schema, Side.VALUE: value.schema})
        self._dead_letter(checked)
        policy = checked.errors.policy(chain.errors) if checked.errors else chain.errors
        self._attributes(checked, chain, policy)
        self._errors(checked, policy)
        self._feeds(checked)
        self._webhooks(checked)
        scheduled = self._scheduled(checked)
        self._destinations(checked, table, scheduled)
        self._unused(checked, chain, table)
        self._clusters(checked, table)
        self._transactions(checked)
        self._tables(checked, chain, key.schema, value.schema)
        self._spark(checked)
        self._lookups(checked, chain)
        sinks = checked.sinks if checked.sinks is not None else {DEFAULT_SINK: checked.sink}
        return kind(
            name=checked.name,
            source=files.endpoint(checked.source),
            key=key.format,
            value=value.format,
            chain=replace(chain, errors=policy),
            mappings=table,
            sinks=_with_schedules(
                _with_deliveries(
                    {name: files.endpoint(sink) for name, sink in sinks.items() if sink is not None}, checked.webhooks
                ),
                scheduled,
            )
            | self._matches(checked, chain, key.schema, value.schema),
            written=written.sinks,
            webhook_format=written.webhooks,
            cluster=checked.cluster,
            tables={name: Lookup(files.endpoint(table)) for name, table in checked.tables.items()},
            subscriptions=files.subscriptions(_without_table(checked.subscriptions)),
            unmatched=checked.unmatched or "drop",
            webhooks=checked.webhooks,
            scheduled=scheduled,
            dead_letter=checked.dead_letter or _connectors_dead_letter(chain.errors),
            trigger=checked.trigger,
            health=checked.health,
            checkpoint=files.checkpoint(checked.checkpoint),
            spark={name: str(setting) for name, setting in checked.spark.items()},
            notes=tuple(self.notes),
            warnings=tuple(self.warnings),
        )

    def _checked(self) -> RouteDocument | None:
        try:
            return RouteDocument.model_validate(self.document)
        except ValidationError as failure:
            self.mistakes += from_validation(failure, self.document, self.lines)
            return None

    def _mappings(self) -> MappingTable | None:
        """The mappings; what is neither a block nor a file's name is named by the document's own check."""
        if not isinstance(self.document.get("mappings"), dict | str | None):
            return None

        def read(part: DynamicValue) -> MappingTable:
            mappings = mappings_of(part, self.folder)
            table = MappingTable.from_config(mappings)
            self.warnings += [
                Mistake("mappings", warning, self._line("mappings", "")) for warning in mapping_warnings(mappings)
            ]
            return table

        return self._part("mappings", read, {})

    def _format(self, side: str, of_connector: Format | None) -> _Format | None:
        """Return the format of keys or values: the route's, else that of a connector's converter, else raw bytes."""
        part = self.document.get(side)
        if part is not None and not isinstance(part, dict):
            # Said by the document's own check.
            return None

        def read(part: Mapping[str, object] | None) -> _Format:
            given = None if part is None else FileNames(self.folder).codec(part)
            if part is None and of_connector is None and side == "value" and self._has_typed_source:
                # Nothing is read by it: the values of a table are written as JSON unless the route says else.
                given = {"format": "json"}
            format_ = (
                of_connector if part is None and of_connector is not None else Format.from_config(given, path=side)
            )
            format_ = with_registry(format_, dead_letter=self._waits_for_no_registry, of_keys=side == "key")
            return _Format(format_, codec_of(format_).schema())

        return self._part(side, read, default=None)

    @property
    def _has_typed_source(self) -> bool:
        source = self.document.get("source")
        return isinstance(source, dict) and source.get("format") in TYPED

    @property
    def _waits_for_no_registry(self) -> bool:
        errors = self.document.get("errors")
        return isinstance(errors, dict) and errors.get("registry") == "deadLetter"

    def _written(
        self,
        checked: RouteDocument | None,
        key: _Format | None,
        value: _Format | None,
        files: FileNames,
        *,
        is_changed: bool,
    ) -> _Written | None:
        """Return the formats of what is written, and note what they lose; None without those that are read."""
        if checked is None or key is None or value is None:
            return None
        read = {"key": key, "value": value}

        def formats(path: Path, part: Part) -> dict[str, Format]:
            return {
                side: format_
                for side, of_side in read.items()
                if (block := getattr(part, side, None)) is not None
                and (format_ := self._written_format((*path, side), block, of_side, files, is_changed)) is not None
            }

        sinks: dict[str, WrittenFormats] = {}
        of_route: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        for name, sink in of_route.items():
            own = formats(("sinks", name) if checked.sinks else ("sink",), sink) if sink is not None else {}
            if own:
                sinks[name] = WrittenFormats(own.get("key", key.format), own.get("value", value.format))
        webhooks = formats(("webhooks",), checked.webhooks).get("value") if checked.webhooks is not None else None
        return _Written(sinks, webhooks)

    def _written_format(
        self, path: Path, block: Mapping[str, object], read: _Format, files: FileNames, is_changed: bool
    ) -> Format | None:
        side, dead_letter = str(path[-1]), self._waits_for_no_registry
        try:
            format_, pair = written_format(
                block, read.format, side, files, schema=read.schema, is_changed=is_changed, dead_letter=dead_letter
            )
        except ConfigError as failure:
            for mistake in failure.mistakes:
                # Names of settings have dots of their own.
                name = mistake.path.removeprefix(side).removeprefix(".")
                where = f"{dotted(path)}.{name}" if name else dotted(path)
                self.mistakes.append(Mistake(where, mistake.problem, line_of(self.lines, (*path, name))))
            return None
        where = dotted(path)
        if pair.notes:
            pair_read = f"{read.format.format} → {format_.format}"
            self.notes.append(f"{where}: {pair_read}: {'; '.join(pair.notes)}")
        self.warnings += [Mistake(where, warning, line_of(self.lines, path)) for warning in pair.warnings]
        return format_

    def _converters(self, transforms: list[Document] | Connector | None) -> Converters:
        """The converters of a connector's properties: an unknown one is a mistake, unless the route has its own."""
        if not isinstance(transforms, Connector):
            return Converters(None, None)
        converters = converters_of(transforms.properties)
        for mistake in converters.mistakes:
            side = mistake.path.partition(".")[0]
            overridden = self.document.get(side) is not None
            if mistake.path in ("key.converter", "value.converter") and not overridden:
                self.add(("transforms", mistake.path), f"{mistake.problem}; or say it by {side}: in the route")
            elif not overridden:
                self.notes.append(str(mistake))
        return converters

    def _chain(self, transforms: list[Document] | Connector) -> Chain:
        if isinstance(transforms, list):
            return Chain.from_route(transforms)
        self.notes += transforms.notes()
        mistakes = list(transforms.mistakes())
        try:
            chain = Chain.from_config(transforms.properties)
        except ConfigError as failure:
            mistakes += failure.mistakes
        if mistakes:
            raise ConfigError(mistakes)
        return chain

    def _unread(self, transforms: list[Document] | Connector | None, converters: Converters) -> dict[Side, str]:
        """Return the reason that keys or values have no fields, for each side without a format."""
        file = transforms.file if isinstance(transforms, Connector) else None
        causes = {}
        for side, converter in ((Side.KEY, converters.key), (Side.VALUE, converters.value)):
            name = side.lower()
            if self.document.get(name) is not None or converter is not None:
                continue
            if side is Side.VALUE and self._has_typed_source:
                continue
            causes[side] = f"it is bytes, as the route does not say how it is read: add {name}: {{format: …}}"
            if file is not None:
                causes[side] = (
                    f"it is bytes, as {file.name} has no {name}.converter, which Connect takes from the worker's "
                    f"configuration: add it there, or {name}: {{format: …}} to the route"
                )
        return causes

    def _fields(
        self,
        checked: RouteDocument,
        chain: Chain,
        schemas: tuple[Schema | None, Schema | None],
        causes: Mapping[Side, str],
    ) -> None:
        """Look up every field that the route names in the schemas at that stage, and find stages without an effect."""
        metadata = checked.subscriptions.metadata if checked.subscriptions else {}
        unknown = list(unknown_fields(chain, *schemas, metadata, causes))
        # A stage whose fields are not there has its mistakes already.
        named = tuple(mistake.path for mistake in unknown)
        for mistake in useless_stages(chain, *schemas, causes):
            if not any(path.startswith(f"{mistake.path}.") for path in named):
                self._locate("transforms", mistake)
        for mistake in unknown:
            part_path = (
                "transforms" if mistake.path.startswith(("transforms", "predicates")) else "subscriptions.metadata"
            )
            self._locate(part_path, mistake)

    def _chain_warnings(self, checked: RouteDocument, chain: Chain, schemas: Mapping[Side, Schema | None]) -> None:
        """Add the chain's warnings; a schema that has a field of a dotted name shows that it is meant so."""
        metadata = checked.subscriptions.metadata if checked.subscriptions else {}
        topics = checked.source.filters or checked.source.named_topics
        for warning in (*chain.warnings, *removed_fields(chain, metadata), *unmet_topics(chain, topics)):
            named = warning.field if isinstance(warning, DottedName) else None
            schema = None if named is None else schemas[named.side]
            if named is None or schema is None or schema.type != "struct" or schema.field(named.path[0]) is None:
                key = "subscriptions.metadata" if warning.path in metadata else "transforms"
                path = _under(key, warning.path)
                self.warnings.append(Mistake(path, warning.problem, self._line(key, warning.path)))

    def _lookups(self, checked: RouteDocument, chain: Chain) -> None:
        """Check that the tables of expressions are declared, and that declared ones are used."""
        unused = set(checked.tables)
        for stage in chain.stages:
            for name, _ in stage.transform.named_tables():
                unused.discard(name)
                if name not in checked.tables:
                    path = _under("transforms", stage.path.rstrip("."))
                    expected = ", ".join(checked.tables) or "none is declared under tables"
                    problem = f"looks up the table {name!r}, expected one of the route's: {expected}"
                    self.mistakes.append(Mistake(path, problem, self._line("transforms", path)))
        self.warnings += [Mistake(f"tables.{name}", "no expression looks it up") for name in sorted(unused)]

    def _attributes(self, checked: RouteDocument, chain: Chain, policy: ErrorPolicy) -> None:
        """Warn of stages that set what a sink does not write; tell of keys that none does."""
        sinks = [sink for sink in (*(checked.sinks or {}).values(), checked.sink) if sink is not None]
        if isinstance(checked.source, KafkaSource) and not any(sink.takes_keys for sink in sinks):
            self.notes.append("keys are left out: keyHeader of a sink of format nats names a header for them")
        for stage in chain.stages:
            for problem in _unwritten(stage.transform, sinks, policy):
                path = _under("transforms", stage.path.rstrip("."))
                self.warnings.append(Mistake(path, f"{stage.name} {problem}", self._line("transforms", path)))

    def _dead_letter(self, checked: RouteDocument) -> None:
        """Check that messages can be published on the dead-letter topic."""
        sinks: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        if checked.dead_letter is None:
            return
        topic = checked.dead_letter.topic
        name, colon, rest = topic.partition(":")
        sink = sinks[name] if colon and name in sinks else next(iter(sinks.values()))
        subject = rest if colon and name in sinks else topic
        if not isinstance(sink, NatsSink):
            return
        if not is_publishable(subject):
            self.add(("deadLetter", "topic"), f"found {topic!r}, expected a subject that can be published to")
        elif refusal := Rights(sink.writable, prefixes=sink.prefixes).refusal(subject):
            first = subject.partition(".")[0]
            self.add(
                ("deadLetter", "topic"), f"found {topic!r}, which {refusal}, unless the sink's allow names {first!r}"
            )

    def _errors(self, checked: RouteDocument, policy: ErrorPolicy) -> None:
        """Tell what happens to failed records where the settings may be meant otherwise."""
        is_idle = checked.dead_letter is not None and checked.unmatched != "deadLetter"
        if is_idle and policy.tolerance == "none":
            cure = "set errors: {tolerance: all} to continue with the next record"
            self._warn(("deadLetter",), f"gets no record: with tolerance none the first failure stops the run; {cure}")
        if policy.tolerance == "all" and checked.dead_letter is None and not policy.dead_letter_topic:
            self.notes.append("failed records are counted as discarded, and kept nowhere, without a deadLetter")

    def _feeds(self, checked: RouteDocument) -> None:
        """Check that the source's records can be read again by the cursors of feeds."""
        subscriptions = _without_table(checked.subscriptions)
        if subscriptions is not None and subscriptions.feeds and checked.source.feed_problem:
            self.add(("subscriptions", "feeds"), checked.source.feed_problem)

    def _matches(
        self, checked: RouteDocument, chain: Chain, key: Schema | None, value: Schema | None
    ) -> dict[str, Sink]:
        """Return the sink of matches, with its columns; none for a route without."""
        feeds = None if checked.subscriptions is None else checked.subscriptions.feeds
        if not isinstance(feeds, FeedsPart):
            return {}
        path: Path = ("subscriptions", "feeds", "table")
        sink = feeds.table
        if (
            not isinstance(sink, TableSink)
            or not sink.is_typed
            or (isinstance(sink, SparkSink) and sink.mode != "append")
        ):
            self.add(path, "expected a table that rows are appended to: format delta, iceberg or spark, with columns")
            return {}
        if not checked.source.keeps_history:
            self.add(path, f"needs a source whose records have positions, found {checked.source.format}")
        others: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        if any(one is not None and one.has_transactions for one in others.values()):
            self.add(path, "needs sinks without exactlyOnce, whose transactions do not wait for a table")
        own = dict(sink.columns) if isinstance(sink.columns, dict) else {}
        if twice := [name for name in own if name in MATCH_COLUMNS]:
            self.add((*path, "columns", twice[0]), "a match has a column of this name: choose another one")
        sink = sink.model_copy(update={"columns": {**MATCH_COLUMNS, **own}})
        self.notes.append(f"{dotted(path)}: {sink.exactness}")
        if not self._has_typed_source:
            self._plan(sink, value_after(chain, key, value), path)
        return {MATCHES: sink}

    def _webhooks(self, checked: RouteDocument) -> None:
        """Check that deliveries have subscriptions, and a sink that stores each of them once."""
        if checked.webhooks is None:
            return
        sinks: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        name = checked.webhooks.sink
        if name is not None and name not in sinks:
            self.add(("webhooks", "sink"), f"found {name!r}, expected one of {', '.join(sinks)}")
            return
        sink = sinks[name] if name is not None else next(iter(sinks.values()))
        if sink is None or sink.format not in WITH_DELIVERIES:
            found = sink and sink.format
            self.add(
                ("webhooks",),
                f"needs a sink of format {' or '.join(WITH_DELIVERIES)} for its deliveries, found {found}",
            )
        elif not sink.with_ids:
            self.add(("webhooks",), "needs a sink that stores each message once, found messageId: none")
        if checked.subscriptions is None:
            self.add(("webhooks",), "needs subscriptions, whose destinations are webhooks")

    def _scheduled(self, checked: RouteDocument) -> ScheduledPart | None:
        """Check that messages that are delivered later have a place to wait; None if there are none."""
        given: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        sinks = {name: sink for name, sink in given.items() if sink is not None}
        timed = [name for name, sink in sinks.items() if sink.timing is not None]
        part = checked.scheduled or (ScheduledPart() if timed else None)
        if part is None:
            return None
        formats = {name: sink.format for name, sink in sinks.items()}
        if part.stream is not None:
            name = part.sink_name(formats)
            if name is None:
                self.add(("scheduled", "sink"), "needs a sink of format nats, which has the delay stream")
            elif not sinks[name].with_ids:
                self.add(("scheduled", "stream"), "needs a sink that stores each message once, found messageId: none")
            self.notes.append(
                f"scheduled: messages wait in the stream {part.stream} until `turnout scheduled run` or a server "
                "publishes them"
            )
            return part
        if part.sink is not None:
            self.add(("scheduled", "sink"), "has no effect without stream, the name of the delay stream")
        for name in timed:
            if formats[name] != "nats":
                path = ("sinks", name) if checked.sinks else ("sink",)
                cure = "add scheduled: {stream: NAME}, and a sink of format nats that has the stream"
                self.add(path, f"{formats[name]} publishes no message at a time: {cure}")
        self.notes.append(
            f"scheduled: the streams of sinks of format nats need allow_msg_schedules: true, {part.subject}.> among "
            "their subjects beside those of the messages, and no limit by which a waiting one is removed"
        )
        return part

    def _destinations(self, checked: RouteDocument, table: MappingTable, scheduled: ScheduledPart | None) -> None:
        """Check the times of the mappings' destinations; warn of what a block of the route would give a meaning."""
        for mapping in table.mappings:
            for text in dict.fromkeys(destination.destination for destination in mapping.destinations):
                path: Path = ("mappings", mapping.source)
                subject, timing, problem = split_timing(text)
                if scheduled is not None and problem is not None:
                    self.add(path, f"{text!r} cannot be delivered later: {problem}")
                elif scheduled is None and (timing is not None or problem is not None):
                    cure = f"add a scheduled block to deliver to {subject!r} later"
                    self._warn(path, f"{text!r} is a subject as it is written: {cure}")
                elif is_webhook(text) and checked.webhooks is None:
                    self._warn(path, f"{text!r} is a subject as it is written: add a webhooks block to send requests")

    def _unused(self, checked: RouteDocument, chain: Chain, table: MappingTable) -> None:
        """Warn of mappings that no record takes, as an earlier one does or the source reads none, and of idle sinks."""
        read = checked.source.filters or checked.source.named_topics
        is_known = all(stage.transform.keeps_topic for stage in chain.stages)
        for number, mapping in enumerate(table.mappings):
            source = mapping.source
            # A token that no source has as text stands for any, as in a subject that all of them match.
            subject = ".".join("\0" if token in (PARTIAL, FULL) else token for token in source.split("."))
            first = table.index.first(subject, subject.split("."))
            if first is not None and first < number and is_subset(source, table.mappings[first].source):
                problem = (
                    f"takes no record: {table.mappings[first].source!r} before it takes all of them; the first counts"
                )
                self._warn(("mappings", source), problem)
            elif is_known and read and number < _COMPARED and not any(collide(one, source) for one in read):
                topics = f"{', '.join(read[:_SHOWN_TOPICS])}{', …' if len(read) > _SHOWN_TOPICS else ''}"
                self._warn(("mappings", source), f"takes no record: the source reads {topics}")

        if is_known and checked.subscriptions is None:
            named = [one.destination for mapping in table.mappings for one in mapping.destinations]
            named += [checked.dead_letter.topic] if checked.dead_letter else []
            sinks = checked.sinks or {}
            formats = {name: sink.format for name, sink in sinks.items()}
            held = {
                checked.webhooks and checked.webhooks.sink,
                checked.scheduled and checked.scheduled.stream and checked.scheduled.sink_name(formats),
            }
            for name in islice(sinks, 1, None):
                if name not in held and not any(text.startswith(f"{name}:") for text in named):
                    self._warn(("sinks", name), f"gets no message: no mapping has a destination {name}:TOPIC")

    def _clusters(self, checked: RouteDocument, table: MappingTable) -> None:
        """Warn of a cluster that no mapping has, and of destinations for clusters without one."""
        clusters = dict.fromkeys(name for mapping in table.mappings for name in mapping.groups if name)
        if checked.cluster and checked.cluster not in clusters:
            others = f": there are destinations for {', '.join(clusters)}" if clusters else ""
            self._warn(("cluster",), f"no mapping has a destination for this cluster{others}")
        elif clusters and not checked.cluster:
            problem = f"destinations for {', '.join(clusters)} are never chosen: set the route's cluster"
            self._warn(("mappings",), problem)

    def _warn(self, path: Path, problem: str) -> None:
        """Note a warning at *path*."""
        self.warnings.append(Mistake(dotted(path), problem, line_of(self.lines, path)))

    def _transactions(self, checked: RouteDocument) -> None:
        """Check that a repeated micro-batch has the same splits, if a sink has each of them in a transaction."""
        sinks: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        exact = [name for name, sink in sinks.items() if sink is not None and sink.has_transactions]
        if not exact:
            return
        path = ("sinks", exact[0], "exactlyOnce") if checked.sinks else ("sink", "exactlyOnce")
        if not isinstance(checked.source, NatsSource | KafkaSource):
            self.add(path, f"needs a source of format nats or kafka, found {checked.source.format}")
        others = [sink.format for sink in sinks.values() if not isinstance(sink, NatsSink | KafkaSink) and sink]
        if others:
            self.add(path, f"needs sinks of format nats or kafka beside it, found {others[0]}")

    def _tables(self, checked: RouteDocument, chain: Chain, key: Schema | None, value: Schema | None) -> None:
        """Check the columns of tables, as far as they are known without them, and note how exact their rows are."""
        sinks: Mapping[str, Sink | None] = checked.sinks or {DEFAULT_SINK: checked.sink}
        name, colon, _ = ("" if checked.dead_letter is None else checked.dead_letter.topic).partition(":")
        letters = sinks[name] if colon and name in sinks else next(iter(sinks.values()))
        if checked.dead_letter is not None and isinstance(letters, TableSink) and letters.is_typed:
            expected = "a sink of another format, or one with columns: record, as NAME:TOPIC of one of several sinks"
            self.add(
                ("deadLetter", "topic"), f"leads to a table whose rows have columns of their own: expected {expected}"
            )
        for name, sink in sinks.items():
            path: Path = ("sinks", name) if checked.sinks else ("sink",)
            if not isinstance(sink, TableSink):
                continue
            self.notes.append(f"{dotted(path)}: {sink.exactness}")
            if isinstance(sink, SparkSink) and sink.mode != "append" and not checked.source.is_bounded:
                self.add(
                    (*path, "mode"), f"found {sink.mode}, expected append: each micro-batch of a stream is written"
                )
            if sink.is_typed and sink.value is not None:
                self.add((*path, "value"), "a row has columns and no format: leave it out, or give columns: record")
            if sink.is_typed and not self._has_typed_source:
                self._plan(sink, value_after(chain, key, value), path)

    def _plan(self, sink: TableSink, value: Schema | None, path: Path) -> None:
        """Plan the rows of a table; one that may be there has types that are not known here."""
        try:
            plan_rows(sink, value, path=dotted(path))
        except ConfigError as failure:
            may_be_there = isinstance(sink, LakeSink) or (isinstance(sink, SparkSink) and sink.provider == "jdbc")
            for mistake in failure.mistakes:
                if may_be_there and "partitionBy" not in mistake.path:
                    self.notes.append(
                        f"{mistake.path}: the table has to be there, and to have the types of its columns"
                    )
                else:
                    self.mistakes.append(replace(mistake, line=line_of(self.lines, path)))

    def _spark(self, checked: RouteDocument) -> None:
        """Slips in the names of Spark's properties, which would have no effect."""
        for name, right in ((name, _intended_property(name)) for name in islice(checked.spark, 10 * MOST_MISTAKES)):
            if right is not None:
                self.add(("spark", name), f"is no property of Spark; did you mean {right!r}?")

    def _part(self, key: str, read: Callable[[Any], Made], default: object) -> Made | None:
        """Read one part by its own package's reader; its mistakes are reported under *key*."""
        part = self.document.get(key)
        try:
            return read(default if part is None else part)
        except (ConfigError, MappingTableError) as failure:
            for mistake in failure.mistakes:
                self._locate(key, mistake)
        except (SubjectError, UnicodeDecodeError) as failure:
            self.add((key,), str(failure))
        except OSError as failure:
            self.add((key,), f"{failure.filename}: {failure.strerror}")
        return None

    def _locate(self, key: str, mistake: Mistake) -> None:
        path = _under(key, mistake.path)
        problem, shown, _value = mistake.problem.partition("found ")
        if not shown or not is_secret(path.rpartition(".")[2]):
            problem = mistake.problem
        else:
            problem += "found a value that is not shown"
        line = mistake.line or self._line(key, mistake.path)
        self.mistakes.append(replace(mistake, path=path, problem=problem, line=line))

    def _line(self, key: str, inner: str) -> int | None:
        """The line of a place that its package named as text."""
        source = _SOURCE.fullmatch(inner)
        exact: Path = (key, source[1]) if source else (key, inner)
        if source and source[2]:
            exact = (*exact, decimal(source[2]) or 0)
        if exact[:2] in self.lines:
            return line_of(self.lines, exact)
        full_name = _under(key, inner)
        prefixes = (full_name[:length] for length in self._lengths if length <= len(full_name))
        return next((self._named[name] for name in prefixes if name in self._named), None)

    @cached_property
    def _named(self) -> dict[str, int]:
        """The lines by names as they are written in mistakes."""
        return {dotted(path): line for path, line in reversed(self.lines.items())}

    @cached_property
    def _lengths(self) -> list[int]:
        """The lengths of these names, the longest first."""
        return sorted(set(map(len, self._named)), reverse=True)


def _without_table(part: SubscriptionsPart | None) -> SubscriptionsPart | None:
    """Return the subscriptions; whether matches are stored for feeds is what is left of a table of matches."""
    if part is None or not isinstance(part.feeds, FeedsPart):
        return part
    return part.model_copy(update={"feeds": part.feeds.store})


def _with_deliveries(sinks: dict[str, Sink], webhooks: WebhooksPart | None) -> dict[str, Sink]:
    """Return the sinks; that of deliveries knows their subject and their stream."""
    name = None if webhooks is None else webhooks.sink or next(iter(sinks), None)
    sink = sinks.get(name or "")
    if webhooks is None or sink is None:
        return sinks
    return {**sinks, name or "": sink.with_deliveries(webhooks.subject, str(webhooks.stream))}


def _with_schedules(sinks: dict[str, Sink], scheduled: ScheduledPart | None) -> dict[str, Sink]:
    """Return the sinks; without a delay stream they know the subjects of schedules."""
    if scheduled is None or scheduled.stream is not None:
        return sinks
    return {name: sink.with_schedules(scheduled.subject) for name, sink in sinks.items()}


def _connectors_dead_letter(policy: ErrorPolicy) -> DeadLetterPart | None:
    """Return the dead letter that a connector's own properties configure; None if they do not."""
    if not policy.dead_letter_topic:
        return None
    properties = {"topic": policy.dead_letter_topic, "contextHeaders": policy.dead_letter_headers}
    return DeadLetterPart.model_validate(properties)


def _unwritten(transform: Transform, sinks: Sequence[Sink], policy: ErrorPolicy) -> Iterator[str]:
    """Yield why what a transform sets is not written by some sink; a header, by none for which it has a meaning."""
    servers = [sink for sink in sinks if isinstance(sink, NatsSink)]
    if transform.sets_time and servers:
        yield (
            "sets the timestamp, and messages of NATS have the time at which the server stores them: "
            "only later stages see it, and they can write it into a header or a field"
        )
    if transform.sets_partition and not any(
        isinstance(sink, KafkaSink) and sink.partition_by == "record" for sink in sinks
    ):
        yield "sets the partition, which the sink chooses itself: set its partitionBy to record"
    for name in dict.fromkeys(transform.set_headers() if servers else ()):
        if UNFIT_NAME.search(name):
            effect = "is left out" if policy.bad_headers == "drop" else "makes its records fail"
            yield f"sets the header {name!r}, which {effect} for a sink of format nats: {NAME_RULE}"
        elif instructs_server(name) and not any(name.lower() in sink.instructions for sink in servers):
            yield f"sets the header {name!r}, which a sink of format nats leaves out unless its forwardHeaders name it"


def _under(key: str, inner: str) -> str:
    if not inner or inner == key or inner.startswith((f"{key}.", f"{key}[")):
        return inner or key
    return f"{key}{inner}" if inner.startswith("[") else f"{key}.{inner}"


_SPARK_GROUPS: Final = (
    "acls", "app", "archives", "authenticate", "barrier", "blockManager", "broadcast", "checkpoint", "cleaner",
    "connect", "cores", "decommission", "default", "deploy", "diskStore", "driver", "dynamicAllocation", "eventLog",
    "excludeOnFailure", "executor", "extraListeners", "files", "hadoop", "history", "hive", "io", "jars", "kryo",
    "kryoserializer", "kubernetes", "local", "locality", "log", "logConf", "master", "memory", "metrics", "modify",
    "network", "plugins", "port", "pyspark", "python", "rdd", "redaction", "reducer", "remote", "repl", "resources",
    "rpc", "scheduler", "security", "serializer", "shuffle", "speculation", "sql", "ssl", "stage", "standalone",
    "storage", "streaming", "submit", "task", "taskMetrics", "ui", "unsafe", "user", "worker", "yarn",
)  # fmt: skip
_SPARK_NAMES: Final = (
    "spark.app.name", "spark.default.parallelism", "spark.driver.cores", "spark.driver.extraClassPath",
    "spark.driver.extraJavaOptions", "spark.driver.host", "spark.driver.maxResultSize", "spark.driver.memory",
    "spark.driver.memoryOverhead", "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors", "spark.eventLog.dir", "spark.eventLog.enabled", "spark.executor.cores",
    "spark.executor.extraJavaOptions", "spark.executor.instances", "spark.executor.memory",
    "spark.executor.memoryOverhead", "spark.jars", "spark.jars.packages", "spark.jars.repositories", "spark.local.dir",
    "spark.master", "spark.memory.fraction", "spark.network.timeout", "spark.pyspark.python", "spark.serializer",
    "spark.sql.adaptive.enabled", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions",
    "spark.sql.streaming.pollingDelay", "spark.submit.deployMode", "spark.task.cpus", "spark.task.maxFailures",
    "spark.ui.enabled", "spark.ui.port",
)  # fmt: skip

_SHORTEST: Final = 4
"""Letters of a word that can be a slip: of two shorter ones each may be meant."""


def _intended_property(name: str) -> str | None:
    """Return the property that *name* misspells by one letter, in full or in its group; None if none.

    Spark ignores unknown names, so that a misspelt setting has no effect.

    >>> [_intended_property(f"spark.{name}") for name in ("drivr.memory", "driver.memry", "acme.memory")]
    ['spark.driver.memory', 'spark.driver.memory', None]
    """
    if name in _SPARK_NAMES:
        return None
    first, *more = name.split(".", 2)
    first = _slip_of(first, ("spark",)) or first
    if first != "spark":
        return None
    if more:
        more[0] = _slip_of(more[0], _SPARK_GROUPS) or more[0]
    right = ".".join((first, *more))
    right = _slip_of(right, _SPARK_NAMES) or right
    return None if right == name else right


def _slip_of(word: str, known: tuple[str, ...]) -> str | None:
    """Return the known name that differs by one letter; None for a known or a short word, or where more differs."""
    return None if word in known or len(word) < _SHORTEST else nearest(word, known, cutoff=1.0)
