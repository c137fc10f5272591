"""SubjectTransform: NATS's subject mapping as a transform of the topic (ADR-30)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import ClassVar, Self

from xxhash import xxh64_intdigest

from turnout.errors import SubjectError
from turnout.records import Batch, Positions
from turnout.subjects.draw_hash import SEED
from turnout.subjects.random_numbers import BITS
from turnout.subjects.transform import SubjectTransform as TokenTransform
from turnout.transforms.base import Errors, Side, Transform
from turnout.transforms.options import Option, OptionError, Options
from turnout.transforms.per_topic import ByTopic, route


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
