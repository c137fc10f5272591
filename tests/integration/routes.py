"""Shared helpers for tests of whole routes: a server's streams, a route file over them, and counts afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turnout.nats.wire import Connection, Publisher, PullReader, Range, create_stream, delete_stream, stream_info


@dataclass
class Streams:
    """An incoming and an outgoing stream of one test, under names of its own."""

    url: str
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:10])

    @property
    def source(self) -> str:
        return f"IN_{self.name}"

    @property
    def sink(self) -> str:
        return f"OUT_{self.name}"

    def subject(self, rest: str) -> str:
        """A subject that the incoming stream takes."""
        return f"in-{self.name}.{rest}"

    def out(self, rest: str) -> str:
        """A subject that the outgoing stream takes."""
        return f"out-{self.name}.{rest}"

    def create(self) -> None:
        with Connection.open(self.url) as connection:
            for stream, prefix in ((self.source, "in"), (self.sink, "out")):
                config = {"name": stream, "subjects": [f"{prefix}-{self.name}.>"], "storage": "file"}
                create_stream(connection, {**config, "duplicate_window": 3600 * 10**9})

    def delete(self) -> None:
        with Connection.open(self.url) as connection:
            for stream in (self.source, self.sink):
                delete_stream(connection, stream)

    def publish(self, messages: Sequence[tuple[str, bytes, Sequence[tuple[str, str]]]]) -> None:
        """Publish (rest of the subject, payload, headers) and await every acknowledgement."""
        with Connection.open(self.url) as connection, Publisher(connection) as publisher:
            for rest, payload, headers in messages:
                publisher.publish(self.subject(rest), payload, headers)

    def stored(self, stream: str) -> int:
        with Connection.open(self.url) as connection:
            return int(stream_info(connection, stream)["state"]["messages"])

    def delivered(self) -> list[dict[str, Any]]:
        """Every message of the outgoing stream: rest of the subject, id, value, headers."""
        with Connection.open(self.url) as connection:
            last = stream_info(connection, self.sink)["state"]["last_seq"]
            rows = [
                row
                for batch in PullReader(connection, Range(self.sink, 1, last + 1)).batches()
                for row in batch.to_pylist()
            ]
        for row in rows:
            row["rest"] = row["topic"].partition(".")[2]
            row["headers"] = {header["key"]: header["value"].decode() for header in row["headers"] or ()}
        return rows


def turnout(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line and wait for it."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **(env or {})}
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "turnout", *arguments]


def wait_for(condition: Callable[[], bool], seconds: float = 300.0) -> None:
    """Return when *condition* holds; fail when it does not for so many seconds, which a busy machine may take."""
    deadline, used = time.monotonic() + seconds, time.thread_time()
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        # What takes long to ask is asked less often, so that it does not slow down what it waits for.
        before, used = used, time.thread_time()
        time.sleep(max(0.05, 4 * (used - before)))


def write_route(folder: Path, text: str) -> Path:
    path = folder / "route.yaml"
    path.write_text(text, encoding="utf-8")
    return path
