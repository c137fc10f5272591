"""Options of transforms, whose texts are read as Kafka Connect reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self, TypeAlias

from turnout.base import options
from turnout.base.options import REQUIRED, Kind, any_case, of_text
from turnout.base.terminal import guesses
from turnout.records.types import DynamicValue, Value
from turnout.transforms.java.regex import check_java_regex
from turnout.transforms.java.regex_characters import JavaRegexError
from turnout.transforms.java.values import is_word, parsed_integer, split_list, trim

Phase: TypeAlias = Literal["validation", "task_start"]
RawOptions: TypeAlias = Mapping[str, str | None]
Options: TypeAlias = Mapping[str, DynamicValue]


def _boolean(text: str) -> bool:
    if not is_word(text, "true") and not is_word(text, "false"):
        raise ValueError(f"expected true or false, found {text!r}")
    return is_word(text, "true")


def _whole(name: str, bits: int) -> Kind[int]:
    """Return the kind of whole numbers of so many bits beside the sign."""

    def read(text: str) -> int:
        number = parsed_integer(text)
        if number is None or not -(1 << bits) <= number < 1 << bits:
            raise ValueError(f"expected an integer of {bits + 1} bits, found {text!r}")
        return number

    whole = {"type": "integer", "minimum": -(1 << bits), "maximum": (1 << bits) - 1}
    schema = {"anyOf": [whole, {"type": "string", "pattern": r"^\s*[+-]?\d+\s*$"}]}
    return replace(of_text(read, blank=False), name=name, json_schema=schema)


_WORDS: Final = "|".join(map(any_case, ("true", "false")))
STRING: Final = replace(of_text(str, blank=False), name="STRING")
LIST: Final = replace(of_text(lambda text: tuple(split_list(text)), blank=False), name="LIST")
BOOLEAN: Final = replace(
    of_text(_boolean, blank=False),
    name="BOOLEAN",
    json_schema={"anyOf": [{"type": "boolean"}, {"type": "string", "pattern": rf"^\s*(?:{_WORDS})\s*$"}]},
)
SHORT, INT, LONG = _whole("SHORT", 15), _whole("INT", 31), _whole("LONG", 63)
KINDS: Final[Mapping[str, Kind[object]]] = {one.name: one for one in (STRING, LIST, BOOLEAN, SHORT, INT, LONG)}


@dataclass(eq=False)
class OptionError(ValueError):
    """Raised when an option's text cannot be read, or its value is not valid.

    Attributes:
        option: its name; empty for the options as a whole.
        problem: the value found and what was expected.
        phase: when a Connect worker finds it: while it validates the connector, or when its task starts.
    """

    option: str
    problem: str
    phase: Phase = "validation"


@dataclass(frozen=True, slots=True)
class Option(options.Option):
    """Option of a transform, a predicate or a chain.

    Packages made for 0.1.0 give the kind by its name.

    Attributes:
        check: returns the fault of a parsed value, or None.
        valid: the valid values, for the documentation.
        distinct: whether repeated elements of a list are left out, as in Kafka 4.3.
        last_counts: whether an entry ``name:…`` of a list replaces an earlier one of this name.
        placeholders: names that have a meaning as ``${NAME}`` in the text.
        groups_of: the option whose expression's named groups have one, too.
        own_language: whether the text is in a language that has ``${…}`` itself.
        block: whether it makes sense to write it as a block of YAML or JSON, whose JSON is the option's text.

    >>> fields = Option("fields", LIST, "The fields to mask.")
    >>> fields.parse("card, city"), Option("negate", BOOLEAN, "Turn the answer around.").parse("True")
    (('card', 'city'), True)
    """

    check: Callable[[DynamicValue], str | None] | None = None
    valid: str = ""
    block: bool = False
    distinct: bool = False
    placeholders: tuple[str, ...] = ()
    groups_of: str = ""
    own_language: bool = False
    last_counts: bool = False

    def __post_init__(self) -> None:
        kind: object = self.kind
        if isinstance(kind, str):
            object.__setattr__(self, "kind", KINDS[kind])

    def parse(self, text: str | None) -> DynamicValue:
        """Return the value of a property's text.

        Raises:
            OptionError: when the text cannot be read or the value is not valid.
        """
        value: DynamicValue = None
        if isinstance(text, _Written):
            text = self._of_written(text)
        if text is not None:
            try:
                value = self.kind.read(trim(text))
            except ValueError as wrong:
                raise OptionError(self.name, str(wrong)) from None
        if self.distinct and value is not None:
            value = tuple(dict.fromkeys(value))
        problem = self.check(value) if self.check else None
        if problem:
            raise OptionError(self.name, f"{problem}, found {_abbreviated(text)}")
        return value

    def _of_written(self, text: _Written) -> str:
        """Return the text of an option that is written as a list or as a block.

        Raises:
            OptionError: it has no such text.
        """
        if self.block:
            return json.dumps(text.source, ensure_ascii=False)
        if isinstance(text.source, Mapping):
            form = "entries NAME:VALUE" if self.last_counts else "text"
            raise OptionError(self.name, f"found a block of names and values, expected {form}: {text}")
        if not all(isinstance(item, str | int | float) for item in text.source):
            raise OptionError(self.name, f"found an entry that is null, a list or a block, expected text: {text}")
        return text


def _abbreviated(text: str | None) -> str:
    return "null" if text is None else repr(text)


class _Written(str):
    """Text of what a file of YAML or JSON has as a list or as a block: *source*."""

    source: Mapping[str, object] | Sequence[object]

    @classmethod
    def of(cls, text: str, source: Mapping[str, object] | Sequence[object]) -> Self:
        """Return the text with its source."""
        written = cls(text)
        written.source = source
        return written


def option_text(value: object) -> str | None:
    """Return a value of YAML or JSON as the text that Connect's properties would have."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return _Written.of(json.dumps(value, ensure_ascii=False), value)
    if isinstance(value, Sequence):
        return _Written.of(",".join(str(option_text(item)) for item in value), value)
    return str(value)


def parse_options(declared: Sequence[Option], raw: RawOptions) -> tuple[dict[str, DynamicValue], list[OptionError]]:
    """Return the values of all options, defaults filled in, and everything that is wrong with them.

    Names that no option has are left alone, as Connect does.
    """
    values: dict[str, DynamicValue] = {}
    mistakes: list[OptionError] = []
    for option in declared:
        if option.name not in raw:
            if option.default is REQUIRED:
                mistakes.append(OptionError(option.name, f"is missing, and it is required ({option.doc})"))
            else:
                values[option.name] = option.default
            continue
        try:
            values[option.name] = option.parse(raw[option.name])
        except OptionError as mistake:
            mistakes.append(mistake)
    return values, mistakes


def unknown_options(declared: Sequence[Option], raw: RawOptions, more: Sequence[str]) -> list[OptionError]:
    """Return a mistake for each name that no option has.

    A Connect worker leaves such names alone, so that a transform with a mistyped option does less than it was meant to.

    Args:
        declared: the declared options.
        raw: the configuration as written, with or without ``type``.
        more: names that are read before the options are.
    """
    names = [option.name for option in declared]
    listed = ", ".join(names) or "no options"
    written = (name for name in raw if name not in names and name != "type")
    return [
        OptionError(name, f"unknown option{guess} (known here: {listed})")
        for name, guess in guesses(written, [*names, *more])
    ]


def non_empty_list(value: Sequence[str] | None) -> str | None:
    """Refuse a list without elements."""
    return None if value else "expected at least one element"


def names_or_none(value: Sequence[str] | None) -> str | None:
    """Refuse empty elements, as Kafka 4.3's ``ValidList`` does; null counts as an empty list, as in older routes."""
    return "expected no empty element" if "" in (value or ()) else None


def names(value: Sequence[str] | None) -> str | None:
    """Refuse what `names_or_none` refuses, and a list without elements."""
    return names_or_none(value) if value else non_empty_list(value)


def non_empty(value: str | None) -> str | None:
    """Refuse an empty text; null passes, as in Connect."""
    return "expected a text that is not empty" if value == "" else None


def non_null(value: Value) -> str | None:
    """Refuse only null."""
    return "expected a value" if value is None else None


def java_regex(value: str | None) -> str | None:
    """Refuse a pattern that ``java.util.regex`` cannot compile."""
    if value is None:
        return "expected a regular expression"
    try:
        check_java_regex(value)
    except JavaRegexError as error:
        return f"expected a Java regular expression: {error}"
    return None


@dataclass(frozen=True, slots=True)
class OneOf:
    """A check that refuses everything but the given words.

    Attributes:
        words: as they are written.
        any_case: whether they may be written otherwise.
    """

    words: tuple[str, ...]
    any_case: bool = False

    def __call__(self, value: str | None) -> str | None:
        """Return the problem of a value, None if it is valid."""
        words = [word.lower() for word in self.words] if self.any_case else self.words
        compared = value.lower() if self.any_case and value is not None else value
        return None if compared in words else f"expected one of {', '.join(self.words)}"


def one_of(*words: str, any_case: bool = False) -> OneOf:
    """Return the check that refuses everything but these words."""
    return OneOf(words, any_case)
