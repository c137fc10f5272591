"""Expressions of Debezium's scripted transforms, read as conditions.

Debezium runs Groovy or JavaScript. What most connectors write needs neither: comparisons of fields with constants,
under ``&&``, ``||`` and ``!``, and for a topic a choice by ``?`` and ``:``. Both languages write these alike::

    value.op == 'u' && value.before.id == 2
    value.op == 'd' ? 'deleted' : value.after.total > 1000 ? 'large' : null

A field that is missing makes a comparison false; the original fails there.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from turnout.conditions import Condition, Operator, all_of, any_of, compare, exists, kiwi, not_
from turnout.conditions.model import MAX_DEPTH
from turnout.conditions.pattern import escape
from turnout.errors import ConditionError
from turnout.multivalued import leaf_key

MAX_EXPRESSION: Final = 10_000
"""Characters of an expression."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
        |(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[lLdDfF]?(?![\w.]))
        |(?P<path>[A-Za-z_$][\w$]*(?:(?:\?)?\.[A-Za-z_$][\w$]*|\[(?:'[^'\\`\]]*'|"[^"\\`\]]*")\])*)
        |(?P<sign>===|!==|==|!=|<=|>=|&&|\|\||[<>!()?:,])
    )""",
    re.VERBOSE,
)
_STEP: Final = re.compile(r"""\??\.?(?P<plain>[\w$]+)|\['(?P<single>[^'\]]*)'\]|\["(?P<double>[^"\]]*)"\]""")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PATTERNS: Final = {"startsWith": "{}*", "endsWith": "*{}", "contains": "*{}*", "includes": "*{}*", "equals": "{}"}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_END: Final = "the end"


class Choice(NamedTuple):
    """A topic, and when it is chosen.

    Attributes:
        condition: condition of the record; None for any.
        topic: the topic; None to leave the record's own.
    """

    condition: Condition | None
    topic: str | None


def read_condition(expression: str) -> Condition:
    """Return the condition that an expression is.

    Raises:
        ConditionError: names the offset, the token found, and the expected one.
    """
    reader = _Reader(expression)
    condition = reader.either()
    reader.finish()
    return condition


def read_choices(expression: str) -> tuple[Choice, ...]:
    """Return the topics that an expression chooses, in order; the last has no condition.

    Raises:
        ConditionError: names the offset, the token found, and the expected one.
    """
    reader = _Reader(expression)
    choices = reader.choices()
    reader.finish()
    return tuple(choices)


class _Token(NamedTuple):
    """Piece of an expression.

    Attributes:
        kind: ``text``, ``number``, ``path``, ``sign`` or ``end``.
        written: as it is written.
        offset: offset of its first character.
    """

    kind: str
    written: str
    offset: int


class _Path(NamedTuple):
    """Field that an expression names.

    Attributes:
        key: of conditions.
        method: method called on it; empty for none.
    """

    key: str
    method: str


class _Reader:
    """Reads an expression from its first character to its last, in one pass."""

    def __init__(self, expression: str) -> None:
        if len(expression) > MAX_EXPRESSION:
            raise ConditionError(f"an expression of {len(expression)} characters, at most {MAX_EXPRESSION} are taken")
        self._expression = expression
        self._at = 0
        self._depth = 0
        self._next = self._token()

    def _token(self) -> _Token:
        found = _TOKEN.match(self._expression, self._at)
        if found is not None:
            self._at = found.end()
            kind = found.lastgroup or ""
            return _Token(kind, found[kind], found.start(kind))
        rest = self._expression[self._at :]
        offset = self._at + len(rest) - len(rest.lstrip())
        return _Token("end" if not rest.strip() else "other", rest.strip()[:20] or _END, offset)

    def _take(self, *signs: str) -> str | None:
        """Return the next token if it is one of these signs, and advance."""
        token = self._next
        if token.kind != "sign" or token.written not in signs:
            return None
        self._next = self._token()
        return token.written

    def _advance(self) -> _Token:
        token, self._next = self._next, self._token()
        return token

    def _unexpected(self, expected: str, token: _Token | None = None) -> ConditionError:
        token = token or self._next
        return ConditionError(f"at {token.offset}: expected {expected}, found {token.written}", text=self._expression)

    def _insist(self, sign: str) -> None:
        if self._take(sign) is None:
            raise self._unexpected(repr(sign))

    def finish(self) -> None:
        """Refuse remaining tokens."""
        if self._next.kind != "end":
            raise self._unexpected("an operator or the end; only comparisons, &&, || and ! are read here")

    def choices(self) -> list[Choice]:
        """Read ``condition ? topic : condition ? topic : topic``, or a topic alone."""
        found: list[Choice] = []
        while not self._is_last_topic():
            condition = self.either()
            self._insist("?")
            found.append(Choice(condition, self._topic()))
            self._insist(":")
        return [*found, Choice(None, self._topic())]

    def _is_last_topic(self) -> bool:
        token = self._next
        is_topic = token.kind == "text" or token.written in ("null", "topic")
        return is_topic and not self._expression[self._at :].strip()

    def _topic(self) -> str | None:
        token = self._advance()
        if token.kind == "text":
            return _unquoted(token.written)
        if token.written in ("null", "topic"):
            return None
        raise self._unexpected("a topic in quotes, null or topic", token)

    def either(self) -> Condition:
        """Read conditions under ``||``."""
        children = [self._conjunction()]
        while self._take("||"):
            children.append(self._conjunction())
        return children[0] if len(children) == 1 else any_of(*children)

    def _conjunction(self) -> Condition:
        children = [self._one()]
        while self._take("&&"):
            children.append(self._one())
        return children[0] if len(children) == 1 else all_of(*children)

    def _one(self) -> Condition:
        negated = False
        while self._take("!"):
            negated = not negated
        condition = self._group() if self._take("(") else self._comparison()
        return not_(condition) if negated else condition

    def _group(self) -> Condition:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._unexpected(f"at most {MAX_DEPTH} parentheses inside one another")
        condition = self.either()
        self._insist(")")
        self._depth -= 1
        return condition

    def _comparison(self) -> Condition:
        left = self._operand()
        if isinstance(left, _Path) and left.method:
            return self._call(left)
        token = self._next
        operator = self._take("==", "===", "!=", "!==", "<", "<=", ">", ">=")
        if operator is None:
            if isinstance(left, _Path):
                return kiwi(left.key, "true")
            raise self._unexpected("a comparison")
        right = self._operand()
        if isinstance(left, _Path) == isinstance(right, _Path) or (isinstance(right, _Path) and right.method):
            raise self._unexpected("a field on one side of a comparison, and a constant on the other", token)
        if isinstance(left, _Path):
            return self._compared(left.key, operator, right, token)
        assert isinstance(right, _Path)
        return self._compared(right.key, _TURNED.get(operator, operator), left, token)

    def _compared(self, key: str, operator: str, constant: object, token: _Token) -> Condition:
        if operator in _TURNED:
            if not isinstance(constant, float):
                raise self._unexpected("a number for an order", token)
            return compare(key, operator, constant)
        if constant is None:
            equal: Condition = not_(exists(key))
        elif isinstance(constant, float):
            equal = compare(key, Operator.EQUAL, constant)
        else:
            equal = kiwi(key, escape(constant) if isinstance(constant, str) else str(constant).lower())
        return not_(equal) if operator.startswith("!") else equal

    def _call(self, path: _Path) -> Condition:
        """Read the argument of a method of a text."""
        self._insist("(")
        token = self._advance()
        if token.kind != "text":
            raise self._unexpected("a text in quotes", token)
        self._insist(")")
        return kiwi(path.key, _PATTERNS[path.method].format(escape(_unquoted(token.written))))

    def _operand(self) -> _Path | str | float | bool | None:
        token = self._advance()
        match token.kind:
            case "text":
                return _unquoted(token.written)
            case "number":
                return float(token.written.rstrip("lLdDfF"))
            case "path" if token.written in _CONSTANTS:
                return _CONSTANTS[token.written]
            case "path":
                return self._path(token)
        raise self._unexpected("a field (value.after.id), a text in quotes, a number, true, false or null", token)

    def _path(self, token: _Token) -> _Path:
        steps = [step[step.lastgroup or ""] for step in _STEP.finditer(token.written)]
        is_called = self._next.kind == "sign" and self._next.written == "("
        method = steps.pop() if is_called else ""
        if is_called and method not in _PATTERNS:
            raise self._unexpected(f"a field, or one of the methods {', '.join(sorted(_PATTERNS))}", token)
        match steps:
            case ["topic"]:
                return _Path("topic", method)
            case ["header" | "headers", name, "value"]:
                return _Path(leaf_key(name), method)
            case ["key" | "value", *inner]:
                return _Path(".".join([steps[0], *map(_step, inner)]), method)
        raise self._unexpected("a field of value or key, topic, or header.NAME.value", token)


def _step(name: str) -> str:
    """Return a step of a path as conditions write it."""
    return name if re.fullmatch(r"[\w$]+", name) else f"`{name}`"


def _unquoted(written: str) -> str:
    return _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), written[1:-1])
