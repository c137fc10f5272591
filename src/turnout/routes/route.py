"""A route: what a route file says, read, checked and ready to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Self, TypeVar

import yaml
from pydantic import ValidationError

from turnout.codecs import Converters, Format, converters_of
from turnout.errors import ConfigError, Mistake, RouteError
from turnout.routes.document import DeadLetterPart, RouteDocument, SubscriptionsPart, TriggerPart
from turnout.routes.endpoints import Endpoint
from turnout.routes.includes import mappings_of, transforms_of
from turnout.routes.mistakes import from_validation
from turnout.routes.places import Path, dotted, line_of, lines_of
from turnout.routes.variables import fill_in
from turnout.subjects import MappingTable, MappingTableError
from turnout.transforms import Chain, ErrorPolicy

__all__ = ["DEFAULT_SINK", "Route"]

DEFAULT_SINK = ""
"""The name of a route's only sink, where it was given as ``sink:``."""

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Route:
    """One route, valid as a whole; `Route.load` makes it from a file.

    Attributes:
        name: what the route is called, in logs and in its checkpoint's path.
        source: where records come from.
        value: how their values are decoded and encoded.
        key: the same of their keys.
        chain: the transforms, in order (KIP-585), and what a failing record does to the run.
        mappings: the subject mappings (ADR-30).
        cluster: the cluster whose mappings apply; None is outside any.
        subscriptions: who wants what; None sends every record to the sink under its own topic.
        unmatched: what happens to a record that no subscription wants: drop, pass or deadLetter.
        sinks: name → sink. The first is where destinations without a sink's name go.
        dead_letter: where failing records go; None drops them, counted.
        trigger: when micro-batches start.
        checkpoint: the folder of the run's progress; None is one beside the file.
        spark: more Spark properties for the session.
        file: where the route was read from, None for text.
        notes: what a connector's file asks for and has no effect here, a sentence for each.
        reads: sink name → patterns of the subjects there that the route itself reads; known once servers are asked.
    """

    name: str
    source: Endpoint
    value: Format
    chain: Chain
    mappings: MappingTable
    sinks: Mapping[str, Endpoint]
    key: Format = field(default_factory=Format)
    cluster: str | None = None
    subscriptions: SubscriptionsPart | None = None
    unmatched: str = "drop"
    dead_letter: DeadLetterPart | None = None
    trigger: TriggerPart = field(default_factory=TriggerPart)
    checkpoint: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict)
    file: FilePath | None = None
    notes: tuple[str, ...] = ()
    reads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def errors(self) -> ErrorPolicy:
        """What a failing record does to the run."""
        return self.chain.errors

    @classmethod
    def load(cls, path: str | FilePath, variables: Mapping[str, str] | None = None) -> Self:
        """Read and check a route file.

        Args:
            path: a YAML file.
            variables: what ``${NAME}`` stands for; the environment if not given.

        Raises:
            RouteError: lists every mistake with its path in the file, the value found and what was expected.
            FileNotFoundError: when there is no such file.
        """
        file = FilePath(path)
        return cls.parse(file.read_text(encoding="utf-8"), variables, file=file)

    @classmethod
    def parse(cls, text: str, variables: Mapping[str, str] | None = None, *, file: FilePath | None = None) -> Self:
        """Check a route given as YAML text; *file* is where relative file names start from.

        Raises:
            RouteError: lists every mistake.
        """
        what = f"{file or 'the route'} cannot be used"
        try:
            loaded = yaml.safe_load(text)
            lines = lines_of(text)
        except yaml.YAMLError as failure:
            raise RouteError([_yaml_mistake(failure)], what=what) from failure
        if not isinstance(loaded, dict):
            raise RouteError([Mistake("", f"found {type(loaded).__name__}, expected a block of names and values")])
        document, unset = fill_in(loaded, os.environ if variables is None else variables)
        reader = _Reader(document, lines, (file or FilePath()).parent)
        for place, name in unset:
            reader.add(place, f"the variable {name} is not set: set it, or write ${{{name}:-a default}}")
        route = reader.read(cls)
        if route is None or reader.mistakes:
            raise RouteError(sorted(reader.mistakes, key=lambda mistake: mistake.line or 0), what=what)
        return replace(route, file=file)

    def summary(self) -> str:
        """What the route does, in a line."""
        kinds = ", ".join(dict.fromkeys(sink.format for sink in self.sinks.values()))
        steps = [
            f"{len(self.chain.stages)} transforms",
            f"{len(self.mappings)} mappings",
            "subscriptions" if self.subscriptions else "no subscriptions",
        ]
        return f"{self.source.format} → {' → '.join(steps)} → {kinds}"


def _yaml_mistake(failure: yaml.YAMLError) -> Mistake:
    mark = getattr(failure, "problem_mark", None)
    problem = getattr(failure, "problem", None) or str(failure)
    return Mistake("", f"not YAML: {problem}", mark.line + 1 if mark else None)


class _Reader:
    """Reads every part of one document and collects what is wrong with each, instead of stopping at the first."""

    def __init__(self, document: Mapping[str, Any], lines: dict[Path, int], folder: FilePath) -> None:
        self.document = document
        self.lines = lines
        self.folder = folder
        self.mistakes: list[Mistake] = []
        self.notes: list[str] = []

    def add(self, path: Path, problem: str) -> None:
        """Note a mistake at *path*."""
        self.mistakes.append(Mistake(dotted(path), problem, line_of(self.lines, path)))

    def read(self, kind: Callable[..., Made]) -> Made | None:
        """The route, or None when some part cannot be read."""
        checked = self._checked()
        converters = self._converters()
        key = self._format("key", converters.key)
        value = self._format("value", converters.value)
        chain = self._part("transforms", self._chain, default=[])
        table = self._part("mappings", lambda given: MappingTable.from_config(mappings_of(given, self.folder)), {})
        if checked is None or key is None or value is None or chain is None or table is None:
            return None
        return kind(
            name=checked.name,
            source=checked.source,
            key=key,
            value=value,
            chain=replace(chain, errors=checked.errors.policy()) if checked.errors else chain,
            mappings=table,
            sinks=checked.sinks if checked.sinks is not None else {DEFAULT_SINK: checked.sink},
            cluster=checked.cluster,
            subscriptions=checked.subscriptions,
            unmatched=checked.unmatched or "drop",
            dead_letter=checked.dead_letter or _connectors_dead_letter(chain.errors),
            trigger=checked.trigger,
            checkpoint=checked.checkpoint,
            spark={name: str(setting) for name, setting in checked.spark.items()},
            notes=tuple(self.notes),
        )

    def _checked(self) -> RouteDocument | None:
        try:
            return RouteDocument.model_validate(self.document)
        except ValidationError as failure:
            self.mistakes += from_validation(failure, self.document, self.lines)
            return None

    def _format(self, side: str, of_connector: Format | None) -> Format | None:
        """How keys or values are read: what the route says, else the converter of a connector's file, else as bytes."""
        if self.document.get(side) is None and of_connector is not None:
            return of_connector
        return self._part(side, lambda given: Format.from_config(given, path=side), default={"format": "raw"})

    def _converters(self) -> Converters:
        """The converters of a connector's properties: an unknown one is a mistake, unless the route has its own."""
        try:
            transforms = transforms_of(self.document.get("transforms") or [], self.folder)
        except (ConfigError, OSError):
            # Said where the chain is read.
            return Converters(None, None)
        if isinstance(transforms, list):
            return Converters(None, None)
        converters = converters_of(transforms)
        for mistake in converters.mistakes:
            side = mistake.path.partition(".")[0]
            overridden = self.document.get(side) is not None
            if mistake.path in ("key.converter", "value.converter") and not overridden:
                self.add(("transforms", mistake.path), f"{mistake.problem}; or say it by {side}: in the route")
            elif not overridden:
                self.notes.append(str(mistake))
        return converters

    def _chain(self, given: Any) -> Chain:
        transforms = transforms_of(given, self.folder)
        return Chain.from_route(transforms) if isinstance(transforms, list) else Chain.from_config(transforms)

    def _part(self, key: str, read: Callable[[Any], Made], default: Any) -> Made | None:
        """One part by its own package's reader; its mistakes are placed under *key*."""
        given = self.document.get(key)
        try:
            return read(default if given is None else given)
        except (ConfigError, MappingTableError) as failure:
            self.mistakes += [
                replace(mistake, path=_under(key, mistake.path), line=mistake.line or self._line(key, mistake.path))
                for mistake in failure.mistakes
            ]
        except OSError as failure:
            self.add((key,), f"{failure.filename}: {failure.strerror}")
        return None

    def _line(self, key: str, inner: str) -> int | None:
        """The line of a place that its package named as text."""
        wanted = _under(key, inner)
        near = [path for path in self.lines if wanted.startswith(dotted(path))]
        return self.lines[max(near, key=len)] if near else None


def _connectors_dead_letter(policy: ErrorPolicy) -> DeadLetterPart | None:
    """The dead letter that a connector's own properties ask for."""
    if not policy.dead_letter_topic:
        return None
    wanted = {"topic": policy.dead_letter_topic, "contextHeaders": policy.dead_letter_headers}
    return DeadLetterPart.model_validate(wanted)


def _under(key: str, inner: str) -> str:
    if not inner or inner == key or inner.startswith((f"{key}.", f"{key}[")):
        return inner or key
    return f"{key}{inner}" if inner.startswith("[") else f"{key}.{inner}"
