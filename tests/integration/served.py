"""``turnout serve`` as a process over a folder of routes, and the nats-server that they read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.integration.routes import Streams, command, wait_for

from turnout.embedded import NatsServer, free_port

__all__ = ["ROUTE", "SECONDS", "Served"]

ROUTE = """
name: {name}
source: {{format: nats, servers: "{url}", stream: {source}, reconnectTimeout: 2}}
mappings: {{"in-{prefix}.>": "out-{prefix}.>"}}
sink: {{format: nats, servers: "{url}", stream: {sink}, reconnectTimeout: 2}}
"""
SECONDS = 120.0


class Served:
    """A server process over a folder of routes, each with streams of its own, and the nats-server that they read.

    Args:
        folder: for everything that both processes write.
        texts: the routes by name; ``{name}``, ``{url}``, ``{source}``, ``{sink}`` and ``{prefix}`` are filled in.
        settings: more lines of turnout.yaml.
    """

    def __init__(self, folder: Path, texts: Mapping[str, str] | None = None, settings: str = "") -> None:
        self.folder = folder / "routes"
        self.folder.mkdir()
        self.nats_folder = folder / "nats"
        self.nats_folder.mkdir()
        self.nats_port = free_port()
        self.nats = NatsServer(self.nats_folder, port=self.nats_port)
        self.nats.start()
        texts = texts or {"first": ROUTE, "second": ROUTE}
        self.streams = {name: Streams(self.nats.url) for name in texts}
        for name, streams in self.streams.items():
            streams.create()
            self.write(name, texts[name])
        (self.folder / "turnout.yaml").write_text(
            "spark: {master: 'local[2]'}\nrestarts: {pause: 200ms, longest: 1s}\nlisten: '127.0.0.1:0'\n" + settings
        )
        self.process = subprocess.Popen(
            command("serve", str(self.folder)), stderr=subprocess.PIPE, text=True, env={**os.environ}
        )
        self.url = ""
        self.log: list[str] = []
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        wait_for(lambda: bool(self.url) or self.process.poll() is not None, SECONDS)
        assert self.url, "".join(self.log)

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if line.startswith("serving on "):
                self.url = line.split()[-1]

    def write(self, name: str, text: str) -> None:
        streams = self.streams[name]
        text = text.format(name=name, url=self.nats.url, source=streams.source, sink=streams.sink, prefix=streams.name)
        (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    def publish(self, name: str, count: int) -> None:
        self.streams[name].publish([(f"a.{n}", b"{}", ()) for n in range(count)])

    def ask(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        request = urllib.request.Request(f"{self.url}{path}", method=method)
        if method != "GET":
            request.data = json.dumps(body or {}).encode()
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as refused:
            return refused.code, json.loads(refused.read())

    def route(self, name: str) -> dict[str, Any]:
        return self.ask(f"/v1/routes/{name}")[1]

    def wait_state(self, name: str, state: str) -> None:
        wait_for(lambda: self.route(name)["state"] == state, SECONDS)

    def wait_read(self, name: str, count: int) -> None:
        wait_for(lambda: self.route(name)["counts"]["read"] >= count, SECONDS)

    def metrics(self) -> dict[tuple[str, str, str], float]:
        """Samples by name, route, and the label that is left."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as response:
            text = response.read().decode()
        return {
            (
                sample.name,
                sample.labels.get("route", ""),
                next(
                    (sample.labels[name] for name in ("outcome", "stream", "stage", "le") if name in sample.labels), ""
                ),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def close(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            assert self.process.stderr is not None
            self.reader.join(10)
            self.process.stderr.close()
            self.nats.stop()
