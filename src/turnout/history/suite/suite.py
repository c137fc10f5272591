"""Tests of a route, in its own file and in the file next to it: their document, its schema, and the cases of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Final, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from turnout.base.untrusted import JsonObject
from turnout.conditions import parse
from turnout.engine.sample_records import PARTS, SampleRecord
from turnout.errors import ConditionError, ConfigError, Mistake, RouteError, SubscriptionInvalidError
from turnout.routes import Route
from turnout.routes.document import from_validation
from turnout.routes.endpoints import Part
from turnout.routes.json_schema import DIALECT, model_schema
from turnout.routes.yaml_text import Path, YamlText, dotted, line_of
from turnout.subscriptions import Subscription
from turnout.subscriptions.validation import check

Compared = Literal["value", "headers", "deliveries"]


class SubscriptionPart(Part):
    """A subscription that the tests are matched with.

    Attributes:
        id: id for expectations.
        destinations: destinations of its messages.
        when: its condition, in the text syntax.
        project: expression of CEL that gives the body of its messages.
    """

    id: str = Field(min_length=1)
    destinations: str | list[str]
    when: str
    project: str = ""


class DeliveryPart(Part):
    """A message that is expected: of one subscription, to one destination; a text alone is a destination.

    Attributes:
        subscription: the id of the subscription that it is for.
        destination: its destination, as the subscription names it.
        body: JSON, or text: the record's value, or the result of the subscription's projection.
    """

    subscription: str | None = None
    destination: str | None = None
    body: object = None

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, value: object) -> object:
        return {"destination": value} if isinstance(value, str) else value


class ExpectPart(Part):
    """Expected outcome of the record; fields that are not given are not compared.

    Attributes:
        outcome: how it ends; ``delivered`` unless a stage or a reason is named, then ``dead_lettered``.
        stage: stage that failed.
        reason: a part of why.
        topic: as transformed and mapped.
        key: as written.
        value: likewise: JSON, or text.
        value_base64: likewise, of bytes that are no text.
        headers: name → text, or a list of texts; null for none of that name.
        deliveries: subscription and destination of messages, in any order; an empty list for none.
        exact: parts without unexpected additions: true for all, or a list of them.
    """

    outcome: (
        Literal["delivered", "filtered", "unmatched", "dead_lettered", "lost_by_weight", "discarded", "stopped"] | None
    ) = None
    stage: str | None = None
    reason: str | None = None
    topic: str | None = None
    key: object = None
    value: object = None
    value_base64: str | None = None
    headers: JsonObject | None = None
    deliveries: list[DeliveryPart] | None = None
    exact: list[Compared] = Field(default_factory=list)

    @field_validator("exact", mode="before")
    @classmethod
    def _of_flag(cls, value: object) -> object:
        if isinstance(value, bool):
            return ["value", "headers", "deliveries"] if value else []
        return value


class CasePart(Part):
    """Test of a route: a record, and its expected outcome.

    Attributes:
        name: a sentence.
        record: topic, key, value, headers, timestamp, partition, offset.
        expect: expected outcome; ``--update`` writes the actual one if none is given.
        cluster: cluster whose mappings apply, if not the suite's.
        subscriptions: those of this test alone.
    """

    name: str = Field(min_length=1)
    record: JsonObject
    expect: ExpectPart | None = None
    cluster: str | None = None
    subscriptions: list[SubscriptionPart] | None = None


class SuiteDocument(Part):
    """Tests of a route: the ``tests`` in its file, or the file next to it.

    Attributes:
        cluster: cluster whose mappings apply; the route's if not given.
        subscriptions: subscriptions of all tests.
        cases: the tests.
    """

    cluster: str | None = None
    subscriptions: list[SubscriptionPart] | None = None
    cases: list[CasePart]


STORE = "store"
"""Name of the subscriptions of the route's own store."""


@dataclass(frozen=True, slots=True)
class Case:
    """Test of a route: a record, and its expected outcome.

    Attributes:
        name: name of the case.
        record: input record.
        expect: expected outcome; None if not yet written.
        cluster: cluster whose mappings apply.
        subscriptions: subscriptions to match with; None for those of the route's store.
        file: file of the case.
        line: likewise, from 1.
        path: its path in that file.

    >>> from turnout.history import run_cases
    >>> route = Route.parse(
    ...     '{name: r, source: {format: nats, servers: "nats://a", stream: S}, '
    ...     'mappings: {"a.*": "b.{{wildcard(1)}}"}, sink: {format: nats, servers: "nats://a"}}'
    ... )
    >>> (result,) = run_cases(route, [Case("a record of a", SampleRecord.of({"topic": "a.1", "value": "x"}))]).results
    >>> result.ending.outcome
    'delivered'
    """

    name: str
    record: SampleRecord
    expect: ExpectPart | None = None
    cluster: str | None = None
    subscriptions: tuple[Subscription, ...] | None = ()
    file: FilePath | None = None
    line: int | None = None
    path: Path = ()


@dataclass(frozen=True, slots=True)
class Suite:
    """The tests of one file.

    Attributes:
        file: the file.
        cases: in its order.
        prefix: their path in it.
    """

    file: FilePath
    cases: tuple[Case, ...]
    prefix: Path = ()

    @classmethod
    def parse(cls, text: str, route: Route, file: FilePath, prefix: Path = ()) -> Self | None:
        """Parse the tests at *prefix* in a text; None if it has none.

        Raises:
            ConfigError: lists every mistake, with path and line.
        """
        heading = f"{file} cannot be used"
        try:
            yaml = YamlText.parse(text, what=heading)
        except RouteError as failure:
            raise ConfigError(failure.mistakes, what=heading) from failure
        document = yaml.value
        for step in prefix:
            document = document.get(step) if isinstance(document, dict) else None
        if document is None:
            return None
        reader = _SuiteReader(document, yaml.lines, prefix, route, file)
        cases = reader.cases()
        reader.mistakes += [
            mistake for mistake in yaml.mistakes if not prefix or mistake.path.startswith(dotted(prefix))
        ]
        if reader.mistakes:
            raise ConfigError(sorted(reader.mistakes, key=lambda mistake: mistake.line or 0), what=heading)
        return cls(file, tuple(cases), prefix)


class NoTestsError(ConfigError):
    """Raised when a route has no tests."""


def load_suites(route_file: FilePath, route: Route) -> list[Suite]:
    """Load the tests of a route: ``tests`` in its file, and ``NAME.test.yaml`` next to it.

    Raises:
        ConfigError: one of them is wrong.
        NoTestsError: there are none.
    """
    beside_route = route_file.with_name(f"{route_file.stem}{_BESIDE}")
    suites = [Suite.parse(route_file.read_text(encoding="utf-8"), route, route_file, ("tests",))]
    if beside_route.exists():
        suites.append(Suite.parse(beside_route.read_text(encoding="utf-8"), route, beside_route))
    found = [suite for suite in suites if suite is not None]
    if not found:
        raise NoTestsError([Mistake("tests", f"{route_file} has none, and there is no {beside_route.name} beside it")])
    return found


_BESIDE: Final = ".test.yaml"
_ROUTES: Final = (".yaml", ".yml", ".json")


def route_file_of(file: FilePath) -> FilePath:
    """Return the route file for a given file, which may be the route's or that of its tests.

    Args:
        file: a route's, which is given back, or ``NAME.test.yaml``.

    Raises:
        ConfigError: it has tests and no route, and there is none of its name beside it.
    """
    tests = file.name.endswith(_BESIDE)
    names = [f"{file.name.removesuffix(_BESIDE)}{suffix}" for suffix in _ROUTES] if tests else []
    route_file = next((neighbour for neighbour in map(file.with_name, names) if neighbour.is_file()), None)
    if route_file is not None:
        return route_file
    if not _has_tests_alone(file):
        return file
    missing = f", and there is no {names[0]} beside it" if tests else ""
    problem = f"has the tests of a route{missing}: name the route's file, NAME.yaml, for tests in NAME{_BESIDE}"
    raise ConfigError([Mistake(str(file), problem)])


def _has_tests_alone(file: FilePath) -> bool:
    """Return True if a readable file has cases, and nothing of a route."""
    try:
        document = YamlText.parse(file.read_text(encoding="utf-8"), what=str(file)).value
    except (OSError, ValueError, RouteError):
        return False
    return isinstance(document, dict) and "cases" in document and not {"name", "source"} & document.keys()


class _SuiteReader:
    """Reads one document of tests and collects its mistakes."""

    def __init__(self, document: object, lines: dict[Path, int], prefix: Path, route: Route, file: FilePath) -> None:
        self._is_list = isinstance(document, list)
        self._document: object = {"cases": document} if self._is_list else document
        self._prefix = prefix
        self._lines = {self._inner(path): line for path, line in lines.items() if path[: len(prefix)] == prefix}
        self._route = route
        self._file = file
        self._store = isinstance(self._document, dict) and self._document.get("subscriptions") == STORE
        self.mistakes: list[Mistake] = []

    def _inner(self, path: Path) -> Path:
        below = path[len(self._prefix) :]
        return ("cases", *below) if self._is_list else below

    def _outer(self, path: Path) -> Path:
        return (*self._prefix, *(path[1:] if self._is_list and path else path))

    def _add(self, path: Path, problem: str) -> None:
        self.mistakes.append(Mistake(dotted(self._outer(path)), problem, line_of(self._lines, path)))

    def cases(self) -> Sequence[Case]:
        document = self._checked()
        if document is None:
            return ()
        shared = self._shared(document)
        return [self._case(at, part, document, shared) for at, part in enumerate(document.cases)]

    def _checked(self) -> SuiteDocument | None:
        document = self._document
        if isinstance(document, dict) and self._store:
            document = {**document, "subscriptions": None}
        try:
            return SuiteDocument.model_validate(document)
        except ValidationError as failure:
            for mistake in from_validation(failure, document, self._lines, SuiteDocument):
                inner = mistake.path.removeprefix("cases") if self._is_list else mistake.path
                joint = "." if self._prefix and inner and not inner.startswith("[") else ""
                self.mistakes.append(Mistake(f"{dotted(self._prefix)}{joint}{inner}", mistake.problem, mistake.line))
            return None

    def _shared(self, document: SuiteDocument) -> tuple[Subscription, ...] | None:
        """Return the subscriptions that all cases share."""
        if self._store:
            return None
        if document.subscriptions is not None:
            return self._subscriptions(document.subscriptions, ("subscriptions",))
        if self._route.subscriptions is not None and any(case.subscriptions is None for case in document.cases):
            problem = f"the route has subscriptions: list those of the tests, [] for none, or say {STORE}"
            self._add(("subscriptions",), problem)
        return ()

    def _subscriptions(self, parts: Sequence[SubscriptionPart], path: Path) -> tuple[Subscription, ...]:
        if self._route.subscriptions is None:
            self._add(path, "the route has no subscriptions, so nothing is matched")
        subscriptions = {part.id: self._subscription(part, (*path, at)) for at, part in enumerate(parts)}
        for at, part in enumerate(parts):
            if part.id in [earlier.id for earlier in parts[:at]]:
                self._add((*path, at, "id"), f"{part.id!r} occurs twice")
        return tuple(subscription for subscription in subscriptions.values() if subscription is not None)

    def _subscription(self, part: SubscriptionPart, path: Path) -> Subscription | None:
        destinations = [part.destinations] if isinstance(part.destinations, str) else part.destinations
        try:
            subscription = Subscription(destinations, parse(part.when), id=part.id, project=part.project)
            check(subscription)
        except ConditionError as problem:
            self._add((*path, "when"), str(problem))
        except SubscriptionInvalidError as problem:
            self._add(path, str(problem))
        else:
            return subscription
        return None

    def _case(self, at: int, part: CasePart, document: SuiteDocument, shared: tuple[Subscription, ...] | None) -> Case:
        path: Path = ("cases", at)
        subscriptions = shared
        if part.subscriptions is not None:
            subscriptions = self._subscriptions(part.subscriptions, (*path, "subscriptions"))
        return Case(
            part.name,
            self._record(part, path),
            part.expect,
            part.cluster or document.cluster or self._route.cluster,
            subscriptions,
            self._file,
            line_of(self._lines, path),
            self._outer(path),
        )

    def _record(self, part: CasePart, path: Path) -> SampleRecord:
        try:
            return SampleRecord.of(part.record, route=self._route)
        except ConfigError as wrong:
            for mistake in wrong.mistakes:
                self._add((*path, "record", mistake.path), mistake.problem)
            return SampleRecord("")


_TEXT = {"type": ["string", "null"]}
_PARTS: dict[str, JsonObject] = {
    "topic": {"type": "string", "description": "the subject, or the topic"},
    "partition": {"type": "integer", "default": 0, "description": "of Kafka"},
    "offset": {"type": "integer", "default": 0, "description": "or the sequence; weighted mappings draw by it"},
    "key": {"description": "a text stands for its bytes, anything else for its JSON"},
    "keyBase64": {**_TEXT, "description": "a key that is no text"},
    "value": {"description": "a text stands for its bytes, anything else for its JSON"},
    "valueBase64": {**_TEXT, "description": "a value that is no text"},
    "headers": {"type": ["object", "array", "null"], "description": "name: text, or a list of texts"},
    "timestamp": {"type": ["string", "integer", "null"], "description": "ISO 8601, or milliseconds since 1970"},
    "stream": {**_TEXT, "description": "the JetStream stream that it is from"},
}


def test_file_schema() -> JsonObject:
    """Return the schema of ``NAME.test.yaml``."""
    suite = suite_schema()
    definitions = suite.pop("$defs")
    return {"$schema": DIALECT, "title": "Tests of a route of turnout", **suite, "$defs": definitions}


def suite_schema() -> JsonObject:
    """Return the schema of a file of tests, or of ``tests`` in a route: an object, or a list of cases."""
    suite = model_schema(SuiteDocument)
    definitions = suite.pop("$defs")
    subscriptions = suite["properties"]["subscriptions"]
    subscriptions["anyOf"].append({"const": STORE, "description": "those of the route's store"})
    definitions["CasePart"]["properties"]["record"] = _record()
    exact = definitions["ExpectPart"]["properties"]["exact"]
    description = exact.pop("description")
    definitions["ExpectPart"]["properties"]["exact"] = {
        "description": description,
        "anyOf": [{"type": "boolean"}, exact],
    }
    delivery = definitions["DeliveryPart"]
    definitions["DeliveryPart"] = {"anyOf": [delivery, {"type": "string", "description": "a destination"}]}
    cases = {"type": "array", "items": {"$ref": "#/$defs/CasePart"}}
    return {"anyOf": [{"$ref": "#/$defs/Suite"}, cases], "$defs": {**definitions, "Suite": suite}}


def _record() -> JsonObject:
    return {
        "description": "the input record",
        "type": "object",
        "required": ["topic"],
        "properties": {part: _PARTS[part] for part in PARTS},
        "additionalProperties": False,
    }
