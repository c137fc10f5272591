"""Route: the content of a route file, read, checked and ready to run."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from pkgutil import resolve_name
from typing import Self

from turnout.base.files import MAX_BYTES
from turnout.base.terminal import plural
from turnout.codecs import Format
from turnout.errors import ConfigError, Mistake, RouteError
from turnout.routes.document import DeadLetterPart, ScheduledPart, SubscriptionsPart, TriggerPart
from turnout.routes.endpoints import Lookup, Sink, Source
from turnout.routes.limits import CallerLimits, HealthPart
from turnout.routes.reader import RouteReader
from turnout.routes.variables import Variables
from turnout.routes.webhooks import WebhooksPart
from turnout.routes.written_formats import WrittenFormats
from turnout.routes.yaml_text import YamlText, decoded
from turnout.secrets import masked_url
from turnout.subjects import MappingTable
from turnout.transforms import Chain, ErrorPolicy


def digest_of(text: str) -> str:
    """Return the digest of a route file's text: the first half of its SHA-256, with variables as written.

    >>> digest_of("name: a") == digest_of("name: a"), digest_of("name: a") == digest_of("name: a ")
    (True, False)
    """
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Route:
    """Valid route; `Route.load` makes it from a file.

    Attributes:
        name: name of the route, in logs and in its checkpoint's path.
        source: source of the records.
        value: how their values are decoded, and encoded for sinks without a format of their own.
        key: the same of their keys.
        chain: the transforms, in order (KIP-585), and the effect of a failing record on the run.
        mappings: the subject mappings (ADR-30).
        cluster: the cluster whose mappings apply; None is outside any.
        tables: name → table whose rows the expressions of Set look up.
        subscriptions: the store of subscriptions; None sends every record to the sink under its own topic.
        unmatched: handling of a record that no subscription matches: drop, pass or deadLetter.
        sinks: name → sink. The first is where destinations without a sink's name go.
        written: name of a sink → formats of its keys and values, where it has formats of its own.
        webhook_format: format of the bodies of webhooks' requests; None for that of the sink that stores them.
        webhooks: how messages for HTTP endpoints are stored and delivered; None for no webhooks.
        scheduled: where messages wait that are delivered later; None if none is.
        at_once: whether messages are delivered without regard to their times, as into another sink.
        dead_letter: destination of failed records; None drops them, counted.
        trigger: when micro-batches start.
        health: shares of lost records above which a server shows the route as unhealthy.
        checkpoint: the folder of the run's progress, absolute, or its URL; None is one beside the file.
        spark: more Spark properties for the session.
        file: file of the route, None for text.
        notes: settings of a connector's file without effect here, and sources of mappings that older servers match to
            other subjects; a sentence for each.
        warnings: settings that are valid and probably mean something else than was intended.
        digest: digest of the text that the route was read from; "" for one that was made in Python.
        reads: sink name → patterns of the subjects there that the route itself reads; known after the preflight.
        stored: sink name → patterns of the topics that its servers store; absent where that is unknown, or where a run
            has to try.

    >>> text = '''
    ... name: orders
    ... source: {format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}
    ... mappings: {"orders.*": "eu.orders.{{wildcard(1)}}"}
    ... sink: {format: nats, servers: "nats://127.0.0.1:4222"}
    ... '''
    >>> route = Route.parse(text)
    >>> route.mappings.apply("orders.17"), route.unmatched, list(route.sinks)
    ('eu.orders.17', 'drop', [''])
    >>> try:
    ...     Route.parse(text.replace("stream: ORDERS", "stream: {}, strem: ORDERS"))
    ... except RouteError as error:
    ...     [(mistake.path, mistake.line) for mistake in error.mistakes]
    ...
    [('source.stream', 3), ('source.strem', 3)]
    """

    name: str
    source: Source
    value: Format
    chain: Chain
    mappings: MappingTable
    sinks: Mapping[str, Sink]
    key: Format = field(default_factory=Format)
    written: Mapping[str, WrittenFormats] = field(default_factory=dict)
    webhook_format: Format | None = None
    cluster: str | None = None
    tables: Mapping[str, Lookup] = field(default_factory=dict)
    subscriptions: SubscriptionsPart | None = None
    unmatched: str = "drop"
    webhooks: WebhooksPart | None = None
    scheduled: ScheduledPart | None = None
    at_once: bool = False
    dead_letter: DeadLetterPart | None = None
    trigger: TriggerPart = field(default_factory=TriggerPart)
    health: HealthPart = field(default_factory=HealthPart)
    checkpoint: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    file: FilePath | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[Mistake, ...] = ()
    digest: str = field(default="", compare=False)
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def formats_of(self, sink: str) -> WrittenFormats:
        """Return the formats of what the sink of that name gets."""
        return self.written.get(sink) or WrittenFormats(self.key, self.value)

    @property
    def errors(self) -> ErrorPolicy:
        """Handling of failing records."""
        return self.chain.errors

    @classmethod
    def load(cls, path: str | FilePath, variables: Mapping[str, str] | None = None) -> Self:
        """Read and check a route file.

        Args:
            path: a YAML file.
            variables: values of ``${NAME}``; the environment if not given.

        Raises:
            RouteError: lists every mistake with its path in the file, the value found and the expected form.
            FileNotFoundError: when there is no such file.
        """
        file = FilePath(path)
        with file.open("rb") as opened:
            content = opened.read(MAX_BYTES + 1)
        text = decoded(content, what=f"{file} cannot be used")
        return cls.parse(text, variables, file=file)

    @classmethod
    def parse(
        cls,
        text: str,
        variables: Mapping[str, str] | None = None,
        *,
        file: FilePath | None = None,
        limits: CallerLimits | None = None,
    ) -> Self:
        """Check a route given as YAML text.

        Args:
            text: the YAML.
            variables: values of ``${NAME}``; the environment if not given.
            file: base of relative file names.
            limits: limits of a text from a caller of a server.

        Raises:
            RouteError: lists every mistake.
        """
        heading = f"{file or 'the route'} cannot be used"
        written = YamlText.parse(text, what=heading)
        if not isinstance(written.value, dict):
            type_name = type(written.value).__name__
            raise RouteError([Mistake("", f"found {type_name}, expected a block of names and values")], what=heading)
        folder = (file or FilePath()).parent
        values = Variables(os.environ if variables is None else variables, folder, limits)
        reader = RouteReader(values.fill_in(written.value), written.lines, folder, values)
        reader.mistakes += written.mistakes
        reader.warnings += written.warnings
        refused = [] if limits is None else list(limits.mistakes(reader.document, folder))
        # A file that may not be named is not read.
        route = None if refused else reader.read(cls)
        for mistake_path, problem in (*values.mistakes, *refused):
            reader.add(mistake_path, problem)
        if route is None or reader.mistakes:
            mistakes = [
                replace(mistake, problem=values.masked(masked_url(mistake.problem))).shortened()
                for mistake in reader.mistakes
            ]
            raise RouteError(sorted(mistakes, key=lambda mistake: mistake.line or 0), what=heading)
        warnings = tuple(
            replace(warning, problem=values.masked(masked_url(warning.problem))).shortened()
            for warning in route.warnings
        )
        return replace(route, file=file, digest=digest_of(text), warnings=warnings)

    @property
    def remarks(self) -> list[str]:
        """Warnings and notes, a sentence for each, for those who do not see the file's lines."""
        return [*(f"warning: {warning}" for warning in self.warnings), *self.notes, *self.errors.notes()]

    def with_tables(self, revisions: Mapping[str, str] | None = None) -> Self:
        """Return the route with the rows of its tables, at the revisions of its last run, or the newest.

        Args:
            revisions: name of a table → another revision.

        Raises:
            StreamError: one cannot be read.
        """
        at = {
            name: Lookup(table.part.model_copy(update={"revision": revisions[name]}))
            for name, table in self.tables.items()
            if revisions and name in revisions
        }
        if not at and all(table.rows is not None for table in self.tables.values()):
            return self
        read: Callable[[Self], Self] = resolve_name("turnout.runtime.lake.lookups:with_rows")
        return read(replace(self, tables={**self.tables, **at}))

    @property
    def tables_notes(self) -> tuple[str, ...]:
        """A sentence for each table whose rows are known, with its revision."""
        return tuple(
            f"tables.{name}: revision {table.revision}, {plural(len(table.rows.rows), 'row')}"
            for name, table in self.tables.items()
            if table.rows is not None
        )

    def source_with_history(self, option: str = "source") -> Source:
        """Return the source if its records can be read again.

        Args:
            option: option that needs it, for the error.

        Raises:
            ConfigError: the source keeps no history.
        """
        if self.source.keeps_history:
            return self.source
        problem = f"expected format nats or kafka, whose history is kept, found {self.source.format}"
        raise ConfigError([Mistake(option, problem)])

    def summary(self) -> str:
        """Summary of the route in one line."""
        kinds = ", ".join(dict.fromkeys(sink.format for sink in self.sinks.values()))
        steps = [
            plural(len(self.chain.stages), "transform"),
            plural(len(self.mappings), "mapping"),
            "subscriptions" if self.subscriptions else "no subscriptions",
        ]
        return f"{self.source.format} → {' → '.join(steps)} → {kinds}"
