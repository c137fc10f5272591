"""Every regular expression of the sources, and texts that make a bad one slow."""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import turnout

# The standard library has no public parser of regular expressions.
codes: Any = importlib.import_module("re._constants")
parser: Any = importlib.import_module("re._parser")

SOURCES: Final = Path(turnout.__file__).parent
_ENGINES: Final = frozenset({"re", "regex"})
_CALLS: Final = frozenset({"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
_REPEATING: Final = frozenset({"sub", "subn", "split", "findall", "finditer"})
_UNITS: Final = 90
"""Repeated texts for each pattern, at most."""


@dataclass(frozen=True)
class Found:
    """One regular expression.

    Attributes:
        place: the file below ``turnout/`` and the line.
        pattern: compiled.
        methods: what the sources call of it: ``match``, ``fullmatch``, ``search`` and ``finditer``.
    """

    place: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def files() -> list[str]:
    """Return the sources that import an engine, below ``turnout/``."""
    imports = re.compile(r"^\s*(?:import|from) (?:re|regex)\b", re.MULTILINE)
    return [
        file.relative_to(SOURCES).as_posix()
        for file in sorted(SOURCES.rglob("*.py"))
        if imports.search(file.read_text())
    ]


def collected(file: str) -> tuple[list[Found], set[str]]:
    """Return the regular expressions of a file, and the functions that compile what is known only while they run."""
    tree = ast.parse((SOURCES / file).read_text())
    module = importlib.import_module(
        ".".join(("turnout", *file.removesuffix(".py").split("/"))).removesuffix(".__init__")
    )
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        assert not (isinstance(node, ast.ImportFrom) and node.module in _ENGINES), (
            "found here under their own names only"
        )
        assert not (isinstance(node, ast.alias) and node.name in _ENGINES and node.asname), (
            "found under its own name only"
        )
    found: list[Found] = []
    unknown: set[str] = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _ENGINES):
            continue
        call = parents[node]
        if node.attr in _CALLS:
            assert isinstance(call, ast.Call), f"{file}:{node.lineno}: a function of {node.value.id} that is passed on"
            patterns = list(_patterns(call, node.attr, parents, vars(module)))
            methods = _methods(call, node.attr, parents, tree)
            found += [Found(f"{file}:{node.lineno}", pattern, methods) for pattern in patterns]
            unknown |= set() if patterns else {_function(call, parents)}
    return found, unknown


def _patterns(call: ast.Call, name: str, parents: Mapping[ast.AST, ast.AST], names: dict[str, Any]) -> Iterator[Any]:
    """What the call compiles, evaluated where it stands; nothing where that takes a function's variables."""
    if name != "compile":
        flags = [word for word in call.keywords if word.arg == "flags"]
        call = ast.Call(ast.Attribute(call.func.value, "compile", ast.Load()), call.args[:1], flags)  # type: ignore[attr-defined]
    node: ast.AST | None = call
    while isinstance(node, ast.expr | ast.comprehension):
        if isinstance(node, ast.expr):
            try:
                value = eval(compile(ast.fix_missing_locations(ast.Expression(node)), "sources", "eval"), names)
            except (NameError, AttributeError):
                pass
            else:
                yield from _inside(value)
                return
        node = parents.get(node)


def _inside(value: object) -> Iterator[Any]:
    if hasattr(value, "fullmatch"):
        yield value
    elif isinstance(value, Mapping):
        yield from _inside(tuple(value.values()))
    elif isinstance(value, tuple | list | set | frozenset):
        for item in value:
            yield from _inside(item)


def _methods(call: ast.Call, name: str, parents: Mapping[ast.AST, ast.AST], tree: ast.Module) -> frozenset[str]:
    """How the pattern is applied: by this call, by the attribute behind it, or by the uses of the name that it gets."""
    if name != "compile":
        return _grouped({name})
    behind = parents[call]
    if isinstance(behind, ast.Attribute):
        return _grouped({behind.attr})
    while not isinstance(behind, ast.stmt):
        behind = parents[behind]
    targets = behind.targets if isinstance(behind, ast.Assign) else [getattr(behind, "target", None)]
    assigned = {target.id for target in targets if isinstance(target, ast.Name)}
    uses = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in assigned
        and node.attr in _CALLS
    }
    return _grouped(uses) if uses else frozenset({"match", "fullmatch"})


def _grouped(names: set[str]) -> frozenset[str]:
    return frozenset("finditer" if name in _REPEATING else name for name in names)


def _function(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    while not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
        node = parents[node]
    return getattr(node, "name", "")


# --- texts ------------------------------------------------------------------------------------------------------------


def hostile(pattern: re.Pattern[Any], size: int) -> Iterator[str | bytes]:
    """Yield texts of about *size* characters: parts of the pattern, repeated after a beginning that it takes."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    atoms = list(dict.fromkeys(_atoms(tree)))[:14]
    heads = list(dict.fromkeys(_heads(tree)))[:8]
    pairs = map("".join, itertools.permutations(atoms, 2))
    units = list(dict.fromkeys([*_samples(tree), *heads[1:], *atoms, *pairs]))[:_UNITS]
    for head, unit in itertools.product(heads, units):
        repeated = unit * (size // len(unit))
        ends = ("", "\0", "\r\0", "\n\0", '"') if len(unit) == 1 or unit in units[:8] else ("\r\0",)
        for end in ends:
            text = head + repeated + end
            yield text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text


def _heads(tree: Any) -> Iterator[str]:
    """Samples of the beginnings of a pattern, up to each part that is no literal, and the same of its groups."""
    yield ""
    for at in range(1, len(tree)):
        if tree[at][0] is not codes.LITERAL:
            yield "".join(_sample(item) for item in tree[:at])
    for inner in _children(tree):
        yield from _heads(inner)


def _samples(tree: Any) -> Iterator[str]:
    """Samples of a pattern and of each of its groups, as far as they are not empty."""
    whole = "".join(_sample(item) for item in tree)
    if whole:
        yield whole
    for inner in _children(tree):
        yield from _samples(inner)


def _atoms(tree: Any) -> Iterator[str]:
    """The literals and a character or two of each class."""
    literal = ""
    for code, value in tree:
        if code is codes.LITERAL:
            literal += chr(value)
            continue
        if literal:
            yield literal
        literal = ""
        yield from _characters(code, value)
    if literal:
        yield literal
        yield literal[0]
    for inner in _children(tree):
        yield from _atoms(inner)


_CATEGORIES: Final = {
    codes.CATEGORY_SPACE: " \t\n",
    codes.CATEGORY_DIGIT: "1",
    codes.CATEGORY_WORD: "a1",
    codes.CATEGORY_NOT_SPACE: "a.",
    codes.CATEGORY_NOT_DIGIT: "a ",
    codes.CATEGORY_NOT_WORD: " .",
}


def _characters(code: Any, value: Any) -> Iterator[str]:
    if code is codes.ANY:
        yield "a"
    elif code is codes.NOT_LITERAL:
        yield "b" if value == ord("a") else "a"
    elif code is codes.IN:
        named = [character for item in value for character in _of_class(*item)]
        if value[0][0] is codes.NEGATE:
            # What ends the class belongs to an attack as much as what goes on with it.
            yield next(character for character in "a1 .-" if character not in named)
        yield from named[:4]


def _of_class(code: Any, value: Any) -> Iterator[str]:
    if code is codes.LITERAL:
        yield chr(value)
    elif code is codes.RANGE:
        yield chr(value[0])
    elif code is codes.CATEGORY:
        yield from _CATEGORIES[value]


def _children(tree: Any) -> Iterator[Any]:
    for _, value in tree:
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, parser.SubPattern):
                yield part
            elif isinstance(part, list):
                yield from (inner for inner in part if isinstance(inner, parser.SubPattern))


def _sample(item: tuple[Any, Any]) -> str:
    """A text that one part of a pattern takes, as well as it can be said."""
    code, value = item
    if code is codes.LITERAL:
        return chr(value)
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        return "".join(map(_sample, value[2])) * max(1, value[0])
    if code is codes.BRANCH:
        return "".join(map(_sample, value[1][0]))
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return ""
    if code is codes.SUBPATTERN:
        return "".join(map(_sample, value[3]))
    if code is codes.ATOMIC_GROUP:
        return "".join(map(_sample, value))
    return next(_characters(code, value), "")
