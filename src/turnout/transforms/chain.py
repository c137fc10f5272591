"""A chain: the stages that a record passes, each a transform with the predicates that guard it (KIP-66, KIP-585)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import ClassVar, Self, overload

from turnout.base.startup import np
from turnout.errors import ConfigError, Mistake, RecordError
from turnout.records import ALIVE, Batch, Block, Failure, Positions, Record, Shape
from turnout.records.spans import PatchedColumn, SpanColumn, Spans
from turnout.records.types import Column
from turnout.transforms.base import (
    KEY,
    VALUE,
    ByFields,
    ByNames,
    Errors,
    Mask,
    NamedField,
    Predicate,
    Side,
    Step,
    Transform,
    split,
)
from turnout.transforms.config import OPTIONS as POLICY_OPTIONS
from turnout.transforms.config import (
    ErrorPolicy,
    PredicateSpec,
    StageSpec,
    connector_properties,
    read_properties,
    read_route_list,
    sink_mistakes,
)
from turnout.transforms.java.calendar import java_time_warning
from turnout.transforms.options import Option, OptionError, Phase, parse_options, unknown_options
from turnout.transforms.registry import UnknownNameError, find_predicate, find_transform

_PLANS = 10_000
"""Maximum number of shapes for which a stage caches its plans; the cache is cleared when it is full."""


class ChainRunner:
    """Applies a chain to batches, and caches its plans.

    Args:
        chain: the chain.
    """

    def __init__(self, chain: Chain) -> None:
        self.stages = tuple(
            StageRunner(stage, lenient=chain.errors.failed_predicates == "not-matched") for stage in chain.stages
        )

    def apply(self, batch: Batch) -> None:
        """Put the batch through every stage."""
        for stage in self.stages:
            stage.apply(batch)


@dataclass(slots=True)
class StageRunner:
    """Runner of one stage of a chain.

    Attributes:
        stage: the transform with its guards.
        lenient: a failing predicate leaves its stage out (KIP-585's draft), in place of a failure of the stage.
        noted: for the last batch, the rows whose predicates failed and were passed over.
    """

    stage: Stage
    lenient: bool = False
    noted: dict[int, Failure] = field(default_factory=dict)
    _plans: dict[Shape, Step | RecordError] = field(default_factory=dict)
    _latest: tuple[Shape, Step | RecordError] | None = None
    _mixed: ByFields | ByNames | None = None
    _ignores_values: bool = False

    def __post_init__(self) -> None:
        transform = self.stage.transform
        guards_do = all(guard.predicate.takes_mixed for guard in self.stage.guards)
        self._mixed = transform.mixed() if transform.sided and guards_do else None
        self._ignores_values = guards_do and transform.ignores_values

    def apply(self, batch: Batch) -> None:
        """Put the batch through this stage."""
        stage = self.stage
        if self._mixed is None and not self._ignores_values:
            split(batch.key)
            split(batch.value)
        rows = self._rows(batch)
        if not len(rows):
            return
        if stage.transform.sided and not stage.transform.filters:
            self._apply_to_side(batch, rows)
        else:
            self._fail(batch, stage.transform.apply(batch, rows))

    def _rows(self, batch: Batch) -> Positions:
        """Return the rows of the records that the stage is for."""
        stage, alive = self.stage, batch.alive
        if not stage.guards:
            self.noted = {}
            return alive
        errors: Errors = {}
        holds: Mask | None = None
        for guard in stage.guards:
            answer = guard.predicate.test(batch, errors)
            answer = ~answer if guard.negate else answer
            holds = answer if holds is None else holds & answer
        assert holds is not None
        holds = ~holds if stage.negate else holds
        failures = {row: error for row, error in errors.items() if batch.outcomes[row] == ALIVE}
        if failures:
            holds = holds.copy()
            # The draft of KIP-585: what cannot be tested is not transformed, whatever negate says, but is filtered.
            holds[list(failures)] = self.lenient and isinstance(stage.transform, Filter)
        self.noted = {row: self._failure(error) for row, error in failures.items()} if self.lenient else {}
        rows = alive[holds[alive]]
        if not self.lenient:
            self._fail(batch, failures)
        return rows

    def _side(self, batch: Batch) -> list[Block]:
        """Return the keys or the values of a batch, as a transform that has a side works on them."""
        return batch.key if self.stage.transform.side == Side.KEY else batch.value

    def _apply_to_side(self, batch: Batch, rows: Positions) -> None:
        side = self._side(batch)
        errors: Errors = {}
        applies: Mask | None = None
        if len(rows) < len(batch):
            applies = np.zeros(len(batch), np.bool_)
            applies[rows] = True
        blocks = [self._block(batch, block, applies, errors) for block in side]
        side[:] = [block for block in chain.from_iterable(blocks) if len(block)]
        self._fail(batch, errors)

    def _block(self, batch: Batch, block: Block, applies: Mask | None, errors: Errors) -> list[Block]:
        """Apply the stage to one block; *errors* is by row."""
        chosen = None if applies is None else applies[block.rows]
        if block.kind == "mixed":
            return [self._run_mixed(batch, block, chosen, errors)]
        if chosen is None or chosen.all():
            return self._run(batch, block, None, errors)
        if not chosen.any():
            return [block]
        step = self._step(block.shape)
        if isinstance(step, Step) and step.in_place:
            return self._run(batch, block, chosen.tolist(), errors)
        others = block.take(np.flatnonzero(~chosen))
        return _joined([others, *self._run(batch, block.take(np.flatnonzero(chosen)), None, errors)])

    def _run(self, batch: Batch, block: Block, where: list[bool] | None, errors: Errors) -> list[Block]:
        wrong: Errors = {}
        try:
            step = self._step(block.shape)
            if isinstance(step, RecordError):
                raise step
            result = step.run(block, where, batch, wrong)
        except RecordError as error:
            rows = block.rows if where is None else block.rows[np.array(where)]
            errors.update(dict.fromkeys(rows.tolist(), error))
            return [block]
        errors.update((int(block.rows[index]), why) for index, why in wrong.items())
        return result if isinstance(result, list) else [result]

    def _run_mixed(self, batch: Batch, block: Block, chosen: Mask | None, errors: Errors) -> Block:
        """Apply the stage to the chosen objects of a mixed block."""
        objects, step = block.mixed_objects, self._mixed
        indices = None if chosen is None or chosen.all() else np.flatnonzero(chosen)
        if isinstance(step, ByNames):
            objects = objects.changed(step, step.change, indices)
        elif step is not None:
            objects = step.applied(objects, block.rows, indices, lambda part: self._run(batch, part, None, errors))
        return Block.mixed(block.rows, objects)

    def _step(self, shape: Shape) -> Step | RecordError:
        """Return the plan for a shape, or the error if it has none."""
        # Batch by batch, a schema is mostly the same object: to find it by its fields takes longer than a small step.
        if self._latest is not None and shape.schema is not None:
            latest, plan = self._latest
            if latest.schema is shape.schema and latest.kind == shape.kind:
                return plan
        step = self._plans.get(shape)
        if step is None:
            step = self._planned(shape)
        self._latest = shape, step
        return step

    def _planned(self, shape: Shape) -> Step | RecordError:
        """Plan a shape, and cache the plan."""
        if len(self._plans) >= _PLANS:
            self._plans.clear()
        step: Step | RecordError
        try:
            step = self.stage.transform.plan(shape)
        except RecordError as refusal:
            step = refusal
        self._plans[shape] = step
        return step

    def _fail(self, batch: Batch, errors: Errors) -> None:
        batch.fail({row: self._failure(error) for row, error in errors.items()})

    def _failure(self, error: RecordError) -> Failure:
        return Failure.of(error, "TRANSFORMATION", self.stage.transform.full_name, f"{self.stage.name}: {error}")


def _joined(blocks: list[Block]) -> list[Block]:
    """Blocks of one shape put together again, so that stages under predicates do not leave ever more of them."""
    together: dict[tuple[object, ...], list[Block]] = {}
    for block in blocks:
        sources: tuple[object, ...] = ()
        if block.kind == "object":
            sources = tuple(_source(column) for column in block.columns.values())
        together.setdefault((block.shape, block.checked, sources), []).append(block)
    return [alike[0] if len(alike) == 1 else _merged(alike) for alike in together.values()]


def _source(column: Column) -> object:
    """Return what columns have in common that can be joined as bytes; None for values, which are joined as such."""
    if isinstance(column, SpanColumn) and isinstance(column.slot, int):
        return column.spans.source, column.spans.names, column.slot
    return column if isinstance(column, PatchedColumn) else None


def _merged(blocks: list[Block]) -> Block:
    first = blocks[0]
    rows = np.concatenate([block.rows for block in blocks])
    order = np.argsort(rows, kind="stable")
    indexes = order.tolist()

    spans: Spans | None = None

    def together(columns: list[Column]) -> Column:
        nonlocal spans
        if isinstance(columns[0], SpanColumn):
            parts = [column.spans for column in columns if isinstance(column, SpanColumn)]
            spans = spans or parts[0].joined(parts, order)
            return SpanColumn(spans, columns[0].slot, columns[0].kind)
        items = list(chain.from_iterable(columns))
        return [items[index] for index in indexes]

    if first.kind == "null":
        return Block(rows[order], first.schema, checked=first.checked)
    if first.kind == "plain":
        values = together([block.values for block in blocks])
        return Block(rows[order], first.schema, values=values, checked=first.checked)
    columns = {name: together([block.columns[name] for block in blocks]) for name in first.columns}
    return Block(rows[order], first.schema, columns=columns, checked=first.checked)


@dataclass(frozen=True, slots=True)
class ChainMistake(Mistake):
    """A mistake in a chain, with the moment at which a Connect worker would find it.

    >>> from turnout.errors import ConfigError
    >>> try:
    ...     Chain.from_config({"transforms": "t", "transforms.t.type": "MaskField$Value"})
    ... except ConfigError as error:
    ...     [(mistake.path, mistake.phase) for mistake in error.mistakes]
    [('transforms.t.fields', 'validation')]
    """

    phase: Phase = "validation"

    __str__ = Mistake.__str__


@dataclass(frozen=True, slots=True)
class DottedName(Mistake):
    """Warning of a name with a dot in it that was probably meant as a path."""

    field: NamedField | None = None

    __str__ = Mistake.__str__


@dataclass(frozen=True, slots=True)
class Guard:
    """Predicate, and whether it is negated; *place* is the prefix of its options in the configuration.

    >>> chain = Chain.from_config(
    ...     {
    ...         "transforms": "drop",
    ...         "transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
    ...         "transforms.drop.predicate": "gone",
    ...         "transforms.drop.negate": "true",
    ...         "predicates": "gone",
    ...         "predicates.gone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    ...     }
    ... )
    >>> [(stage.name, [guard.alias for guard in stage.guards], stage.negate) for stage in chain.stages]
    [('drop', ['gone'], True)]
    """

    alias: str
    predicate: Predicate
    negate: bool = False
    path: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Stage:
    """A transform that is applied where all guards hold; `negate` turns their common answer around.

    Attributes:
        path: prefix of its option names in the configuration.

    >>> properties = {"transforms": "mask", "transforms.mask.type": "MaskField$Key", "transforms.mask.fields": "a"}
    >>> (stage,) = Chain.from_config(properties).stages
    >>> stage.name, stage.transform.side, stage.guards
    ('mask', <Side.KEY: 'Key'>, ())
    """

    name: str
    transform: Transform
    guards: tuple[Guard, ...] = ()
    negate: bool = False
    path: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Filter(Transform):
    """See ``summary``."""

    summary: ClassVar[str] = "Drops every record that reaches it: guard it with a predicate."
    kafka: ClassVar[bool] = True
    keeps_topic: ClassVar[bool] = True
    keeps_paths: ClassVar[bool] = True
    sided: ClassVar[bool] = False
    ignores_values: ClassVar[bool] = True

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Drop them."""
        batch.filter(rows)
        return {}


@dataclass(frozen=True, slots=True)
class Chain:
    """Chain of stages that a record passes in order.

    Attributes:
        stages: the transforms with their guards.
        errors: policy for a record that a stage cannot handle.
        warnings: options that are valid and probably do not do what they were written for.

    >>> from turnout.records import Record
    >>> chain = Chain.from_config(
    ...     {
    ...         "transforms": "rename",
    ...         "transforms.rename.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
    ...         "transforms.rename.renames": "town:city",
    ...     }
    ... )
    >>> chain.apply(Record(topic="orders", value={"town": "Oulu"})).value
    {'city': 'Oulu'}
    >>> chain.apply([Record(topic="orders", value=text) for text in ({"n": 1}, "no object")])[1].message
    'rename: Only Map objects supported in absence of schema for [field replacement], found: another type'
    """

    stages: tuple[Stage, ...] = ()
    errors: ErrorPolicy = field(default_factory=ErrorPolicy)
    warnings: tuple[Mistake, ...] = field(default=(), repr=False, compare=False)
    _runners: list[ChainRunner] = field(default_factory=list, init=False, repr=False, compare=False)

    def __reduce__(self) -> tuple[object, ...]:
        # A runner remembers plans, which are functions.
        return type(self), (self.stages, self.errors, self.warnings)

    @overload
    def apply(self, records: Record) -> Record | None: ...

    @overload
    def apply(self, records: Iterable[Record]) -> list[Record | Failure | None]: ...

    def apply(self, records: Record | Iterable[Record]) -> Record | list[Record | Failure | None] | None:
        """Apply the chain to a record; None where it is filtered; a list for several records.

        Whatever `errors` says, nothing is logged and nothing goes to the dead letters here. Not promised: that it
        is fast for single records; many at once are.

        Raises:
            RecordError: when a stage cannot handle the one record. Among several, a `Failure` replaces it.
        """
        if not isinstance(records, Record):
            return self._outcomes(list(records))
        (outcome,) = self._outcomes([records])
        if isinstance(outcome, Failure):
            raise RecordError(outcome.message, outcome.exception)
        return outcome

    def _outcomes(self, records: list[Record]) -> list[Record | Failure | None]:
        runner = self._runners.pop() if self._runners else ChainRunner(self)
        batch = Batch.of_records(records)
        runner.apply(batch)
        self._runners.append(runner)
        outcomes = batch.outcomes.tolist()
        return [batch.record(row) if outcomes[row] == ALIVE else batch.failures.get(row) for row in range(len(records))]

    @classmethod
    def from_config(cls, config: Mapping[str, object], *, strict: bool = False, sink: bool = False) -> Self:
        """Build the chain that a connector's properties describe.

        Args:
            config: ``transforms``, ``transforms.x.type``, ``predicates``, ``errors.tolerance`` … as text, or a
                connector's JSON with these under ``config``.
            strict: accept only what a Connect worker of Kafka 4 accepts: no short ``$``-names, none of KIP-585's draft
                spellings, none of turnout's own predicates, one predicate a transform.
            sink: check the properties that only a sink connector has, too.

        Raises:
            ConfigError: when it cannot be built; lists every mistake.
        """
        builder = _Builder(strict=strict)
        config = connector_properties(config)
        specs, mistakes = read_properties(config, strict=strict)
        builder.mistakes += [ChainMistake(m.option, m.problem, phase=m.phase) for m in mistakes]
        policy, wrong = parse_options(POLICY_OPTIONS, config)
        builder.mistakes += [ChainMistake(m.option, m.problem) for m in wrong]
        if sink:
            builder.mistakes += [ChainMistake(m.option, m.problem) for m in sink_mistakes(config)]
        stages = builder.stages(specs.stages)
        builder.unused(specs.unused)
        builder.fail_if_wrong()
        return cls(stages, ErrorPolicy.from_options(policy), tuple(builder.warnings))

    @classmethod
    def from_route(
        cls,
        transforms: Sequence[Mapping[str, object]],
        predicates: Mapping[str, Mapping[str, object]] | None = None,
        *,
        errors: ErrorPolicy | None = None,
        path: str = "transforms",
    ) -> Self:
        """Build the chain of a route file's list.

        Args:
            transforms: one mapping a stage: ``type``, its options, and ``name``, ``predicate``, ``negate`` if needed.
            predicates: predicates that stages may name.
            errors: policy for failing records.
            path: location of the list in the file, for mistakes.

        Raises:
            ConfigError: when it cannot be built; lists every mistake.
        """
        builder = _Builder(strict=False)
        specs, mistakes = read_route_list(transforms, predicates or {}, path)
        builder.mistakes += [ChainMistake(m.path, m.problem) for m in mistakes]
        stages = builder.stages(specs.stages)
        builder.unused(specs.unused)
        builder.fail_if_wrong()
        return cls(stages, errors or ErrorPolicy(), tuple(builder.warnings))


_SIDES = {KEY: Side.KEY, VALUE: Side.VALUE}
_OF_A_STAGE = ("name", "type", "predicate", "negate")
_OF_A_PREDICATE = ("type", "negate")
_JAVA_TIME = "java.text.SimpleDateFormat"


class _Builder:
    """Builds values from specs and collects the mistakes."""

    def __init__(self, *, strict: bool) -> None:
        self.strict = strict
        self.mistakes: list[ChainMistake] = []
        self.warnings: list[Mistake] = []
        self._dotted: set[Side] = set()

    def fail_if_wrong(self) -> None:
        if self.mistakes:
            raise ConfigError(dict.fromkeys(self.mistakes), what="bad chain of transforms")

    def stages(self, specs: Sequence[StageSpec]) -> tuple[Stage, ...]:
        built = [(spec, self._transform(spec), self._guards(spec)) for spec in specs]
        return tuple(
            Stage(spec.alias, transform, guards, spec.negate, spec.prefix)
            for spec, transform, guards in built
            if transform is not None
        )

    def _guards(self, spec: StageSpec) -> tuple[Guard, ...]:
        built = [(guard, self.predicate(guard)) for guard in spec.predicates]
        return tuple(Guard(g.alias, predicate, g.negate, g.prefix) for g, predicate in built if predicate is not None)

    def _transform(self, spec: StageSpec) -> Transform | None:
        if spec.type is None:
            self.mistakes.append(ChainMistake(spec.type_path, "is missing: expected the class of a transform"))
            return None
        try:
            registered = find_transform(spec.type, strict=self.strict)
        except UnknownNameError as error:
            self.mistakes.append(ChainMistake(spec.type_path, str(error)))
            return None
        values = self._values(spec, registered.kind.options, _OF_A_STAGE)
        if values is None:
            return None
        try:
            transform = registered.kind.from_options(values, registered.side)
        except OptionError as mistake:
            self._note(spec.prefix, [mistake])
            return None
        if not self.strict:
            self._note(spec.prefix, list(transform.doubts()))
        if isinstance(transform, Filter) and not spec.predicates:
            self.warnings.append(Mistake(spec.prefix.rstrip("."), "drops every record: it has no predicate"))
        for option in registered.kind.options:
            if option.valid == _JAVA_TIME and (problem := java_time_warning(str(values[option.name]))):
                self.warnings.append(Mistake(spec.prefix + option.name, problem))
            entries = values[option.name]
            if option.last_counts and isinstance(entries, tuple):
                # An entry that is repeated letter by letter changes nothing.
                named = Counter(str(entry).partition(":")[0].strip() for entry in dict.fromkeys(entries))
                for name in (name for name in named if named[name] > 1):
                    problem = f"names {name!r} {named[name]} times: the last one counts"
                    self.warnings.append(Mistake(spec.prefix + option.name, problem))
        self._warn_of_dots(spec, transform, values)
        return transform

    def _warn_of_dots(self, spec: StageSpec, transform: Transform, values: Mapping[str, object]) -> None:
        """Warn of names with dots that V1 takes for one name, unless a stage before makes names with dots."""
        if str(values.get("field.syntax.version", "V1")).upper() == "V1":
            cure = f"{transform.class_name()} takes names of fields, and no paths"
            if any(option.name == "field.syntax.version" for option in transform.options):
                cure = "set field.syntax.version to V2 if it is the path to a field"
            for named in transform.named_fields():
                if len(named.path) == 1 and "." in named.path[0].strip(".") and named.side not in self._dotted:
                    problem = f"{named.path[0]!r} has a dot, and V1 takes it for one name, and not for a path: {cure}"
                    self.warnings.append(DottedName(spec.prefix + named.option, problem, field=named))
        for root, side in _SIDES.items():
            paths = [*transform.content_after((root, "a", "b")), *(move.target for move in transform.moves() or ())]
            if any("." in (step or "") for own, *steps in paths if own == root for step in steps):
                self._dotted.add(side)

    def _values(
        self, spec: StageSpec | PredicateSpec, options: Sequence[Option], more: Sequence[str]
    ) -> dict[str, object] | None:
        """Return the parsed options; None where one is wrong. With *strict*, as in Connect, unknown ones are not."""
        values, wrong = parse_options(options, spec.options)
        if not self.strict:
            wrong += unknown_options(options, spec.options, more)
        self._note(spec.prefix, wrong)
        return None if wrong else values

    def unused(self, specs: Iterable[PredicateSpec]) -> None:
        """Check predicates that no stage names."""
        for spec in specs:
            self.predicate(spec)
            self.warnings.append(Mistake(spec.prefix.rstrip("."), "no stage names it"))

    def predicate(self, spec: PredicateSpec) -> Predicate | None:
        if spec.type is None:
            self.mistakes.append(ChainMistake(spec.type_path, "is missing: expected the class of a predicate"))
            return None
        try:
            kind = find_predicate(spec.type, strict=self.strict)
        except UnknownNameError as error:
            self.mistakes.append(ChainMistake(spec.type_path, str(error)))
            return None
        values = self._values(spec, kind.options, _OF_A_PREDICATE)
        if values is None:
            return None
        try:
            return kind.from_options(values)
        except OptionError as mistake:
            self._note(spec.prefix, [mistake])
            return None

    def _note(self, prefix: str, wrong: Sequence[OptionError]) -> None:
        for mistake in wrong:
            path = prefix + mistake.option if mistake.option else prefix.rstrip(".")
            self.mistakes.append(ChainMistake(path, mistake.problem, phase=mistake.phase))
