"""Fields that no record can have, and stages that can do nothing, found by schemas before any record is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from turnout.base.terminal import did_you_mean
from turnout.errors import Mistake, RecordError
from turnout.records import Schema, Shape
from turnout.records.field_paths import EACH, PREFIX, ListedPath, has_elements
from turnout.records.schema import ANY
from turnout.transforms.base import NamedField, Side, Transform
from turnout.transforms.chain import Chain, Stage
from turnout.transforms.schemas import RecordShapes, states_through

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
        for name, path in metadata.items():
            root, steps, _ = ListedPath.of(path.removesuffix(PREFIX))
            if has_elements(steps):
                steps = steps[: steps.index(EACH)]
            if root in _SIDES and steps:
                yield from _looked_up(name, NamedField(name, _SIDES[root], steps), followed[-1], causes)


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
