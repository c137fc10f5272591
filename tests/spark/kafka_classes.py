"""Kafka's own transforms, run in the JVM of the Spark session: what ours are compared with."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from decimal import Context, Decimal, Inexact, InvalidOperation
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

VERSION = "4.0.0"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>turnout</groupId><artifactId>differential</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-transforms</artifactId><version>{0}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>connect-json</artifactId><version>{0}</version></dependency>
</dependencies></project>"""


class MavenMissingError(Exception):
    """Raised when Kafka's jars cannot be had here; the message says why."""


def jars() -> list[Path]:
    """Kafka's jars and what they need, fetched once into the user's cache."""
    folder = Path.home() / ".cache" / "turnout" / f"kafka-connect-{VERSION}"
    found = sorted(folder.glob("jars/*.jar"))
    if found:
        return found
    maven = shutil.which("mvn")
    if maven is None:
        raise MavenMissingError("Maven is not installed: it fetches Kafka's connect-transforms")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(VERSION), encoding="utf-8")
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=240)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise MavenMissingError(f"Maven could not fetch Kafka {VERSION}: {error}") from error
    return sorted(folder.glob("jars/*.jar"))


class KafkaClasses:
    """Builds and runs Kafka's transforms by reflection."""

    def __init__(self, spark: SparkSession) -> None:
        self.jvm: Any = spark._jvm
        self.gateway: Any = spark.sparkContext._gateway
        files = jars()
        urls = self.gateway.new_array(self.jvm.java.net.URL, len(files))
        for at, file in enumerate(files):
            urls[at] = self.jvm.java.io.File(str(file)).toURI().toURL()
        parent = self.jvm.java.lang.ClassLoader.getPlatformClassLoader()
        self.loader = self.jvm.java.net.URLClassLoader(urls, parent)

    def _new(self, name: str) -> Any:
        none = self.gateway.new_array(self.jvm.java.lang.Object, 0)
        no_types = self.gateway.new_array(self.jvm.java.lang.Class, 0)
        return self.loader.loadClass(name).getDeclaredConstructor(no_types).newInstance(none)

    def _map(self, given: Mapping[str, str]) -> Any:
        found = self.jvm.java.util.HashMap()
        for name, value in given.items():
            found.put(name, value)
        return found

    def converter(self, *, schemas: bool, replace_null: bool = True) -> Any:
        """Connect's JsonConverter for values."""
        made = self._new("org.apache.kafka.connect.json.JsonConverter")
        flags = {"schemas.enable": schemas, "replace.null.with.default": replace_null}
        made.configure(self._map({name: str(flag).lower() for name, flag in flags.items()}), False)
        return made

    def rewritten(self, text: str | None, *, replace_null: bool = True) -> Any:
        """The value, with its schema, read and written by JsonConverter; the word ``error`` where it fails."""
        from py4j.protocol import Py4JJavaError

        converter = self.converter(schemas=True, replace_null=replace_null)
        try:
            read = converter.toConnectData("topic", None if text is None else text.encode())
            written = converter.fromConnectData("topic", read.schema(), read.value())
        except Py4JJavaError:
            return "error"
        return None if written is None else json.loads(bytes(written).decode())

    def transform(self, config: Mapping[str, str]) -> Any:
        """One configured transform."""
        made = self._new(config["type"])
        made.configure(self._map({name: value for name, value in config.items() if name != "type"}))
        return made

    def record(self, topic: str, read: Any, offset: int, millis: int) -> Any:
        """A sink record with that value."""
        constructors = self.loader.loadClass("org.apache.kafka.connect.sink.SinkRecord").getConstructors()
        types = self.loader.loadClass("org.apache.kafka.common.record.TimestampType")
        longest = next(one for one in constructors if one.getParameterCount() == 9)
        values = [topic, 0, None, None, read.schema(), read.value(), offset, millis, types.getEnumConstants()[1]]
        arguments = self.gateway.new_array(self.jvm.java.lang.Object, 9)
        for at, value in enumerate(values):
            arguments[at] = value
        return longest.newInstance(arguments)

    def run(
        self,
        config: Mapping[str, str],
        topic: str,
        text: str | None,
        offset: int,
        millis: int,
        *,
        schemas: bool,
        replace_null: bool = True,
    ) -> Any:
        """(topic, value) after the transform, None where it drops, the word ``error`` where it fails.

        Decimals are brought to the scale of their schema before they are written, as a column has it; one that
        would have to be rounded is a failure.
        """
        from py4j.protocol import Py4JJavaError

        converter = self.converter(schemas=schemas, replace_null=replace_null)
        body = None if text is None else text.encode()
        record = self.record(topic, converter.toConnectData(topic, body), offset, millis)
        try:
            after = self.transform(config).apply(record)
            if after is None:
                return None
            value, schema = after.value(), after.valueSchema()
            if value is not None and schema is not None and schema.type().getName() == "struct":
                _bring_to_scale(value, schema)
            written = None if value is None else converter.fromConnectData(topic, schema, value)
        except (Py4JJavaError, Inexact, InvalidOperation):
            return "error"
        return after.topic(), None if written is None else json.loads(bytes(written).decode())


def _bring_to_scale(struct: Any, schema: Any) -> None:
    """Give the decimals of a struct the scale that its schema says."""
    exact = Context(prec=38, traps=[Inexact, InvalidOperation])
    for field in schema.fields():
        # py4j makes Python's decimals of Java's, and Java's of Python's.
        value = struct.getWithoutDefault(field.name())
        if isinstance(value, Decimal):
            scale = int(field.schema().parameters().get("scale"))
            struct.put(field.name(), value.quantize(Decimal(1).scaleb(-scale), context=exact))
