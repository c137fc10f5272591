"""SubjectTransform: NATS's subject mapping as a transform of the topic (ADR-30)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from turnout.errors import SubjectError
from turnout.subjects.transform import SubjectTransform as Mapping
from turnout.transforms.base import Side, Transform
from turnout.transforms.options import Option, OptionError, Options

__all__ = ["SubjectTransform"]


@dataclass(frozen=True, slots=True)
class SubjectTransform(Transform):
    """See ``summary``. Connect has no such transform; a topic that the source does not match stays as it is."""

    summary: ClassVar[str] = "Rewrites the topic by a NATS subject transform, as wildcard(1) and partition(10,1)."
    sided: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = (
        Option("source", "STRING", "The subject filter that the topic has to match.", valid="a NATS subject filter"),
        Option("destination", "STRING", "What the topic becomes.", valid="a NATS mapping destination"),
    )

    mapping: Mapping | None = None

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Parse the mapping."""
        try:
            return cls(side, Mapping.parse(options["source"] or "", options["destination"] or ""))
        except SubjectError as error:
            raise OptionError("destination", f"expected a subject transform: {error}") from None

    @property
    def full_name(self) -> str:
        """Turnout's own class, as error headers name it."""
        return "turnout.transforms.SubjectTransform"
