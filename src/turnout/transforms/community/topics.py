"""Transforms of the topic: ChangeTopicCase, ExtractTopic, LowerCaseTopic, SubjectTransform."""

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
from turnout.subjects.functions import BITS
from turnout.subjects.transform import SubjectTransform as TokenTransform
from turnout.transforms.base import ByTopic, Errors, NamedField, Side, Step, Transform, route
from turnout.transforms.options import BOOLEAN, STRING, Option, OptionError, Options, one_of

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
        Option("field", STRING, "The field; without one the whole key or value.", default=""),
        Option("field.name", STRING, "The same, as Aiven calls it.", default=""),
        Option(
            "field.format",
            STRING,
            "Whether `field` is a name, or a path in JSONPath: `$.order.region`.",
            default="PLAIN",
            check=one_of("PLAIN", "JSON_PATH", any_case=True),
            valid="PLAIN, JSON_PATH",
        ),
        Option(
            "skip.missing.or.null",
            BOOLEAN,
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
        Option("source", STRING, "The subject filter that the topic has to match.", valid="a NATS subject filter"),
        Option("destination", STRING, "The new topic.", valid="a NATS mapping destination"),
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


_JEREMYS: Final = "com.github.jcustenborder.kafka.connect.transform.common."
_UPPER: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_SEPARATORS: Final = {
    "LOWER_HYPHEN": "-",
    "LOWER_UNDERSCORE": "_",
    "LOWER_CAMEL": "",
    "UPPER_CAMEL": "",
    "UPPER_UNDERSCORE": "_",
}
"""Formats of names, each with what is between its words; without one, a word begins with an upper-case letter."""

_FORMATS: Final = one_of(*_SEPARATORS)


@dataclass(frozen=True, slots=True)
class ChangeTopicCase(Transform):
    """See ``summary``. Jeremy Custenborder's transform, which is Guava's CaseFormat: letters are those of ASCII."""

    summary: ClassVar[str] = "Rewrites the words of the topic from one format to another: `user_events` → `userEvents`."
    java_names: ClassVar[tuple[str, ...]] = (_JEREMYS + "ChangeTopicCase",)
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option("from", STRING, "The format of the topic.", check=_FORMATS, valid=", ".join(_SEPARATORS)),
        Option("to", STRING, "The new format.", check=_FORMATS, valid=", ".join(_SEPARATORS)),
    )

    source: str = "LOWER_UNDERSCORE"
    target: str = "LOWER_UNDERSCORE"

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Take both formats."""
        return cls(side, options["from"], options["to"])

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Rewrite the topics of these records, each topic once."""
        return route(batch, rows, ByTopic(self._rewritten))

    def _rewritten(self, topic: str | None) -> str | None:
        if topic is None or self.source == self.target:
            return topic
        separator = _SEPARATORS[self.source]
        if separator and _SEPARATORS[self.target]:
            # Only the separators and the letters change, also of what is no word.
            text = topic.replace(separator, _SEPARATORS[self.target])
            if self.target == "UPPER_UNDERSCORE":
                return text.translate(_UPPER)
            return text.translate(_LOWER) if self.source == "UPPER_UNDERSCORE" else text
        words = topic.split(separator) if separator else _UPPER_CASE.split(topic)
        if not separator and len(words) > 1 and not words[0]:
            del words[0]
        first = words[0].translate(_LOWER) if self.target == "LOWER_CAMEL" else self._word(words[0])
        return _SEPARATORS[self.target].join([first, *map(self._word, words[1:])])

    def _word(self, word: str) -> str:
        if self.target.endswith("_CAMEL"):
            return word[:1].translate(_UPPER) + word[1:].translate(_LOWER)
        return word.translate(_UPPER if self.target == "UPPER_UNDERSCORE" else _LOWER)


_UPPER_CASE: Final = re.compile("(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class LowerCaseTopic(Transform):
    """See ``summary``. Jeremy Custenborder's transform."""

    summary: ClassVar[str] = "Writes the topic in lower case."
    java_names: ClassVar[tuple[str, ...]] = (_JEREMYS + "LowerCaseTopic",)
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Change the topics of these records."""
        return route(batch, rows, ByTopic(lambda topic: None if topic is None else topic.lower()))
