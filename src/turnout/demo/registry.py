"""Schema registry of the demo: in memory, with the two requests of Confluent's API that a route makes."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

from turnout.background import Background

_MAX_BODY: Final = 1 << 20
_BY_ID: Final = re.compile(r"/schemas/ids/(\d{1,9})", re.ASCII)
_VERSIONS: Final = re.compile(r"/subjects/[^/]+/versions")


class DemoRegistry:
    """Schemas by id: it accepts every schema, without a check of compatibility.

    Attributes:
        url: URL of the registry.
        schemas: the texts in the order of their ids, which begin with 1.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.schemas: list[str] = []
        self._lock = threading.Lock()

    def register(self, schema: str) -> int:
        """Return the id of a schema: that of an equal text, or a new one."""
        with self._lock:
            if schema not in self.schemas:
                self.schemas.append(schema)
            return self.schemas.index(schema) + 1

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, object]]:
        """Return the status and the content of the answer to a request."""
        by_id = _BY_ID.fullmatch(path)
        if method == "GET" and by_id is not None:
            number = int(by_id[1])
            if 0 < number <= len(self.schemas):
                return 200, {"schema": self.schemas[number - 1]}
            return 404, {"error_code": 40403, "message": f"Schema {number} not found"}
        if method == "POST" and _VERSIONS.fullmatch(path):
            try:
                schema = str(json.loads(body)["schema"])
            except (ValueError, KeyError, TypeError):
                return 422, {"error_code": 42201, "message": "Empty schema"}
            return 200, {"id": self.register(schema), "schema": schema}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    registry: DemoRegistry

    def _respond(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), _MAX_BODY))
        status, content = self.registry.answer(self.command, urlsplit(self.path).path, body)
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = _respond  # noqa: N815 - of the base class

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
        """Write nothing."""


@contextmanager
def demo_registry() -> Iterator[DemoRegistry]:
    """Run a registry on a free port of the loopback interface."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    registry = DemoRegistry(f"http://127.0.0.1:{server.server_port}")
    handler.registry = registry  # type: ignore[attr-defined]
    serving = Background("registry of the demo", lambda: server.serve_forever(0.05)).start()
    try:
        yield registry
    finally:
        serving.stop()
        server.shutdown()
        server.server_close()
        serving.join()
