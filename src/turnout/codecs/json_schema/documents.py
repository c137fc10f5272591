"""Documents of a JSON Schema: the schema itself, and its references by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urldefrag, urljoin

import msgspec

Node: TypeAlias = Any
"""A schema inside a document: an object, true or false."""

_MAX_TEXT: Final = 4 << 20

parsed = msgspec.json.Decoder(float_hook=Decimal).decode
"""Fractions as they are written: a decimal's default has its scale by that."""


@dataclass(frozen=True, slots=True)
class Documents:
    """Schema with its references.

    Attributes:
        root: the schema.
        by_name: the others, by the names of the references and by their ``$id``.
    """

    root: Node
    by_name: Mapping[str, Node]

    @classmethod
    def parse(cls, text: str, references: Sequence[tuple[str, str]] = ()) -> Documents:
        """Read the text of a schema, and those of the schemas that it refers to by name.

        Raises:
            ValueError: one of them is no JSON, or they are too long.
        """
        if len(text) + sum(len(other) for _, other in references) > _MAX_TEXT:
            raise ValueError(f"expected a schema of at most {_MAX_TEXT:,} characters")
        root = _json(text, "the schema")
        by_name: dict[str, Node] = {}
        for name, other in references:
            document = _json(other, f"the schema {name!r}")
            by_name[name] = document
            by_name.setdefault(_id_of(document), document)
        by_name.setdefault(_id_of(root), root)
        return cls(root, by_name)

    def resolve(self, reference: object, document: Node) -> tuple[Node, Node]:
        """Return the schema that a ``$ref`` of a document names, and the document that it is in.

        Raises:
            ValueError: there is none.
        """
        if not isinstance(reference, str):
            raise ValueError(f"$ref: expected a text, found {reference!r}")  # noqa: TRY004 - as all here
        address, pointer = urldefrag(reference)
        found = document if not address else self._document(address, document)
        if pointer and not pointer.startswith("/"):
            raise ValueError(f"$ref: expected a name or a JSON pointer, found {reference!r}")
        node = found
        for part in pointer.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(name)] if isinstance(node, list) else node[name]
            except (LookupError, TypeError, ValueError):
                raise ValueError(f"$ref: {reference!r} names no schema") from None
        return node, found

    def _document(self, address: str, document: Node) -> Node:
        for name in (address, urljoin(_id_of(document), address)):
            if name in self.by_name:
                return self.by_name[name]
        names = ", ".join(sorted(name for name in self.by_name if name)) or "none"
        raise ValueError(f"$ref: no schema {address!r} among the references (there are: {names})")


def _json(text: str, what: str) -> Node:
    try:
        return parsed(text)
    except (ValueError, RecursionError) as failure:
        raise ValueError(f"{what} is no JSON: {failure}") from failure


def _id_of(document: Node) -> str:
    name = document.get("$id") if isinstance(document, dict) else None
    return name if isinstance(name, str) else ""
