"""Kafka's own transforms in one plain JVM, spoken to in JSON lines: what ours are compared with."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.jvm_host import JvmHost
from tests.vectors.connect import record_of, schema_of, value_of

from turnout.records import BigInt, Float32, Int8, Int16, Int32, Moment, Record, Schema, Struct

VERSION = "4.3.1"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>turnout</groupId><artifactId>differential</artifactId><version>1</version><dependencies>
{}
</dependencies></project>"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
KAFKA = (("org.apache.kafka", "connect-transforms", VERSION), ("org.apache.kafka", "connect-json", VERSION))
"""Group, name and version of what has Kafka's transforms, and of what the host itself needs."""
UNHASHABLE = "a map with arrays or maps as its keys"
_WIDTHS = {Int8: "$int8", Int16: "$int16", Int32: "$int32"}


def jars(name: str = f"kafka-connect-{VERSION}", artifacts: Iterable[tuple[str, str, str]] = KAFKA) -> list[Path]:
    """The jars of some artifacts and what they need, fetched once into a folder of the user's cache."""
    folder = Path.home() / ".cache" / "turnout" / name
    there = sorted(folder.glob("jars/*.jar"))
    if there:
        return there
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip(f"Maven is not installed: it fetches {name}")
    folder.mkdir(parents=True, exist_ok=True)
    dependencies = "\n".join(_DEPENDENCY.format(*artifact) for artifact in artifacts)
    (folder / "pom.xml").write_text(_POM.format(dependencies), encoding="utf-8")
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=240)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"Maven could not fetch {name}: {error}")
    return sorted(folder.glob("jars/*.jar"))


@dataclass(frozen=True)
class Thrown:
    """A configuration or a record that Kafka's class refused."""

    exception: str
    message: str | None


class KafkaHost(JvmHost):
    """One JVM that runs Kafka's classes for as long as the ``with`` block lasts."""

    program = Path(__file__).with_name("KafkaHost.java")
    settings = ("-Duser.timezone=UTC", "-Duser.language=en", "-Duser.country=US")

    def class_path(self) -> list[Path]:
        return jars()

    def run(self, stages: list[dict[str, Any]], records: Iterable[Record]) -> Thrown | list[Record | Thrown | None]:
        """What the stages make of each record; one `Thrown` for a configuration that is refused.

        Args:
            stages: each with ``transform``, ``predicate`` (or None) and ``negate``.
            records: with offsets.
        """
        answer = self._ask({"stages": stages, "records": [written(record) for record in records]})
        if "error" in answer:
            return _thrown(answer)
        return [
            None if one is None else _thrown(one) if "error" in one else record_of(one) for one in answer["outcomes"]
        ]

    def match(self, pattern: str, texts: list[str]) -> Thrown | list[Any]:
        """For each text whether a pattern matches the whole, its first find, and the groups of that."""
        answer = self._ask({"pattern": pattern, "texts": texts})
        return _thrown(answer) if "error" in answer else answer["outcomes"]

    def literals(self, texts: list[str]) -> list[Thrown | tuple[Schema | None, Any]]:
        """The schema and the value that ``Values.parseString`` makes of each text."""
        answer = self._ask({"literals": texts})
        return [_thrown(one) if "error" in one else _read(one) for one in answer["outcomes"]]

    def option(self, kind: str, texts: list[str]) -> list[Any]:
        """The value that ``ConfigDef.parseType`` makes of each text, a `Thrown` for one that it refuses."""
        answer = self._ask({"option": kind, "texts": texts})
        return [_thrown(one) if "error" in one else one["value"] for one in answer["outcomes"]]


def _read(side: dict[str, Any]) -> tuple[Schema | None, Any]:
    schema = schema_of(side["schema"])
    try:
        return schema, value_of(schema, side["value"])
    except TypeError:
        # A map whose keys are arrays or maps: Python has no such dict.
        return schema, UNHASHABLE


def _thrown(answer: dict[str, Any]) -> Thrown:
    return Thrown(answer["error"], answer["message"])


# --- records as the host reads them -----------------------------------------------------------------------------------


def written(record: Record) -> dict[str, Any]:
    """A record in the form of the vectors."""
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _side(record.key_schema, record.key),
        "value": _side(record.value_schema, record.value),
        "headers": [[header.name, _side(header.schema, header.value)] for header in record.headers],
    }


def _side(schema: Schema | None, value: Any) -> dict[str, Any]:
    return {"schema": _schema(schema), "value": _value(schema, value)}


def _schema(schema: Schema | None) -> dict[str, Any] | None:
    if schema is None:
        return None
    return {
        "type": schema.type,
        "optional": schema.optional,
        "default": _value(schema, schema.default),
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters),
        "fields": [{"name": field.name, "schema": _schema(field.schema)} for field in schema.fields],
        "keys": _schema(schema.keys),
        "values": _schema(schema.values),
    }


def _value(schema: Schema | None, value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Struct):
        return {"$struct": {"schema": _schema(value.schema), "value": _value(value.schema, value.fields)}}
    if isinstance(value, dict) and schema is not None and schema.type == "struct":
        return {field.name: _value(field.schema, value[field.name]) for field in schema.fields}
    if isinstance(value, dict):
        keys, values = (None, None) if schema is None else (schema.keys, schema.values)
        return {"$map": [[_value(keys, key), _value(values, item)] for key, item in value.items()]}
    if isinstance(value, list):
        return [_value(None if schema is None else schema.values, item) for item in value]
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    return _number(value)


def _number(value: Any) -> Any:
    if isinstance(value, Moment):
        return {"$timestamp": int(value)}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, BigInt):
        return {"$bigint": str(int(value))}
    if isinstance(value, float):
        text = "NaN" if value != value else repr(float(value)).replace("inf", "Infinity")
        return {"$float32" if isinstance(value, Float32) else "$float": text}
    tag = _WIDTHS.get(type(value))
    return {tag: int(value)} if tag else value
