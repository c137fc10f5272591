"""What a route masks, hidden also from those who look at records before the route has come to that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from turnout.records import Record
from turnout.records.text import iso_of, json_of, text_of
from turnout.transforms import Chain
from turnout.transforms.base import Side, Transform
from turnout.transforms.extract_field import ExtractField
from turnout.transforms.flatten import Flatten
from turnout.transforms.header_from import HeaderFrom
from turnout.transforms.hoist_field import HoistField
from turnout.transforms.mask_field import MaskField
from turnout.transforms.replace_field import ReplaceField

__all__ = ["HIDDEN", "Hidden", "hidden_at"]

HIDDEN: Final = "***"
"""What is shown in the place of what a route masks later."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What is not shown of a record. It rather hides too much: a name is hidden in key and value, at any depth.

    Attributes:
        names: of fields.
        headers: names of headers that such fields are copied to.
        key: whether the whole key is hidden.
        value: whether the whole value is.
    """

    names: frozenset[str] = frozenset()
    headers: frozenset[str] = frozenset()
    key: bool = False
    value: bool = False

    def __bool__(self) -> bool:
        return bool(self.names)

    def __or__(self, other: Self) -> Hidden:
        return Hidden(
            self.names | other.names, self.headers | other.headers, self.key or other.key, self.value or other.value
        )

    def seen(self, record: Record) -> dict[str, Any]:
        """A record as plain JSON, without what is hidden."""
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "key": HIDDEN if self.key else self._content(record.key, record.key_schema),
            "value": HIDDEN if self.value else self._content(record.value, record.value_schema),
            "headers": [
                [header.name, HIDDEN if header.name in self.headers else _shown_text(header.value, header.schema)]
                for header in record.headers
            ],
            "timestamp": None if record.timestamp is None else iso_of(record.timestamp),
        }

    def undecoded(self, raw: bytes | None) -> str | None:
        """Bytes that nobody could read: what is inside is not known, and all of it is hidden if something is."""
        if raw is None:
            return None
        return f"{HIDDEN} ({len(raw):,} bytes)" if self else raw.decode("utf-8", "replace")

    def failure(self, message: str) -> str:
        """Why something failed: the message may have the field's content in it."""
        return HIDDEN if self else message

    def _content(self, content: Any, schema: Any) -> Any:
        if isinstance(content, bytes):
            return self.undecoded(content)
        return self._without(json_of(content, schema))

    def _without(self, plain: Any) -> Any:
        if isinstance(plain, Mapping):
            return {name: HIDDEN if name in self.names else self._without(item) for name, item in plain.items()}
        return [self._without(item) for item in plain] if isinstance(plain, list) else plain


def _shown_text(value: Any, schema: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else text_of(value, schema)


def hidden_at(chain: Chain, place: int) -> Hidden:
    """What is hidden of a record that has gone through the first *place* stages: what the later ones mask.

    A field is followed back through what renames, flattens, wraps, extracts or copies it.
    """
    transforms = [stage.transform for stage in chain.stages]
    hidden = Hidden()
    for at in range(place, len(transforms)):
        masking = transforms[at]
        if isinstance(masking, MaskField):
            hidden |= _followed(masking.fields, transforms[:at])
    return hidden


def _followed(fields: Iterable[str], before: Sequence[Transform]) -> Hidden:
    names = set(fields)
    for transform in reversed(before):
        if isinstance(transform, ReplaceField):
            names |= {old for old, new in transform.renames if new in names}
        elif isinstance(transform, Flatten):
            names |= {part for name in names for part in _suffixes(name, transform.delimiter)}
    # A field that holds the whole, or becomes it, has no name of its own there.
    whole = {
        transform.side
        for transform in before
        if (isinstance(transform, HoistField) and transform.field in names)
        or (isinstance(transform, ExtractField) and names.intersection((transform.field, *transform.path)))
    }
    headers = {
        header
        for transform in before
        if isinstance(transform, HeaderFrom)
        for name, header in zip(transform.fields, transform.headers, strict=True)
        if name in names
    }
    return Hidden(frozenset(names), frozenset(headers), Side.KEY in whole, Side.VALUE in whole)


def _suffixes(name: str, delimiter: str) -> Iterable[str]:
    """What a name may have been before it was put together: everything behind each of its delimiters."""
    while delimiter and delimiter in name:
        name = name.partition(delimiter)[2]
        yield name
