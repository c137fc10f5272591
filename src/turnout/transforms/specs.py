"""Chain as written by its author: stages and predicates still as text, each with its original path.

Connect's properties, a route's list and the spellings of KIP-585's drafts all become these; one builder makes
the values of them (`turnout.transforms.chain`).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PredicateSpec:
    """A predicate to be built.

    Attributes:
        type_path: the property that names its class.
        prefix: prefix of its option names.
        type: the class; None if the property is missing.
        negate: whether its answer is turned around.
    """

    alias: str
    type_path: str
    prefix: str
    type: str | None
    options: dict[str, str | None]
    negate: bool = False


@dataclass(slots=True)
class StageSpec:
    """A stage to be built: a transform, and the predicates that all have to hold."""

    alias: str
    type_path: str
    prefix: str
    type: str | None
    options: dict[str, str | None]
    predicates: list[PredicateSpec] = field(default_factory=list)
    negate: bool = False
