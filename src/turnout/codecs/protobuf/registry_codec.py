"""Codec of messages with schemas of a registry, in Confluent's wire format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from turnout.caches import LruCache
from turnout.codecs.codec import Decoded, attempt, with_tombstones
from turnout.codecs.protobuf.descriptors import SchemaFile, text_of_registry
from turnout.codecs.protobuf.kind import CONVERTER
from turnout.codecs.protobuf.message_indexes import FIRST, read_indexes, write_indexes
from turnout.codecs.protobuf.options import ProtobufOptions
from turnout.codecs.protobuf.plan import plan_of
from turnout.codecs.protobuf.reading import MessageReader
from turnout.codecs.protobuf.writing import MessageWriter
from turnout.codecs.schema_registry import (
    RegistryOptions,
    SchemaText,
    answered,
    frame,
    registry_of,
    subject_of,
    unframe,
)
from turnout.codecs.schema_registry.framing import HEADER
from turnout.errors import MissingExtraError, RecordError
from turnout.records import Block, Positions, Schema

_Source: TypeAlias = tuple[int, tuple[int, ...]]
"""Id of a schema, and the message indexes."""

_MESSAGES: Final = 1000
"""Messages of schemas that are kept."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Message of a schema of the registry.

    Attributes:
        prefix: what the bytes of its values begin with.
    """

    prefix: bytes
    reader: MessageReader
    writer: MessageWriter

    @property
    def schema(self) -> Schema:
        return self.reader.plan.schema


class ProtobufRegistry:
    """Values in Confluent's wire format, with schemas of a registry.

    A value whose Connect schema no transform has changed is written with the id and the indexes that it was read with.
    Any other is written as the message of the subject's last version that has its name, or the first of that version.

    Args:
        registry: of the schemas.
        options: of the mapping to Connect.
        strategy: of subjects' names, see `subject_of`.
        topic: in subjects' names.
    """

    format: ClassVar[str] = "protobuf"
    class_name: ClassVar[str] = CONVERTER

    def __init__(self, registry: RegistryOptions, options: ProtobufOptions, strategy: str, topic: str | None) -> None:
        self._registry = registry
        self._options = options
        self._strategy = strategy
        self._topic = topic
        self._known = LruCache[_Source, _Known | RecordError](_MESSAGES)
        # By identity: two ids may have equal schemas in Connect, and a value is written as what it was read with.
        self._by_schema = LruCache[int, _Known](_MESSAGES)

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`.

        Raises:
            RegistryUnavailableError: no server of the registry answers, and the route waits for one.
        """
        return with_tombstones(rows, texts, self._read)

    def schema(self) -> Schema | None:
        """Return None: values bring the id of their schema."""
        return None

    def encode(self, block: Block) -> list[bytes | None]:
        """See `Codec.encode`."""
        if block.kind == "null":
            return [None] * len(block)
        if block.origin is not None and block.origin.codec is self:
            return list(block.origin.texts)
        if block.schema is None:
            raise RecordError("the value has no schema, and Protobuf needs one")
        known = self._to_write(block.schema)
        texts, errors = known.writer.write(block)
        return attempt([None if text is None else known.prefix + text for text in texts], errors)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        sources, errors = _sources(texts)
        failures = {int(rows[index]): error for index, error in errors.items()}
        blocks: list[Block] = []
        for source, places in sources.items():
            known = self._message(source)
            indices = np.array([index for index, _ in places], np.intp)
            if isinstance(known, RecordError):
                failures |= dict.fromkeys(rows[indices].tolist(), known)
                continue
            chosen = [texts[index] for index, _ in places]
            payloads = [text[start:] for text, (_, start) in zip(chosen, places, strict=True)]
            more, failed = known.reader.read(rows[indices], payloads, self, chosen)
            blocks += more
            failures |= failed
        return blocks, failures

    def _message(self, source: _Source) -> _Known | RecordError:
        """Return a message, or why it cannot be used; a registry that is down is asked again."""
        known = self._known.get(source)
        if known is not None:
            return known
        schema_id, indexes = source
        registry = registry_of(self._registry)
        try:
            schema = answered(self._registry, lambda: registry.by_id(schema_id))
        except RecordError as error:
            return error
        try:
            known = self._made(schema, schema_id, indexes)
            self._by_schema.add(id(known.schema), known)
        except ValueError as failure:
            known = RecordError(f"the schema with the id {schema_id} cannot be used: {failure}")
        self._known.add(source, known)
        return known

    def _made(self, schema: SchemaText, schema_id: int, indexes: tuple[int, ...]) -> _Known:
        plan = plan_of(_file(schema).message_at(indexes), self._options)
        return _Known(
            frame(schema_id, [write_indexes(indexes)])[0], MessageReader(plan), MessageWriter(plan)
        )  # fmt: skip

    def _to_write(self, schema: Schema) -> _Known:
        found = self._by_schema.get(id(schema))
        if found is not None and found.schema is schema:
            return found
        for known in reversed(self._known.values()):
            if isinstance(known, _Known) and known.schema == schema:
                return known
        return self._latest(schema)

    def _latest(self, schema: Schema) -> _Known:
        """Return the message of the subject's last version that a changed schema is written as.

        Raises:
            RecordError: the registry has none that can be used.
        """
        subject = subject_of(self._strategy, self._topic, schema.name, key=self._registry.of_keys)
        registry = registry_of(self._registry)
        latest = answered(self._registry, lambda: registry.latest(subject))
        if latest.id is None:
            raise RecordError(f"the subject {subject!r} has no schema with an id")
        try:
            indexes = _indexes_of_name(_file(latest), schema.name)
        except ValueError as failure:
            raise RecordError(f"the last schema of the subject {subject!r} cannot be used: {failure}") from None
        known = self._message((latest.id, indexes))
        if isinstance(known, RecordError):
            raise known
        return known


def _sources(texts: Sequence[bytes]) -> tuple[dict[_Source, list[tuple[int, int]]], dict[int, RecordError]]:
    """Return index and beginning of each message by what it is, and errors by index."""
    framed = unframe(texts)
    errors = framed.errors
    sources: dict[_Source, list[tuple[int, int]]] = {}
    for index, (schema_id, text) in enumerate(zip(framed.ids.tolist(), texts, strict=True)):
        if schema_id < 0:
            continue
        try:
            # Most values are the first message of their file.
            indexes, start = (FIRST, HEADER + 1) if text[HEADER : HEADER + 1] == b"\0" else read_indexes(text, HEADER)
        except RecordError as error:
            errors[index] = error
            continue
        sources.setdefault((schema_id, indexes), []).append((index, start))
    return sources, errors


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
