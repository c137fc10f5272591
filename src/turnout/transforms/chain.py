"""A chain: the stages that a record passes, each a transform with the predicates that guard it (KIP-66, KIP-585)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, overload

from turnout.errors import ConfigError, Mistake, RecordError
from turnout.records import ALIVE, Batch, Failure, Record
from turnout.transforms.apply import ChainRunner
from turnout.transforms.base import NamedField, Predicate, Side, Transform
from turnout.transforms.content_paths import KEY, VALUE
from turnout.transforms.options import Option, OptionError, Phase, parse_options, unknown_options
from turnout.transforms.policy import OPTIONS as POLICY_OPTIONS
from turnout.transforms.policy import ErrorPolicy
from turnout.transforms.properties import connector_properties, read_properties, sink_mistakes
from turnout.transforms.registry import UnknownNameError, find_predicate, find_transform
from turnout.transforms.route_list import read_route_list
from turnout.transforms.specs import PredicateSpec, StageSpec


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
        for unused in specs.unused:
            builder.predicate(unused)
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
        for unused in specs.unused:
            builder.predicate(unused)
        builder.fail_if_wrong()
        return cls(stages, errors or ErrorPolicy(), tuple(builder.warnings))


_SIDES = {KEY: Side.KEY, VALUE: Side.VALUE}
_OF_A_STAGE = ("name", "type", "predicate", "negate")
_OF_A_PREDICATE = ("type", "negate")


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
