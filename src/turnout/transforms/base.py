"""Interface of transforms and predicates: a name, options, a frozen value made of them, and its operation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Final, Generic, NamedTuple, Self, TypeAlias, TypeVar

from turnout.base.startup import np
from turnout.errors import RecordError
from turnout.records import Batch, Block, Positions, Shape
from turnout.records.spans import MixedObjects
from turnout.transforms.options import BOOLEAN, Option, OptionError, Options, Phase

if TYPE_CHECKING:
    from numpy.typing import NDArray


KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"

ContentPath: TypeAlias = tuple[str, ...]
"""A path that begins with `KEY`, `VALUE` or `HEADERS`: ``("value", "order", "card")``, ``("headers", "Pan")``.

A name that ends with ``*`` stands for every name that begins so. The topic, the partition, the offset and the
timestamp are the record's address, not its content.
"""

CONTENT: Final[tuple[ContentPath, ...]] = ((KEY,), (VALUE,), (HEADERS,))
"""Everything in a record that is content."""


class Move(NamedTuple):
    """Content that a transform carries from one path to another, with everything below it.

    Attributes:
        source: the path before the transform.
        target: the path behind it.
        copy: the content is at its old path as well.
    """

    source: ContentPath
    target: ContentPath
    copy: bool = False


def same_name(one: str, other: str) -> bool:
    """Return True if two names can be equal; one may end with ``*``, which matches any ending."""
    if one == other:
        return True
    begins = one.endswith("*") and other.startswith(one[:-1])
    return begins or (other.endswith("*") and one.startswith(other[:-1]))


def fits(begin: ContentPath, path: ContentPath) -> bool:
    """Return True if a path is *begin*, or below it."""
    return len(path) >= len(begin) and all(map(same_name, begin, path))


def moved_on(moves: Iterable[Move], path: ContentPath) -> set[ContentPath]:
    """Return the paths at which content is behind a transform.

    >>> sorted(moved_on([Move(("value", "pan"), ("value", "card"))], ("value", "pan", "digits")))
    [('value', 'card', 'digits')]
    """
    found: set[ContentPath] = set()
    stays = True
    for move in moves:
        if fits(move.source, path):
            found.add(move.target + path[len(move.source) :])
            stays = stays and move.copy
        elif fits(path, move.source):
            found.add(move.target)
    return found | {path} if stays else found


def moved_back(moves: Iterable[Move], path: ContentPath) -> set[ContentPath]:
    """Return the paths at which content may have been before a transform; it may have been at its own path, too.

    >>> sorted(moved_back([Move(("value",), ("value", "order"))], ("value", "order", "card")))
    [('value', 'card'), ('value', 'order', 'card')]
    """
    found = {path}
    for move in moves:
        if fits(move.target, path):
            found.add(move.source + path[len(move.target) :])
        elif fits(path, move.target):
            found.add(move.source)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ByNames:
    """The step chooses, renames or orders fields, and cannot fail.

    Attributes:
        change: returns the new names of an object, and what each old one stood for.
    """

    change: Callable[[Mapping[str, int]], Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class ByFields:
    """The step depends on these fields alone, and changes no others; added fields are last.

    Attributes:
        names: the fields, each once.
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, paths: Iterable[tuple[str, ...]]) -> ByFields | None:
        """Return the step on the fields with these paths; None where one is inside of another field."""
        names = dict.fromkeys(paths)
        return cls(tuple(path[0] for path in names)) if all(len(path) == 1 for path in names) else None

    def applied(
        self, objects: MixedObjects, rows: Positions, indices: Positions | None, run: Callable[[Block], list[Block]]
    ) -> MixedObjects:
        """Return objects changed by a step that sees only these fields of them.

        Args:
            objects: the objects.
            rows: the row of each in the batch.
            indices: those that are changed; None for all.
            run: the step, of a block with the fields that its objects have.
        """
        for own, columns in objects.fields(self.names, indices):
            block = Block(rows[own], None, columns=columns)
            for part in run(block):
                of_part = own if len(part) == len(own) else own[np.searchsorted(block.rows, part.rows)]
                for name, column in part.columns.items():
                    if columns.get(name) is not column:
                        objects = objects.with_field(name, column, None if len(of_part) == len(rows) else of_part)
        return objects


def split(side: list[Block]) -> None:
    """Put the objects of mixed blocks into a block for each shape."""
    if any(block.kind == "mixed" for block in side):
        side[:] = chain.from_iterable(_of_shapes(block) if block.kind == "mixed" else [block] for block in side)


def _of_shapes(block: Block) -> list[Block]:
    return [
        Block(block.rows[indices], None, columns=dict(zip(names, columns, strict=True)))
        for indices, names, columns in block.mixed_objects.parts()
    ]


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
    BOOLEAN,
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
        schemas_by_topic: its schemas depend on the topic or on contents, and are not known before the run.
        ignores_values: True for a transform without a side that neither reads nor writes values.
        filters: it has a side and drops records, so that it takes whole records by `apply`.
        sets_time: the record's timestamp is set, which messages of NATS do not have.
        sets_partition: its partition is set, which a sink may choose itself.
    """

    options: ClassVar[tuple[Option, ...]] = ()
    kafka: ClassVar[bool] = False
    java_names: ClassVar[tuple[str, ...]] = ()
    sided: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = False
    keeps_paths: ClassVar[bool] = False
    schemas_by_topic: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = False
    filters: ClassVar[bool] = False
    sets_time: ClassVar[bool] = False
    sets_partition: ClassVar[bool] = False
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

    def set_headers(self) -> Iterable[str]:
        """Return the names of the headers that it sets, as far as its options say them."""
        return (move.target[1] for move in self.moves() or () if move.target[0] == HEADERS and len(move.target) > 1)

    def named_tables(self) -> Iterator[tuple[str, str]]:
        """Yield the tables whose rows it looks up, each with the field of the row, "" for the whole row."""
        yield from ()

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

    def fits_topics(self, topics: Sequence[str]) -> bool:  # noqa: ARG002 - by others
        """Return False if it does nothing with records of these topics, or of the filters of subjects among them."""
        return True

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
        # A transform of turnout has this name whatever its folder is: error headers and metrics keep it.
        own = "turnout.transforms" if module.startswith("turnout.transforms.") else module.rpartition(".")[0] or module
        return (PACKAGE if self.kafka else f"{own}.") + self.label

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
    """True where values may be in mixed blocks, see `turnout.transforms.base`."""

    def named_fields(self) -> Iterator[NamedField]:
        """Yield the fields of the key or value that the options name."""
        yield from ()

    def named_headers(self) -> Iterable[tuple[str, str]]:
        """Return the headers that the options name, each with its option."""
        return ()

    def fits_topics(self, topics: Sequence[str]) -> bool:  # noqa: ARG002 - by others
        """Return False if it holds for no record of these topics, or of the filters of subjects among them."""
        return True

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


def change_rows(
    side: list[Block], rows: Positions, errors: Errors, change: Callable[[Block, Errors], Block | Iterable[Block]]
) -> None:
    """Replace the values of these rows of a side of a batch.

    Args:
        side: the batch's keys or values, changed in place.
        rows: the rows.
        errors: by row; an error of *change* is added for each row of its block.
        change: returns the new values of a block, and adds errors by index in it.
    """
    blocks: list[Block] = []
    for block in side:
        chosen = np.isin(block.rows, rows)
        blocks.append(block.take(np.flatnonzero(~chosen)))
        selected = block.take(np.flatnonzero(chosen))
        if not len(selected):
            continue
        wrong: Errors = {}
        try:
            changed = change(selected, wrong)
            blocks += [changed] if isinstance(changed, Block) else changed
        except RecordError as error:
            wrong = dict.fromkeys(range(len(selected)), error)
            blocks.append(selected)
        errors.update({int(selected.rows[index]): error for index, error in wrong.items()})
    side[:] = [block for block in blocks if len(block)]


T = TypeVar("T")

_TOPICS = 50_000
"""Maximum number of cached topics; the cache is cleared when it is full."""


class ByTopic(Generic[T]):
    """Caches the result of a function for each topic, or its failure.

    Args:
        function: function of a topic; it may raise `RecordError`.

    Attributes:
        has_failed: whether it has for any topic.
        mask: the last results of a predicate, and these as a mask.
    """

    __slots__ = ("_answers", "_latest", "function", "has_failed", "mask")

    def __init__(self, function: Callable[[str | None], T]) -> None:
        self.function = function
        self.has_failed = False
        self.mask: tuple[object, Mask | None] = None, None
        self._answers: dict[str | None, T | RecordError] = {}
        self._latest: tuple[Sequence[str | None], list[T | RecordError]] = (), []

    def of(self, topics: Sequence[str | None]) -> list[T | RecordError]:
        """Results of the function by topic, or its failures."""
        # Several stages ask for the same topics. They are compared with a copy, as stages change them in place.
        latest, results = self._latest
        if latest != topics:
            results = self._results(topics)
            self._latest = list(topics), results
        return results

    def _results(self, topics: Sequence[str | None]) -> list[T | RecordError]:
        answers = self._answers
        try:
            return [answers[topic] for topic in topics]
        except KeyError:
            pass
        if len(answers) >= _TOPICS:
            # A new one: another thread may be reading the old.
            answers = self._answers = {}
        for topic in set(topics).difference(answers):
            try:
                answers[topic] = self.function(topic)
            except RecordError as error:
                # First, as another thread may find the error at once.
                self.has_failed = True
                answers[topic] = error
        return [answers[topic] for topic in topics]


def route(batch: Batch, rows: Positions, routed: ByTopic[str | None]) -> Errors:
    """Set the new topics of these records of a batch; return the errors of the failed ones by row."""
    routed_topics = routed.of(batch.by_row(batch.topics, rows))
    errors: Errors = {}
    topics = list(batch.topics)
    for row, topic in zip(rows.tolist(), routed_topics, strict=True):
        if isinstance(topic, RecordError):
            errors[row] = topic
        else:
            topics[row] = topic
    batch.topics = topics
    return errors
