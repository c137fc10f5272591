"""The kinds of leaf as a table: what each is called outside Python, and its fields.

JSON, the rows and documents of stores, and protobuf are all written and read by this table. A new kind of leaf needs
its class in `turnout.conditions.model`, its meaning (`evaluate`, `check`, `anchor`), a text syntax, messages in the
proto, and one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, NamedTuple

from turnout.conditions.model import Cidr, Compare, Element, Exists, Kiwi, Leaf, Operator, Regex, SubjectMatch

TEXT: tuple[type, ...] = (str,)
FLAG: tuple[type, ...] = (bool,)
NUMBER: tuple[type, ...] = (int, float)
"""Types that JSON may have for a numeric field; a whole number of JSON is an int."""


class LeafField(NamedTuple):
    """Field of a leaf in addition to the common fields (key, negation, id).

    Attributes:
        name: in JSON and protobuf.
        attribute: in Python.
        types: its JSON types.
        default: its value if absent. A flag that is false is left out of JSON.
    """

    name: str
    attribute: str
    types: tuple[type, ...]
    default: Any


@dataclass(frozen=True, slots=True)
class LeafKind:
    """A row of the table.

    Attributes:
        name: name of the object in JSON, and of the message in protobuf's oneof.
        leaf: the class. Its fields are the key, *fields*, the negation, the implied ones, and the id.
        fields: its own.
        implied: attributes whose value is implied by the name.
    """

    name: str
    leaf: Callable[..., Leaf]
    fields: tuple[LeafField, ...] = ()
    implied: Mapping[str, bool] = field(default_factory=dict)
    _defaults: tuple[tuple[str, Any], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        own = ((field.name, field.default) for field in self.fields)
        object.__setattr__(self, "_defaults", (("key", ""), *own, ("not", False), *self.implied.items(), ("id", "")))

    def read(self, get: Callable[[str, Any], Any]) -> Leaf:
        """Build the leaf; *get(name, default)* returns each field.

        Raises:
            ConditionError: the values make no leaf of this kind.
        """
        return self.leaf(*starmap(get, self._defaults))

    def values(self, leaf: Leaf) -> Iterator[tuple[str, Any]]:
        """Yield the leaf's own fields as plain values by name, in order."""
        for name, attribute, _, _ in self.fields:
            value = getattr(leaf, attribute)
            # An operator is a kind of str; formats are given its plain text.
            yield name, value.value if type(value) is Operator else value


_PATTERN = (
    LeafField("pattern", "pattern", TEXT, ""),
    LeafField("partial", "partial", FLAG, False),
    LeafField("ignoreCase", "ignore_case", FLAG, False),
)

KINDS: dict[str, LeafKind] = {
    kind.name: kind
    for kind in (
        LeafKind("kiwiCondition", Kiwi, _PATTERN, {"tree": False}),
        LeafKind("kiwiTreeCondition", Kiwi, _PATTERN, {"tree": True}),
        LeafKind(
            "compareCondition", Compare, (LeafField("op", "op", TEXT, ""), LeafField("number", "number", NUMBER, 0))
        ),
        LeafKind("existsCondition", Exists),
        LeafKind("cidrCondition", Cidr, (LeafField("network", "network", TEXT, ""),)),
        LeafKind("regexCondition", Regex, (LeafField("regex", "pattern", TEXT, ""),)),
        LeafKind("subjectCondition", SubjectMatch, (LeafField("subject", "subject", TEXT, ""),)),
        LeafKind("elementCondition", Element, (LeafField("where", "where", TEXT, ""),)),
    )
}
"""By name. Of several names of one class the first is the one that protobuf's answers have."""

_BY_CLASS = {(kind.leaf, kind.implied.get("tree", False)): kind for kind in KINDS.values()}


def kind_of(leaf: Leaf) -> LeafKind:
    """Return the row of a leaf; of a pattern, that of its dialect.

    Raises:
        TypeError: it is no leaf.
    """
    try:
        return _BY_CLASS[type(leaf), getattr(leaf, "tree", False)]
    except KeyError:
        raise TypeError(f"not a condition: {leaf!r}") from None
