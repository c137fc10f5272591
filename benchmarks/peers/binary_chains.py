"""The example route's six transforms over Avro and Protobuf, beside Kafka's classes between both Java libraries.

Avro is read and written there by `GenericDatumReader` and `GenericDatumWriter`, Protobuf by `DynamicMessage`. Schemas
are files here and are told to the other side, so that no registry is asked, and the bytes that are written are equal.
"""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks._chain import BatchChain
from benchmarks._flights import batches, route, supply
from benchmarks.harness import Case, Options
from benchmarks.peers import chains
from turnout.codecs import Codec, Format, codec_of
from turnout.demo.flights import FlightMessage
from turnout.records import Schema
from turnout.records.schema import TIMESTAMP

_SAMPLE = 50
_KINDS = {"int32": "int32", "string": "string"}


@dataclass(frozen=True)
class BinaryChain(chains.Chain):
    """A chain over values of a binary format, each field of which may be unknown."""

    form: str = "avro"

    @property
    def value(self) -> dict[str, Any]:
        raise NotImplementedError("the schemas are files: see batch_chain")

    @cached_property
    def _schemas(self) -> tuple[str, str]:
        """What values are read with, and what they are written with."""
        write = {"avro": avro_text, "protobuf": proto_text}[self.form]
        fields = [(name, "string" if kind == "STRING" else "int32") for name, kind in self.typed_fields()]
        reads = write(fields)
        codec = _codec(self.form, reads)
        chain = BatchChain(codec, self.transforms)
        (batch,) = batches(self._encoded(supply().take(_SAMPLE), reads))
        schema = chain.transformed(batch).value[0].schema
        assert schema is not None
        return reads, write(list(_described(schema)))

    def records(self, sent: Sequence[FlightMessage]) -> Sequence[FlightMessage]:
        """The same flights in the format; truncated ones are unchanged, and invalid."""
        return self._encoded(sent, self._schemas[0])

    def _encoded(self, sent: Sequence[FlightMessage], schema: str) -> list[FlightMessage]:
        write = {"avro": _avro_writer, "protobuf": _protobuf_writer}[self.form](schema)
        return [
            replace(flight, payload=write(json.loads(flight.payload))) if flight.payload.endswith(b"}") else flight
            for flight in sent
        ]

    def batch_chain(self) -> BatchChain:
        reads, writes = (_codec(self.form, text) for text in self._schemas)
        return BatchChain(reads, self.transforms, writes)

    def plan(self) -> dict[str, Any]:
        reads, writes = map(_descriptor_set, self._schemas) if self.form == "protobuf" else self._schemas
        return {**super().plan(), "format": self.form, "reads": reads, "writes": writes}

    def content(self, value: bytes) -> Any:
        return value.hex()


def binary_chains() -> Iterator[BinaryChain]:
    """The route's chain in each format."""
    document = route()
    for form in ("avro", "protobuf"):
        yield BinaryChain(f"chain {form}", document["value"]["schema"], document["transforms"], form=form)


def cases(options: Options) -> Iterator[Case]:
    """A case for each format."""
    yield from chains.cases(options, binary_chains())


def _described(schema: Schema) -> Iterator[tuple[str, str]]:
    for field in schema.fields:
        yield field.name, "timestamp" if field.schema.name == TIMESTAMP else _KINDS[field.schema.type]


def avro_text(fields: Sequence[tuple[str, str]]) -> str:
    """An Avro schema of a flight with these fields."""
    types = {"int32": "int", "string": "string", "timestamp": {"type": "long", "logicalType": "timestamp-millis"}}
    described = [{"name": name, "type": ["null", types[kind]], "default": None} for name, kind in fields]
    return json.dumps({"type": "record", "name": "Flight", "fields": described})


def proto_text(fields: Sequence[tuple[str, str]]) -> str:
    """A Protobuf file with the message of a flight with these fields."""
    types = {"int32": "optional int32", "string": "optional string", "timestamp": "google.protobuf.Timestamp"}
    lines = [f"  {types[kind]} {name} = {number};" for number, (name, kind) in enumerate(fields, 1)]
    imports = 'import "google/protobuf/timestamp.proto";' if ("timestamp" in dict(fields).values()) else ""
    return "\n".join(['syntax = "proto3";', imports, "message Flight {", *lines, "}"])


def _codec(form: str, schema: str) -> Codec:
    with TemporaryDirectory(prefix="turnout-peers-") as folder:
        return codec_of(Format(form, schema=str(_file(Path(folder), form, schema))))


def _file(folder: Path, form: str, schema: str) -> Path:
    file = folder / ("flight.avsc" if form == "avro" else "flight.proto")
    file.write_text(schema, encoding="utf-8")
    return file


def _avro_writer(schema: str) -> Callable[[Mapping[str, Any]], bytes]:
    import fastavro

    parsed = fastavro.parse_schema(json.loads(schema))

    def write(flight: Mapping[str, Any]) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, flight)
        return written.getvalue()

    return write


def _protobuf_writer(schema: str) -> Callable[[Mapping[str, Any]], bytes]:
    from google.protobuf.message_factory import GetMessageClass

    message = GetMessageClass(_proto(schema).message())

    def write(flight: Mapping[str, Any]) -> bytes:
        content: bytes = message(**flight).SerializeToString()
        return content

    return write


def _proto(schema: str) -> Any:
    from turnout.codecs.protobuf.descriptors import file_of

    with TemporaryDirectory(prefix="turnout-peers-") as folder:
        return file_of(_file(Path(folder), "protobuf", schema))


def _descriptor_set(schema: str) -> str:
    """Return the file and its imports as a descriptor set of protoc, in base64."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    described, file = FileDescriptorSet(), _proto(schema).descriptor
    for one in (*file.dependencies, file):
        one.CopyToProto(described.file.add())
    return b64encode(described.SerializeToString()).decode()
