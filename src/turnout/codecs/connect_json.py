"""Connect's JsonConverter: ``{"schema": …, "payload": …}``, or payloads alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import ClassVar, Final, TypeAlias

import msgspec

from turnout.base.options import Kind, Option
from turnout.base.startup import np
from turnout.codecs.codec import CodecKind, Decoded, attempt, flag, with_tombstones, words
from turnout.codecs.json_reading import Reader
from turnout.codecs.json_writing import Written, texts_of, wire_form
from turnout.codecs.plain_json import JSON_CONVERTER, ObjectReader
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema

_SCHEMAS: Final = 128
"""Maximum number of cached schemas."""

_FORM: Final = "JSON with a schema and a payload, and nothing else"


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    schema: msgspec.Raw
    payload: msgspec.Raw


_envelope = msgspec.json.Decoder(_Envelope).decode
_schema_json = msgspec.json.Decoder(float_hook=Decimal).decode
"""Fractions as they are written: a decimal's default has its scale by that."""
_encode = msgspec.json.Encoder(decimal_format="number").encode
_UNREADABLE = (ValueError, TypeError, RecursionError)
_Reader: TypeAlias = Reader | ObjectReader


@dataclass(slots=True)
class _SchemaGroup:
    """Payloads of one schema."""

    indexes: list[int]
    payloads: list[bytes]


class ConnectJson:
    """The format ``connect-json``.

    With schemas each value has its embedded schema, or the configured one; without, values are
    schemaless, or have the one that was given. A number beyond its type, or a text for a number, is an error, also
    where JsonConverter substitutes another value.
    """

    format: ClassVar[str] = "connect-json"
    class_name: ClassVar[str] = JSON_CONVERTER

    def __init__(
        self, schema: Mapping[str, object] | None, *, enable: bool = True, defaults: bool = True, numeric: bool = False
    ) -> None:
        """A codec with JsonConverter's ``schemas.enable``, ``replace.null.with.default`` and ``decimal.format``.

        Args:
            schema: schema of all values, in JsonConverter's JSON.
            enable: whether schemas are read, and written.
            defaults: whether a null that has a default is read, and written, as that default.
            numeric: whether decimals are written as numbers (KIP-481); they are read from numbers in any case.

        Raises:
            ValueError: the schema is none.
        """
        self._schema = None if schema is None else Schema.from_json(schema)
        self._enable = enable
        self._numeric = numeric
        self._form_of = _FORMS[defaults, numeric]
        self._schemaless = ObjectReader()
        self._reader = None if self._schema is None else Reader.wire(self._schema, defaults=defaults)
        self._readers = lru_cache(maxsize=_SCHEMAS)(partial(_reader_of, defaults=defaults))
        self._last = (b"", b"")

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        if self._enable:
            return with_tombstones(rows, texts, self._read)
        # Without a schema JsonConverter reads a null from no bytes.
        texts = [text or None for text in texts] if b"" in texts else texts
        return with_tombstones(rows, texts, (self._reader or self._schemaless).read)

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """See `Codec.encode`."""
        if block.kind == "null" and block.schema is None:
            return [None] * len(block)
        texts, errors = self._payloads(block)
        if self._enable:
            head = _head_of(block.schema, numeric=self._numeric)
            texts = [text and head + text + b"}" for text in texts]
        return attempt(texts, errors)

    def schema(self) -> Schema | None:
        """Return the schema that was given."""
        return self._schema

    def _payloads(self, block: Block) -> Written:
        """Encode the payloads, without their envelope."""
        form_of = self._form_of
        if block.kind != "null":
            return texts_of(_by_pairs(block), form_of)
        return texts_of(Block(block.rows, block.schema, values=[None] * len(block)), form_of)

    def _read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Values in envelopes, by schema."""
        groups, errors = self._sorted(texts)
        failures = {int(rows[index]): error for index, error in errors.items()}
        blocks: list[Block] = []
        for schema, group in groups.items():
            reader = self._reader or self._readers(schema)
            where = rows[group.indexes]
            if isinstance(reader, RecordError):
                failures |= dict.fromkeys(where.tolist(), reader)
                continue
            more, failed = reader.read(where, group.payloads)
            blocks += more
            for row, error in failed.items():
                text = texts[int(np.searchsorted(rows, row))]
                blocks += self._once_more(row, text, reader, error, failures)
        return blocks, failures

    def _once_more(
        self, row: int, text: bytes, reader: _Reader, error: RecordError, errors: dict[int, RecordError]
    ) -> list[Block]:
        """Read a value again through its envelope: the fast path may have cut a wrong payload."""
        try:
            payload = bytes(_envelope(text).payload)
        except _UNREADABLE:
            errors[row] = RecordError(f"the value is not {_FORM}")
            return []
        blocks, failed = reader.read(np.array([row], np.intp), [payload])
        if failed:
            errors[row] = error
        return blocks

    def _sorted(self, texts: Sequence[bytes]) -> tuple[dict[bytes, _SchemaGroup], dict[int, RecordError]]:
        """Return the payloads by their schema's text, and the faults by index."""
        groups: dict[bytes, _SchemaGroup] = {}
        errors: dict[int, RecordError] = {}
        head, schema = self._last
        group = groups.setdefault(schema, _SchemaGroup([], []))
        for index, text in enumerate(texts):
            # Most values of a topic begin with the same letters, which are the schema. If what follows is JSON, then
            # it is the payload.
            if head and text.startswith(head) and text.endswith(b"}"):
                group.indexes.append(index)
                group.payloads.append(text[len(head) : -1])
                continue
            try:
                envelope = _envelope(text)
            except _UNREADABLE:
                errors[index] = RecordError(f"the value is not {_FORM}")
                continue
            payload = bytes(envelope.payload)
            schema = bytes(envelope.schema)
            group = groups.setdefault(schema, _SchemaGroup([], []))
            group.indexes.append(index)
            group.payloads.append(payload)
            head = text[: -len(payload) - 1] if text.endswith(payload + b"}") else b""
        self._last = (head, schema)
        return {text: group for text, group in groups.items() if group.indexes}, errors


_FORMS: Final = {
    (defaults, numeric): partial(wire_form, defaults=defaults, numeric=numeric)
    for defaults in (False, True)
    for numeric in (False, True)
}


def _reader_of(text: bytes, *, defaults: bool) -> _Reader | RecordError:
    """Return a reader for payloads of the schema with this text, or an error where it is not a schema."""
    try:
        schema = _schema_json(text)
        if schema is None:
            return ObjectReader()
        if not isinstance(schema, dict):
            raise ValueError(f"expected an object, found {schema!r}")  # noqa: TRY004 - reported like every other error here
        return Reader.wire(Schema.from_json(schema), defaults=defaults)
    except (*_UNREADABLE, AttributeError, ArithmeticError) as failure:
        return RecordError(f"the value's schema is not one: {failure}")


@lru_cache(maxsize=256)
def _head_of(schema: Schema | None, *, numeric: bool) -> bytes:
    """Return the bytes before a payload of this schema."""
    return b'{"schema":%s,"payload":' % _encode(None if schema is None else schema.to_json(numeric=numeric))


def _by_pairs(block: Block) -> Block:
    """Schemaless maps with keys that are no strings as the list of pairs that JsonConverter writes."""
    if block.kind != "object" or block.schema is not None or all(type(name) is str for name in block.columns):
        return block
    return block.with_values(None, [[list(pair) for pair in value.items()] for value in block.whole()])


def _schema(value: object) -> Mapping[str, object]:
    """Return a schema in JsonConverter's JSON, if values can be read with it."""
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a Connect schema, found {value!r}")  # noqa: TRY004 - reported like every other error here
    try:
        Reader.wire(Schema.from_json(value), defaults=True)
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return value


def _codec(
    *, schema: Mapping[str, object] | None, schemas_enable: bool, replace_null_with_default: bool, decimal_format: str
) -> ConnectJson:
    numeric = decimal_format == "NUMERIC"
    return ConnectJson(schema, enable=schemas_enable, defaults=replace_null_with_default, numeric=numeric)


_PROPERTIES: Final = (
    flag("schemas.enable", 'whether each value is `{"schema": …, "payload": …}`'),
    flag("replace.null.with.default", "whether a null that has a default in the schema is read, and written, as it"),
    Option("decimal.format", words("BASE64", "NUMERIC"), "how decimals are written (KIP-481)", "BASE64"),
)

KIND: Final = CodecKind(
    "connect-json",
    JSON_CONVERTER,
    "Connect's JsonConverter: each value with its schema, or with the one that `schema` gives for all of them",
    _codec,
    settings=(
        Option(
            "schema",
            Kind(_schema, {"type": ["object", "null"]}),
            "the schema that every value has, in the JSON of Connect's JsonConverter",
            None,
        ),
        *_PROPERTIES,
    ),
    connect=_PROPERTIES,
)
