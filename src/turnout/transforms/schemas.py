"""Possible schemas of keys and values after a chain, before any record is seen.

Each transform is planned for the shapes that can reach it and shown one made-up record of each; a stage under a
predicate leaves both the previous and the resulting schemas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import NamedTuple

from turnout.base.clocks import Milliseconds
from turnout.base.terminal import did_you_mean
from turnout.errors import Mistake, RecordError
from turnout.records import ALIVE, Batch, Block, Field, Headers, Moment, Schema, Shape
from turnout.records.block import rows_of
from turnout.records.field_paths import EACH, PREFIX, ListedPath, has_elements
from turnout.records.schema import ANY, DECIMAL
from turnout.records.types import DynamicValue, Value
from turnout.transforms.base import ByFields, ByNames, Errors, NamedField, Side, Transform
from turnout.transforms.chain import Chain, Filter, Stage

_MAX_SHAPE_PAIRS = 200
"""Maximum number of pairs of shapes that are tracked; beyond that, any output shape is assumed to be possible."""

_SHOWN_TOPICS = 5


@dataclass(frozen=True, slots=True)
class ChainSchemas:
    """Possible outputs of a chain.

    Attributes:
        keys: the schemas that keys can have that are not null; None among them stands for schemaless keys. Empty
            where every key is null, or no record passes.
        values: those of values.
    """

    keys: frozenset[Schema | None]
    values: frozenset[Schema | None]


class RecordShapes(NamedTuple):
    """The shapes of a record's key and value; the contents of a schemaless object are unknown."""

    key: Shape
    value: Shape


def schemas_after(chain: Chain, key: Schema | None, value: Schema | None) -> ChainSchemas:
    """Return the schemas that records can have after the chain.

    Args:
        chain: the stages.
        key: the schema of all keys before it, some of which may be null; None for schemaless ones.
        value: that of all values.
    """
    followed = states_through(chain, key, value)
    if len(followed) <= len(chain.stages):
        return ChainSchemas(frozenset([None]), frozenset([None]))
    states = followed[-1]
    return ChainSchemas(_schemas(state.key for state in states), _schemas(state.value for state in states))


def states_through(chain: Chain, key: Schema | None, value: Schema | None) -> Sequence[frozenset[RecordShapes]]:
    """Return the possible inputs of each stage, then the outputs; shorter where they cannot be followed."""
    states = frozenset(RecordShapes(shape, other) for shape in _shapes(key) for other in _shapes(value))
    followed = [states]
    for stage in chain.stages:
        if stage.transform.schemas_by_topic:
            break
        if not isinstance(stage.transform, Filter):
            after = frozenset(result for state in states for result in _after(stage.transform, state))
            states = states | after if stage.guards else after
            if len(states) > _MAX_SHAPE_PAIRS:
                break
        followed.append(states)
    return followed


def _shapes(schema: Schema | None) -> tuple[Shape, Shape]:
    """Return a value of the schema, and a null."""
    kind = "object" if schema is None or schema.type == "struct" else "plain"
    return Shape(kind, schema), Shape("null", schema)


def _schemas(shapes: Iterable[Shape]) -> frozenset[Schema | None]:
    return frozenset(shape.schema for shape in shapes if shape.kind != "null")


def _after(transform: Transform, state: RecordShapes) -> set[RecordShapes]:
    """Return the shapes after the transform; empty if it fails for all records of these shapes."""
    if transform.ignores_values:
        return {state}
    shape_pairs = transform.shapes_after(state.key, state.value)
    if shape_pairs is not None:
        return {RecordShapes(key, value) for key, value in shape_pairs}
    if not transform.sided:
        return _whole(transform, state)
    on_key = transform.side == Side.KEY
    shapes = _of_side(transform, state.key if on_key else state.value, state)
    return {state._replace(key=shape) if on_key else state._replace(value=shape) for shape in shapes}


def _of_side(transform: Transform, shape: Shape, state: RecordShapes) -> set[Shape]:
    if shape.kind != "null" and shape.schema is None:
        # Plain or an object with any fields: schemaless values stay schemaless.
        return {shape, Shape("null", None)}
    try:
        blocks = transform.plan(shape).run(_block(shape), None, _batch(state), {})
    except RecordError:
        return set()
    results: set[Shape] = set()
    for block in blocks if isinstance(blocks, list) else [blocks]:
        results |= _shapes_after(shape, block)
    return results


def _shapes_after(before: Shape, block: Block) -> set[Shape]:
    """Return the shapes that a block of made-up values represents: a value may be null for other records."""
    if block.kind == "null" and (before.kind == "null" or block.schema is None):
        return {Shape("null", block.schema)}
    return set(_shapes(block.schema))


def _whole(transform: Transform, state: RecordShapes) -> set[RecordShapes]:
    batch = _batch(state)
    try:
        errors: Errors = transform.apply(batch, rows_of(1))
    except RecordError:
        return set()
    if batch.outcomes[0] != ALIVE:
        return {state}
    if errors and "null" in (state.key.kind, state.value.kind):
        return set()
    keys = _seen_side(state.key, batch.key)
    return {RecordShapes(key, value) for key in keys for value in _seen_side(state.value, batch.value)}


def _seen_side(before: Shape, side: list[Block]) -> set[Shape]:
    results: set[Shape] = set()
    for block in side:
        same = block.schema == before.schema and (block.kind == "null") == (before.kind == "null")
        results |= {before} if same else _shapes_after(before, block)
    return results or {before}


# --- made-up records --------------------------------------------------------------------------------------------------


def _batch(state: RecordShapes) -> Batch:
    return Batch(["topic"], [0], [0], [Milliseconds(0)], [_block(state.key)], [_block(state.value)], Headers(1))


def _block(shape: Shape) -> Block:
    if shape.kind == "null":
        return Block(1, shape.schema)
    if shape.schema is None:
        return Block(1, None, columns={})
    value = _sample(shape.schema)
    if shape.kind == "object":
        return Block(1, shape.schema, columns={name: [item] for name, item in value.items()})
    return Block(1, shape.schema, values=[value])


def _sample(schema: Schema) -> DynamicValue:
    """Some value of the schema, none of it null."""
    if schema.logical == DECIMAL:
        return Decimal(1).scaleb(-schema.scale)
    if schema.logical is not None:
        return Moment(0)
    if schema.type == "struct":
        return {field.name: _sample(field.schema) for field in schema.fields}
    return _SAMPLES.get(schema.type, 1)


_SAMPLES: dict[str, Value] = {
    "float32": 1.0,
    "float64": 1.0,
    "boolean": True,
    "string": "1",
    "bytes": b"1",
    "array": [],
    "map": {},
    ANY: None,
}


# --- several schemas --------------------------------------------------------------------------------------------------


def common_schema(schemas: Iterable[Schema]) -> Schema:
    """Return the common part of schemas of one type.

    Attributes in which they differ are left out, and null may be wherever it may be in one of them.
    """
    return reduce(_common, schemas)


def _common(one: Schema, other: Schema) -> Schema:
    if one == other:
        return one
    fields = tuple(
        Field(own.name, _common(own.schema, theirs.schema))
        for own, theirs in zip(one.fields, other.fields, strict=False)
    )
    same = {name: getattr(one, name) for name in _ATTRIBUTES if getattr(one, name) == getattr(other, name)}
    keys = _common(one.keys, other.keys) if one.keys and other.keys else None
    values = _common(one.values, other.values) if one.values and other.values else None
    return Schema(one.type, optional=one.optional or other.optional, fields=fields, keys=keys, values=values, **same)


_ATTRIBUTES = ("default", "name", "version", "doc", "parameters")


_SIDES = {"key": Side.KEY, "value": Side.VALUE}


def unknown_fields(
    chain: Chain,
    key: Schema | None,
    value: Schema | None,
    metadata: Mapping[str, str],
    causes: Mapping[Side, str] | None = None,
) -> Iterator[Mistake]:
    r"""Yield a mistake for each named field that is in no schema that a record can have at that stage.

    Args:
        chain: the stages, followed by `turnout.transforms.schemas`.
        key: the schema of all keys; None where nothing is known of them.
        value: that of all values.
        metadata: name → path, looked up behind the chain.
        causes: why a side has no fields at all, where that may be a mistake of its own.

    >>> from turnout.codecs import parse_ddl
    >>> schema = parse_ddl("city STRING, total DOUBLE").schema
    >>> paths = {"town": "value.ctiy", "sum": "value.total"}
    >>> [mistake.problem for mistake in unknown_fields(Chain(), None, schema, paths)]
    ['no value has a field \'ctiy\' at that point; there are city, total; did you mean "city"?']
    """
    if key is None and value is None:
        return
    causes = causes or {}
    followed = states_through(chain, key, value)
    for stage, states in zip(chain.stages, followed, strict=False):
        for path, field in _named(stage):
            yield from _looked_up(path + field.option, field, states, causes)
    if len(followed) > len(chain.stages):
        for field in _listed(metadata):
            yield from _looked_up(field.option, field, followed[-1], causes)


def _listed(metadata: Mapping[str, str]) -> Iterator[NamedField]:
    """Yield the fields that metadata names, up to the first array."""
    for name, path in metadata.items():
        root, steps, _ = ListedPath.of(path.removesuffix(PREFIX))
        if has_elements(steps):
            steps = steps[: steps.index(EACH)]
        if root in _SIDES and steps:
            yield NamedField(name, _SIDES[root], steps)


def removed_fields(chain: Chain, metadata: Mapping[str, str]) -> Iterator[Mistake]:
    """Yield a warning for each named field that an earlier stage has removed from every object, or renamed.

    It needs no schema; `unknown_fields` finds more where there is one.

    >>> stages = [{"type": "ReplaceField$Value", "renames": "card:pan"}, {"type": "MaskField$Value", "fields": "card"}]
    >>> [(mistake.path, mistake.problem) for mistake in removed_fields(Chain.from_route(stages), {})]
    [('transforms[1].fields', "no value has a field 'card' at that point: 1-ReplaceField$Value removes or renames it")]
    """
    for number, stage in enumerate(chain.stages):
        for path, field in _named(stage):
            yield from _removed(path + field.option, field, chain.stages[:number])
    for field in _listed(metadata):
        yield from _removed(field.option, field, chain.stages)


def _removed(path: str, field: NamedField, before: Sequence[Stage]) -> Iterator[Mistake]:
    name = field.path[0]
    for stage in reversed(before):
        transform = stage.transform
        if transform.ignores_values or (transform.sided and transform.side != field.side):
            continue
        step = transform.mixed() if transform.sided else None
        if isinstance(step, ByFields) and name not in step.names:
            continue
        # Another step may add the field, and one under a predicate leaves some objects as they are.
        if not isinstance(step, ByNames) or stage.guards:
            return
        if any(len(move.target) < 2 or move.target[1] == name for move in transform.moves() or ()):
            return
        if name not in step.change({name: 0}):
            yield Mistake(
                path,
                f"no {field.side.lower()} has a field {name!r} at that point: {stage.name} removes or renames it",
            )
            return


def unmet_topics(chain: Chain, topics: Sequence[str]) -> Iterator[Mistake]:
    """Yield a warning for each predicate or router that fits none of the topics which the source reads.

    Args:
        chain: the stages.
        topics: topics, or filters of subjects; none if they are not known.

    >>> stages = [{"type": "Filter", "predicate": {"type": "TopicNameMatches", "pattern": "order"}}]
    >>> [mistake.problem for mistake in unmet_topics(Chain.from_route(stages), ["orders", "stock"])]
    ['holds for no record: the source reads orders, stock']
    """
    shown = f"the source reads {', '.join(topics[:_SHOWN_TOPICS])}{', …' if len(topics) > _SHOWN_TOPICS else ''}"
    for stage in chain.stages if topics else ():
        for guard in stage.guards:
            if not guard.predicate.fits_topics(topics):
                yield Mistake(guard.path.rstrip("."), f"holds for no record: {shown}")
        if not stage.transform.fits_topics(topics):
            yield Mistake(stage.path.rstrip("."), f"changes no record: {shown}")
        elif not stage.transform.keeps_topic:
            return


def useless_stages(
    chain: Chain, key: Schema | None, value: Schema | None, causes: Mapping[Side, str] | None = None
) -> Iterator[Mistake]:
    """Yield a mistake for each stage that fails for, or does not change, every record that can reach it.

    Args:
        chain: the stages.
        key: the schema of all keys; None where nothing is known of them.
        value: that of all values.
        causes: as for `unknown_fields`.

    >>> from turnout.codecs import Format, codec_of
    >>> stage = {"transforms": "u", "transforms.u.type": "ExtractNewRecordState"}
    >>> raw = codec_of(Format()).schema()
    >>> [mistake.problem for mistake in useless_stages(Chain.from_config(stage), raw, raw)]
    ['ExtractNewRecordState works on objects, and at that point every value is of type bytes']
    """
    for stage, states in zip(chain.stages, states_through(chain, key, value), strict=False):
        transform = stage.transform
        for side in [transform.side] if transform.sided else transform.needs_objects():
            shapes = {state.key if side == Side.KEY else state.value for state in states}
            known = {shape for shape in shapes if shape.kind != "null"}
            if known and all(_is_useless(transform, shape) for shape in known):
                types = ", ".join(sorted({shape.schema.type for shape in known if shape.schema is not None}))
                cause = (causes or {}).get(side)
                why = f"; {cause}" if cause and types == "bytes" else ""
                problem = (
                    f"{transform.class_name()} works on objects, and at that point every {side.lower()} is of type"
                )
                yield Mistake(stage.path.removesuffix("."), f"{problem} {types}{why}")


def _is_useless(transform: Transform, shape: Shape) -> bool:
    """Return True if a transform can do nothing with values of a shape that is known to be no object."""
    if shape.kind != "plain" or shape.schema is None or shape.schema.type == ANY:
        return False
    if not transform.sided:
        return True
    try:
        transform.plan(shape)
    except RecordError:
        return True
    return False


def _named(stage: Stage) -> Iterator[tuple[str, NamedField]]:
    for guard in stage.guards:
        yield from ((guard.path, field) for field in guard.predicate.named_fields())
    yield from ((stage.path, field) for field in stage.transform.named_fields())


def _looked_up(
    path: str, field: NamedField, states: Collection[RecordShapes], causes: Mapping[Side, str]
) -> Iterator[Mistake]:
    shapes = {state.key if field.side == Side.KEY else state.value for state in states}
    schemas = {shape.schema for shape in shapes if shape.kind != "null"}
    if not schemas or any(_may_hold(schema, field.path) for schema in schemas):
        return
    names = sorted({name for schema in schemas for name in _names(schema, field.path)})
    shown = ".".join(field.path)
    no_fields = causes.get(field.side) or f"the {field.side.lower()} has no fields there"
    names_text = f"there are {', '.join(names)}" if names else no_fields
    guess = did_you_mean(field.path[-1], names)
    yield Mistake(path, f"no {field.side.lower()} has a field {shown!r} at that point; {names_text}{guess}")


def _may_hold(schema: Schema | None, path: tuple[str, ...]) -> bool:
    """Return False only if nothing can be at the path: a struct lacks a field, or a plain value is on the way."""
    for step in path:
        if schema is None or schema.type in (ANY, "map"):
            return True
        if schema.type != "struct":
            return False
        inner = schema.field(step)
        if inner is None:
            return False
        schema = inner
    return True


def _names(schema: Schema | None, path: tuple[str, ...]) -> Iterator[str]:
    """Yield the fields of the struct in which the path does not continue."""
    for step in path:
        if schema is None or schema.type != "struct":
            return
        inner = schema.field(step)
        if inner is None:
            yield from (field.name for field in schema.fields)
            return
        schema = inner
