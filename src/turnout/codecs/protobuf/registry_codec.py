"""Codec of messages with schemas of a registry, in Confluent's wire format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from turnout.codecs.codec import Decoded
from turnout.codecs.json_writing import Written
from turnout.codecs.protobuf.connect_schema import Message, plan_of
from turnout.codecs.protobuf.descriptors import SchemaFile, text_of_registry
from turnout.codecs.protobuf.kind import CONVERTER
from turnout.codecs.protobuf.message_indexes import FIRST, read_indexes, read_name, write_indexes, write_name
from turnout.codecs.protobuf.message_values import MessageValues
from turnout.codecs.protobuf.options import ProtobufOptions
from turnout.codecs.protobuf.reading import MessageReader
from turnout.codecs.protobuf.writing import MessageWriter
from turnout.codecs.schema_registry import (
    Indexes,
    Position,
    RegistryCodec,
    RegistryOptions,
    SchemaText,
    Writing,
    answered,
)
from turnout.codecs.schema_registry.codec import RegistrySchema
from turnout.codecs.schema_registry.framing import HEADER
from turnout.errors import MissingExtraError, RecordError
from turnout.records import Block, Positions, Schema


class _RegistryPlan:
    """Plan of a message, see `turnout.codecs.schema_registry.codec.SchemaPlan`."""

    def __init__(self, message: Message, prefix: bytes, *, drops_unknown: bool) -> None:
        self.schemas = (message.schema,)
        self._prefix = prefix
        self._reader = MessageReader(message)
        self._writer = MessageWriter(message)
        self._values = MessageValues(message, drops_unknown=drops_unknown)

    def decode(self, rows: Positions, texts: Sequence[bytes], codec: object) -> Decoded:
        del codec
        return self._reader.read(rows, [text[self._start(text) :] for text in texts], self, texts)

    def _start(self, text: bytes) -> int:
        """Return where the message begins: indexes have more than one form."""
        return len(self._prefix) if text.startswith(self._prefix) else read_indexes(text, HEADER)[1]

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._values.fitted(rows, texts)

    def encode(self, block: Block) -> Written:
        if block.kind == "null":
            return [None] * len(block), {}
        if block.origin is not None and block.origin.codec is self:
            return list(block.origin.texts), {}
        try:
            texts, errors = self._writer.write(block)
        except RecordError as error:
            return [None] * len(block), dict.fromkeys(range(len(block)), error)
        return [None if text is None else self._prefix + text for text in texts], errors


class ProtobufRegistry(RegistryCodec):
    """Values in Confluent's wire format, with schemas of a registry.

    Values of Apicurio's serializers have the message's name instead of indexes. A value whose Connect schema was
    changed is written as the message of the subject's last version that has its name, or the first of that version.

    Args:
        registry: registry of the schemas.
        options: options of the mapping to Connect.
        writing: subject and position of ids that are written.
    """

    format: ClassVar[str] = "protobuf"
    class_name: ClassVar[str] = CONVERTER
    language: ClassVar[str] = "PROTOBUF"

    def __init__(self, registry: RegistryOptions, options: ProtobufOptions, writing: Writing) -> None:
        super().__init__(registry, writing)
        self._mapping = options

    def _by_indexes(
        self, texts: Sequence[bytes], indices: Positions, errors: dict[int, RecordError]
    ) -> Iterator[tuple[Indexes, Positions]]:
        found: dict[Indexes, list[int]] = {}
        for index in indices.tolist():
            text = texts[index]
            try:
                # Most values are the first message of their file.
                indexes = FIRST if text[HEADER : HEADER + 1] == b"\0" else self._indexes_at(text, HEADER)
            except RecordError as error:
                errors[index] = error
                continue
            found.setdefault(indexes, []).append(index)
        for indexes, members in found.items():
            yield indexes, np.array(members, np.intp)

    def _indexes_at(self, content: bytes, start: int) -> Indexes:
        return read_name(content, start) or read_indexes(content, start)[0]

    def _indexes_of(self, indexes: Indexes) -> bytes:
        return write_name(indexes) if isinstance(indexes, str) else write_indexes(indexes)

    def _plan_of(self, text: SchemaText, indexes: Indexes, position: Position) -> _RegistryPlan:
        file = _file(text)
        message = file.message_named(indexes) if isinstance(indexes, str) else file.message_at(indexes)
        plan = plan_of(message, self._mapping)
        return _RegistryPlan(plan, position.prefix, drops_unknown=self._writing.drops_unknown)

    def _indexes_to_write(self, text: SchemaText) -> Indexes:
        try:
            return _indexes_of_name(_file(text), None)
        except ValueError as failure:
            raise RecordError(f"the last schema of the subject {text.subject!r} cannot be used: {failure}") from None

    def _registered(self, schema: Schema, topic: str | None) -> RegistrySchema:
        """Return the message of the subject's last version that a changed schema is written as."""
        subject = self._subject(topic, schema.name)
        registry = self._registry
        latest = answered(self._options, lambda: registry.latest(subject))
        try:
            indexes = _indexes_of_name(_file(latest), schema.name)
        except ValueError as failure:
            raise RecordError(f"the last schema of the subject {subject!r} cannot be used: {failure}") from None
        return self._to_write(latest, indexes)


def _file(schema: SchemaText) -> SchemaFile:
    if schema.type != "PROTOBUF":
        raise ValueError(f"expected a Protobuf schema, found {schema.type}")
    try:
        return text_of_registry(schema.text, schema.references)
    except MissingExtraError as missing:
        raise ValueError(str(missing)) from missing


def _indexes_of_name(file: SchemaFile, name: str | None) -> tuple[int, ...]:
    """Return the indexes of the message with the name of a Connect schema, or of the first."""
    first = file.message()
    messages = file.descriptor.message_types_by_name.values()
    named = next((message for message in messages if name in (message.name, message.full_name)), first)
    return file.indexes_of(named)
