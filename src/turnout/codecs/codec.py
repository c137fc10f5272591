"""Interface of codecs: bytes on one side, values by column on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

from turnout.base.deferred import np
from turnout.errors import RecordError, TurnoutError
from turnout.records import Block, Positions, Schema, group
from turnout.records.types import Column, DynamicValue, Value

Decoded: TypeAlias = tuple[list[Block], dict[int, RecordError]]
"""The decoded values, and the rows of the others."""


class Codec(Protocol):
    """Reads and writes the bytes of keys or values.

    >>> from turnout.codecs import FORMATS, Format, codec_of
    >>> [codec_of(Format(name)).class_name.rpartition(".")[2] for name in ("json", "connect-json", "long")]
    ['JsonConverter', 'JsonConverter', 'LongConverter']
    >>> "thrift" in FORMATS
    False
    """

    @property
    def format(self) -> str:
        """The name that a route gives it."""

    @property
    def class_name(self) -> str:
        """Kafka's converter, as error headers name it."""

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """Return the values of these rows of a batch; one that cannot be read has an error and is in no block.

        Args:
            rows: the index of each text in the batch, ascending.
            texts: None is a tombstone and becomes a null.
        """

    def encode(self, block: Block) -> list[bytes | None]:
        """Return the bytes of each value of the block, in its order.

        Raises:
            RecordError: no value of the block can be written.
            EncodeErrors: some cannot.
        """

    def schema(self) -> Schema | None:
        """Return the schema that every value read has; None where values are schemaless or bring their own."""


class Encoded(NamedTuple):
    """Values of a block as they are written.

    Attributes:
        texts: the bytes of each value, None at the indexes of errors.
        errors: index in the block → why.
        headers: the schema id of each value for the codec's header; None where no value has one.
    """

    texts: list[bytes | None]
    errors: Mapping[int, RecordError]
    headers: list[bytes] | None = None


@runtime_checkable
class RecordCodec(Codec, Protocol):
    """Codec whose bytes depend on other parts of their record: its topic, and a header with the id of the schema."""

    @property
    def header(self) -> str:
        """The name of the header."""

    def decode_with(self, rows: Positions, texts: Sequence[bytes | None], headers: Sequence[bytes | None]) -> Decoded:
        """Decode as `decode` does, with the header of each record, None where it has none."""

    def encode_for(self, block: Block, topics: Sequence[str | None]) -> Encoded:
        """Encode a block whose records have these topics."""


_record_codecs: dict[type, bool] = {}


def as_record_codec(codec: Codec) -> RecordCodec | None:
    """Return the codec if its bytes depend on other parts of their record; None for other codecs.

    >>> from turnout.codecs import Format, codec_of
    >>> as_record_codec(codec_of(Format("json"))) is None
    True
    """
    # A check against a protocol takes longer than the decoding of a small batch.
    kind = type(codec)
    known = _record_codecs.get(kind)
    if known is None:
        known = _record_codecs[kind] = isinstance(codec, RecordCodec)
    return cast("RecordCodec", codec) if known else None


class EncodeErrors(TurnoutError):  # noqa: N818 - several errors, not one
    """Raised when some values of a block cannot be written.

    Attributes:
        errors: index in the block → why.
        texts: the texts, None at the indices of errors.

    >>> failed = EncodeErrors({1: RecordError("a lone surrogate")}, [b"1", None])
    >>> str(failed), failed.texts
    ('1 of 2 values cannot be written: a lone surrogate', [b'1', None])
    """

    def __init__(self, errors: Mapping[int, RecordError], texts: list[bytes | None]) -> None:
        super().__init__(f"{len(errors)} of {len(texts)} values cannot be written: {next(iter(errors.values()))}")
        self.errors = dict(errors)
        self.texts = texts


def attempt(texts: list[bytes | None], errors: Mapping[int, RecordError]) -> list[bytes | None]:
    """Return the texts if no errors occurred.

    Raises:
        EncodeErrors: there are.
    """
    if errors:
        raise EncodeErrors(errors, [None if index in errors else text for index, text in enumerate(texts)])
    return texts


def encode_each(block: Block, write: Callable[[DynamicValue], bytes]) -> list[bytes | None]:
    """Return the result of *write* for each value of a block; nulls are tombstones.

    Raises:
        EncodeErrors: it has raised a `RecordError` for some.

    >>> (block,) = group(np.arange(2), None, ["Oulu", "Kemi"])
    >>> encode_each(block, str.encode)
    [b'Oulu', b'Kemi']
    """
    if block.kind == "null":
        return [None] * len(block)
    texts: list[bytes | None] = []
    errors: dict[int, RecordError] = {}
    for index, value in enumerate(block.whole()):
        try:
            texts.append(write(value))
        except RecordError as error:
            errors[index] = error
            texts.append(None)
    return attempt(texts, errors)


def decode_each(
    rows: Positions, texts: Sequence[bytes | None], read: Callable[[bytes], Value], schema: Schema | None = None
) -> Decoded:
    """Return the result of *read* for each text, of one schema; if it raises `RecordError`, the row has an error.

    >>> blocks, errors = decode_each(np.arange(2), [b"Oulu", None], bytes.decode)
    >>> [(block.kind, block.whole()) for block in blocks], errors
    ([('plain', ['Oulu']), ('null', [None])], {})
    """

    def decode(rows: Positions, texts: Sequence[bytes]) -> Decoded:
        values: list[Value] = []
        errors: dict[int, RecordError] = {}
        for row, text in zip(rows.tolist(), texts, strict=True):
            try:
                values.append(read(text))
            except RecordError as error:
                errors[row] = error
        good = rows[~np.isin(rows, list(errors))] if errors else rows
        return group(good, schema, values), errors

    return with_tombstones(rows, texts, decode, schema)


def with_tombstones(
    rows: Positions,
    texts: Sequence[bytes | None],
    read: Callable[[Positions, Column], Decoded],
    schema: Schema | None = None,
) -> Decoded:
    """Decode the texts with *read*, and return a null with this schema for each that is None."""
    if None not in texts:
        return read(rows, texts) if len(texts) else ([], {})
    present = [text for text in texts if text is not None]
    if not present:
        return [Block(rows, schema)], {}
    absent = np.fromiter((text is None for text in texts), np.bool_, len(texts))
    nulls = Block(rows[absent], schema)
    blocks, errors = read(rows[~absent], present)
    return [*blocks, nulls], errors


def text_for_people(value: Value) -> str:
    """Render a found value, short enough for a message."""
    shown = value.decode("utf-8", "replace") if isinstance(value, bytes) else repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
