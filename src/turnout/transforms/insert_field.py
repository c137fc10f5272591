"""InsertField: add fields from the record's own attributes, or a fixed text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from turnout.transforms.base import REPLACE_NULL, Side, Transform, mistake
from turnout.transforms.options import Option, Options

__all__ = ["InsertField", "Insertion", "Source"]

Source = Literal["topic", "partition", "offset", "timestamp", "static"]
_SOURCES: tuple[Source, ...] = ("topic", "partition", "offset", "timestamp", "static")


@dataclass(frozen=True, slots=True)
class Insertion:
    """One field that is added: ``name!`` in the options makes it required, ``name?`` and ``name`` optional."""

    name: str
    source: Source
    optional: bool = True

    @classmethod
    def parse(cls, text: str, source: Source) -> Self:
        """Read the name with its suffix; only one is taken off."""
        if text[-1:] in ("?", "!"):
            return cls(text[:-1], source, optional=text[-1] == "?")
        return cls(text, source)


@dataclass(frozen=True, slots=True)
class InsertField(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Adds fields with the topic, partition, offset, timestamp or a fixed text."
    options: ClassVar[tuple[Option, ...]] = (
        Option("topic.field", "STRING", "Field for the topic.", default=None, valid="name, name?, name!"),
        Option("partition.field", "STRING", "Field for the partition.", default=None, valid="name, name?, name!"),
        Option("offset.field", "STRING", "Field for the offset.", default=None, valid="name, name?, name!"),
        Option("timestamp.field", "STRING", "Field for the timestamp.", default=None, valid="name, name?, name!"),
        Option("static.field", "STRING", "Field for static.value.", default=None, valid="name, name?, name!"),
        Option("static.value", "STRING", "The text for static.field; may be empty.", default=None),
        REPLACE_NULL,
    )

    insertions: tuple[Insertion, ...] = ()
    static_value: str | None = None
    replace_null_with_default: bool = True

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Collect the insertions in the order in which Connect makes them."""
        named = [(options[f"{source}.field"], source) for source in _SOURCES]
        insertions = tuple(Insertion.parse(name, source) for name, source in named if name is not None)
        if not insertions:
            raise mistake("", "expected at least one of " + ", ".join(f"{source}.field" for source in _SOURCES))
        static = options["static.value"]
        if options["static.field"] is not None and static is None:
            raise mistake("static.value", "is missing, and static.field needs it")
        return cls(side, insertions, static, options["replace.null.with.default"])
