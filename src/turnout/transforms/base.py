"""What every transform and every predicate is: a name, options, and a frozen value made of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from turnout.transforms.options import Option, OptionError, Options, Phase

__all__ = ["REPLACE_NULL", "Predicate", "Side", "Transform"]


class Side(StrEnum):
    """Which part of the record a ``$Key`` or ``$Value`` transform works on."""

    KEY = "Key"
    VALUE = "Value"


REPLACE_NULL = Option(
    "replace.null.with.default",
    "BOOLEAN",
    "Whether a stored null is read as its field's default, in every field that is copied.",
    default=True,
)


@dataclass(frozen=True, slots=True)
class Transform:
    """A configured transform: what it does to a record is for an engine to say (`turnout.spark.transforms`).

    A plug-in derives from this class (see ``docs/transforms.md``) and adds a method ``columns``.

    Attributes:
        side: of a transform that has ``$Key`` and ``$Value``; the others take the whole record.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    sided: ClassVar[bool] = True
    summary: ClassVar[str] = ""

    side: Side = Side.VALUE

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Build one from parsed options; every name of `options` is there.

        Raises:
            OptionError: when options contradict one another.
        """
        names = {option.name: option.name.replace(".", "_") for option in cls.options}
        return cls(side=side, **{field: options[name] for name, field in names.items()})

    @classmethod
    def class_name(cls) -> str:
        """The simple name, without a side."""
        return cls.__name__

    @property
    def full_name(self) -> str:
        """The class that Kafka would run, as error headers name it."""
        return f"org.apache.kafka.connect.transforms.{self.label}"

    @property
    def label(self) -> str:
        """The simple name with the side."""
        return f"{self.class_name()}${self.side}" if self.sided else self.class_name()


@dataclass(frozen=True, slots=True)
class Predicate:
    """A configured predicate: true or false of a record as the stages before have left it."""

    options: ClassVar[tuple[Option, ...]] = ()
    summary: ClassVar[str] = ""

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """Build one from parsed options; every name of `options` is there."""
        return cls(**{option.name.replace(".", "_"): options[option.name] for option in cls.options})


def mistake(option: str, problem: str, phase: Phase = "task_start") -> OptionError:
    """A mistake that shows only when options are seen together, which Connect finds when the task starts."""
    return OptionError(option, problem, phase)


def value_or(options: Options, name: str, otherwise: Any) -> Any:
    """The option's value, *otherwise* where it is null."""
    found = options[name]
    return otherwise if found is None else found
