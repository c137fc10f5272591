"""A single Kafka broker (KRaft), run from the jars that Maven fetches."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Self

from turnout.demo.maven import resolve_jars
from turnout.embedded.nats_server import free_port
from turnout.embedded.server_process import start_server
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
        identity = ("-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(self.properties))
        formatted = subprocess.run(
            self._java("kafka.tools.StorageTool", "format", *identity), capture_output=True, text=True, check=False
        )
        if formatted.returncode:
            raise TurnoutError(f"the broker's folder cannot be made: {formatted.stderr[-2000:]}")
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
