"""Options as values: name, kind, default and text. Reading, mistakes and JSON Schema are derived from them.

The one way to declare the options of a map of texts or plain values, as Kafka's ConfigDef; documents have models of
pydantic.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Final, Generic, TypeVar

from turnout.base.untrusted import JsonMapping, JsonObject
from turnout.errors import ConfigError, Mistake

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_ENTRY: Final = re.compile(r" {4}(\w+): (.*)")


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of an option that has none."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T_co]):
    """Values that an option may have.

    Attributes:
        read: converts what is given; raises `ValueError` with the value found and the expected form.
        json_schema: what it takes, for editors.
        blank: whether the empty text stands for the default.
        name: word for it in documentation.
        file: whether a text is the name of a file: relative ones start at the route's folder, and callers of a server
            may not name any.
    """

    read: Callable[[object], T_co] = field(repr=False)
    json_schema: JsonMapping = field(default_factory=dict, repr=False)
    blank: bool = False
    file: bool = False
    name: str = ""


def of_text(read: Callable[[str], T], *, blank: bool = True) -> Kind[T]:
    """Return the kind of what *read* makes of a text; by default the empty text stands for the option's default."""
    return Kind(lambda given: read(str(given)), blank=blank)


@dataclass(frozen=True, slots=True)
class Option:
    """Option of a map of texts or of plain values.

    Attributes:
        name: as its author writes it.
        kind: its values.
        doc: a phrase for documentation.
        default: value if it is not given; `REQUIRED` for none.
        secret: whether no view shows the value.
    """

    name: str
    kind: Kind[object]
    doc: str = ""
    default: object = REQUIRED
    secret: bool = False


def option(kind: Kind[T], default: T, *, name: str = "", secret: bool = False) -> T:
    """Return a field of a dataclass that is an option; its text is that of the field in the class's docstring.

    Args:
        kind: its values.
        default: value if it is not given.
        name: name of the option; derived from that of the field if not given.
        secret: whether no view shows the value; it is left out of the ``repr``.

    >>> @dataclass(frozen=True)
    ... class Pause:
    ...     '''A pause.
    ...
    ...     Attributes:
    ...         first_seconds: its length.
    ...     '''
    ...     first_seconds: float = option(Kind(lambda given: float(str(given))), 1.5)
    >>> found = options_of(Pause)["first_seconds"]
    >>> found.name, found.doc, found.default
    ('firstSeconds', 'its length', 1.5)
    >>> mistakes = []
    >>> Pause(**read_options(options_of(Pause), {"firstSeconds": "x"}, mistakes))
    Pause(first_seconds=1.5)
    >>> print(*mistakes)
    firstSeconds: could not convert string to float: 'x'
    """
    metadata = {"option": Option(name, kind, default=default, secret=secret)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: default, metadata=metadata, repr=not secret)
    return field(default=default, metadata=metadata, repr=not secret)


def any_case(word: str) -> str:
    """Return a regular expression for a word in upper case, lower case, or both: JSON Schema has no flag for it."""
    return "".join(f"[{char.lower()}{char.upper()}]" if char.isalpha() else char for char in word)


def camel_case(name: str) -> str:
    """Return the option name of a field.

    >>> camel_case("nkey_seed_file")
    'nkeySeedFile'
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def options_of(kind: type, spell: Callable[[str], str] = camel_case) -> Mapping[str, Option]:
    """Return the options of a dataclass by its fields.

    Args:
        kind: the dataclass.
        spell: makes the names of options that have none, from those of fields.
    """
    return _options_of(kind, spell)


@cache
def _options_of(kind: type, spell: Callable[[str], str]) -> Mapping[str, Option]:
    texts = attribute_texts(kind)
    declared = {item.name: item.metadata["option"] for item in fields(kind) if "option" in item.metadata}
    return {
        name: replace(found, name=found.name or spell(name), doc=texts.get(name, "").removesuffix("."))
        for name, found in declared.items()
    }


_ABSENT: Final = object()


def read_options(options: Mapping[str, Option], given: Mapping[str, object], mistakes: list[Mistake]) -> JsonObject:
    """Return the values of the given options, by the keys of *options*; add a mistake for each that cannot be read."""
    values: JsonObject = {}
    for key, one in options.items():
        value = given.get(one.name, _ABSENT)
        if value is _ABSENT or (one.kind.blank and value in ("", None)):
            continue
        try:
            values[key] = one.kind.read(value)
        except ConfigError as wrong:
            mistakes += wrong.mistakes
        except (ValueError, OSError) as problem:
            mistakes.append(Mistake(one.name, str(problem)))
    return values


def attribute_texts(kind: type) -> dict[str, str]:
    """Return the text of each entry below ``Attributes:`` in a class's and its parents' docstrings, by name."""
    texts: dict[str, str] = {}
    for holder in reversed(kind.__mro__):
        texts |= _of_docstring(inspect.cleandoc(holder.__doc__ or ""))
    return texts


def _of_docstring(text: str) -> dict[str, str]:
    _, _, section = text.partition("Attributes:\n")
    texts: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry:
            name = entry[1]
            texts[name] = entry[2]
        elif name and line.startswith(" " * 8):
            texts[name] += " " + line.strip()
        else:
            break
    return texts
