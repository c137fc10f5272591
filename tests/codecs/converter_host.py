"""Kafka's own converters in one plain JVM, spoken to in JSON lines: what our codecs are compared with."""

from __future__ import annotations

import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.jvm_host import JvmHost
from tests.transforms.kafka_host import VERSION, jars


def runtime() -> Path:
    """The jar with Kafka's converters of plain values, fetched once; what it needs of others is among `jars`."""
    folder = jars()[0].parent.parent / "runtime"
    jar = folder / f"connect-runtime-{VERSION}.jar"
    if jar.exists():
        return jar
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("Maven is not installed: it fetches Kafka's connect-runtime")
    artifact = f"-Dartifact=org.apache.kafka:connect-runtime:{VERSION}"
    command = [maven, "-q", "-B", "dependency:copy", artifact, f"-DoutputDirectory={folder}"]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=240)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Maven could not fetch Kafka's connect-runtime {VERSION}: {error}")
    return jar


class ConverterHost(JvmHost):
    """One JVM that runs Kafka's converters for as long as the ``with`` block lasts."""

    program = Path(__file__).with_name("ConverterHost.java")
    settings = ("-Dfile.encoding=UTF-8",)

    def class_path(self) -> list[Path]:
        return [*jars(), runtime()]

    def rewritten(
        self, reads: tuple[str, Mapping[str, str]], writes: tuple[str, Mapping[str, str]], texts: Sequence[bytes | None]
    ) -> list[Any]:
        """Each text read by one converter and written by another; the word ``error`` where one of them fails.

        Args:
            reads: the class that reads, and its options.
            writes: the class that writes, and its options.
            texts: None is a tombstone.
        """
        request = {
            "from": {"class": reads[0], "options": dict(reads[1])},
            "to": {"class": writes[0], "options": dict(writes[1])},
            "texts": [None if text is None else b64encode(text).decode() for text in texts],
        }
        answer = self._ask(request)
        return ["error" if "error" in reply else _bytes(reply["text"]) for reply in answer]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
