"""Paths into nested fields (KIP-821) and elements of arrays, as conditions and transforms name them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from turnout.base.multivalued import KINDS, split_kind
from turnout.base.terminal import did_you_mean

_CLOSING = re.compile(r"`(?=\.|$)")
"""Backticks in a name that would close it."""

_AFTER_QUOTED = re.compile(r"`((?:\[\])+)(?=\.|$)")
"""Brackets behind a name in backticks."""

EACH: Final = "[]"
"""Step to each element of an array; it is this object, as a field may have the same name."""


class PathError(ValueError):
    """Raised when a backtick in a path is never closed."""


def parse_path(text: str, version: str = "V2") -> tuple[str, ...]:
    """Return the steps of a field path; V1 takes the whole text as one name.

    A step that begins with a backtick runs to the first backtick that is followed by a dot or ends the text, so
    that names may have dots in them. A backslash before such a backtick makes it an ordinary character.

    Raises:
        PathError: when the closing backtick is missing.
    """
    if version.upper() == "V1":
        return (text,)
    if not text:
        return ()
    steps: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith("`", at):
            step, at = _quoted(text, at)
        else:
            end = text.find(".", at)
            end = len(text) if end < 0 else end
            step, at = text[at:end], end + 1
        steps.append(step)
    return tuple(steps)


def parse_elements(text: str) -> tuple[str, ...]:
    """Return the steps of a path in which ``name[]`` denotes each element of the array *name*: a step and `EACH`.

    Between backticks brackets are part of the name.

    Raises:
        PathError: when the closing backtick is missing.

    >>> parse_elements("value.items[].sku"), parse_elements("value.`items[]`")
    (('value', 'items', '[]', 'sku'), ('value', 'items[]'))
    """
    text = _AFTER_QUOTED.sub(r"`.\1", text)
    steps: list[str] = []
    at = 0
    while at <= len(text):
        if text.startswith("`", at):
            step, at = _quoted(text, at)
            steps.append(step)
            continue
        end = text.find(".", at)
        end = len(text) if end < 0 else end
        name = text[at:end]
        while name.endswith("[]"):
            name = name[:-2]
        count = (end - at - len(name)) // 2
        steps += [*([name] if name or not count else []), *[EACH] * count]
        at = end + 1
    return tuple(steps)


def has_elements(steps: Iterable[str]) -> bool:
    """Return True if a path leads into the elements of an array.

    >>> has_elements(parse_elements("value.items[].sku")), has_elements(parse_elements("value.`[]`"))
    (True, False)
    """
    return any(step is EACH for step in steps)


PREFIX: Final = ".*"
"""End of a listed path that denotes all paths below."""


def is_prefix(path: str) -> bool:
    """Return True if a listed path is a prefix, and denotes all paths below.

    >>> is_prefix("value.detail.*"), is_prefix("value.detail"), is_prefix("value.`*`")
    (True, False, False)
    """
    return path.endswith(PREFIX)


def listed_path(paths: Mapping[str, str], name: str) -> str | None:
    """Return the path that a route lists for a metadata key: its own, or one below a prefix; None without any.

    Of several prefixes it is the one with the longest name. The parts of a record's address have no prefix. A key that
    ends with a kind has the path of the key without it, if that has none of its own.

    >>> paths = {"total": "value.total", "*": "value.detail.*", "o.*": "value.order.*"}
    >>> [listed_path(paths, name) for name in ("total", "city", "lines[].sku", "o.city", "topic")]
    ['value.total', 'value.detail.city', 'value.detail.lines[].sku', 'value.order.city', None]
    >>> [listed_path(paths, name) for name in ("total:number", "city:text", "key:text")]
    ['value.total:number', 'value.detail.city:text', 'key:text']
    """
    own = paths.get(name)
    if own is not None and not is_prefix(own):
        return own
    base, kind = split_kind(name)
    if kind:
        own = paths.get(base, base if base in ADDRESS else None)
        if own is not None and not is_prefix(own) and not split_kind(own)[1]:
            return f"{own}:{kind}"
    if name in ADDRESS:
        return None
    prefixes = [
        (listed[:-1], path)
        for listed, path in paths.items()
        if is_prefix(path) and name.startswith(listed[:-1]) and len(name) >= len(listed)
    ]
    if not prefixes:
        return None
    before, path = max(prefixes, key=lambda prefix: len(prefix[0]))
    return path[:-1] + name[len(before) :]


class ListedPath(NamedTuple):
    """Path that a route lists.

    Attributes:
        root: ``value``, ``key``, or a part of the record's address.
        steps: those inside, with `EACH` for each element of an array.
        kind: kind of the values that count, one of `turnout.base.multivalued.KINDS`; empty for all.
    """

    root: str
    steps: tuple[str, ...]
    kind: str = ""

    @classmethod
    def of(cls, path: str) -> ListedPath:
        """Parse a path that is no prefix.

        Raises:
            PathError: when a closing backtick is missing.

        >>> ListedPath.of("value.total:number")
        ListedPath(root='value', steps=('total',), kind='number')
        >>> ListedPath.of("value.`total:number`")
        ListedPath(root='value', steps=('total:number',), kind='')
        """
        path, kind = split_kind(path)
        root, *steps = parse_elements(path)
        return cls(root, tuple(steps), kind)

    @property
    def text(self) -> str:
        """The path as text, every name in backticks.

        >>> ListedPath.of("value.items[].sku:text").text
        '`value`.`items`[].`sku`:text'
        """
        text = ""
        for step in (self.root, *self.steps):
            escaped = _CLOSING.sub(r"\\`", step)
            text += EACH if step is EACH else f".`{escaped}`" if text else f"`{escaped}`"
        return f"{text}:{self.kind}" if self.kind else text


ADDRESS: Final = frozenset({"topic", "subject", "key"})
"""Metadata keys of every record, whatever prefixes are listed."""


def kind_problem(path: str) -> str | None:
    """Return the reason that the end of a listed path, behind a colon, is no kind; None if it is one, or there is none.

    >>> print(kind_problem("value.dc:title"))  # doctest: +NORMALIZE_WHITESPACE
    'title' is no kind of values: there are boolean, json, null, number, scalar, text.
    A field that is called so is written in backticks:
    value.`dc:title`
    >>> kind_problem("value.`total:numbr`"), kind_problem("value.total:number")
    (None, None)
    """
    rest, kind = split_kind(path)
    if kind:
        if is_prefix(rest):
            return f"a prefix has no kind: keys below it end with one, as in {rest[:-2]}.total:{kind}"
        return None
    before, dot, last = path.rpartition(".")
    name, colon, wrong = last.rpartition(":")
    if not colon or path.endswith(("`", "[]")):
        return None
    guess = did_you_mean(wrong, KINDS)
    return (
        f"{wrong!r} is no kind of values: there are {', '.join(KINDS)}{guess or '.'} A field that is called so is "
        f"written in backticks: {before}{dot}`{name.strip('`')}:{wrong}`"
    )


def _quoted(text: str, opened: int) -> tuple[str, int]:
    """Return the step that opens with a backtick at *opened*, and where the next step starts."""
    step: list[str] = []
    at = opened + 1
    while at < len(text):
        closes = text[at] == "`" and (at + 1 == len(text) or text[at + 1] == ".")
        if not closes:
            step.append(text[at])
            at += 1
            continue
        escaped = at > opened + 1 and text[at - 1] == "\\"
        if not escaped:
            return "".join(step), at + 2
        if at + 1 == len(text):
            break
        step[-1] = "`"
        at += 1
    raise PathError(f"the backtick opened at position {opened} of {text!r} is never closed")
