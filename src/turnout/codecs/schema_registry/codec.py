"""Codec of values with schemas of a registry: their ids in front of values or in headers, subjects by topic.

A header with a zero byte has an id, one with the byte 1 a GUID of 16 bytes; the value is the payload alone then
(``io.confluent.kafka.serializers.schema.id.SchemaId``).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from turnout.base.caches import LruCache
from turnout.base.startup import np
from turnout.codecs.codec import Decoded, Encoded, attempt, with_tombstones
from turnout.codecs.conversion import converted
from turnout.codecs.json_writing import Written
from turnout.codecs.schema_registry.client import SchemaText, answered, registry_of
from turnout.codecs.schema_registry.options import RegistryOptions, Writing
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema
from turnout.records.types import ArrowArray, Binaries, RowIds

HEADER: Final = 5
"""Bytes before the payload."""

VALUE_HEADER: Final = "__value_schema_id"
KEY_HEADER: Final = "__key_schema_id"

_MAGIC: Final = 0
_MAGIC_GUID: Final = 1
_GUID_HEADER: Final = 17
_LONGEST_SHOWN: Final = 8
_header = struct.Struct(">bi").pack


class Framed(NamedTuple):
    """Column of framed values.

    Attributes:
        ids: ids of each value's schema; -1 where the frame is wrong.
        errors: index of each wrong value → the reason.
    """

    ids: RowIds
    errors: dict[int, RecordError]


def unframe(texts: Sequence[bytes]) -> Framed:
    """Return the schema id of each value; its payload begins at byte `HEADER`.

    >>> framed = unframe([bytes([0, 0, 0, 1, 0, 120]), b"text"])
    >>> framed.ids.tolist(), str(framed.errors[1])
    ([256, -1], "expected a zero byte and a schema id of 4 bytes, found 4 bytes: b'text'")
    """
    heads = np.frombuffer(b"".join([text[:HEADER].ljust(HEADER, b"\xff") for text in texts]), np.uint8)
    table = heads.reshape(-1, HEADER)
    ids = np.ascontiguousarray(table[:, 1:]).view(">i4").ravel().astype(np.int64)
    short = np.fromiter((len(text) < HEADER for text in texts), np.bool_, len(texts))
    wrong = np.flatnonzero((table[:, 0] != _MAGIC) | (ids < 0) | short)
    ids[wrong] = -1
    return Framed(ids, {index: _unframed(texts[index]) for index in wrong.tolist()})


def ids_of(values: Binaries) -> RowIds:
    """Return the schema id of each value of an Arrow array of bytes, -1 where there is no frame or no value.

    >>> import pyarrow as pa
    >>> ids_of(pa.array([bytes([0, 0, 0, 0, 7]), b"x", None], pa.binary())).tolist()
    [7, -1, -1]
    """
    count = len(values)
    if not count:
        return np.zeros(0, np.int64)
    offsets, content = _buffers(values)
    framed = np.diff(offsets) >= HEADER
    if values.null_count:
        framed &= np.asarray(values.is_valid())
    ids = np.full(count, -1, np.int64)
    heads = content[offsets[:-1][framed][:, None] + np.arange(HEADER)]
    found = np.ascontiguousarray(heads[:, 1:]).view(">i4").ravel().astype(np.int64)
    ids[framed] = np.where((heads[:, 0] == _MAGIC) & (found >= 0), found, -1)
    return ids


def _buffers(values: ArrowArray) -> tuple[RowIds, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    _, offsets, content = values.buffers()
    starts = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return starts, np.frombuffer(content if content is not None else b"", np.uint8)


def frame(schema_id: int, payloads: Sequence[bytes]) -> list[bytes]:
    r"""Return the payloads with the header of one schema.

    >>> frame(1, [b"x"])
    [b'\x00\x00\x00\x00\x01x']
    """
    head = _header(_MAGIC, schema_id)
    return [head + payload for payload in payloads]


def read_header(content: bytes) -> tuple[int | str, int]:
    """Return the id or the GUID of the schema that a header names, and the byte behind it.

    Raises:
        RecordError: it names none.

    >>> read_header(bytes([0, 0, 0, 1, 0])), read_header(bytes([1, *range(16)]))
    ((256, 5), ('00010203-0405-0607-0809-0a0b0c0d0e0f', 17))
    """
    if content[:1] == b"\0" and len(content) >= HEADER:
        return int.from_bytes(content[1:HEADER], "big"), HEADER
    if content[:1] == b"\1" and len(content) >= _GUID_HEADER:
        return str(UUID(bytes=content[1:_GUID_HEADER])), _GUID_HEADER
    raise RecordError(
        f"expected a header with the byte 0 and a schema id of 4 bytes, or the byte 1 and a GUID of 16, found "
        f"{len(content)} bytes: {content[:_LONGEST_SHOWN]!r}"
    )


def header_of(guid: str) -> bytes:
    """Return the content of the header that names a schema by its GUID.

    >>> read_header(header_of("00010203-0405-0607-0809-0a0b0c0d0e0f"))[0]
    '00010203-0405-0607-0809-0a0b0c0d0e0f'
    """
    return bytes((_MAGIC_GUID,)) + UUID(guid).bytes


def _unframed(text: bytes) -> RecordError:
    shown = text[:_LONGEST_SHOWN]
    return RecordError(f"expected a zero byte and a schema id of 4 bytes, found {len(text)} bytes: {shown!r}")


def subject_of(strategy: str, topic: str | None, record: str | None, *, key: bool = False) -> str:
    """Return the subject under which a schema is registered.

    Args:
        strategy: ``topic``, ``record`` or ``topicRecord``.
        topic: that the codec's setting ``topic`` names, or of the record.
        record: full name of the schema's outermost record; None where it is another type.
        key: whether the schema is one of keys.

    Raises:
        RecordError: the strategy needs a name that is missing.

    >>> [subject_of(strategy, "flights", "air.Flight") for strategy in ("topic", "record", "topicRecord")]
    ['flights-value', 'air.Flight', 'flights-air.Flight']
    """
    if strategy != "record" and topic is None:
        raise RecordError(
            f"the schema cannot be written to the registry: the subject name strategy {strategy!r} needs the "
            "setting 'topic', or a record with one"
        )
    if strategy == "topic":
        return f"{topic}-{'key' if key else 'value'}"
    if record is None:
        raise RecordError(f"the subject name strategy {strategy!r} needs a record with a name")
    return record if strategy == "record" else f"{topic}-{record}"


_PLANS: Final = 1000
_SCHEMAS: Final = 256
"""Connect schemas whose plan to write is kept."""

MAX_TOPICS: Final = 1000
"""Topics under which a process registers schemas: topics are record data, and each has its own subject."""

_LANGUAGES: Final = {"AVRO": "Avro", "PROTOBUF": "Protobuf", "JSON": "JSON Schema"}

Indexes: TypeAlias = tuple[int, ...] | str
"""Message indexes of Protobuf, or the message's name in Apicurio's form; empty in other formats."""

_Source: TypeAlias = tuple[int | str, Indexes, bool]
"""Id or GUID of a schema, the message indexes, and whether they are in a header."""


class Position(NamedTuple):
    """Bytes that identify the schema of values.

    Attributes:
        prefix: before each payload; empty where a header has them.
        header: header of each record; None where they are before the payload.
    """

    prefix: bytes
    header: bytes | None = None


class SchemaPlan(Protocol):
    """Reader and writer of the values of one schema of a registry."""

    @property
    def schemas(self) -> Sequence[Schema]:
        """Connect's schemas of the values: one, or those of a union of which each value has one."""
        ...

    def decode(self, rows: Positions, texts: Sequence[bytes], codec: object) -> Decoded:
        """Return the values of texts with their prefix, which were read for *codec*."""
        ...

    def encode(self, block: Block) -> Written:
        """Return the texts with their prefix."""
        ...

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values of plain JSON texts, see `turnout.codecs.conversion.Target`."""
        ...


@dataclass(frozen=True, slots=True)
class RegistrySchema:
    """Schema of a registry that values are read or written with."""

    plan: SchemaPlan
    text: SchemaText
    position: Position


class RegistryCodec(ABC):
    """Values in Confluent's wire format, with schemas of a registry; see `turnout.codecs.codec.RecordCodec`.

    A value whose Connect schema no transform has changed is written with the id that it was read with; any other one
    with an id from the registry.

    Args:
        options: options of the registry.
        writing: subject, registration and position of ids that are written.
    """

    format: ClassVar[str]
    class_name: ClassVar[str]
    language: ClassVar[str]
    """Type of schemas, as the registry names it."""

    def __init__(self, options: RegistryOptions, writing: Writing) -> None:
        self._options = options
        self._writing = writing
        self._registry = registry_of(options)
        self._schemas = LruCache[_Source, RegistrySchema | RecordError](_PLANS)
        # By identity: two ids may have equal schemas in Connect, and a value is written with the one it was read with.
        self._by_schema = LruCache[int, tuple[Schema, RegistrySchema | None]](_PLANS)
        self._changed = LruCache[tuple[int, str | None], tuple[Schema, RegistrySchema]](_SCHEMAS)
        self._topics: set[str | None] = set()
        self._targets = LruCache[str | None, RegistrySchema](_SCHEMAS)
        self._converts = False

    @property
    def header(self) -> str:
        """The header with the schema's id."""
        return KEY_HEADER if self._options.of_keys else VALUE_HEADER

    def schema(self) -> Schema | None:
        """Return None: values bring the id of their schema."""
        return None

    # Reading

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.Codec.decode`.

        Raises:
            RegistryUnavailableError: no server of the registry answers, and the route waits for one.
        """
        return with_tombstones(rows, texts, lambda rows, texts: self._read(rows, texts, self._prefixed(texts)))

    def decode_with(self, rows: Positions, texts: Sequence[bytes | None], headers: Sequence[bytes | None]) -> Decoded:
        """See `turnout.codecs.codec.RecordCodec.decode_with`.

        Raises:
            RegistryUnavailableError: as `decode`.
        """
        present = [header for header, text in zip(headers, texts, strict=True) if text is not None]
        return with_tombstones(rows, texts, lambda rows, texts: self._read(rows, texts, self._located(texts, present)))

    def _read(self, rows: Positions, texts: Sequence[bytes], sources: _Sources) -> Decoded:
        errors = {int(rows[index]): error for index, error in sources.errors.items()}
        blocks: list[Block] = []
        for source, indices in sources.found:
            schema = self._by_source(source)
            whole = len(indices) == len(rows)
            where = rows if whole else rows[indices]
            if isinstance(schema, RecordError):
                errors |= dict.fromkeys(where.tolist(), schema)
                continue
            chosen = texts if whole else [texts[index] for index in indices.tolist()]
            more, failed = schema.plan.decode(where, chosen, self)
            blocks += more
            errors |= failed
        return blocks, errors

    def _prefixed(self, texts: Sequence[bytes]) -> _Sources:
        framed = unframe(texts)
        found: list[tuple[_Source, Positions]] = []
        for schema_id, indices in _groups(framed.ids):
            for indexes, inner in self._by_indexes(texts, indices, framed.errors):
                found.append(((schema_id, indexes, False), inner))
        return _Sources(found, framed.errors)

    def _located(self, texts: Sequence[bytes], headers: Sequence[bytes | None]) -> _Sources:
        """Find the schemas of values, some of which have a header."""
        by_header: dict[bytes | None, list[int]] = {}
        for index, header in enumerate(headers):
            by_header.setdefault(header, []).append(index)
        without = np.array(by_header.pop(None, ()), np.intp)
        prefixed = self._prefixed([texts[index] for index in without.tolist()])
        found = [(source, without[indices]) for source, indices in prefixed.found]
        errors = {int(without[index]): error for index, error in prefixed.errors.items()}
        for header, indices in by_header.items():
            assert header is not None
            try:
                number, end = read_header(header)
                found.append(((number, self._indexes_at(header, end), True), np.array(indices, np.intp)))
            except RecordError as error:
                errors |= dict.fromkeys(indices, error)
        return _Sources(found, errors)

    def _by_indexes(
        self, texts: Sequence[bytes], indices: Positions, errors: dict[int, RecordError]
    ) -> Iterator[tuple[Indexes, Positions]]:
        """Yield the values of one id by their message indexes; add the others to *errors*."""
        del texts, errors
        yield (), indices

    def _indexes_at(self, content: bytes, start: int) -> Indexes:
        """Return the message indexes that begin at a byte.

        Raises:
            RecordError: there are none.
        """
        del content, start
        return ()

    def _by_source(self, source: _Source) -> RegistrySchema | RecordError:
        """Return a schema, or why it cannot be used; an unavailable registry is queried again."""
        schema = self._schemas.get(source)
        if schema is not None:
            return schema
        number, indexes, in_header = source
        registry = self._registry
        try:
            text = answered(
                self._options, lambda: registry.by_id(number) if isinstance(number, int) else registry.by_guid(number)
            )
        except RecordError as error:
            return error
        try:
            schema = self._planned(text, indexes, None if not in_header else number)
        except ValueError as failure:
            what = f"id {number}" if isinstance(number, int) else f"GUID {number}"
            schema = RecordError(f"the schema with the {what} cannot be used: {failure}")
        else:
            for one in schema.plan.schemas:
                self._by_schema.add(id(one), (one, schema))
        self._schemas.add(source, schema)
        return schema

    def _planned(self, text: SchemaText, indexes: Indexes, header: int | str | None) -> RegistrySchema:
        """Return a schema with its plan.

        Args:
            text: the schema.
            indexes: indexes of the message.
            header: the id or GUID where a header has it.

        Raises:
            ValueError: the schema cannot be used.
        """
        if text.type != self.language:
            raise ValueError(f"expected a schema in {_LANGUAGES[self.language]}, found {text.type}")
        tail = self._indexes_of(indexes)
        if header is None:
            assert text.id is not None
            position = Position(frame(text.id, [tail])[0])
        else:
            position = Position(b"", (header_of(header) if isinstance(header, str) else frame(header, [b""])[0]) + tail)
        return RegistrySchema(self._plan_of(text, indexes, position), text, position)

    def _indexes_of(self, indexes: Indexes) -> bytes:
        """Return the bytes of message indexes."""
        del indexes
        return b""

    @abstractmethod
    def _plan_of(self, text: SchemaText, indexes: Indexes, position: Position) -> SchemaPlan:
        """Return the plan of a schema's values.

        Raises:
            ValueError: the schema cannot be used.
        """

    # Writing

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `turnout.codecs.Codec.encode`; a changed schema needs the setting ``topic`` here."""
        texts, errors, _ = self.encode_for(block, [None] * len(block))
        return attempt(texts, errors)

    def encode_for(self, block: Block, topics: Sequence[str | None]) -> Encoded:
        """See `turnout.codecs.codec.RecordCodec.encode_for`."""
        if block.schema is None:
            if block.kind == "null":
                return Encoded([None] * len(block), {})
            return self._by_topics(block, topics, self._encoded_by_target)
        if self._converts:
            return self._by_topics(block, topics, self._encoded_by_target)
        schema = self._as_read(block.schema)
        if schema is not None and self._is_position(schema):
            return _encoded(schema, block)
        return self._by_topics(block, topics, partial(self._encoded_anew, schema=block.schema))

    def _by_topics(
        self, block: Block, topics: Sequence[str | None], encode: Callable[[Block, str | None], Encoded]
    ) -> Encoded:
        """Encode a block, by topic where subjects depend on it."""
        if self._writing.topic is not None or self._writing.subject_name_strategy == "record":
            return encode(block, self._writing.topic)
        by_topic: dict[str | None, list[int]] = {}
        for index, topic in enumerate(topics):
            by_topic.setdefault(topic, []).append(index)
        if len(by_topic) == 1:
            return encode(block, topics[0])
        texts: list[bytes | None] = [None] * len(block)
        errors: dict[int, RecordError] = {}
        headers = [b""] * len(block)
        for topic, indices in by_topic.items():
            part = encode(block.take(np.array(indices, np.intp)), topic)
            errors |= {indices[at]: error for at, error in part.errors.items()}
            for at, index in enumerate(indices):
                texts[index] = part.texts[at]
                headers[index] = part.headers[at] if part.headers is not None else b""
        return Encoded(texts, errors, headers if any(headers) else None)

    def _encoded_by_target(self, block: Block, topic: str | None) -> Encoded:
        """Encode values with the schema that the codec was given, or the last one of the subject."""
        target = self._targets.get(topic)
        if target is None:
            try:
                target = self._to_convert(self._checked(topic))
            except RecordError as error:
                return _refused(block, error)
            self._targets.add(topic, target)
        texts, errors = converted(block, target.plan)
        if block.schema is None:
            reason = f"the value has no schema, and is not of that of the subject {target.text.subject!r}"
            errors = {index: RecordError(f"{reason}: {error}") for index, error in errors.items()}
        header = target.position.header
        return Encoded(texts, errors, None if header is None else [header] * len(texts))

    def _to_convert(self, topic: str | None) -> RegistrySchema:
        """Return the schema that values without one are written with.

        Raises:
            RecordError: there is none.
        """
        try:
            subject = self._subject(topic, None)
            text = answered(self._options, lambda: self._registry.latest(subject))
        except RecordError as error:
            language = _LANGUAGES[self.language]
            raise RecordError(
                f"the value has no schema, and {language} needs one: {error}; give it by the setting 'schema', or "
                "register it under the subject"
            ) from None
        return self._to_write(text, self._indexes_to_write(text))

    def _indexes_to_write(self, text: SchemaText) -> Indexes:
        """Return the message indexes of values that are written with a schema and do not say them.

        Raises:
            RecordError: the schema cannot be used.
        """
        del text
        return ()

    def _encoded_anew(self, block: Block, topic: str | None, schema: Schema) -> Encoded:
        """Encode values whose schema gets its id from the registry."""
        cached = self._changed.get((id(schema), topic))
        if cached is None:
            try:
                cached = (schema, self._registered(schema, self._checked(topic)))
            except RecordError as error:
                return _refused(block, error)
            self._changed.add((id(schema), topic), cached)
        return _encoded(cached[1], block)

    def _checked(self, topic: str | None) -> str | None:
        """Return a topic of records, if there were not too many others.

        Raises:
            RecordError: there were.
        """
        if topic not in self._topics:
            if len(self._topics) == MAX_TOPICS:
                raise RecordError(
                    f"schemas were registered under {MAX_TOPICS:,} topics already; name one for all by the setting "
                    "'topic', or set 'subject.name.strategy' to record"
                )
            self._topics.add(topic)
        return topic

    def _as_read(self, schema: Schema) -> RegistrySchema | None:
        """Return a schema that was read and equals this one in Connect; None without one."""
        cached = self._by_schema.get(id(schema))
        if cached is not None:
            return cached[1]
        usable = [one for one in self._schemas.values() if isinstance(one, RegistrySchema)]
        known = [one for one in usable if schema in one.plan.schemas]
        # The schema of one kind of values comes before one of several kinds.
        equal = sorted(known, key=lambda one: -len(one.plan.schemas))
        found = next(filter(self._is_position, reversed(equal)), equal[-1] if equal else None)
        self._by_schema.add(id(schema), (schema, found))
        return found

    def _is_position(self, schema: RegistrySchema) -> bool:
        """Return whether the schema's id is where ids are written."""
        return (schema.position.header is not None) == self._writing.in_header

    @abstractmethod
    def _registered(self, schema: Schema, topic: str | None) -> RegistrySchema:
        """Return the text of a Connect schema to register.

        Raises:
            RecordError: the registry refuses it, or does not have it.
        """

    def _to_write(self, text: SchemaText, indexes: Indexes) -> RegistrySchema:
        """Return a schema with its id where ids are written.

        Raises:
            RecordError: it cannot be used, or the registry has no GUID for it.
        """
        if self._writing.in_header and text.guid is None:
            raise RecordError("the schema registry has no GUID for the schema, which a header needs")
        try:
            return self._planned(text, indexes, text.guid if self._writing.in_header else None)
        except ValueError as failure:
            raise RecordError(f"the schema with the id {text.id} cannot be used: {failure}") from None

    def _subject(self, topic: str | None, record: str | None) -> str:
        strategy = self._writing.subject_name_strategy
        return subject_of(strategy, topic, record, key=self._options.of_keys)


class _Sources(NamedTuple):
    """Schemas of values with the indices of those, and errors by index."""

    found: Sequence[tuple[_Source, Positions]]
    errors: dict[int, RecordError]


def _encoded(schema: RegistrySchema, block: Block) -> Encoded:
    texts, errors = schema.plan.encode(block)
    header = schema.position.header
    return Encoded(texts, errors, None if header is None else [header] * len(texts))


def _refused(block: Block, error: RecordError) -> Encoded:
    return Encoded([None] * len(block), dict.fromkeys(range(len(block)), error))


def _groups(ids: RowIds) -> Iterator[tuple[int, Positions]]:
    """Yield each schema id with the indices of its values."""
    if not len(ids):
        return
    first = int(ids[0])
    if first >= 0 and bool((ids == first).all()):
        yield first, np.arange(len(ids))
        return
    for schema_id in np.unique(ids[ids >= 0]).tolist():
        yield schema_id, np.flatnonzero(ids == schema_id)


class RegisteringCodec(RegistryCodec):
    """Registry codec whose changed schemas are registered, or looked up, under their subject.

    Args:
        options: options of the registry.
        writing: subject, registration and position of ids that are written.
        schema: schema that all values are written with; None for that of each value.
    """

    def __init__(self, options: RegistryOptions, writing: Writing, schema: str | None = None) -> None:
        super().__init__(options, writing)
        self._given = None if schema is None else SchemaText(self.language, schema)
        self._converts = self._given is not None or writing.use_latest_version

    def _to_convert(self, topic: str | None) -> RegistrySchema:
        if self._given is None:
            return super()._to_convert(topic)
        return self._sent(self._given, topic)

    def _registered(self, schema: Schema, topic: str | None) -> RegistrySchema:
        before = self._as_read(schema)
        return self._sent(self._text_of(schema) if before is None else before.text, topic)

    def _sent(self, text: SchemaText, topic: str | None) -> RegistrySchema:
        """Return a schema with its id in the registry."""
        subject = self._subject(topic, self._name_of(text))
        registry = self._registry
        send = registry.register if self._writing.auto_register_schemas else registry.lookup
        return self._to_write(answered(self._options, lambda: send(subject, text)), ())

    @abstractmethod
    def _text_of(self, schema: Schema) -> SchemaText:
        """Return the definition of a Connect schema that was not read.

        Raises:
            RecordError: there is none.
        """

    @abstractmethod
    def _name_of(self, text: SchemaText) -> str | None:
        """Return the full name of a schema's record, for its subject; None where it has none."""
