"""The package as a whole: what importing it costs, what it offers, and that its documents hold."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import turnout

ROOT = Path(__file__).parents[1]
OPTIONAL = ("pyspark", "grpc", "nats", "pymongo", "pandas", "fastapi", "uvicorn", "re2", "cel_expr_python")
HEAVY = ("numpy", "pyarrow", "pydantic")
PUBLIC = (
    "turnout",
    "turnout.subjects",
    "turnout.conditions",
    "turnout.nats.protocol",
    "turnout.records",
    "turnout.codecs",
    "turnout.transforms",
    "turnout.subscriptions",
    "turnout.subscriptions.index",
    "turnout.routes",
    "turnout.engine",
    "turnout.history",
)


@pytest.mark.parametrize("package", PUBLIC)
def test_importing_loads_nothing_optional(package: str) -> None:
    """The pure packages can be imported where no extra is installed."""
    assert loaded_by(package, OPTIONAL) == "[]"


@pytest.mark.parametrize("package", ["turnout.subjects", "turnout.conditions", "turnout.nats.protocol"])
def test_importing_the_smallest_loads_little(package: str) -> None:
    """Subjects, conditions and the protocol are for clients, too: they compute on single texts, and need no arrays."""
    assert loaded_by(package, HEAVY) == "[]"


def loaded_by(package: str, names: tuple[str, ...]) -> str:
    parent = "import sys, types; sys.modules['turnout'] = types.ModuleType('turnout'); " if "." in package else ""
    parent += f"sys.modules['turnout'].__path__ = [{str(ROOT / 'src' / 'turnout')!r}]; " if parent else "import sys; "
    code = f"{parent}import {package}; print(sorted(set(sys.modules) & set({names!r})))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    "package", [*PUBLIC, "turnout.spark", "turnout.nats.jetstream", "turnout.nats.wire", "turnout.embedded"]
)
def test_all_is_what_there_is(package: str) -> None:
    """Every name of ``__all__`` exists, and the list is in order."""
    module = importlib.import_module(package)

    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(set(module.__all__)) == len(module.__all__)


def test_the_public_names() -> None:
    """The names on which other code relies exist."""
    names = "MappingTable Matcher Route SubjectTransform Subscription diff explain matches open_store parse replay test"
    assert set(turnout.__all__) >= set(names.split())
    assert turnout.Matcher([turnout.Subscription(["d"], turnout.parse("a:1"), id="x")]).match({"a": 1}).ids == ["x"]


@pytest.mark.parametrize(
    "line", ["from turnout import replay", "from turnout import diff", "from turnout.spark import run"]
)
def test_what_needs_spark_says_so_in_one_sentence(line: str) -> None:
    """With the command that installs it, where Spark is not installed."""
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        f"try:\n    {line}\nexcept Exception as e:\n    print(type(e).__name__, e)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("MissingExtraError ")
    assert 'pip install "turnout[spark]"' in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_the_tests_of_a_route_file_run_from_python(tmp_path: Path) -> None:
    """The report has each result, as that of the command."""
    text = (
        'name: a\nsource: {format: nats, servers: "nats://a", stream: S}\nsink: {format: nats, servers: "nats://a"}\n'
        "mappings: {in.a: out.a}\ntests:\n  cases:\n"
        "    - {name: right, record: {topic: in.a, value: x}, expect: {topic: out.a}}\n"
        "    - {name: wrong, record: {topic: in.a, value: x}, expect: {topic: out.b}}\n"
    )
    (tmp_path / "a.yaml").write_text(text, encoding="utf-8")

    report = turnout.test(tmp_path / "a.yaml")

    assert [result.passed for result in report.results] == [True, False]


def _documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("document", _documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_in_documents_run(document: Path) -> None:
    """Every ``>>>`` example gives what the document says."""
    result = doctest.testfile(str(document), module_relative=False)

    assert result.failed == 0


@pytest.mark.parametrize("document", _documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_documents_lead_somewhere(document: Path) -> None:
    """The target of each relative link exists."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))

    assert [link for link in links if not (document.parent / link).exists()] == []


def _modules_with_examples() -> list[str]:
    """Those whose text has a ``>>>``; a session of Spark is nothing that an example starts."""
    source = ROOT / "src"
    return [
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in sorted((source / "turnout").rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


@pytest.mark.parametrize("name", _modules_with_examples())
def test_examples_in_docstrings_run(name: str) -> None:
    """Examples in docstrings give what they say."""
    result = doctest.testmod(importlib.import_module(name))

    assert result.attempted
    assert result.failed == 0


@pytest.mark.parametrize("package", ["turnout.subjects", "turnout.conditions", "turnout.codecs", "turnout.transforms"])
def test_public_functions_show_an_example(package: str) -> None:
    """The docstring has an example with the result, and the example runs."""
    module = importlib.import_module(package)
    functions = [name for name in module.__all__ if inspect.isfunction(getattr(module, name))]

    assert [name for name in functions if ">>> " not in (getattr(module, name).__doc__ or "")] == []


def test_pins_are_names_and_versions() -> None:
    """The constraints record no place that a package came from."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not re.fullmatch(r"#.*|[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+|", line)] == []


def test_no_module_imports_a_name_twice() -> None:
    """Neither for the type checker alone, beside the import that it has anyway."""
    twice = {}
    for path in (ROOT / "src" / "turnout").rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        checked = [node for top in body if isinstance(top, ast.If) for node in top.body]
        imports = [node for node in (*body, *checked) if isinstance(node, ast.Import | ast.ImportFrom)]
        names = [alias.asname or alias.name for node in imports for alias in node.names]
        if len(set(names)) < len(names):
            twice[path.name] = sorted({name for name in names if names.count(name) > 1})

    assert twice == {}


def test_every_module_of_spark_reaches_pyspark() -> None:
    """What a run needs without Spark is in ``turnout.runtime``."""
    source = ROOT / "src" / "turnout" / "spark"
    imports = {
        ".".join(path.relative_to(source.parents[1]).with_suffix("").parts): _imports(path)
        for path in source.rglob("*.py")
        if path.name != "__init__.py"
    }
    reaching: set[str] = set()
    while found := {
        name for name, imported in imports.items() if name not in reaching and imported & {"pyspark", "py4j", *reaching}
    }:
        reaching |= found

    assert imports.keys() - reaching == set()


def _imports(path: Path) -> set[str]:
    """Return the modules that a file imports, and their top-level packages, but not for the type checker alone."""
    names: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        nodes += ast.iter_child_nodes(node)
    return names | {name.partition(".")[0] for name in names}


def test_every_module_is_in_a_layer() -> None:
    """The contract of layers names each package and module of turnout, so that a new one gets its place there."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")

    listed = set(re.findall(r"turnout\.(\w+)", " ".join(layers)))
    assert {module.name for module in pkgutil.iter_modules(turnout.__path__) if module.name[0] != "_"} <= listed
