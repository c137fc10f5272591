"""The extras of pyproject.toml: they bring what turnout imports, and each is tried with its lowest versions."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packaging import test_lowest
from tests.packaging.environments import ROOT, declared_extras

NOT_HERE = {"_typeshed", "aws_msk_iam_sasl_signer"}
"""Modules of type checkers, and of an extra that the tests do without."""


def test_every_extra_is_tried() -> None:
    """An extra that is added to pyproject.toml gets a test with the lowest versions."""
    tried = {name.removeprefix("test_extra_") for name in vars(test_lowest) if name.startswith("test_extra_")}

    assert tried | {"kafka"} == set(declared_extras())
    assert declared_extras()["kafka"][0] == "turnout[spark]"


def test_what_is_imported_is_brought_by_an_extra() -> None:
    """A package that only the tests install is missing where people run turnout."""
    brought = {canonicalize_name(name) for name in _brought("turnout", tuple(declared_extras()), set())}
    distributions = packages_distributions()
    missing = {
        (module, str(path.relative_to(ROOT)))
        for path in (ROOT / "src" / "turnout").rglob("*.py")
        for module in _imported(path)
        if not brought & set(map(canonicalize_name, distributions.get(module, ())))
    }

    assert missing == set()


def _brought(name: str, extras: tuple[str, ...], seen: set[tuple[str, tuple[str, ...]]]) -> Iterator[str]:
    """Yield the names of what is installed with a distribution and these extras."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    yield name
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield from _brought(requirement.name, tuple(sorted(requirement.extras)), seen)


def _imported(path: Path) -> set[str]:
    """Return the top-level modules of others that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names} - sys.stdlib_module_names - NOT_HERE - {"turnout"}
