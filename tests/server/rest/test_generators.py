"""Clients that generators make of the description: each compiles, and linters find no error in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest

from tests.integration.foreign_clients import NotAvailable, building, cached, program, run
from tests.transforms.kafka_host import jars
from turnout.server.rest.app import build_app
from turnout.server.rest.dependencies import Parts

pytestmark = pytest.mark.heavy

GENERATOR: Final = "7.25.0"
NPM: Final = (
    "@grpc/grpc-js@1.14.1",
    "@grpc/proto-loader@0.8.0",
    "@redocly/cli@2.77.0",
    "@stoplight/spectral-cli@6.16.3",
    "@types/node@20.19.0",
    "openapi-fetch@0.17.0",
    "openapi-typescript@7.13.0",
    "typescript@5.9.3",
)
PYTHON_GENERATOR: Final = "openapi-python-client==0.29.1"
JAVA: Final = (
    ("com.fasterxml.jackson.datatype", "jackson-datatype-jsr310", "2.21.5"),
    ("org.openapitools", "jackson-databind-nullable", "0.2.11"),
    ("jakarta.annotation", "jakarta.annotation-api", "1.3.5"),
    ("com.google.code.findbugs", "jsr305", "3.0.2"),
)
"""What the generated client needs; see its pom.xml."""

_IMPORT_ALL: Final = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
print(sum(1 for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
          if importlib.import_module(module.name)))
"""


def available(build: Callable[[], Path]) -> Path:
    """Return what a tool is in; the test is skipped where it cannot be had."""
    try:
        return build()
    except NotAvailable as missing:
        pytest.skip(str(missing))


def openapi_generator() -> Path:
    java, maven = program("java", "install Java 11 or newer"), program("mvn", "install Maven")
    folder = cached("openapi-generator", [], [GENERATOR])
    with building(folder) as made:
        if made is not None:
            artifact = f"org.openapitools:openapi-generator-cli:{GENERATOR}"
            run([maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={made}"], made)
            run([java, "-jar", str(made / f"openapi-generator-cli-{GENERATOR}.jar"), "version"], made)
    return folder / f"openapi-generator-cli-{GENERATOR}.jar"


def npm_tools() -> Path:
    npm = program("npm", "install Node 20 or newer with npm")
    folder = cached("openapi-npm", [], NPM)
    with building(folder) as made:
        if made is not None:
            (made / "package.json").write_text("{}")
            (made / ".spectral.yaml").write_text("extends: ['spectral:oas']\n")
            run([npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *NPM], made)
    return folder


def python_generator() -> Path:
    folder = cached("openapi-python", [], [PYTHON_GENERATOR, sys.version])
    with building(folder) as made:
        if made is not None:
            run([sys.executable, "-m", "venv", "env"], made)
            run([str(made / "env/bin/python"), "-m", "pip", "install", "-q", PYTHON_GENERATOR], made)
    return folder / "env" / "bin" / "python"


def done(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Return what a command printed, which has to succeed."""
    finished = subprocess.run(
        list(map(str, command)), cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert finished.returncode == 0, (finished.stdout + finished.stderr)[-4_000:]
    return finished.stdout


@pytest.fixture(scope="module")
def description(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The description in a file."""
    file = tmp_path_factory.mktemp("openapi") / "openapi.json"
    file.write_text(json.dumps(build_app(cast("Parts", SimpleNamespace())).openapi()))
    return file


def generated(language: str, description: Path, folder: Path, *more: str) -> Path:
    """Have a client generated; without errors in the log."""
    command: list[str | Path] = ["java", "-Xmx700m", "-jar", available(openapi_generator), "generate"]
    log = done([*command, "-g", language, "-i", description, "-o", folder / language, *more], folder)
    assert "ERROR" not in log, log
    return folder / language


def test_go(description: Path, tmp_path: Path) -> None:
    go = available(lambda: Path(program("go", "install Go 1.23 or newer")))
    done([go, "build", "./..."], generated("go", description, tmp_path), GOFLAGS="-mod=mod", GOTOOLCHAIN="local")


def test_java(description: Path, tmp_path: Path) -> None:
    available(lambda: Path(program("javac", "install a JDK 11 or newer")))
    libraries = jars("openapi-java-client", JAVA)[0].parent
    folder = generated("java", description, tmp_path, "--library", "native")
    sources = list(folder.glob("src/main/java/**/*.java"))

    done(["javac", "-nowarn", "-proc:none", "-d", tmp_path / "classes", "-cp", f"{libraries}/*", *sources], tmp_path)

    assert (tmp_path / "classes/org/openapitools/client/api/SubscriptionsApi.class").is_file()


def test_typescript(description: Path, tmp_path: Path) -> None:
    tools = available(npm_tools)
    folder = generated("typescript-fetch", description, tmp_path)
    options = ["--noEmit", "--strict", "--target", "es2022", "--moduleResolution", "bundler", "--module", "es2022"]

    done([tools / "node_modules/.bin/tsc", *options, "--lib", "es2022,dom", "index.ts"], folder)


def test_python(description: Path, tmp_path: Path) -> None:
    """With pydantic: each module is imported."""
    pytest.importorskip("dateutil", reason="the generated client needs python-dateutil")
    folder = generated("python", description, tmp_path)

    assert int(done([sys.executable, "-c", _IMPORT_ALL, "openapi_client"], folder)) > 70


def test_openapi_python_client(description: Path, tmp_path: Path) -> None:
    """It is told how to send JSON lines; nothing else is left out."""
    python = available(python_generator)
    config = tmp_path / "config.yaml"
    config.write_text("content_type_overrides: {application/x-ndjson: application/octet-stream}\npost_hooks: []\n")
    options: list[str | Path] = [
        "--path",
        description,
        "--config",
        config,
        "--meta",
        "none",
        "--output-path",
        "turnout_client",
    ]

    printed = done([python, "-m", "openapi_python_client", "generate", "--fail-on-warning", *options], tmp_path)

    assert "WARNING" not in printed
    assert int(done([python, "-c", _IMPORT_ALL, "turnout_client"], tmp_path)) > 100


def test_openapi_typescript(description: Path, tmp_path: Path) -> None:
    tools = available(npm_tools) / "node_modules/.bin"
    done([tools / "openapi-typescript", description, "-o", "types.ts"], tmp_path)

    done([tools / "tsc", "--noEmit", "--strict", "types.ts"], tmp_path)


def test_linters(description: Path) -> None:
    """Redocly and Spectral print no error."""
    tools = available(npm_tools)
    done([tools / "node_modules/.bin/redocly", "lint", description], tools, REDOCLY_TELEMETRY="off")
    done([tools / "node_modules/.bin/spectral", "lint", "--fail-severity", "error", description], tools)
