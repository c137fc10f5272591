"""The wheel: built from the sources, installed into a new environment, and used without a checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCES = (
    "src", "benchmarks", "deploy", "examples", "schema", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md",
    "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "constraints.txt", "Makefile",
)  # fmt: skip


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command that does not see the checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    """A source distribution of a tree that git knows nothing of, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("build")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "_built.py")
        shutil.copytree(source, tree / name, ignore=ignored) if source.is_dir() else shutil.copy(source, tree / name)
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", tree, cwd=folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (source_distribution,) = (folder / "dist").glob("*.tar.gz")
    (wheel,) = (folder / "dist").glob("*.whl")
    return source_distribution, wheel


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The Python of a new environment that has the wheel, and for everything else the packages of this one."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    library = next((folder / "venv" / "lib").iterdir()) / "site-packages"
    done = run(
        sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index", "--quiet",
        "--target", library, built[1], cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Behind the wheel: an editable turnout of this environment is not found first. Its own .pth files are not read.
    here = Path(pytest.__file__).parents[1]
    (library / "others.pth").write_text(f"{here}\n", encoding="utf-8")
    return folder / "venv" / "bin" / "python"


@pytest.fixture
def turnout(installed, tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a command of it in a folder of its own."""
    return lambda *arguments: run(installed, "-m", "turnout", *arguments, cwd=tmp_path)


def test_what_is_in_it(built) -> None:
    """Examples, benchmarks, pages of the console and what says that there are types; no tests, and nothing compiled."""
    names = set(zipfile.ZipFile(built[1]).namelist())

    assert {
        "turnout/_bundle/examples/flights.yaml",
        "turnout/_bundle/benchmarks/harness.py",
        "turnout/py.typed",
        "turnout/rpc/v1/subscriptions.proto",
        "turnout/spark/session/log4j2.properties",
        "pyspark_nats/__init__.py",
    } <= names
    stray = [name for name in names if name.startswith(("tests", "benchmarks", "examples")) or name.endswith(".pyc")]
    assert stray == []


def test_its_page(built) -> None:
    """Every link is absolute, as it must lead somewhere from an index too; no picture is left as text; twine agrees."""
    metadata = next(name for name in zipfile.ZipFile(built[1]).namelist() if name.endswith("METADATA"))
    description = zipfile.ZipFile(built[1]).read(metadata).decode().partition("\n\n")[2]

    done = run(sys.executable, "-m", "twine", "check", "--strict", *built, cwd=ROOT)

    assert done.returncode == 0, done.stdout
    assert [link for link in re.findall(r"\]\(([^)]+)\)", description) if "://" not in link] == []
    assert description.count("```") == README.count("```") - 2 * README.count("```mermaid")
    assert "flowchart" not in description


def test_the_source_distribution(built) -> None:
    """It has what its own wheel is built of and deployed with, and the version of a source archive without git."""
    with tarfile.open(built[0]) as archive:
        inner = {name.partition("/")[2] for name in archive.getnames()}

    assert inner >= {"setup.py", "benchmarks/harness.py", "examples/flights.yaml", "schema/route.schema.json"}
    assert inner >= {"deploy/image/build.sh", "CONTRIBUTING.md"}
    assert built[0].name == f"turnout-{PROJECT['tool']['setuptools_scm']['fallback_version']}.tar.gz"


def test_commands_without_a_checkout(turnout) -> None:
    """The examples can be checked and tested, and the benchmarks are listed."""
    version = PROJECT["tool"]["setuptools_scm"]["fallback_version"]
    result = turnout("--version").stdout.split()
    listed = json.loads(turnout("bench", "list", "--json").stdout)
    outcome = turnout("new", "first", "--from", "csv:in", "--to", "csv:out", "--yes")

    assert result == ["turnout", version]
    assert {"route", "match", "store"} <= set(listed)
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_the_bundled_route_passes_its_tests(turnout, installed, tmp_path) -> None:
    """The demo's route is there, with its tests, where there is no checkout."""
    code = "from turnout.base.files import bundled; print(bundled('examples') / 'flights.yaml')"
    route = run(installed, "-c", code, cwd=tmp_path).stdout.strip()

    done = turnout("test", route)

    assert "_bundle" in route
    assert (done.returncode, done.stderr) == (0, "")


def test_the_fallback_is_one_version() -> None:
    """A checkout that was never built has the version of a build without tags."""
    text = (ROOT / "src" / "turnout" / "_version.py").read_text(encoding="utf-8")

    assert f'"{PROJECT["tool"]["setuptools_scm"]["fallback_version"]}"' in text


def test_generated_code_runs_with_what_is_declared() -> None:
    """The bounds of grpcio and protobuf are not below what the generated code asks for when it is imported."""
    declared = dict(bound.split(">=") for bound in PROJECT["project"]["optional-dependencies"]["subscriptions"])
    generated = ROOT / "src" / "turnout" / "rpc" / "v1"
    services = (generated / "subscriptions_pb2_grpc.py").read_text(encoding="utf-8")
    messages = (generated / "subscriptions_pb2.py").read_text(encoding="utf-8")

    matched = re.findall(r"GRPC_GENERATED_VERSION = '([\d.]+)'", services)
    runtime = re.findall(r"Domain\.PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+)", messages)

    assert matched == [declared["grpcio"]]
    assert [".".join(parts) for parts in runtime] == [declared["protobuf"]]
