"""Sigma's detection rules as conditions.

A rule is read from YAML and becomes a condition over the event's fields as metadata keys. Sigma compares without case,
so each of its texts becomes a leaf that ignores case, unless it has the modifier ``cased``. What has no counterpart is
named, and leaves the other rules alone. Source: the Sigma specification, version 2.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import yaml

from turnout.base.files import read_file as bytes_of
from turnout.base.multivalued import ANY_KEY, leaf_key
from turnout.base.yaml_values import compose, construct, position_of, repeated_key
from turnout.conditions import (
    Condition,
    Element,
    Group,
    Logic,
    all_of,
    cidr,
    compare,
    compare_fields,
    exists,
    format_condition,
    kiwi,
    leaves,
    not_,
    regex,
)
from turnout.conditions.leaves.element import below, implied, path_step, read_as_json
from turnout.conditions.model import both, either
from turnout.conditions.pattern import ANY, ONE, Piece, escape, pattern_matcher
from turnout.errors import ConditionError, SubscriptionInvalidError
from turnout.subscriptions.model import Subscription
from turnout.subscriptions.validation import MAX_LEAVES as MAX_STORED
from turnout.subscriptions.validation import check


class InexpressibleError(Exception):
    """Raised for the part of a rule that no condition can express.

    Attributes:
        path: path of the part, below ``detection``.
        reason: the part that cannot be expressed.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


MAX_LEAVES = 20_000
"""Leaves of one condition with those that several names repeat."""

_MAX_OPEN = 40
_TOKEN = re.compile(r"[()|]|[^\s()|]+")
_NAME = re.compile(r"[\w.*-]+")
_WORDS = ("and", "or", "not", "of")


def parse_expression(text: str, searches: Mapping[str, Condition]) -> Condition:
    """Parse an expression over named searches.

    Raises:
        InexpressibleError: it is no expression, or one that conditions have no counterpart of.
    """
    reader = _ExpressionReader(text, searches)
    condition = reader.alternatives()
    if reader.tokens:
        raise reader.unexpected("'and', 'or' or the end")
    return condition


class _ExpressionReader:
    """Reads tokens from left to right; *tokens* are those that are left, the next one last."""

    def __init__(self, text: str, searches: Mapping[str, Condition]) -> None:
        self.tokens = _TOKEN.findall(text)[::-1]
        self._searches = searches
        self._sizes = {name: sum(1 for _ in leaves(condition)) for name, condition in searches.items()}
        self._size = 0
        self._open = 0

    def alternatives(self) -> Condition:
        parts = [self._conjunction()]
        while self._takes("or"):
            parts.append(self._conjunction())
        return either(parts)

    def _conjunction(self) -> Condition:
        parts = [self._negation()]
        while self._takes("and"):
            parts.append(self._negation())
        return both(parts)

    def _negation(self) -> Condition:
        negated = False
        while self._takes("not"):
            negated = not negated
        condition = self._parenthesis() if self._takes("(") else self._searched()
        return not_(condition) if negated else condition

    def _parenthesis(self) -> Condition:
        if self._open == _MAX_OPEN:
            raise InexpressibleError("condition", f"more than {_MAX_OPEN} open parentheses")
        self._open += 1
        condition = self.alternatives()
        if not self._takes(")"):
            raise self.unexpected("'and', 'or' or ')'")
        self._open -= 1
        return condition

    def _searched(self) -> Condition:
        token = self._next("the name of a search, '1 of', 'all of' or '('")
        if self._peek() == "of" and token not in self._searches:
            return self._several(token.lower())
        if token.lower() in _WORDS or not _NAME.fullmatch(token):
            self.tokens.append(token)
            raise self.unexpected("the name of a search, '1 of', 'all of' or '('")
        return self._of_names([token] if token in self._searches else [], token)[0]

    def _several(self, quantity: str) -> Condition:
        self.tokens.pop()
        what = self._next("'them' or names")
        if what.lower() == "them":
            names = [name for name in self._searches if not name.startswith("_")]
        else:
            if not _NAME.fullmatch(what):
                self.tokens.append(what)
                raise self.unexpected("'them' or names, as in selection_*")
            names = list(filter(pattern_matcher(what), self._searches))
        if quantity == "all":
            return both(self._of_names(names, what))
        if quantity in ("1", "any"):
            return either(self._of_names(names, what))
        raise InexpressibleError("condition", f"'{quantity} of' cannot be expressed; '1 of' and 'all of' can")

    def _of_names(self, names: list[str], written: str) -> list[Condition]:
        if not names:
            raise InexpressibleError("condition", f"no search has the name {written!r}")
        self._size += sum(self._sizes[name] for name in names)
        if self._size > MAX_LEAVES:
            raise InexpressibleError("condition", f"repeats searches beyond {MAX_LEAVES:,} leaves")
        return [self._searches[name] for name in names]

    def _peek(self) -> str:
        return self.tokens[-1].lower() if self.tokens else ""

    def _takes(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self.tokens.pop()
        return True

    def _next(self, expected: str) -> str:
        if not self.tokens:
            raise self.unexpected(expected)
        token: str = self.tokens.pop()
        return token

    def unexpected(self, expected: str) -> InexpressibleError:
        """Return the error of the next token."""
        if self._peek() == "|":
            return InexpressibleError("condition", "aggregates several events: a condition sees one")
        found = repr(self.tokens[-1]) if self.tokens else "the end"
        return InexpressibleError("condition", f"expected {expected}, found {found}")


_DASHES: Final = ("-", "/", "–", "—", "―")
_DASH = re.compile(r"\B[-/]\b")
_MAX_DASHES = 3
"""Dashes of one text that are written in each of their forms: 125 texts."""

_COMPARISONS: Final = {"lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
_ENCODINGS: Final = {"wide": "utf-16-le", "utf16le": "utf-16-le", "utf16be": "utf-16-be", "utf16": "utf-16"}
_PLACES: Final = ("contains", "startswith", "endswith")
_TEXT: Final = frozenset((*_PLACES, *_ENCODINGS, "cased", "windash", "base64", "base64offset"))
_WHERE: Final = frozenset((*_PLACES, "re", "cidr", *_COMPARISONS))
"""Modifiers that define the comparison of a keyword."""

_REGEX_FLAGS: Final = {"i": "i", "ignorecase": "i", "m": "m", "multiline": "m", "s": "s", "dotall": "s"}
_TIMES: Final = {
    "year": (r"^{:04}\b", 0, 9999),
    "month": (r"^\d{{4}}-{:02}\b", 1, 12),
    "day": (r"^\d{{4}}-\d\d-{:02}(?:\D|$)", 1, 31),
    "hour": (r"^\d{{4}}-\d\d-\d\d[Tt ]{:02}(?:\D|$)", 0, 23),
    "minute": (r"^\d{{4}}-\d\d-\d\d[Tt ]\d\d:{:02}(?:\D|$)", 0, 59),
}
"""Expression for a part of a time in ISO 8601, its least and its greatest number."""

_ALWAYS: Final = frozenset(("all", "neq"))
_WITH_FIELDREF: Final = _ALWAYS | {"fieldref", "cased"}
_COMPARED: Final = ("re", "cidr", "exists", *_COMPARISONS, *_TIMES)
"""Modifiers of which each defines the whole comparison of a value."""

_KNOWN: Final = _TEXT | _WITH_FIELDREF | {"expand", *_REGEX_FLAGS, *_COMPARED}

Lists: TypeAlias = Mapping[str, Sequence[str]]
"""Values by the name that a rule has between percent signs."""

_PLACEHOLDER: Final = re.compile(r"%([^%\\]+)%")
_MAX_EXPANDED: Final = 20_000


def field_condition(path: str, written: str, value: object, lists: Lists | None = None) -> Condition:
    """Return the condition of one entry of a search: a field with modifiers, and its value or values.

    Args:
        path: path of the entry, for errors.
        written: the field with its modifiers.
        value: the value or values.
        lists: values for ``%name%`` where the modifier ``expand`` is given.

    Raises:
        InexpressibleError: a modifier or a value has no counterpart.
    """
    name, *modifiers = written.split("|")
    for modifier in modifiers:
        if modifier not in _KNOWN:
            raise InexpressibleError(path, f"the modifier {modifier!r} cannot be expressed")
    values = value if isinstance(value, list) else [value]
    if "expand" in modifiers:
        modifiers.remove("expand")
        values = [expanded for one in values for expanded in _expanded(path, one, lists or {})]
    if not values:
        raise InexpressibleError(path, "has no values")
    _check_together(path, modifiers)
    field = leaf_key(name) if name else ANY_KEY
    if not name and not any(modifier in _WHERE for modifier in modifiers):
        # A keyword is looked for anywhere in a value.
        modifiers.append("contains")
    parts = [_leaf(path, field, modifiers, one) for one in values]
    condition = both(parts) if "all" in modifiers else either(parts)
    return not_(condition) if "neq" in modifiers else condition


def _check_together(path: str, modifiers: Sequence[str]) -> None:
    """Raise `InexpressibleError` if a modifier would change nothing beside another one."""
    kind = next((modifier for modifier in modifiers if modifier in _COMPARED), "")
    # An expression is searched anywhere in a value, as with these modifiers.
    beside = {*_ALWAYS, "cased", *_PLACES, *_REGEX_FLAGS} if kind == "re" else _ALWAYS
    for modifier in modifiers:
        if kind and modifier != kind and modifier not in beside:
            raise InexpressibleError(path, f"the modifiers {kind!r} and {modifier!r} do not go together")
        if not kind and modifier in _REGEX_FLAGS:
            raise InexpressibleError(path, f"the modifier {modifier!r} needs 're'")


def _expanded(path: str, value: object, lists: Lists) -> list[object]:
    """Return a value with each placeholder replaced by each value of its list."""
    if not isinstance(value, str):
        return [value]
    pieces = _PLACEHOLDER.split(value)
    texts = [pieces[0]]
    for name, rest in zip(pieces[1::2], pieces[2::2], strict=True):
        if name not in lists:
            raise InexpressibleError(path, f"expand needs the values of %{name}%: give --list {name}=FILE")
        if len(texts) * len(lists[name]) > _MAX_EXPANDED:
            raise InexpressibleError(path, f"expands to more than {_MAX_EXPANDED:,} values")
        texts = [before + inserted + rest for before in texts for inserted in lists[name]]
    return list(texts)


def _leaf(path: str, field: str, modifiers: Sequence[str], value: object) -> Condition:
    if field == ANY_KEY and (value is None or "exists" in modifiers):
        raise InexpressibleError(path, "expected a keyword, which tests all fields, found a test of none")
    if value is not None and not isinstance(value, (str, int, float, bool)):
        raise InexpressibleError(path, f"expected a text, a number, true, false or null, found {value!r:.60}")
    if "fieldref" in modifiers:
        return _reference(path, field, modifiers, value)
    if "exists" in modifiers:
        return exists(field) if _is_true(path, value) else not_(exists(field))
    if value is None:
        return not_(exists(field))
    try:
        if "cidr" in modifiers:
            return cidr(field, str(value))
        if "re" in modifiers:
            flags = "".join(dict.fromkeys(flag for name, flag in _REGEX_FLAGS.items() if name in modifiers))
            return regex(field, f"(?{flags}){value}" if flags else str(value))
        for modifier in modifiers:
            if modifier in _TIMES:
                return regex(field, _time_expression(path, modifier, value))
            if modifier in _COMPARISONS:
                return compare(field, _COMPARISONS[modifier], _number(path, value))
        return either(
            [kiwi(field, one, ignore_case="cased" not in modifiers) for one in _patterns(path, modifiers, value)]
        )
    except ConditionError as problem:
        raise InexpressibleError(path, str(problem)) from problem


def _reference(path: str, field: str, modifiers: Sequence[str], value: object) -> Condition:
    """Return the comparison with another field."""
    other = next((modifier for modifier in modifiers if modifier not in _WITH_FIELDREF), None)
    if other is not None:
        raise InexpressibleError(path, f"the modifier {other!r} with fieldref cannot be expressed")
    if not isinstance(value, str) or not value or field == ANY_KEY:
        raise InexpressibleError(path, f"expected a field and the name of another one, found {value!r:.60}")
    return compare_fields(field, "=", leaf_key(value), ignore_case="cased" not in modifiers)


def _time_expression(path: str, modifier: str, value: object) -> str:
    """Return the expression for a part of a time in ISO 8601."""
    expression, least, most = _TIMES[modifier]
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InexpressibleError(path, f"expected a {modifier} from {least} to {most}, found {value!r:.40}")
    return expression.format(value)


def _is_true(path: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InexpressibleError(path, f"expected true or false, found {value!r:.60}")
    return value


def _number(path: str, value: str | float) -> float:
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise InexpressibleError(path, f"expected a number, found {value!r:.60}") from None


def _patterns(path: str, modifiers: Sequence[str], value: str | float) -> list[str]:
    """Return the patterns of a text, any of which may match."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    bodies = _encoded(path, modifiers, text) if _is_encoded(modifiers) else _dashed(path, modifiers, text)
    before = [ANY] if "contains" in modifiers or "endswith" in modifiers else []
    after = [ANY] if "contains" in modifiers or "startswith" in modifiers else []
    return [_pattern([*before, *body, *after]) for body in bodies]


def _is_encoded(modifiers: Sequence[str]) -> bool:
    return any(modifier in _ENCODINGS or modifier.startswith("base64") for modifier in modifiers)


def _encoded(path: str, modifiers: Sequence[str], text: str) -> list[list[Piece]]:
    pieces = pieces_of(text)
    plain = "".join(piece for piece in pieces if isinstance(piece, str))
    if len(pieces) != 1 or not plain:
        raise InexpressibleError(path, "a text with wildcards, or without characters, cannot be encoded")
    encoding = next((_ENCODINGS[modifier] for modifier in modifiers if modifier in _ENCODINGS), "utf-8")
    raw = plain.encode(encoding)
    if "base64offset" in modifiers:
        return [[part] for part in _at_offsets(raw)]
    if "base64" in modifiers:
        return [[b64encode(raw).decode()]]
    raise InexpressibleError(path, "an encoding without base64 cannot be expressed: values are texts")


def _at_offsets(raw: bytes) -> list[str]:
    """Return the part of the encoded text that does not depend on its surroundings, for each of three offsets."""
    parts = []
    for offset, first in enumerate((0, 2, 3)):
        text = b64encode(bytes(offset) + raw).decode()
        parts.append(text[first : (None, -3, -2)[(len(raw) + offset) % 3]])
    return [part for part in parts if part]


def _dashed(path: str, modifiers: Sequence[str], text: str) -> list[list[Piece]]:
    """Return the text with each dash before a word in each of its forms, if ``windash`` is given."""
    if "windash" not in modifiers:
        return [pieces_of(text)]
    parts = _DASH.split(text)
    if len(parts) > _MAX_DASHES + 1:
        raise InexpressibleError(path, f"windash with more than {_MAX_DASHES} dashes cannot be expressed")
    combinations = product(_DASHES, repeat=len(parts) - 1)
    return [
        pieces_of(parts[0] + "".join(dash + part for dash, part in zip(dashes, parts[1:], strict=True)))
        for dashes in combinations
    ]


_TOKENS = re.compile(r"\\([*?\\])|([*?])", re.DOTALL)


def pieces_of(text: str) -> list[Piece]:
    """Return a Sigma text as literal texts and wildcards."""
    pieces: list[Piece] = []
    literal, at = "", 0
    for token in _TOKENS.finditer(text):
        literal += text[at : token.start()] + (token[1] or "")
        at = token.end()
        if token[2]:
            pieces += [literal, _WILDCARDS[token[2]]] if literal else [_WILDCARDS[token[2]]]
            literal = ""
    literal += text[at:]
    return [*pieces, literal] if literal else pieces


_WILDCARDS: Final[dict[str, Piece]] = {"*": ANY, "?": ONE}


def _pattern(pieces: Sequence[Piece]) -> str:
    """Return the pattern of pieces; stars in a row are one."""
    written: list[str] = []
    for piece in pieces:
        text = escape(piece) if isinstance(piece, str) else piece.value
        if text != "*" or not written or written[-1] != "*":
            written.append(text)
    return "".join(written)


LEVELS = ("informational", "low", "medium", "high", "critical")
"""Severities of a rule, from the least to the most severe."""

_MAX_BYTES = 4 << 20
_DOCUMENTS = re.compile(r"^---(?=\s|\Z)", re.MULTILINE)
_SOURCES = ("product", "category", "service")
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class SigmaRule:
    """Rule with the condition that it stands for.

    Attributes:
        file: it was read from.
        id: id of the rule; empty if it has none.
        title: title of the rule.
        level: its severity, one of `LEVELS`; empty if it has none.
        logsource: product, category and service of the events that it is for.
        condition: over the fields of an event.
    """

    file: Path
    id: str
    title: str
    level: str
    logsource: Mapping[str, str]
    condition: Condition
    name: str = ""

    def subscriptions(self, destinations: Sequence[str], *, with_logsource: bool = False) -> list[Subscription]:
        """Return the rule as a subscription, or as several if its alternatives are more than one may have.

        Each of several has the number of its part behind the id.

        Args:
            destinations: destinations of matching events; ``{level}`` in them is the rule's.
            with_logsource: require the rule's product, category and service, as keys of these names.

        Raises:
            SubscriptionInvalidError: a store would refuse it.
        """
        metadata = {"title": self.title, "level": self.level, **self.logsource}
        sources: list[Condition] = []
        if with_logsource:
            sources = [kiwi(name, escape(text), ignore_case=True) for name, text in self.logsource.items()]
        level = self.level or "unknown"
        topics = [destination.replace("{level}", level) for destination in destinations]
        most = MAX_STORED - len(sources)
        while True:
            parts = divided(self.condition, most)
            made = []
            for number, part in enumerate(parts, 1):
                id_ = f"{self.id}-{number}" if self.id and len(parts) > 1 else self.id
                condition = all_of(*sources, part) if sources else part
                named = {name: text for name, text in metadata.items() if text}
                made.append(Subscription(topics, condition, named, id_))
            try:
                for subscription in made:
                    check(subscription)
            except SubscriptionInvalidError:
                # Texts are bounded as well, and smaller parts have fewer.
                if most <= _LEAST_PART or len(parts) == 1 == len(divided(self.condition, most // 2)):
                    raise
                most //= 2
            else:
                return made

    def with_filters(self, filters: Iterable[SigmaFilter]) -> SigmaRule:
        """Return the rule with the conditions of the filters for it."""
        conditions = [one.condition for one in filters if one.is_for(self)]
        return replace(self, condition=both([self.condition, *conditions])) if conditions else self


_LEAST_PART: Final = 100
"""Leaves of a part of a divided rule, at least."""


def divided(condition: Condition, most: int) -> list[Condition]:
    """Return conditions of at most so many leaves, one of which is true where the condition is.

    A condition that cannot be divided so is returned as it is.

    >>> from turnout.conditions import format_condition, parse
    >>> [format_condition(part) for part in divided(parse("a:1 AND (b:2 OR c:3 OR d:4)"), 3)]
    ['a:1 AND (b:2 OR c:3)', 'a:1 AND d:4']
    """
    size = sum(1 for _ in leaves(condition))
    if size <= most or not isinstance(condition, Group) or condition.negated:
        return [condition]
    if condition.logic is Logic.OR:
        parts: list[list[Condition]] = [[]]
        room = most
        for child in (part for one in condition.children for part in divided(one, most)):
            count = sum(1 for _ in leaves(child))
            if count > room and parts[-1]:
                parts.append([])
                room = most
            parts[-1].append(child)
            room -= count
        return [either(part) for part in parts]
    if condition.logic is Logic.AND:
        sizes = [sum(1 for _ in leaves(child)) for child in condition.children]
        at = sizes.index(max(sizes))
        others = [child for number, child in enumerate(condition.children) if number != at]
        inner = divided(condition.children[at], max(most - (size - sizes[at]), 1))
        if len(inner) > 1:
            return [both([*others[:at], part, *others[at:]]) for part in inner]
    return [condition]


@dataclass(frozen=True, slots=True)
class SigmaFilter:
    """Filter, whose condition is required of rules.

    Attributes:
        file: it was read from.
        title: title of the filter.
        logsource: product, category and service that a rule has to have.
        rules: ids or names of the rules; None for all.
        condition: over the fields of an event.
    """

    file: Path
    title: str
    logsource: Mapping[str, str]
    rules: frozenset[str] | None
    condition: Condition

    def is_for(self, rule: SigmaRule) -> bool:
        """Return True if the filter is for a rule."""
        is_listed = self.rules is None or bool(self.rules & {rule.id, rule.name} - {""})
        return is_listed and all(rule.logsource.get(name) == text for name, text in self.logsource.items())


@dataclass(frozen=True, slots=True)
class SkippedRule:
    """Rule, or file, that gives no condition.

    Attributes:
        file: it is in.
        path: path of the part that cannot be expressed, as its author would name it; empty for the whole.
        reason: the part that cannot be expressed.
        line: line of the part in the file, from 1; None if unknown.
    """

    file: Path
    path: str
    reason: str
    line: int | None = None

    def __str__(self) -> str:
        path = f": {self.path}" if self.path else ""
        return f"{self.file}{path}: {self.reason}" + (f" (line {self.line})" if self.line else "")


def rule_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield files, and the files ``*.yml`` and ``*.yaml`` below folders, in the order of their names."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        yield from sorted(file for file in path.rglob("*") if file.suffix in (".yml", ".yaml") and file.is_file())


Found: TypeAlias = SigmaRule | SigmaFilter | SkippedRule


def read_file(path: Path, *, arrays: bool = False, lists: Lists | None = None) -> Iterator[Found]:
    """Yield each rule and filter of a file; a file that cannot be read is left as a whole. See `read_text`."""
    try:
        text = bytes_of(path, max_bytes=_MAX_BYTES).decode("utf-8-sig")
    except OSError as failure:
        yield SkippedRule(path, "", failure.strerror or str(failure))
        return
    except UnicodeDecodeError as failure:
        yield SkippedRule(path, "", f"is not UTF-8: the byte at {failure.start}")
        return
    yield from read_text(text, path, arrays=arrays, lists=lists)


def read_text(text: str, path: Path, *, arrays: bool = False, lists: Lists | None = None) -> Iterator[Found]:
    """Yield each rule and filter of a text, which has one in each of its YAML documents.

    Args:
        text: YAML.
        path: name of the file.
        arrays: read each step of a field with dots as an array; fields of one search that are below the same one
            have to be in one element.
        lists: values for ``%name%`` where a rule has the modifier ``expand``.

    >>> rule = "{title: Shell, detection: {selection: {Image|endswith: '/sh'}, condition: selection}}"
    >>> (found,) = read_text(rule, Path("shell.yml"))
    >>> found.condition.key, found.condition.pattern, found.condition.ignore_case
    ('Image', '*/sh', True)
    """
    starts = [0, *(match.end() for match in _DOCUMENTS.finditer(text))]
    for start, end in zip(starts, [*(match.start() for match in _DOCUMENTS.finditer(text)), len(text)], strict=True):
        reading = _Reading(arrays, lists or {})
        found = _read_document(text[start:end], path, text.count("\n", 0, start), reading)
        if found is not None:
            yield found


class _Reading(NamedTuple):
    """Manner of reading fields: through arrays or not, and the values of placeholders."""

    arrays: bool
    lists: Lists


def _read_document(text: str, file: Path, first_line: int, reading: _Reading) -> Found | None:
    try:
        node = compose(text)
        repeated = repeated_key(node)
        document = construct(node)
    except yaml.YAMLError as failure:
        problem, line = position_of(failure)
        return SkippedRule(file, "", f"is no YAML: {problem}", None if line is None else first_line + line)
    if document is None:
        return None
    if repeated is not None:
        path, mark = repeated
        return SkippedRule(file, path, "occurs twice: only one of them would count", first_line + mark.line + 1)
    try:
        return _rule(document, file, reading)
    except InexpressibleError as failure:
        line = _line_of(node, failure.path)
        return SkippedRule(file, failure.path, failure.reason, None if line is None else first_line + line)


def _rule(document: object, file: Path, reading: _Reading) -> SigmaRule | SigmaFilter:
    if not isinstance(document, dict):
        raise InexpressibleError("", "expected a rule, which is a mapping")
    if "correlation" in document:
        raise InexpressibleError("correlation", "correlates several events: a condition sees one")
    part = "filter" if "filter" in document else "detection"
    detection = document.get(part)
    if not isinstance(detection, dict) or "condition" not in detection:
        raise InexpressibleError("" if detection is None else part, f"expected a {part} with a condition")
    searched = {name: body for name, body in detection.items() if part == "detection" or name != "rules"}
    try:
        condition = _condition(searched, reading)
    except InexpressibleError as failure:
        raise InexpressibleError(f"{part}.{failure.path}", failure.reason) from failure
    except ConditionError as failure:
        raise InexpressibleError(part, str(failure)) from failure
    source = document.get("logsource") or {}
    if not isinstance(source, dict):
        raise InexpressibleError("logsource", f"expected product, category or service, found {source!r:.60}")
    logsource = {name: _text(source[name]) for name in _SOURCES if _text(source.get(name))}
    title = _text(document.get("title"))
    if part == "filter":
        return SigmaFilter(file, title, logsource, _filtered_rules(detection), condition)
    level = _text(document.get("level"))
    if level and level not in LEVELS:
        raise InexpressibleError("level", f"expected one of {', '.join(LEVELS)}, found {level!r:.60}")
    id_, name = _text(document.get("id")), _text(document.get("name"))
    return SigmaRule(file, id_, title, level, logsource, condition, name)


def _filtered_rules(detection: Mapping[object, object]) -> frozenset[str] | None:
    """Return the ids or names of rules that a filter is for; None for all."""
    rules = detection.get("rules")
    if rules == [] or (isinstance(rules, str) and rules.lower() == "any"):
        return None
    listed = [rules] if isinstance(rules, str) else rules
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise InexpressibleError("filter.rules", f"expected any, or ids or names of rules, found {rules!r:.60}")
    return frozenset(listed)


def _text(value: object) -> str:
    return str(value)[:_MAX_TEXT] if isinstance(value, (str, int)) else ""


def _condition(detection: Mapping[object, object], reading: _Reading) -> Condition:
    names = [name for name in detection if name not in ("condition", "timeframe")]
    searches = {str(name): _search(str(name), detection[name], reading) for name in names}
    written = detection["condition"]
    expressions = written if isinstance(written, list) else [written]
    if not expressions:
        raise InexpressibleError("condition", "has no alternatives")
    condition = either([parse_expression(_expression(text), searches) for text in expressions])
    if "timeframe" in detection:
        raise InexpressibleError("timeframe", "is for several events: a condition sees one")
    return condition


def _expression(written: object) -> str:
    if not isinstance(written, str):
        raise InexpressibleError("condition", f"expected a text, found {written!r:.60}")
    return written


def _search(path: str, body: object, reading: _Reading) -> Condition:
    """Return the condition of a search: a map of fields that all have to match, or a list of alternatives."""
    if isinstance(body, list):
        if not body:
            raise InexpressibleError(path, "has no alternatives")
        return either([_search(f"{path}[{number}]", part, reading) for number, part in enumerate(body)])
    if not isinstance(body, dict):
        return field_condition(path, "", body)
    if not body:
        raise InexpressibleError(path, "has no fields")
    conditions = [
        (str(name), field_condition(f"{path}.{name}", str(name), value, reading.lists)) for name, value in body.items()
    ]
    if not reading.arrays:
        return both([condition for _, condition in conditions])
    for name, condition in conditions:
        if any("." in key for leaf in leaves(condition) if len(leaf.keys) > 1 for key in leaf.keys):
            raise InexpressibleError(f"{path}.{name}", "fieldref with a field inside of arrays cannot be expressed")
    parts = _in_elements([(name.partition("|")[0].split("."), condition) for name, condition in conditions])
    return both([*(leaf for part in parts for leaf in implied(part)), *map(read_as_json, parts)])


def _in_elements(fields: Sequence[tuple[Sequence[str], Condition]]) -> list[Condition]:
    """Return conditions on fields: those that have an array in common hold in one element of it."""
    by_name: dict[str, list[tuple[Sequence[str], Condition]]] = {}
    for (name, *steps), condition in fields:
        by_name.setdefault(name, []).append((steps, condition))
    parts: list[Condition] = []
    for name, own in by_name.items():
        if not name:
            # A keyword is looked for in all fields.
            parts += [condition for _, condition in own]
            continue
        key = path_step(name)
        parts += [_with_key(condition, f"{key}[]") for steps, condition in own if not steps]
        inner = _in_elements([(steps, condition) for steps, condition in own if steps])
        if len(inner) == 1:
            parts.append(below(f"{key}[].", inner[0]))
        elif inner:
            parts.append(Element(key, format_condition(both(inner))))
    return parts


def _with_key(condition: Condition, key: str) -> Condition:
    if isinstance(condition, Group):
        return replace(condition, children=tuple(_with_key(child, key) for child in condition.children))
    return replace(condition, key=key) if len(condition.keys) == 1 else condition.with_keys("{}[]".format)


def _line_of(node: yaml.Node | None, path: str) -> int | None:
    """Return the line of the deepest node on a path, from 1."""
    line = None if node is None else node.start_mark.line + 1
    rest = path
    while rest and node is not None:
        found = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                name = str(key.value)
                if rest == name or rest.startswith((f"{name}.", f"{name}[")):
                    found, line, rest = value, key.start_mark.line + 1, rest[len(name) :].removeprefix(".")
                    break
        elif isinstance(node, yaml.SequenceNode) and rest.startswith("["):
            number, _, rest = rest[1:].partition("]")
            rest = rest.removeprefix(".")
            found = node.value[int(number)] if number.isdecimal() and int(number) < len(node.value) else None
            line = line if found is None else found.start_mark.line + 1
        node = found
    return line
