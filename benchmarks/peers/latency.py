"""Bento as a route that only maps, from one stream into another of the same server, for the latency benchmark."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.programs import HERE
from turnout.embedded import NatsServer
from turnout.errors import StreamError, TurnoutError
from turnout.nats.wire import Connection, create_stream, delete_stream

STREAMS = ("PEER_IN", "PEER_OUT")

_PATIENCE = 60.0


@contextmanager
def running(program: Path, server: NatsServer) -> Iterator[None]:
    """Bento at work, with its streams, until the end of this block."""
    with Connection.open(server.url) as connection:
        for stream in STREAMS:
            create_stream(connection, {"name": stream, "subjects": [f"{stream.lower()}.>"], "storage": "file"})
        command = [str(program), "-c", str(HERE / "bento" / "latency.yaml")]
        with tempfile.TemporaryFile(mode="w+") as log:
            process = subprocess.Popen(command, env={**os.environ, "NATS_URL": server.url}, stdout=log, stderr=log)
            try:
                _await_consumer(connection, process, log)
                yield
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                for stream in STREAMS:
                    delete_stream(connection, stream)


def _await_consumer(connection: Connection, process: subprocess.Popen[bytes], log: Any) -> None:
    """Wait until Bento has made its consumer."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if process.poll() is not None:
            log.seek(0)
            raise TurnoutError(f"Bento ended: {log.read()[-2000:].strip()}")
        with suppress(StreamError):
            connection.api("CONSUMER.INFO.PEER_IN.latency")
            return
        time.sleep(0.05)
    raise TurnoutError(f"Bento was not ready in {_PATIENCE:.0f} seconds")
