"""Print the sizes of the sources: modules and lines by package, ``Any``, ``__all__``, mirrored tests.

``python -m tools.sizes``; with ``--json`` for programs. ``--check`` prints the modules that are too long, and those of
one package whose names differ by an ending only, and fails if there are some, or if all modules together are more or
longer than `MOST`: a change that needs room raises the number, and its reader sees it. ``--forms`` lists the hot
operations with their reference and their loop, and fails while one of them has another form.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
MOST_LINES = 780
"""Maximum number of lines of a module."""
MOST = {"modules": 480, "code_lines": 103_845, "any": 193}
"""Limits of the whole package."""


class Forms(NamedTuple):
    """Forms of a hot operation, each as ``module:name`` below `turnout`.

    Attributes:
        operation: what it does.
        reference: the short form for one record.
        loop: the compiled form for any number; empty if there is none yet.
        others: forms that remain beside these two.
    """

    operation: str
    reference: str
    loop: str
    others: tuple[str, ...] = ()


FORMS = (
    Forms("read frames of NATS", "nats.protocol.frames:MessageLine", "loops.frames:find_frames"),
    Forms("read acknowledged positions", "nats.protocol.positions:JSAck", "loops.frames:read_positions"),
    Forms("read answers to publishing", "nats.protocol.frames:ErrorLine", "loops.frames:read_answers"),
    Forms("write frames of NATS", "nats.protocol.frames:frame", "loops.frames:write_frames"),
    Forms("read headers of NATS", "nats.protocol.headers:parse", "loops.frames:read_headers"),
    Forms("read schemaless JSON", "codecs.plain_json:SchemalessReader", "loops.json:scan"),
    Forms("write JSON", "codecs.json_writing", "loops.json:write"),
    Forms("map subjects", "subjects.transform:SubjectTransform", "loops.subjects:render"),
    Forms("match subscriptions", "conditions.model:evaluate", "loops.match:match"),
    Forms("read Avro", "codecs.avro.reading:reader_of", "loops.avro:find_fields"),
    Forms("read Protobuf", "codecs.protobuf.reading:MessageReader", "loops.protobuf:find_fields"),
    Forms("write Avro", "codecs.avro.codec:column_writer", "loops.texts:weave"),
    Forms("write Protobuf", "codecs.protobuf.scalars:scalar_writer", "loops.texts:weave"),
    Forms("read typed JSON", "codecs.json_reading:Reader", "loops.json:scan_fields"),
    Forms("read times", "transforms.java.times:time_parser", "loops.times:read_times"),
    Forms("write times", "records.text:iso_of", "loops.times:write_numbers"),
    # Spark compiles its expressions: decision 14.
    Forms(
        "map subjects of DataFrames",
        "subjects.transform:SubjectTransform",
        "spark.subjects:transform_subject",
    ),
)

_ANY = re.compile(r"\bAny\b")
_ENDING = re.compile(r"(?:ings?|ers?|ors?|ions?|ments?|es|ed|e|s)$")


def _modules(sources: Path) -> list[Path]:
    return [path for path in sorted(sources.rglob("*.py")) if "_pb2" not in path.name and path.name != "_built.py"]


def _package(sources: Path, path: Path) -> str:
    parts = path.relative_to(sources).parts
    return parts[0] if len(parts) > 1 else "(top)"


def measure(sources: Path, tests: Path) -> dict[str, object]:
    """Return the figures of a source tree and of its tests."""
    paths = _modules(sources)
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    modules, lines, code = Counter[str](), Counter[str](), Counter[str]()
    for path, text in texts.items():
        modules[_package(sources, path)] += 1
        code[_package(sources, path)] += code_lines(path)
        lines[_package(sources, path)] += text.count("\n")
    named = [path for path in paths if path.name != "__init__.py"]
    mirrored = {path for path in named if (tests / _mirror(sources, path)).exists()}
    tested = _imported_by(tests)
    own = {path for path in named if path in mirrored or _module_name(sources, path) in tested}
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for text in texts.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        "modules": len(paths),
        "lines": sum(lines.values()),
        "code_lines": sum(code.values()),
        "packages": {
            name: {"modules": modules[name], "lines": lines[name], "code_lines": code[name]} for name in sorted(lines)
        },
        "any": sum(len(_ANY.findall(text)) for text in texts.values()),
        "median_function_lines": sorted(functions)[len(functions) // 2],
        "longest_function_lines": max(functions),
        "mirrored_tests_percent": round(100 * len(mirrored) / len(named)),
        "of_modules_that_tests_import": round(100 * len(mirrored) / max(1, len(own))),
    }


def code_lines(path: Path) -> int:
    """Return the number of lines that are neither blank nor a comment nor of a docstring."""
    numbers: set[int] = set()
    begins = True
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type in (tokenize.ENCODING, tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT):
                continue
            if not (token.type == tokenize.STRING and begins) and token.type not in (
                tokenize.NEWLINE,
                tokenize.ENDMARKER,
            ):
                numbers.update(range(token.start[0], token.end[0] + 1))
            begins = token.type == tokenize.NEWLINE
    return len(numbers)


def too_much(figures: Mapping[str, object]) -> list[str]:
    """Return a finding for each limit of the whole package that is exceeded."""
    return [
        f"{figures[name]:,} {name.replace('_', ' ')}, more than {most:,}: make room, or raise tools.sizes.MOST"
        for name, most in MOST.items()
        if isinstance(figures[name], int) and figures[name] > most  # type: ignore[operator]
    ]


def missing_names(forms: Iterable[Forms]) -> list[str]:
    """Return a finding for each form whose module or name does not exist."""
    findings = []
    for form in forms:
        for path in filter(None, (form.reference, form.loop, *form.others)):
            module, _, name = path.partition(":")
            if not hasattr(importlib.import_module(f"turnout.{module}"), name or "__name__"):
                findings.append(f"{form.operation}: turnout.{module} has no {name}")
    return findings


def too_long(sources: Path) -> list[str]:
    """Return a finding for each module of more than `MOST_LINES` lines."""
    lines = {path: path.read_text(encoding="utf-8").count("\n") for path in _modules(sources)}
    return [f"{path}: {count} lines, more than {MOST_LINES}" for path, count in lines.items() if count > MOST_LINES]


def alike(sources: Path) -> list[str]:
    """Return a finding for each group of modules of a package that differ by an ending only, as caller and calls."""
    groups: dict[tuple[Path, str], list[str]] = defaultdict(list)
    for path in _modules(sources):
        name = path.stem.strip("_")
        # Of a doubled letter one is left: mapper is mapp, and then map.
        stem = re.sub(r"(.)\1$", r"\1", _ENDING.sub("", name))
        groups[path.parent, stem].append(name)
    return [
        f"{folder}: {' and '.join(names)} differ by an ending" for (folder, _), names in groups.items() if names[1:]
    ]


def _mirror(sources: Path, path: Path) -> Path:
    relative = path.relative_to(sources)
    return relative.with_name(f"test_{relative.stem.strip('_')}.py")


def _module_name(sources: Path, path: Path) -> str:
    return ".".join((sources.name, *path.relative_to(sources).with_suffix("").parts))


def _imported_by(tests: Path) -> set[str]:
    """Return the full names that test files of any folder import, modules and what is in them."""
    names: set[str] = set()
    for file in tests.rglob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def main(arguments: list[str]) -> int:
    """Print the figures and return the exit code."""
    parser = argparse.ArgumentParser(prog="tools.sizes", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--check", action="store_true", help="print modules that are too long or named alike, and nothing else"
    )
    parser.add_argument("--forms", action="store_true", help="print the forms of hot operations, and nothing else")
    options = parser.parse_args(arguments)
    if options.forms:
        for form in FORMS:
            print(f"{form.operation:<36} {form.reference:<36} {form.loop or '-':<26} {', '.join(form.others) or '-'}")
        print("\n".join(missing_names(FORMS)))
        return int(bool(missing_names(FORMS)) or any(form.others or not form.loop for form in FORMS))
    if options.check:
        sources = ROOT / "src" / "turnout"
        findings = too_long(sources) + alike(sources) + too_much(measure(sources, ROOT / "tests"))
        print("\n".join([*findings, f"{len(findings)} findings"]))
        return int(bool(findings))
    figures = measure(ROOT / "src" / "turnout", ROOT / "tests")
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    packages = figures.pop("packages")
    assert isinstance(packages, dict)
    for name, size in packages.items():
        print(f"{name:<14} {size['modules']:>4} modules {size['lines']:>7} lines {size['code_lines']:>7} of code")
    for name, figure in figures.items():
        print(f"{name.replace('_', ' '):<28} {figure:>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
