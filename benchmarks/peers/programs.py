"""The peers as programs: built once from their public packages into the user's cache, and asked line by line."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tools.maven import resolve_jars

from benchmarks.harness import CannotRunError
from turnout.errors import TurnoutError
from turnout.runtime.java import find_java

HERE = Path(__file__).parent
BENTO = "v1.20.0"
"""Later ones replace modules in their go.mod, and need more than the Go proxy to build."""

RSIGMA = "0.23.0"
_CRATES = {"cpu-time": "1.0.0", "rsigma-eval": RSIGMA, "rsigma-parser": RSIGMA, "serde_json": "1.0.154"}
NATS_GO = "v1.55.0"
NATS_SERVER = "v2.15.1"
_NATS_MODULES = {"github.com/nats-io/nats.go": NATS_GO, "github.com/nats-io/nats-server/v2": NATS_SERVER}
_BENTO_MODULE = "github.com/warpstreamlabs/bento"
_BUILD_SECONDS = 1800


class Program:
    """A peer that answers each line on its standard input with one line of JSON.

    Args:
        command: how to start it.
    """

    def __init__(self, command: Sequence[str | Path]) -> None:
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed with the program
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, line: str) -> dict[str, Any]:
        """What the program answers."""
        assert self._process.stdin
        assert self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._errors.seek(0)
            raise TurnoutError(f"the program ended without an answer: {self._errors.read()[-2000:].strip()}")
        return json.loads(answer)  # type: ignore[no-any-return]


def java_program(source: str, coordinates: Sequence[str], *options: str) -> list[str]:
    """The command that runs a Java source, compiled with those beside it against these packages of Maven's.

    Raises:
        CannotRunError: there is no JDK, no Maven, or no such package.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise CannotRunError("no JDK: put javac on PATH")
    try:
        jars = resolve_jars(coordinates)
        java = find_java().home / "bin" / "java"
    except (TurnoutError, subprocess.TimeoutExpired) as missing:
        raise CannotRunError(str(missing)) from missing
    file = HERE / source
    class_path = os.pathsep.join(str(jar) for jar in jars)
    sources = sorted(file.parent.glob("*.java"))
    classes = _cache(file.stem, *(source.read_text(encoding="utf-8") for source in sources), *coordinates)
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=classes.parent) as folder:
            command = [compiler, "--release", "17", "-nowarn", "-cp", class_path, "-d", folder]
            _run([*command, *map(str, sources)], file.name)
            _put(Path(folder), classes)
    return [str(java), *options, "-cp", f"{classes}{os.pathsep}{class_path}", file.stem]


def bento() -> Path:
    """Bento with its NATS, Kafka and pure parts, built from the Go proxy; the first time takes a minute or two.

    Raises:
        CannotRunError: there is no Go, or the proxy lacks a module.
    """
    return go_program("bento", f"Bento {BENTO}", {_BENTO_MODULE: BENTO})


def natsgo() -> Path:
    """The client of nats.go and the subject transforms of nats-server as a program; the first build takes minutes.

    Raises:
        CannotRunError: there is no Go, or the proxy lacks a module.
    """
    return go_program("natsgo", f"nats.go {NATS_GO}", _NATS_MODULES)


def go_program(name: str, title: str, modules: Mapping[str, str]) -> Path:
    """The program of a folder beside this file, built of these versions of modules.

    Raises:
        CannotRunError: there is no Go, or the proxy lacks a module.
    """
    main = (HERE / name / "main.go").read_text(encoding="utf-8")
    program = _cache(name, main, *modules.values())
    if (program / name).exists():
        return program / name
    go = shutil.which("go")
    if go is None:
        raise CannotRunError("no Go: put go on PATH")
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        (Path(folder) / "main.go").write_text(main, encoding="utf-8")
        required = "".join(f"require {module} {version}\n" for module, version in modules.items())
        (Path(folder) / "go.mod").write_text(f"module peer\n\ngo 1.25\n\n{required}", encoding="utf-8")
        # One package at a time: whoever measures beside this should not notice.
        environment = {**os.environ, "GOFLAGS": "-mod=mod -p=1 -buildvcs=false"}
        _run([go, "build", "-o", f"{folder}/{name}", "."], title, cwd=folder, env=environment)
        _put(Path(folder), program)
    return program / name


def rsigma() -> Path:
    """rsigma's engine as a program; the first build takes minutes.

    Raises:
        CannotRunError: there is no Rust, or the registry lacks a crate.
    """
    source = (HERE / "rsigma" / "main.rs").read_text(encoding="utf-8")
    program = _cache("rsigma", source, *_CRATES.values())
    if (program / "rsigma").exists():
        return program / "rsigma"
    cargo = shutil.which("cargo")
    if cargo is None:
        raise CannotRunError("no Rust: put cargo on PATH")
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        (Path(folder) / "src").mkdir()
        (Path(folder) / "src" / "main.rs").write_text(source, encoding="utf-8")
        required = "".join(f'{crate} = "={version}"\n' for crate, version in _CRATES.items())
        package = '[package]\nname = "rsigma"\nversion = "0.0.0"\nedition = "2021"\n'
        (Path(folder) / "Cargo.toml").write_text(f"{package}\n[dependencies]\n{required}", encoding="utf-8")
        # A crate that it needs asks for a newer compiler than it is built with.
        _run([cargo, "build", "--release", "--ignore-rust-version", "-j1", "--quiet"], f"rsigma {RSIGMA}", cwd=folder)
        built = Path(folder) / "built"
        built.mkdir()
        shutil.move(Path(folder) / "target" / "release" / "rsigma", built / "rsigma")
        _put(built, program)
    return program / "rsigma"


def _cache(name: str, *contents: str) -> Path:
    """Where what is built of these contents is kept."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout" / "peers"
    caches.mkdir(parents=True, exist_ok=True)
    return caches / f"{name}-{hashlib.sha256(' '.join(contents).encode()).hexdigest()[:12]}"


def _put(built: Path, place: Path) -> None:
    """Move a finished folder to its final path; concurrent processes may race."""
    with suppress(OSError):
        built.rename(place)
    built.mkdir(exist_ok=True)


def _run(command: Sequence[str], what: str, **options: Any) -> None:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            **options,
        )
    except subprocess.TimeoutExpired as late:
        raise CannotRunError(f"{what} was not built in {_BUILD_SECONDS} seconds") from late
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "downloading" not in line]
        raise CannotRunError(f"{what} could not be built: {' / '.join(lines[:3])}")
