"""Transforms that take the topic from elsewhere: ExtractTopic, SubjectTransform."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Self

from xxhash import xxh64_intdigest

from turnout.errors import RecordError, SubjectError
from turnout.records import Batch, Block, Positions, Schema, Shape
from turnout.records.text import text_of
from turnout.records.types import DynamicValue, Value
from turnout.subjects.arrays import SEED
from turnout.subjects.random_numbers import BITS
from turnout.subjects.transform import SubjectTransform as TokenTransform
from turnout.transforms.base import ByTopic, Errors, NamedField, Side, Step, Transform, route
from turnout.transforms.options import Option, OptionError, Options, one_of

_JSON_PATH_STEP: Final = re.compile(r"""\.(?P<plain>[^.\[\]]+)|\[(?P<quote>["'])(?P<name>.+?)(?P=quote)\]""")


@dataclass(frozen=True, slots=True)
class ExtractTopic(Transform):
    """See ``summary``. Confluent's transform and Aiven's, which calls the option `field.name`.

    Attributes:
        path: the steps to the field; none for the whole key or value.
        skip: whether a record without a topic is left as it is.
    """

    summary: ClassVar[str] = "Takes the topic from the key or the value, or from a field of it."
    java_names: ClassVar[tuple[str, ...]] = (
        "io.confluent.connect.transforms.ExtractTopic",
        "io.aiven.kafka.connect.transforms.ExtractTopic",
    )
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("field", "STRING", "The field; without one the whole key or value.", default=""),
        Option("field.name", "STRING", "The same, as Aiven calls it.", default=""),
        Option(
            "field.format",
            "STRING",
            "Whether `field` is a name, or a path in JSONPath: `$.order.region`.",
            default="PLAIN",
            check=one_of("PLAIN", "JSON_PATH", any_case=True),
            valid="PLAIN, JSON_PATH",
        ),
        Option(
            "skip.missing.or.null",
            "BOOLEAN",
            "Whether a record without one keeps its topic; else it fails.",
            default=False,
        ),
    )

    path: tuple[str, ...] = ()
    skip: bool = False

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the path."""
        field = options["field"] or options["field.name"] or ""
        path: tuple[str, ...] = (field,) if field else ()
        if options["field.format"].upper() == "JSON_PATH":
            path = _json_path(field)
        return cls(side, path, options["skip.missing.or.null"])

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        if self.path:
            yield NamedField("field", self.side, self.path)

    def plan(self, shape: Shape) -> Step:  # noqa: ARG002 - as the others
        """Resolve nothing beforehand: whatever is not there fails, or is passed over, record by record."""
        return Step(self._run, in_place=True)

    def _run(self, block: Block, where: Sequence[bool] | None, batch: Batch, errors: Errors) -> Block:
        topics = list(batch.topics)
        values = block.whole()
        for index, row in enumerate(block.rows.tolist()):
            if where is not None and not where[index]:
                continue
            try:
                topic = self._topic(values[index], block.schema)
            except RecordError as error:
                errors[index] = error
                continue
            if topic:
                topics[row] = topic
            elif not self.skip:
                problem = f"the {self.root} has no {'.'.join(self.path)} to be the topic" if self.path else "it is null"
                errors[index] = RecordError(f"expected a topic in the {self.root}: {problem}")
        batch.topics = topics
        return block

    def _topic(self, value: DynamicValue, schema: Schema | None) -> str | None:
        for step in self.path:
            if not isinstance(value, dict):
                break
            value = value.get(step)
            schema = None if schema is None else schema.values if schema.type == "map" else schema.field(step)
        if value is None:
            return None
        if not isinstance(value, str | int | float):
            raise _no_topic(value)
        return text_of(value, schema)


def _no_topic(value: Value) -> RecordError:
    return RecordError(f"expected a text, a number or a boolean as the topic, found {type(value).__name__}")


def _json_path(field: str) -> tuple[str, ...]:
    """Return the steps of a path in JSONPath that names one field.

    Raises:
        OptionError: it names none, or has something else in it.
    """
    steps: list[str] = []
    at = 1
    while field.startswith("$") and at < len(field):
        step = _JSON_PATH_STEP.match(field, at)
        if step is None:
            break
        steps.append(step["plain"] or step["name"])
        at = step.end()
    if not steps or at < len(field):
        problem = f"expected names alone in JSONPath ($.order.region or $['order']['region']), found {field!r}"
        raise OptionError("field", problem)
    return tuple(steps)


@dataclass(frozen=True, slots=True)
class SubjectTransform(Transform):
    """See ``summary``. Not part of Connect; a topic that the source does not match is unchanged.

    It is named like `turnout.subjects.SubjectTransform`, which it applies: ``type: SubjectTransform`` in a chain.
    """

    summary: ClassVar[str] = "Rewrites the topic by a NATS subject transform, as wildcard(1) and partition(10,1)."
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("source", "STRING", "The subject filter that the topic has to match.", valid="a NATS subject filter"),
        Option("destination", "STRING", "The new topic.", valid="a NATS mapping destination"),
    )

    mapping: TokenTransform | None = None
    _mapped: ByTopic[str | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_mapped", ByTopic(self._map))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.side, self.mapping)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Give these records their new topics; where the mapping draws, each record draws for itself."""
        if self.mapping is None or not self.mapping.is_random:
            return route(batch, rows, self._mapped)
        topics = list(batch.topics)
        for row in rows.tolist():
            offset = None if batch.offsets is None else batch.offsets[row]
            topics[row] = self._map(topics[row], _draw(batch.partitions[row], offset))
        batch.topics = topics
        return {}

    def _map(self, topic: str | None, draw: float | None = None) -> str | None:
        if topic is None or self.mapping is None:
            return topic
        try:
            return self.mapping.apply(topic, draw)
        except SubjectError:
            return topic

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the mapping."""
        try:
            return cls(side, TokenTransform.parse(options["source"] or "", options["destination"] or ""))
        except SubjectError as error:
            raise OptionError("destination", f"expected a subject transform: {error}") from None


def _draw(partition: int | None, offset: int | None) -> float:
    """Return the draw of a record, equal on each delivery: Spark's hash of its partition and offset."""
    bits = SEED
    if partition is not None:
        bits = xxh64_intdigest(struct.pack("<i", partition), bits)
    if offset is not None:
        bits = xxh64_intdigest(struct.pack("<q", offset), bits)
    return float((bits >> 64 - BITS) * 2.0**-BITS)
