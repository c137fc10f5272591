"""One plain JVM that runs a Java source file and is spoken to in JSON lines."""

from __future__ import annotations

import json
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest

_OPTIONS = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class JvmHost(ABC):
    """A JVM that runs for as long as the ``with`` block lasts; the test is skipped where there is no JDK.

    Attributes:
        program: the source file, which answers each line of its input with one of its output.
        settings: options of the JVM.
    """

    program: ClassVar[Path]
    settings: ClassVar[Sequence[str]]

    @abstractmethod
    def class_path(self) -> Sequence[Path]:
        """The jars that the program needs; the test is skipped where they cannot be had."""

    def __enter__(self) -> Self:
        java = shutil.which("java")
        if java is None or shutil.which("javac") is None:
            pytest.skip("no JDK is installed: java and javac run Kafka's classes")
        path = ":".join(map(str, self.class_path()))
        self._jvm = subprocess.Popen(
            [java, *_OPTIONS, *self.settings, "-cp", path, str(self.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.close()
        self._jvm.wait(20)
        self._jvm.stdout.close()

    def _ask(self, request: Mapping[str, Any]) -> Any:
        """Return the program's answer."""
        assert self._jvm.stdin is not None
        assert self._jvm.stdout is not None
        self._jvm.stdin.write(json.dumps(request).encode() + b"\n")
        self._jvm.stdin.flush()
        line = self._jvm.stdout.readline()
        assert line, f"the JVM ended at {request}"
        return json.loads(line)
