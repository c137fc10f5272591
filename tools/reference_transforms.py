"""The reference of transforms and predicates as Markdown, made of the registry.

``python -m tools.reference_transforms`` prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from turnout.transforms.config import OPTIONS as POLICY
from turnout.transforms.options import REQUIRED, Option
from turnout.transforms.registry import PARITY, PREDICATES, transforms


def reference() -> str:
    """Every transform, predicate and error property with its options, and the table of differences."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "## Transforms"
    for name, kind in sorted(transforms().items()):
        sides = f" (`{name}$Key`, `{name}$Value`)" if kind.sided else ""
        yield from ("", f"### {name}{sides}", "", kind.summary, *_table(kind.options))
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
        yield f"| `{option.name}` | {option.kind} | {_default(option)} | {option.valid} | {option.doc} |"


def _default(option: Option) -> str:
    if option.default is REQUIRED:
        return "required"
    if isinstance(option.default, bool) or option.default is None:
        return {None: "null", True: "true", False: "false"}[option.default]
    return f"`{option.default}`" if option.default or option.default == 0 else "empty"


if __name__ == "__main__":
    sys.stdout.write(reference())
