"""The stand-in and our codecs beside a JavaScript client from npm, which uses no code of Confluent's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.codecs.blocks import ERROR, decoded
from tests.codecs.schema_registry.stand_in import StandIn

from turnout.codecs import Codec, Format, codec_of
from turnout.codecs.schema_registry import RegistryOptions, registry_of
from turnout.records.block import rows_of

pytestmark = pytest.mark.kafka

PACKAGE = "@kafkajs/confluent-schema-registry@3.9.0"
PROGRAM = Path(__file__).with_name("kafkajs_client.cjs")
AVRO = {"type": "record", "name": "Item", "fields": [{"name": "n", "type": "int"}, {"name": "city", "type": "string"}]}
JSON = {
    "title": "Item",
    "type": "object",
    "properties": {"n": {"type": "integer"}, "city": {"type": "string"}},
}
PROTOBUF = 'syntax = "proto3"; package shop; message Item {int32 n = 1; string city = 2;}'
FORMATS = {"avro": ("AVRO", json.dumps(AVRO)), "jsonSchema": ("JSON", json.dumps(JSON))}
VALUES = [{"n": 1, "city": "Oulu"}, {"n": -5, "city": "Åbo"}]


@pytest.fixture(scope="module")
def modules() -> Path:
    """The folder with the client, fetched once into a folder of the user's cache."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("Node.js is not installed: it runs the client")
    folder = Path.home() / ".cache" / "turnout" / "kafkajs-registry-3.9.0"
    if not (folder / "node_modules" / "@kafkajs").exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), PACKAGE]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"npm could not fetch {PACKAGE}: {error}")
    return folder / "node_modules"


def answers(modules: Path, registry: StandIn, requests: list[dict[str, Any]]) -> list[Any]:
    """Return the results of the client's calls."""
    environment = {**os.environ, "NODE_PATH": str(modules)}
    given = json.dumps({"url": registry.url, "requests": requests})
    done = subprocess.run(
        ["node", str(PROGRAM)], input=given, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[Any] = json.loads(done.stdout)
    return found


def written(modules: Path, registry: StandIn, type_: str, schema: str) -> list[bytes]:
    """Return the values as the client writes them, with a schema that it registers."""
    (number,) = answers(modules, registry, [{"subject": "items-value", "type": type_, "schema": schema}])
    return [b64decode(text) for text in answers(modules, registry, [{"id": number, "value": one} for one in VALUES])]


def codec(registry: StandIn, format_name: str) -> Codec:
    options = RegistryOptions.read({"url": registry.url, "retries": 0, "wait": 0})
    registry.clients.append(registry_of(options))
    return codec_of(Format(format_name, registry=options))


def read(modules: Path, registry: StandIn, texts: Sequence[bytes | None]) -> list[Any]:
    """Return the values of texts as the client reads them."""
    return answers(modules, registry, [{"text": b64encode(text or b"").decode()} for text in texts])


@pytest.mark.parametrize("format_name", FORMATS)
def test_both_directions(modules: Path, registry: StandIn, format_name: str) -> None:
    """It registers a schema and writes values; ours are the same bytes, which it reads."""
    theirs, own = written(modules, registry, *FORMATS[format_name]), codec(registry, format_name)

    assert decoded(own, *theirs) == VALUES
    (block,), _ = own.decode(rows_of(2), theirs)
    ours = own.encode(block.with_columns(block.schema, {name: list(column) for name, column in block.columns.items()}))
    assert ours == theirs
    assert read(modules, registry, ours) == VALUES


def test_protobuf(modules: Path, registry: StandIn) -> None:
    """It leaves out the message indexes, which makes its values dead letters; it reads ours."""
    theirs, own = written(modules, registry, "PROTOBUF", PROTOBUF), codec(registry, "protobuf")
    indexed = [text[:5] + b"\0" + text[5:] for text in theirs]

    assert decoded(own, *theirs) == [ERROR, ERROR]
    assert decoded(own, *indexed) == VALUES
    (block,), _ = own.decode(rows_of(2), indexed)
    assert own.encode(block) == indexed
    assert read(modules, registry, indexed) == VALUES
