"""Clients of turnout's services that others would write: Go from generated code, Node with npm's packages.

Each is built once, in the user's cache (``~/.cache/turnout/clients``), from its source below ``clients/`` and the
descriptions of the services; a change of one of them, or of a version, builds it again. Nothing of it is in the
repository.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import turnout
from turnout.base.files import FileLock

_SOURCES: Final = Path(__file__).parent / "clients"
PROTOS: Final = Path(turnout.__file__).parents[1]
"""The folder to which the imports of the descriptions are relative."""

_SERVICES: Final = {name: f"turnout/rpc/v1/{name}.proto" for name in ("subscriptions", "matching", "feeds")}

GO_PLUGINS: Final = (
    "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.10",
    "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1",
)
_GO_MOD: Final = """module clients

go 1.24

require (
	google.golang.org/grpc v1.76.0
	google.golang.org/protobuf v1.36.10
)
"""
_GO_FLAGS: Final = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}

_NODE_PACKAGES: Final = ("@grpc/grpc-js@1.14.1", "@grpc/proto-loader@0.8.0", "eventsource@4.0.0")

_BUILD_SECONDS: Final = 600
_SECONDS: Final = 120.0


class NotAvailable(Exception):
    """A client cannot be built here; the message says why."""


@dataclass(frozen=True)
class Client:
    """A built client. Its process is given a scenario, and ends by itself or after two minutes.

    Attributes:
        command: the program, without its arguments.
        more: arguments behind those of the scenario.
    """

    command: Sequence[str]
    more: Sequence[str] = ()

    def see(self, scenario: str, address: str, argument: str = "") -> dict[str, Any]:
        """Return what a scenario has seen."""
        with self.started(scenario, address, argument) as process:
            return self.result(process)

    @contextmanager
    def started(self, scenario: str, address: str, argument: str = "") -> Iterator[subprocess.Popen[str]]:
        """Start a scenario; the process has ended afterwards."""
        with subprocess.Popen(
            [*self.command, scenario, address, argument, *self.more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()

    @staticmethod
    def result(process: subprocess.Popen[str]) -> dict[str, Any]:
        """Return what a started scenario has seen, once it has ended."""
        try:
            output, errors = process.communicate("\n", timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, errors = process.communicate()
            raise AssertionError(
                f"the client did not end within {_SECONDS:.0f} s: {output[-500:]} {errors[-2_000:]}"
            ) from None
        assert process.returncode == 0, errors[-2_000:]
        return json.loads(output.splitlines()[-1])


def go_client() -> Client:
    """Build the Go client.

    Raises:
        NotAvailable: there is no Go, or its modules cannot be had.
    """
    go = program("go", "install Go 1.24 or newer")
    source = _SOURCES / "go" / "main.go"
    folder = cached("go", [source, *(PROTOS / path for path in _SERVICES.values())], [*GO_PLUGINS, _GO_MOD])
    with building(folder) as made:
        if made is not None:
            environment = {"GOBIN": str(made / "bin"), **_GO_FLAGS}
            for plugin in GO_PLUGINS:
                run([go, "install", plugin], made, {**environment, "GOFLAGS": "-buildvcs=false"})
            (made / "go.mod").write_text(_GO_MOD)
            shutil.copy(source, made)
            # The packages are this module's own.
            mapping = [f"M{path}=clients/{name}" for name, path in _SERVICES.items()]
            options = [f"--{kind}_opt={text}" for kind in ("go", "go-grpc") for text in ("module=clients", *mapping)]
            plugins = [f"--plugin={made}/bin/protoc-gen-{kind}" for kind in ("go", "go-grpc")]
            protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}", "--go_out=.", "--go-grpc_out=."]
            run([*protoc, *plugins, *options, *_SERVICES.values()], made)
            run([go, "build", "-ldflags=-s -w", "-o", "client", "."], made, environment)
    return Client([str(folder / "client")])


def node_client() -> Client:
    """Install the packages of the Node client.

    Raises:
        NotAvailable: there is no Node or npm, or its packages cannot be had.
    """
    node, npm = (program(name, "install Node 20 or newer with npm") for name in ("node", "npm"))
    source = _SOURCES / "node" / "client.mjs"
    folder = cached("node", [source], _NODE_PACKAGES)
    with building(folder) as made:
        if made is not None:
            # Without it, npm installs into a folder above.
            (made / "package.json").write_text("{}")
            quiet = ["--no-package-lock", "--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
            run([npm, "install", *quiet, *_NODE_PACKAGES], made)
            shutil.copy(source, made)
    return Client([node, str(folder / source.name)], [str(PROTOS)])


def program(name: str, cure: str) -> str:
    """Return the path of a program.

    Raises:
        NotAvailable: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise NotAvailable(f"{name} was not found: {cure}")
    return path


def cached(name: str, files: Sequence[Path], texts: Sequence[str]) -> Path:
    """Return the folder of a client that is built from these files and versions."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout" / "clients"
    digest = hashlib.sha256(b"\0".join([*(file.read_bytes() for file in files), *map(str.encode, texts)]))
    return cache / f"{name}-{digest.hexdigest()[:16]}"


@contextmanager
def building(folder: Path) -> Iterator[Path | None]:
    """Give the folder to build in, which becomes *folder* in one step; None if that is there already."""
    if folder.exists():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f"{folder.name}.lock")) as lock:
        lock.acquire(wait=True)
        if folder.exists():
            yield None
            return
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            path = Path(made, "built")
            path.mkdir()
            yield path
            path.rename(folder)


def run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a step of a build, and return what it printed.

    Raises:
        NotAvailable: it fails.
    """
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"{' '.join(command[:3])} took longer than {_BUILD_SECONDS} s") from None
    if done.returncode:
        raise NotAvailable(f"{' '.join(command[:3])} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout
