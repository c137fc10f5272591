"""Servers of the demo in Kafka: a single broker (KRaft) from the jars that Maven fetches, and a schema registry."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self
from urllib.parse import urlsplit

from turnout.base.background import Background
from turnout.base.files import replace_file, scratch_folder
from turnout.embedded import free_port, start_server
from turnout.errors import TurnoutError
from turnout.runtime.java import find_java

BROKER: Final = ("org.apache.kafka:kafka_2.13:3.9.1", "org.apache.kafka:kafka-tools:3.9.1")
"""Maven's coordinates of the broker and of Kafka's own commands."""

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={work}/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""

_FORMATTED = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\n"


class KafkaBroker:
    """One broker that is its own controller, on loopback.

    Args:
        work: folder of its data.
        more: properties besides its own.

    Raises:
        TurnoutError: when the jars cannot be had; the message says why.
    """

    def __init__(self, work: Path, more: str = "") -> None:
        self.class_path = os.pathsep.join(str(jar) for jar in resolve_jars(BROKER))
        self.work = work
        self.port = free_port()
        self.properties = work / "server.properties"
        text = (_PROPERTIES + more).format(port=self.port, controller=free_port(), work=work)
        self.properties.write_text(text, encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def servers(self) -> str:
        """Its address."""
        return f"127.0.0.1:{self.port}"

    def _java(self, *arguments: str) -> list[str]:
        return [str(find_java().home / "bin" / "java"), "-Xmx512m", "-cp", self.class_path, *arguments]

    def __enter__(self) -> Self:
        # What Kafka's own tool writes here for a broker alone; a JVM for it takes as long as half a broker's start.
        folder = self.work / "log"
        folder.mkdir()
        (folder / "meta.properties").write_text(_FORMATTED, encoding="utf-8")
        self.start()
        return self

    def kill(self) -> None:
        """End the broker by SIGKILL, as a crash does; `start` begins it again with its data."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections."""
        with (self.work / "broker.log").open("ab") as log:
            self.process = start_server(self._java("kafka.Kafka", str(self.properties)), log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        self.__exit__()
        reason = (self.work / "broker.log").read_text(encoding="utf-8", errors="replace")
        raise TurnoutError(f"the broker did not start: {reason[-2000:]}")

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)


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


_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>turnout</groupId><artifactId>classpath</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
<exclusions>{}</exclusions></dependency>"""
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>*</artifactId></exclusion>"


def resolve_jars(coordinates: Sequence[str], without: Sequence[str] = ()) -> list[Path]:
    """Return the jars of *coordinates* (``group:artifact:version``) and of their dependencies, in the local repository.

    Results are cached as long as the jars exist.

    Args:
        coordinates: artifacts to fetch.
        without: group ids whose artifacts are left out; ``*`` leaves out all dependencies.

    Raises:
        TurnoutError: when there is no Maven, or it cannot fetch them.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = hashlib.sha256(" ".join([*coordinates, "without", *without]).encode()).hexdigest()[:20]
    remembered = caches / "turnout" / f"{name}.classpath"
    if remembered.exists():
        jars = _paths(remembered.read_text(encoding="utf-8"))
        if jars and all(jar.exists() for jar in jars):
            return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise TurnoutError("Maven is not installed: put mvn on PATH, or the jars in spark.jars")
    text = _class_path(maven, coordinates, without)
    remembered.parent.mkdir(parents=True, exist_ok=True)
    replace_file(remembered, text)
    return _paths(text)


def _class_path(maven: str, coordinates: Sequence[str], without: Sequence[str]) -> str:
    exclusions = "".join(_EXCLUSION.format(group) for group in without)
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":"), exclusions) for coordinate in coordinates)
    with scratch_folder("maven") as folder:
        pom, class_path = folder / "pom.xml", folder / "classpath"
        pom.write_text(_POM.format(dependencies), encoding="utf-8")
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={class_path}"]
        process = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if process.returncode != 0 or not class_path.exists():
            # The first error names the artifact; what follows it is advice about Maven's switches.
            errors = [line for line in (process.stdout + process.stderr).splitlines() if "[ERROR]" in line]
            reason = errors[0].split("[ERROR]", 1)[1].strip() if errors else "it said nothing"
            raise TurnoutError(f"Maven could not fetch {', '.join(coordinates)}: {reason}")
        return class_path.read_text(encoding="utf-8").strip()


def _paths(text: str) -> list[Path]:
    return [Path(part) for part in text.split(os.pathsep) if part]
