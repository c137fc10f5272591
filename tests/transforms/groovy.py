"""Expressions and their results in Groovy.

``python -m tests.transforms.groovy`` writes the vectors: what Groovy itself makes of these expressions.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from tests.transforms.kafka_host import jars

VERSION = "4.0.24"
VECTORS = Path(__file__).parents[1] / "vectors" / "groovy" / "expressions.json"

Json = dict[str, Any]

OPERANDS: list[Json | None] = [
    None, {"int8": 5}, {"int32": 5}, {"int64": 5}, {"int64": 49}, {"int32": 1}, {"int64": 9007199254740993},
    {"int64": 9007199254740992}, {"float64": 9007199254740992.0}, {"float64": 5.0}, {"float64": 0.1},
    {"float32": 0.1}, {"float64": -0.0}, {"float64": 0.0}, {"decimal": "5.00"}, {"decimal": "0.1"}, {"bigint": 5},
    {"boolean": True}, {"boolean": False}, {"string": "1"}, {"string": "5"}, {"string": "true"}, {"string": ""},
    {"string": "ab"}, {"string": "b"}, {"string": "ä"},
]  # fmt: skip
OPERATORS = ("==", "!=", "<", ">=")
FIELDS: Json = {
    "op": {"string": "c"}, "n": {"int64": 1}, "i": {"int32": 1}, "none": None, "zero": {"int64": 0},
    "empty": {"string": ""}, "yes": {"boolean": True}, "d": {"decimal": "1.50"}, "f": {"float64": 1.0},
    "q": {"string": "it's \"$\\"}, "source": {"table": {"string": "orders"}, "n": {"int32": 7}},
    "big": {"int64": 9007199254740993}, "a b": {"string": "x"},
}  # fmt: skip
EXPRESSIONS = [
    "value.op == 'c' ? \"cdc.${value.source.table}\" : null",
    "value.op == 'd' ? \"cdc.${value.source.table}\" : null",
    '"$topic.$value.op-${value.n}"',
    '"${value.none}"',
    '"${value.d} ${value.f} ${value.yes}"',
    '"\\$x"',
    "'$x'",
    '"$value.source.table."',
    '"${topic}" == topic',
    "'cdc' == \"c${'d'}c\"",
    "\"${value.op in ['c'] ? 1 : 2}\"",
    "value.n == '1'",
    "value.i == '1'",
    "value.n == 1",
    "value.n == 1L",
    "value.n == 1.0",
    "value.n == 1.0d",
    "1 == '1'",
    "49 == '1'",
    "value.none < 5",
    "value.none == null",
    "value.none != null",
    "value.none > 5",
    "5 > value.none",
    "value.big == 9007199254740992",
    "value.big == 9007199254740993",
    "value.big > 9007199254740992",
    "value.big == 9007199254740992.0d",
    "value.f == 1",
    "value.d == 1.5",
    "value.d > 1",
    "0.1 == 0.1d",
    "0.1f == 0.1",
    "'\\u0042ob' == 'Bob'",
    "'\\uu0042' == 'B'",
    "'a\\tb'",
    "'\\101'",
    "'\\s'",
    "'\\q'",
    "'\\\\'",
    "'it\\'s'",
    '"it\\"s"',
    "value.q == 'it\\'s \"\\$\\\\'",
    "'\\$'",
    "value.n in [1]",
    "value.n in [1L]",
    "value.i in [1]",
    "value.op in ['c', 'u']",
    "value.op in []",
    "value.op !in ['c']",
    "value.none in [null]",
    "value.none in []",
    "!(value.op in ['d'])",
    "value.d in [1.50]",
    "value.d in [1.5]",
    "value.op in ['c'] && value.n == 1",
    "value.yes",
    "!value.yes",
    "!value.zero",
    "!value.empty",
    "!value.none",
    "!!value.op",
    "value.zero || value.op",
    "value.yes && value.op",
    "value.zero ? 'a' : 'b'",
    "value.empty ?: 'b'",
    "value.op ?: 'b'",
    "value.zero ? 'a' : value.yes ? 'b' : 'c'",
    "value.zero ? 'a' : (value.yes ? (value.n > 0 ? 'p' : 'm') : 'c')",
    "(value.yes ? 'a' : 'b') == 'a'",
    "value.source.table",
    "value.none.x == 1",
    "value.none?.x == 1",
    "value.none?.x?.y",
    "value.none?.x.y",
    "value.missing == null",
    "value.missing.x",
    "value['op']",
    "value['a b']",
    "value.'a b'",
    'value."a b"',
    "value.get('op')",
    "value.source.get('n')",
    "value.op.startsWith('c')",
    "value.op.equals('c')",
    "value.n.equals(1)",
    "value.n.equals(1L)",
    "value.op.contains('')",
    "value.none.startsWith('c')",
    "value.none?.startsWith('c')",
    "value.n.startsWith('1')",
    "value.op.endsWith('x')",
    "value.op < 'd'",
    "value.op < 5",
    "value.yes < 5",
    "value.yes == 1",
    "value.yes == 'true'",
    "value.source == null",
    "value.op == 'c' || value.none.x",
    "value.op == 'd' && value.none.x",
    "value.op == 'c' == true",
    "1 < 2 == true",
    "-1 < value.zero",
    "-1 == -1L",
    "1I == 1",
    "1G == 1",
    "1_000 == 1000",
    "1e3 == 1000",
    "1E3d == 1000",
    "2147483648 in [2147483648L]",
    "2147483647 in [2147483647]",
    "value.op\n== 'c'",
    "value.op == 'c'\n&& value.n == 1",
    "value.op == 'c' &&\nvalue.n == 1",
    "(value.op == 'c')",
    "((value.op) == ('c'))",
    "header.h.value == 'v'",
    "header.x.value",
    "header.x?.value",
    "topic",
    "topic == 't'",
    "key.id == 3",
    "'a' == 'a' ? topic : null",
    "null",
    "true",
    "'x'",
    "value.source.n == 7",
    "value.n >= 1 && value.n <= 1",
]
HOST = """
import org.codehaus.groovy.control.CompilationFailedException
def text(Object item) { item.collect { '%04x'.formatted(it as int) }.join('') }
def unit(String hex, int at) { (char) Integer.parseInt(hex.substring(4 * at, 4 * at + 4), 16) }
def decode(String hex) { (0..<hex.length().intdiv(4)).collect { unit(hex, it) }.join('') }
new File(args[0]).eachLine { line ->
    def (expression, scope) = line.split(' ').collect { decode(it) }
    def shell = new GroovyShell(new Binding(new GroovyShell().evaluate(scope)))
    def script
    try { script = shell.parse(expression) } catch (CompilationFailedException e) { println 'refused'; return }
    try {
        def result = script.run()
        def name = result == null ? 'null' : result.getClass().getSimpleName()
        println "${name} ${text((result as String ?: '') as char[])}"
    } catch (Throwable e) { println 'failed' }
}
"""
_CLASSES = {
    "Boolean": "boolean", "String": "string", "GStringImpl": "gstring", "Integer": "int32", "Long": "int64",
    "Double": "float64", "Float": "float32", "BigDecimal": "decimal", "BigInteger": "bigint", "null": "",
}  # fmt: skip


def cases() -> Iterator[Json]:
    """Yield expressions with the fields of their value."""
    for left, right in product(OPERANDS, OPERANDS):
        for operator in OPERATORS:
            yield {"expression": f"value.a {operator} value.b", "value": {"a": left, "b": right}}
        yield {"expression": "value.a.equals(value.b)", "value": {"a": left, "b": right}}
    for operand in OPERANDS:
        yield {"expression": "!value.a", "value": {"a": operand}}
        yield {"expression": '"${value.a}"', "value": {"a": operand}}
    for expression in EXPRESSIONS:
        yield {"expression": expression, "value": FIELDS}


def _literal(item: Any) -> str:
    """Return a typed value as a constant of Groovy."""
    if item is None:
        return "null"
    kinds = {"int8": "byte", "int32": "int", "int64": "long", "float32": "float"}
    match list(item.items()):
        case [("string", value)]:
            return f"[{','.join(str(ord(char)) for char in value)}].collect {{ (char) it }}.join('')"
        case [("boolean", value)]:
            return str(value).lower()
        case [("float64", value)]:
            return f"Double.parseDouble('{value!r}')"
        case [("decimal" | "bigint" as kind, value)]:
            return f"new {'BigDecimal' if kind == 'decimal' else 'BigInteger'}('{value}')"
        case [(kind, value)] if kind in kinds:
            return f"(({kinds[kind]}) {value!r})"
    return "[" + ", ".join(f"'{name}': {_literal(inner)}" for name, inner in item.items()) + "]"


def _hex(text: str) -> str:
    return text.encode("utf-16-be").hex()


def write() -> None:
    """Ask Groovy for the results, and write them as vectors."""
    listed = list(cases())
    scopes = [
        f"[value: {_literal(case['value'])}, key: [id: 3L], topic: 't', header: [h: [value: 'v']]]" for case in listed
    ]
    with tempfile.TemporaryDirectory() as folder:
        host, lines = Path(folder, "host.groovy"), Path(folder, "cases")
        host.write_text(HOST)
        lines.write_text("".join(f"{_hex(c['expression'])} {_hex(s)}\n" for c, s in zip(listed, scopes, strict=True)))
        path = ":".join(map(str, jars(f"groovy-{VERSION}", (("org.apache.groovy", "groovy", VERSION),))))
        command = ["java", "-cp", path, "groovy.ui.GroovyMain", str(host), str(lines)]
        answers = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    written = []
    for case, answer in zip(listed, answers, strict=True):
        kind, _, text = answer.partition(" ")
        result: Json = {kind: True} if kind in ("refused", "failed") else {"type": _CLASSES.get(kind, "other")}
        if result.get("type") not in (None, "", "other"):
            result["text"] = bytes.fromhex(text).decode("utf-16-be")
        written.append(json.dumps({**case, **result}, ensure_ascii=False))
    VECTORS.parent.mkdir(exist_ok=True)
    VECTORS.write_text("[\n" + ",\n".join(written) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write()
