"""The reference of transforms and predicates as Markdown, made of the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from turnout.base.options import REQUIRED
from turnout.transforms.base import Transform
from turnout.transforms.config import OPTIONS as POLICY
from turnout.transforms.options import Option
from turnout.transforms.registry import PARITY, PREDICATES, transforms


def kafka_transforms() -> str:
    """The transforms that Kafka ships, with their options."""
    return _page("Kafka's transforms", "that Kafka Connect ships", lambda kind: kind.kafka)


def debezium_transforms() -> str:
    """The transforms of Debezium, with their options."""
    return _page("Debezium's transforms", "of Debezium", lambda kind: _ROOM in kind.__module__)


def more_transforms() -> str:
    """The transforms of others, and those of turnout, with their options."""
    lead = "of Confluent, Aiven and others, and those of turnout"
    return _page("Further transforms", lead, lambda kind: not kind.kafka and _ROOM not in kind.__module__)


def predicates() -> str:
    """Every predicate and error property with its options, and the table of differences."""
    return "\n".join(_predicates()) + "\n"


_ROOM = "transforms.debezium"


def _page(title: str, lead: str, wanted: Callable[[type[Transform]], bool]) -> str:
    text = f"The transforms {lead}. [Transforms](../transforms.md) describes how a chain of them is written."
    return "\n".join([f"# {title}", "", text, *_transforms(wanted)]) + "\n"


def _transforms(wanted: Callable[[type[Transform]], bool]) -> Iterator[str]:
    for name, kind in sorted(transforms().items()):
        if wanted(kind):
            sides = f" (`{name}$Key`, `{name}$Value`)" if kind.sided else ""
            yield from ("", f"## {name}{sides}", "", kind.summary, *_table(kind.options))


def _predicates() -> Iterator[str]:
    yield from ("# Predicates, errors, differences", "")
    yield "The predicates of [transforms](../transforms.md), their error properties, and the differences from Connect."
    yield from ("", "## Predicates")
    for name, predicate in sorted(PREDICATES.items()):
        yield from ("", f"### {name}", "", predicate.summary, *_table(predicate.options))
    yield from ("", "## Errors", *_table(POLICY))
    yield from ("", "## Differences from Connect", "", "| reason | what is different |", "| --- | --- |")
    yield from (f"| {reason} | {text} |" for reason, text in PARITY.items())


def _table(options: Sequence[Option]) -> Iterator[str]:
    if not options:
        return
    yield from ("", "| option | type | default | valid | |", "| --- | --- | --- | --- | --- |")
    for option in options:
        yield f"| `{option.name}` | {option.kind.name} | {_default(option)} | {option.valid} | {option.doc} |"


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "required"
    if isinstance(option.default, bool) or option.default is None:
        return {None: "null", True: "true", False: "false"}[option.default]
    return f"`{option.default}`" if option.default or option.default == 0 else "empty"
