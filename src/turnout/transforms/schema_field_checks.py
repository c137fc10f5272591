"""Fields that a chain names and no record can have, found by declared schemas before any record is read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from turnout.errors import Mistake
from turnout.records import Schema
from turnout.records.field_paths import EACH, PREFIX, ListedPath, has_elements
from turnout.records.schema import ANY
from turnout.suggestions import did_you_mean
from turnout.transforms.base import NamedField, Side
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
