"""Expressions of Debezium's scripted transforms: a subset of Groovy and JavaScript, read once and evaluated by record.

Debezium runs the scripts. What most connectors write is fields, constants, comparisons, ``&&``, ``||``, ``!``,
``? :``, and in Groovy ``in [...]`` and texts with ``${…}``::

    value.op == 'u' && value.before.id == 2
    value.op == 'd' ? 'deleted' : "cdc.${value.source.table}"

These have the meaning that they have there: see `turnout.transforms.debezium.script_rules`. Anything else is refused.
"""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NamedTuple, TypeAlias

from turnout.conditions.model import MAX_DEPTH
from turnout.errors import ConditionError, RecordError
from turnout.records import BigInt
from turnout.transforms.debezium.script_rules import FALSE, NULL, TRUE, Groovy, JavaScript, Typed, java_equal
from turnout.transforms.java.values import single

MAX_EXPRESSION: Final = 10_000
"""Characters of an expression."""

GROOVY: Final = "jsr223.groovy"
GRAAL_JS: Final = "jsr223.graal.js"

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
        |(?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[lLdDfFgGiI]?(?![\w.]))
        |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
        |(?P<sign>===|!==|==~|=~|<=>|\?\.|\?:|==|!=|<=|>=|&&|\|\||[<>!()?:,.\[\]-])
    )""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|[0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "s": " "}
_PLAIN_ESCAPES: Final = "\\'\"$"
_DOLLAR: Final = re.compile(r"\\.|\$\{|\$([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*)", re.DOTALL)
_METHODS: Final = ("startsWith", "endsWith", "contains", "equals", "includes", "get")
_END: Final = "the end"
_ROOTS: Final = ("value", "key", "topic", "header")
_NULL_POINTER: Final = "java.lang.NullPointerException"


class Step(NamedTuple):
    """Step of a path to a field; a safe one gives null for a field of null."""

    name: str
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Path:
    """Part of the record: ``topic``, or what is at the steps inside of ``value``, ``key`` or ``header``."""

    root: str
    steps: tuple[Step, ...] = ()


Read: TypeAlias = Callable[[Path], Typed]
"""Returns what is at a path, or raises a `RecordError`."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Constant of an expression."""

    item: Typed


@dataclass(frozen=True, slots=True)
class Interpolation:
    """Text with expressions in it."""

    parts: tuple[str | Node, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of two expressions."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Membership:
    """Test whether an element is in a list that the expression has."""

    item: Node
    items: tuple[Node, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Negation:
    """Negation of a truth."""

    inner: Node


@dataclass(frozen=True, slots=True)
class Junction:
    """Two expressions under ``&&`` or ``||``; the second is evaluated only if it matters."""

    conjunction: bool
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of two expressions; without a condition the first if it is true (Elvis)."""

    condition: Node | None
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call:
    """Call of a method of a text, or of ``equals``."""

    method: str
    owner: Node
    argument: Node
    safe: bool


Node: TypeAlias = "Path | Constant | Interpolation | Comparison | Membership | Negation | Junction | Alternative | Call"


@dataclass(frozen=True, slots=True)
class Script:
    r"""Expression that has been read.

    >>> script = Script.read("value.op == 'c' ? \"cdc.${value.n}\" : null", GROOVY)
    >>> script.evaluate(lambda path: Typed.of({"op": "c", "n": 7}[path.steps[0].name])).text
    'cdc.7'
    """

    root: Node
    language: str

    @classmethod
    def read(cls, expression: str, language: str) -> Script:
        """Read an expression.

        Raises:
            ConditionError: names the offset, the token found, and the expected one.
        """
        reader = _Reader(expression, language)
        root = reader.expression()
        reader.finish()
        return cls(root, language)

    def evaluate(self, read: Read) -> Typed:
        """Return the result for a record.

        Raises:
            RecordError: the script fails for the record.
        """
        return _evaluate(self.root, read, JavaScript if self.language == GRAAL_JS else Groovy)

    def paths(self) -> tuple[Path, ...]:
        """Return the parts of a record that the expression names, each once."""
        return tuple(dict.fromkeys(node for node in _nodes(self.root) if isinstance(node, Path)))

    def results(self) -> Iterator[Node]:
        """Yield the expressions of which the result is one."""
        nodes = [self.root]
        while nodes:
            node = nodes.pop()
            if isinstance(node, Alternative):
                nodes += [node.otherwise, node.then]
            else:
                yield node


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    match node:
        case Interpolation(parts):
            inner: Sequence[Node | str | None] = parts
        case Comparison(_, left, right) | Junction(_, left, right):
            inner = (left, right)
        case Membership(item, items, _):
            inner = (item, *items)
        case Negation(negated):
            inner = (negated,)
        case Alternative(condition, then, otherwise):
            inner = (condition, then, otherwise)
        case Call(_, owner, argument, _):
            inner = (owner, argument)
        case _:
            inner = ()
    for child in inner:
        if child is not None and not isinstance(child, str):
            yield from _nodes(child)


def _evaluate(node: Node, read: Read, rules: type[Groovy | JavaScript]) -> Typed:
    match node:
        case Path():
            return read(node)
        case Constant(item):
            return item
        case Interpolation(parts):
            texts = [part if isinstance(part, str) else _evaluate(part, read, rules).text for part in parts]
            return Typed("".join(texts), "gstring")
        case Comparison(operator, left, right):
            return _truth(_compared(operator, _evaluate(left, read, rules), _evaluate(right, read, rules), rules))
        case Membership(member, items, negated):
            found = _evaluate(member, read, rules)
            return _truth(Groovy.within(found, [_evaluate(one, read, rules) for one in items]) != negated)
        case Negation(inner):
            return _truth(not rules.is_true(_evaluate(inner, read, rules)))
        case Junction(conjunction, left, right):
            first = _evaluate(left, read, rules)
            if rules.is_true(first) != conjunction:
                return _truth(not conjunction) if rules is Groovy else first
            second = _evaluate(right, read, rules)
            return _truth(rules.is_true(second)) if rules is Groovy else second
        case Alternative(None, then, otherwise):
            first = _evaluate(then, read, rules)
            return first if rules.is_true(first) else _evaluate(otherwise, read, rules)
        case Alternative(condition, then, otherwise):
            assert condition is not None
            chosen = then if rules.is_true(_evaluate(condition, read, rules)) else otherwise
            return _evaluate(chosen, read, rules)
    return _called(node, _evaluate(node.owner, read, rules), read, rules)


def _truth(holds: bool) -> Typed:
    return TRUE if holds else FALSE


def _compared(operator: str, left: Typed, right: Typed, rules: type[Groovy | JavaScript]) -> bool:
    if operator in ("===", "!=="):
        return JavaScript.identical(left, right) == (operator == "===")
    if operator in ("==", "!="):
        return rules.equal(left, right) == (operator == "==")
    if left.type == right.type == "float64":
        # Two doubles are compared as such, where == takes -0.0 and 0.0 for different.
        return bool(_ORDERS[operator](left.value, right.value))
    order = rules.compare(left, right)
    if order is None:
        return False
    return bool(_ORDERS[operator](order, 0))


_ORDERS: Final = {"<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge}


def _called(node: Call, owner: Typed, read: Read, rules: type[Groovy | JavaScript]) -> Typed:
    if owner.value is None:
        if node.safe:
            return NULL
        if node.method == "equals" and rules is Groovy:
            return _truth(_evaluate(node.argument, read, rules).value is None)
        raise RecordError(f"Cannot invoke method {node.method}() on null object", _NULL_POINTER)
    argument = _evaluate(node.argument, read, rules)
    if node.method == "equals":
        return _truth(java_equal(owner, argument))
    if owner.type == "list" and node.method == "contains":
        return _truth(Groovy.within(argument, [Typed.of(item) for item in owner.value]))
    if not owner.is_text or not argument.is_text:
        problem = (
            f"No signature of method: {node.method}() is applicable for {owner.type or 'object'} and these arguments"
        )
        raise RecordError(problem, "groovy.lang.MissingMethodException")
    match node.method:
        case "startsWith":
            return _truth(owner.value.startswith(argument.value))
        case "endsWith":
            return _truth(owner.value.endswith(argument.value))
    return _truth(argument.value in owner.value)


class _Token(NamedTuple):
    """Piece of an expression.

    Attributes:
        kind: ``text``, ``number``, ``name``, ``sign``, ``other`` or ``end``.
        written: as it is written.
        offset: offset of its first character.
    """

    kind: str
    written: str
    offset: int


class _Reader:
    """Reads an expression from its first character to its last, in one pass."""

    def __init__(self, expression: str, language: str, offset: int = 0, depth: int = 0) -> None:
        if len(expression) > MAX_EXPRESSION:
            raise ConditionError(f"{len(expression):,} characters, at most {MAX_EXPRESSION:,}", text=expression[:60])
        self._expression = expression
        self._language = language
        self._offset = offset
        self._at = 0
        self._depth = depth
        self._next = self._token()

    def _token(self) -> _Token:
        found = _TOKEN.match(self._expression, self._at)
        if found is not None:
            self._at = found.end()
            kind = found.lastgroup or ""
            return _Token(kind, found[kind], self._offset + found.start(kind))
        rest = self._expression[self._at :]
        offset = self._offset + self._at + len(rest) - len(rest.lstrip())
        return _Token("end" if not rest.strip() else "other", rest.strip()[:20] or _END, offset)

    def _take(self, *signs: str) -> str | None:
        """Return the next token if it is one of these signs or words, and advance."""
        token = self._next
        if token.kind not in ("sign", "name") or token.written not in signs:
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
            raise self._unexpected(
                "an operator or the end; only fields, constants, comparisons, in, &&, ||, ! and ? : are read here"
            )

    def expression(self) -> Node:
        """Read an expression of any kind."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._unexpected(f"at most {MAX_DEPTH} expressions inside one another")
        node = self._either()
        if self._take("?:"):
            if self._language != GROOVY:
                raise self._unexpected("an operator of JavaScript")
            node = Alternative(None, node, self.expression())
        elif self._take("?"):
            then = self.expression()
            self._insist(":")
            node = Alternative(node, then, self.expression())
        self._depth -= 1
        return node

    def _either(self) -> Node:
        node = self._both()
        while self._take("||"):
            node = Junction(conjunction=False, left=node, right=self._both())
        return node

    def _both(self) -> Node:
        node = self._equality()
        while self._take("&&"):
            node = Junction(conjunction=True, left=node, right=self._equality())
        return node

    def _equality(self) -> Node:
        node = self._relation()
        while (operator := self._take("==", "!=", "===", "!==")) is not None:
            if operator in ("===", "!==") and self._language == GROOVY:
                problem = f"{operator[:-1]} for values: in Groovy {operator} compares identities"
                raise self._unexpected(problem)
            node = Comparison(operator, node, self._relation())
        return node

    def _relation(self) -> Node:
        node = self._unary()
        token = self._next
        if (operator := self._take("<", "<=", ">", ">=")) is not None:
            return Comparison(operator, node, self._unary())
        is_word = token.kind == "name" and token.written == "in"
        negated = token.written == "!" and re.match(r"in\b", self._expression[self._at :]) is not None
        if not (is_word or negated):
            return node
        if self._language != GROOVY:
            raise self._unexpected("an operator: JavaScript's in tests keys")
        if any(isinstance(result, Interpolation) for result in Script(node, self._language).results()):
            raise self._unexpected("no text with ${…} before in, as it is never an element")
        self._advance()
        if negated:
            self._advance()
        return Membership(node, tuple(self._list()), negated)

    def _list(self) -> Iterator[Node]:
        self._insist("[")
        if self._take("]"):
            return
        while True:
            yield self._unary()
            if self._take("]"):
                return
            self._insist(",")

    def _unary(self) -> Node:
        negations = 0
        while self._take("!"):
            negations += 1
        node = self._operand()
        if not negations:
            return node
        return Negation(node) if negations % 2 else Negation(Negation(node))

    def _operand(self) -> Node:
        if self._take("("):
            node = self.expression()
            self._insist(")")
            return self._postfixed(node)
        token = self._advance()
        minus = token.written == "-" and self._next.kind == "number"
        if minus:
            token = self._advance()
        match token.kind:
            case "number":
                return Constant(self._number(token, "-" if minus else ""))
            case "text":
                return self._postfixed(self._text(token))
            case "name" if token.written in _CONSTANTS:
                return Constant(_CONSTANTS[token.written])
            case "name" if token.written in _ROOTS:
                return self._postfixed(Path(token.written))
        names = "value.after.id, key.id, topic or header.NAME.value"
        raise self._unexpected(f"a field ({names}), a text in quotes, a number, true, false or null", token)

    def _postfixed(self, node: Node) -> Node:
        """Read fields and methods behind an operand."""
        while True:
            if (sign := self._take(".", "?.")) is not None:
                token = self._advance()
                if token.kind not in ("name", "text") or "$" in token.written:
                    raise self._unexpected("the name of a field", token)
                if self._next.written == "(":
                    node = self._call(node, token, safe=sign == "?.")
                    continue
                name = token.written if token.kind == "name" else self._unquoted(token)
                node = self._field(node, Step(name, sign == "?."), token)
            elif self._next.written == "[" and isinstance(node, Path):
                self._advance()
                token = self._advance()
                if token.kind != "text" or "$" in token.written:
                    raise self._unexpected("the name of a field in quotes", token)
                self._insist("]")
                node = self._field(node, Step(self._unquoted(token)), token)
            else:
                return self._complete(node)

    def _field(self, node: Node, step: Step, token: _Token) -> Path:
        if not isinstance(node, Path) or node.root == "topic":
            raise self._unexpected("an operator: only value, key and header have fields", token)
        if node.root == "header" and len(node.steps) == 1 and step.name != "value":
            raise self._unexpected("value, as in header.NAME.value", token)
        if node.root == "header" and len(node.steps) == 2:
            raise self._unexpected("an operator behind header.NAME.value", token)
        if self._language == GRAAL_JS and any(earlier.safe for earlier in node.steps):
            # There a missing object ends the whole path.
            step = step._replace(safe=True)
        return Path(node.root, (*node.steps, step))

    def _complete(self, node: Node) -> Node:
        if isinstance(node, Path) and node.root == "header" and len(node.steps) != 2:
            raise self._unexpected("header.NAME.value")
        return node

    def _call(self, node: Node, token: _Token, *, safe: bool) -> Node:
        """Read the argument of a method."""
        if token.written not in _METHODS or (
            (token.written == "includes") != (self._language == GRAAL_JS) and token.written in ("includes", "contains")
        ):
            usual = [name for name in _METHODS if name != ("contains" if self._language == GRAAL_JS else "includes")]
            raise self._unexpected(f"a field, or one of the methods {', '.join(usual)}", token)
        self._insist("(")
        if token.written == "get":
            name = self._advance()
            if name.kind != "text" or "$" in name.written:
                raise self._unexpected("the name of a field in quotes", name)
            self._insist(")")
            return self._field(node, Step(self._unquoted(name), safe), name)
        argument = self.expression()
        self._insist(")")
        return Call(token.written, self._complete(node), argument, safe)

    def _number(self, token: _Token, sign: str) -> Typed:
        written = token.written
        suffix = written[-1].lower() if written[-1].isalpha() else ""
        digits = sign + (written[:-1] if suffix else written)
        is_whole = digits.lstrip("-").isdecimal()
        if self._language == GRAAL_JS:
            if suffix:
                raise self._unexpected("a number without a suffix", token)
            return Typed(float(digits), "float64")
        if (is_whole and len(digits.lstrip("-")) > 1 and digits.lstrip("-")[0] == "0") or (
            suffix in "lig" and suffix and not is_whole
        ):
            raise self._unexpected("a decimal number, with L, I or G only behind whole ones", token)
        if suffix in ("d", "f") and suffix:
            value = float(digits)
            return Typed(single(digits), "float32") if suffix == "f" else Typed(value, "float64")
        if not is_whole:
            return Typed(Decimal(digits), "decimal")
        number = int(digits)
        bits = {"i": 31, "l": 63}.get(suffix, 0)
        if bits and not -(1 << bits) <= number < 1 << bits:
            raise self._unexpected(f"a number of {bits + 1} bits", token)
        if suffix == "g":
            return Typed(BigInt(number), "bigint")
        if suffix != "l" and -(1 << 31) <= number < 1 << 31:
            return Typed(number, "int32")
        return Typed(number, "int64") if -(1 << 63) <= number < 1 << 63 else Typed(BigInt(number), "bigint")

    def _text(self, token: _Token) -> Node:
        written = token.written
        if written[0] == "'" or self._language == GRAAL_JS:
            return Constant(Typed(self._unquoted(token), "string"))
        inner = written[1:-1]
        parts: list[str | Node] = []
        at = plain = 0
        while (found := _DOLLAR.search(inner, at)) is not None:
            at = found.end()
            if found[0].startswith("\\"):
                continue
            parts.append(self._unescaped(inner[plain : found.start()], token))
            start = found.start() + (2 if found[1] is None else 1)
            if found[1] is None:
                end = _end_of_braces(inner, at)
                if end is None:
                    raise self._unexpected("an expression and '}' behind ${ in the text", token)
                at = end
            reader = _Reader(
                inner[start : at - (found[1] is None)], self._language, token.offset + 1 + start, self._depth
            )
            parts.append(reader.expression())
            reader.finish()
            plain = at
        rest = self._unescaped(inner[plain:], token, dollar=True)
        return Interpolation((*parts, rest)) if parts else Constant(Typed(rest, "string"))

    def _unquoted(self, token: _Token) -> str:
        return self._unescaped(token.written[1:-1], token)

    def _unescaped(self, text: str, token: _Token, *, dollar: bool = False) -> str:
        """Return a text without its escapes, of which each language knows its own."""
        if dollar and re.search(r"(?<!\\)\$", text):
            raise self._unexpected(r"\$ for a dollar sign in a text in double quotes", token)

        def unescape(found: re.Match[str]) -> str:
            escape = found[1]
            if escape[0] == "u" and len(escape) > 4:
                return chr(int(escape[-4:], 16))
            if escape[0].isdecimal() and self._language == GROOVY and escape[0] in "01234567":
                return chr(int(escape, 8))
            known = _ESCAPED.get(escape, escape if escape in _PLAIN_ESCAPES else None)
            if known is None or (self._language == GRAAL_JS and escape == "s"):
                raise self._unexpected(f"an escape that is known, and not \\{escape[0]}", token)
            return known

        return _ESCAPE.sub(unescape, text)


_CONSTANTS: Final = {"true": TRUE, "false": FALSE, "null": NULL}


def _end_of_braces(text: str, at: int) -> int | None:
    """Return the offset behind the brace that closes an expression; texts in it have no double quotes."""
    quoted = False
    for index in range(at, len(text)):
        if text[index] == "'":
            quoted = not quoted
        elif text[index] == "{" and not quoted:
            return None
        elif text[index] == "}" and not quoted:
            return index + 1
    return None
