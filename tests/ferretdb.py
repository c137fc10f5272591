"""A real server that speaks MongoDB's protocol: FerretDB 1 over SQLite, built once from its Go module.

The program is kept in the user's cache (``~/.cache/turnout/bin``), not in the repository. One process builds it, and
the others wait: two builds at the same time share nothing. ``python -m tests.ferretdb`` builds it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from turnout.base.files import FileLock

VERSION = "v1.24.0"

_MODULE = "github.com/FerretDB/FerretDB"
_GO_MOD = f"""module ferretdb

go 1.22

require {_MODULE} {VERSION}

replace {_MODULE} => ./source

replace go.mongodb.org/mongo-driver => ./driver
"""

# FerretDB as a library, because the command's own main needs files that only its repository has.
_MAIN = """package main

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	config := &ferretdb.Config{Handler: "sqlite", SQLiteURL: "file:" + os.Args[2] + "/"}
	config.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if len(os.Args) > 3 {
		config.Listener = ferretdb.ListenerConfig{TLS: os.Args[1], TLSCertFile: os.Args[3], TLSKeyFile: os.Args[4]}
	} else {
		config.Listener = ferretdb.ListenerConfig{TCP: os.Args[1]}
	}
	server, err := ferretdb.New(config)
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		// The parent holds the other end: when it is gone, so is this.
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	_ = server.Run(ctx)
}
"""

_DRIVER = """package mongo

type WriteError struct {
	Index   int
	Code    int
	Message string
}
"""
"""What FerretDB uses of the driver, which would be an eighth of all packages."""

_LEFT_OUT = ("mysql.go", "observability.go", "*_test.go")
"""Files of FerretDB without which it has one backend, and no exporter of traces with the packages of gRPC."""

_CHEAP = ("-tags=ferretdb_no_postgresql", "-gcflags=all=-dwarf=false", "-ldflags=-s -w")
"""Options that leave out what the tests do not use: another backend, and what a debugger reads."""


class NotAvailable(Exception):
    """There is no server to test with; the message says why and how to get one."""


def binary() -> Path:
    """The built server."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnout" / "bin"
    path = cache / f"ferretdb-{VERSION}"
    if path.exists():
        return path
    go = shutil.which("go")
    if go is None:
        raise NotAvailable("no Go toolchain was found: install Go 1.22 or newer to build FerretDB for these tests")
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{path.name}.lock") as lock:
        lock.acquire(wait=True)
        if not path.exists():
            _build(go, path)
    return path


def _build(go: str, path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        downloaded = json.loads(_go(go, folder, "mod", "download", "-json", f"{_MODULE}@{VERSION}"))["Dir"]
        shutil.copytree(downloaded, Path(folder, "source"), ignore=shutil.ignore_patterns(*_LEFT_OUT))
        Path(folder, "go.mod").write_text(_GO_MOD)
        Path(folder, "main.go").write_text(_MAIN)
        Path(folder, "driver", "mongo").mkdir(parents=True)
        Path(folder, "driver", "go.mod").write_text("module go.mongodb.org/mongo-driver\n")
        Path(folder, "driver", "mongo", "mongo.go").write_text(_DRIVER)
        built = Path(folder, "ferretdb")
        _go(go, folder, "build", *_CHEAP, "-o", str(built), ".")
        # In one step, so that two test runs do not see half of it.
        Path(shutil.copy(built, path.with_name(f"{path.name}.{os.getpid()}"))).replace(path)


def _go(go: str, folder: str, *arguments: str) -> str:
    """Run Go's command in a folder, and return what it prints."""
    flags = {"GOFLAGS": "-mod=mod -buildvcs=false", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    done = subprocess.run(
        [go, *arguments],
        cwd=folder,
        env={**os.environ, **flags},
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    if done.returncode:
        raise NotAvailable(f"FerretDB {VERSION} could not be built: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


class FerretDb:
    """One server process on loopback, for as long as the ``with`` block lasts."""

    def __init__(self, *, certificate: Path | None = None, key: Path | None = None) -> None:
        self._tls = [str(certificate), str(key)] if certificate else []
        self._folder = Path(tempfile.mkdtemp(prefix="turnout-ferretdb-"))
        self._process: subprocess.Popen | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> Self:
        if not self.port:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary(), self.address, data, *self._tls],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env={**os.environ, "GOMAXPROCS": "2"},
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.05)
            else:
                return self
        raise NotAvailable(f"FerretDB did not start: {(self._folder / 'log').read_text()[-500:]}")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Freeze the process: connections stay open, nothing answers."""
        assert self._process is not None, "it was started"
        os.kill(self._process.pid, signal.SIGSTOP)
        # Its threads run on until the kernel has stopped each of them.
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        try:
            yield
        finally:
            os.kill(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


if __name__ == "__main__":
    with suppress(NotAvailable):
        binary()
