"""Interface of transforms and predicates: a name, options, a frozen value made of them, and its operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Self, TypeAlias

from turnout.errors import RecordError
from turnout.records import Batch, Block, Positions, Shape
from turnout.transforms.content_paths import CONTENT, ContentPath, Move, moved_back, moved_on
from turnout.transforms.mixed_blocks import ByFields, ByNames
from turnout.transforms.options import Option, OptionError, Options, Phase

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PACKAGE: Final = "org.apache.kafka.connect.transforms."
"""Kafka's package of transforms."""

Errors: TypeAlias = dict[int, RecordError]
"""Failures: index in the block (of a step), or row of the batch (of everything else) → reason."""

Mask: TypeAlias = "NDArray[np.bool_]"
"""For each row of a batch whether something is so."""

Run: TypeAlias = Callable[[Block, Sequence[bool] | None, Batch, Errors], Block | list[Block]]
"""The operation of a `Step`: block, mask of the rows (None: all), batch, and the errors to add to."""


class Side(StrEnum):
    """Part of the record that a ``$Key`` or ``$Value`` transform works on.

    >>> from turnout.transforms import Chain
    >>> properties = {"transforms": "m", "transforms.m.type": "MaskField$Key", "transforms.m.fields": "a"}
    >>> Chain.from_config(properties).stages[0].transform.side
    <Side.KEY: 'Key'>
    """

    KEY = "Key"
    VALUE = "Value"


class NamedField(NamedTuple):
    """A field that an option names.

    Attributes:
        option: the option's name.
        side: whether it is one of the key or of the value.
        path: the steps to it.
    """

    option: str
    side: Side
    path: tuple[str, ...]


REPLACE_NULL = Option(
    "replace.null.with.default",
    "BOOLEAN",
    "Whether a stored null is read as its field's default, in every field that is copied.",
    default=True,
)


@dataclass(frozen=True, slots=True)
class Step:
    """Operation of a transform on the blocks of one shape; planned once for each shape, and cached.

    Attributes:
        run: returns the block with its new values, or several where their shapes differ. The records and their order
            are the same. A value that cannot be handled gets any value, and an entry in the errors under its place in
            the block; a `RecordError` that is raised concerns every record of the block. Where the transform applies is
            None unless *in_place* is set.
        in_place: the schema and the names stay as they are, so that it can be applied to some values of a block only.
    """

    run: Run
    in_place: bool = False


def unchanged(block: Block, _where: Sequence[bool] | None, _batch: Batch, _errors: Errors) -> Block:
    """Return the block unchanged: the `Run` without an effect."""
    return block


@dataclass(frozen=True, slots=True)
class Transform:
    """A configured transform.

    One that has a ``$Key`` and a ``$Value`` plans its operation on values of one shape by `plan`; one that takes the
    whole record has `apply`. A plug-in derives from this class and does the same (see ``docs/transforms.md``).

    Attributes:
        side: side of a transform that has ``$Key`` and ``$Value``; the others take the whole record.
        kafka: Kafka ships it; the others are turnout's own, or a package's.
        java_names: the classes, without a side, by which connectors name one that others have released.
        keeps_topic: the topic is unchanged, so that filters on topics behind it hold before it as well.
        keeps_paths: content stays at its path; a transform that moves it declares so by `moves`.
        schemas_by_topic: the schemas that it gives depend on the topic, so that they are not known before the run.
        ignores_values: True for a transform without a side that neither reads nor writes values.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    kafka: ClassVar[bool] = False
    java_names: ClassVar[tuple[str, ...]] = ()
    sided: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = False
    keeps_paths: ClassVar[bool] = False
    schemas_by_topic: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = False
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

    def plan(self, shape: Shape) -> Step:
        """Return the step for keys or values of this shape; called once for each shape.

        Raises:
            RecordError: no record with such a key or value can be handled.
        """
        raise NotImplementedError(f"{type(self).__name__} has a side and no plan")

    def mixed(self) -> ByFields | ByNames | None:
        """Return how the transform works on schemaless objects of several shapes; None where it has to know the shape.

        The outcome is the same as that of `plan` for each shape; objects of rare shapes are worked on together.
        """
        return None

    def doubts(self) -> Iterator[OptionError]:
        """Yield options that Connect accepts but that always fail or never have an effect."""
        yield from ()

    def named_fields(self) -> Iterator[NamedField]:
        """The fields of the key or value that the options name, so that a mistyped one is found before the run."""
        yield from ()

    def named_headers(self) -> Iterable[tuple[str, str]]:
        """Return the headers that the options name and the transform reads or drops, each with its option."""
        return ()

    def needs_objects(self) -> Iterable[Side]:
        """Return the sides that have to be objects: of other values nothing is changed, or every record fails.

        For transforms without a side; the others say it by `plan`.
        """
        return ()

    def moves(self) -> Iterable[Move] | None:
        """Return the moves of content from one path to another; none if it is changed in place.

        None if not known: around such a transform, views hide the whole content of a record of which some
        stage masks a field.
        """
        return () if self.keeps_paths else None

    def masks(self) -> Iterable[ContentPath]:
        """Return the paths of content to hide from readers without the right to see masked content."""
        return ()

    def shapes_after(self, key: Shape, value: Shape) -> Iterable[tuple[Shape, Shape]] | None:  # noqa: ARG002 - by others
        """Return the shapes that a record of these shapes can have afterwards, its key's and its value's.

        None where a made-up record is to be shown to the transform.
        """
        return None

    def content_after(self, path: ContentPath) -> set[ContentPath]:
        """Return the paths of content behind this transform that is at *path* before it."""
        moves = self.moves()
        return {path, *CONTENT} if moves is None else moved_on(moves, path)

    def content_before(self, path: ContentPath) -> set[ContentPath]:
        """Return the paths before this transform of content that is at *path* behind it."""
        moves = self.moves()
        return {path, *CONTENT} if moves is None else moved_back(moves, path)

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Change these records, all of them alive, in place; return the errors of the failed ones by row."""
        raise NotImplementedError(f"{type(self).__name__} takes whole records and has no apply")

    @property
    def root(self) -> str:
        """The first step of paths into the side that this transform works on."""
        return self.side.lower()

    @classmethod
    def class_name(cls) -> str:
        """Return the simple name, without a side."""
        return cls.__name__

    @property
    def full_name(self) -> str:
        """The class, as error headers name it: Kafka's, the one that others have released, or the one that has run."""
        if self.java_names:
            return self.java_names[0] + (f"${self.side}" if self.sided else "")
        module = type(self).__module__
        return f"{PACKAGE if self.kafka else (module.rpartition('.')[0] or module) + '.'}{self.label}"

    @property
    def label(self) -> str:
        """The simple name with the side."""
        return f"{self.class_name()}${self.side}" if self.sided else self.class_name()


def flat_fields(option: str, side: Side, names: Iterable[str]) -> Iterator[NamedField]:
    """Yield the fields that an option names without paths."""
    return (NamedField(option, side, (name,)) for name in names)


@dataclass(frozen=True, slots=True)
class Predicate:
    r"""A configured predicate: true or false of a record as the stages before have left it.

    >>> from turnout.records import Record
    >>> from turnout.transforms import Chain
    >>> config = {"transforms": "t", "transforms.t.type": "Filter", "transforms.t.predicate": "p", "predicates": "p"}
    >>> more = {"predicates.p.type": "TopicNameMatches", "predicates.p.pattern": r"test\..*"}
    >>> chain = Chain.from_config({**config, **more})
    >>> chain.apply([Record(topic="test.a")]), chain.apply(Record(topic="orders.test")).topic
    ([None], 'orders.test')
    """

    options: ClassVar[tuple[Option, ...]] = ()
    kafka: ClassVar[bool] = False
    summary: ClassVar[str] = ""
    takes_mixed: ClassVar[bool] = False
    """True where values may be in mixed blocks, see `turnout.transforms.mixed_blocks`."""

    def named_fields(self) -> Iterator[NamedField]:
        """Yield the fields of the key or value that the options name."""
        yield from ()

    def named_headers(self) -> Iterable[tuple[str, str]]:
        """Return the headers that the options name, each with its option."""
        return ()

    @classmethod
    def from_options(cls, options: Options) -> Self:
        """Build one from parsed options; every name of `options` is there."""
        return cls(**{option.name.replace(".", "_"): options[option.name] for option in cls.options})

    def test(self, batch: Batch, errors: Errors) -> Mask:
        """Return a mask of the rows for which the predicate holds; rows that are not alive do not count.

        A record that it cannot be evaluated for has an entry in *errors*, by its row.
        """
        raise NotImplementedError(f"{type(self).__name__} has no test")


def mistake(option: str, problem: str, phase: Phase = "task_start") -> OptionError:
    """Return a mistake that shows only when options are seen together, which Connect finds when the task starts."""
    return OptionError(option, problem, phase)
