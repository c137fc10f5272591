"""Values of one format, written in another: the codec that a writer needs, and values as those of one schema.

The common form is that of Connect: a value with a schema, or a schemaless one. What a format of schemas gets without a
schema, or with another one, is read as plain JSON by the schema that is written, see `turnout.codecs.fitting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from turnout.base.deferred import np
from turnout.codecs.codec import Codec, Decoded, EncodeErrors, attempt
from turnout.codecs.connect_json import ConnectJson
from turnout.codecs.fitting import Fitting, alike, problem_of
from turnout.codecs.format import Format, codec_of
from turnout.codecs.json_writing import Written, encode_json
from turnout.codecs.plain_json import TypedJson
from turnout.errors import RecordError
from turnout.records import Block, Positions, Schema


class Target(Protocol):
    """Reader and writer of values of one schema, or of the members of a union."""

    @property
    def schemas(self) -> Sequence[Schema]:
        """Connect's schemas of the values."""
        ...

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values of plain JSON texts; of each error, the field, what was found, and what was expected."""
        ...

    def encode(self, block: Block) -> Written:
        """Return the texts of values of one of the schemas."""
        ...


@runtime_checkable
class OfOneSchema(Protocol):
    """Codec of the values of one schema, which writes those of others as far as they fit."""

    @property
    def format(self) -> str:
        """See `Codec.format`."""
        ...

    @property
    def class_name(self) -> str:
        """See `Codec.class_name`."""
        ...

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        ...

    def schema(self) -> Schema | None:
        """See `Codec.schema`."""
        ...

    def converted(self, block: Block) -> Written:
        """Return the texts of values of any schema, or of none."""
        ...


class Converting:
    """Codec of a format that is written and not read.

    Args:
        codec: codec of the format.
    """

    def __init__(self, codec: OfOneSchema) -> None:
        self._codec = codec
        self.format = codec.format
        self.class_name = codec.class_name

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""
        return self._codec.decode(rows, texts)

    def encode(self, block: Block) -> list[bytes | None]:
        """See `Codec.encode`."""
        return attempt(*self._codec.converted(block))

    def schema(self) -> Schema | None:
        """See `Codec.schema`."""
        return self._codec.schema()


class _JsonOfSchema:
    """JSON of a schema that the route gives; see `OfOneSchema`, and for its values `Target`.

    Args:
        codec: codec of the JSON.
        schema: its schema.
    """

    def __init__(self, codec: TypedJson | ConnectJson, schema: Schema) -> None:
        self._codec = codec
        self.format = codec.format
        self.class_name = codec.class_name
        self.schemas = (schema,)
        # Declared columns are a choice of fields when they are read, too.
        self._fitting = Fitting(schema, drops_unknown=isinstance(codec, TypedJson))

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        return self._codec.decode(rows, texts)

    def encode(self, block: Block) -> Written:
        try:
            return self._codec.encode(block), {}
        except EncodeErrors as failed:
            return failed.texts, failed.errors

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        return self._fitting.read(rows, texts)

    def converted(self, block: Block) -> Written:
        return converted(block, self)

    def schema(self) -> Schema:
        return self.schemas[0]


def writing_codec(written: Format, read: Format, reader: Codec) -> Codec:
    """Return the codec of a format that is written, which is *reader* if the format that is read equals it.

    >>> reader = codec_of(Format("json"))
    >>> writing_codec(Format("json"), Format("json"), reader) is reader
    True
    """
    if written == read:
        return reader
    codec = codec_of(written)
    schema = codec.schema()
    if isinstance(codec, TypedJson | ConnectJson) and schema is not None:
        return Converting(_JsonOfSchema(codec, schema))
    return Converting(codec) if isinstance(codec, OfOneSchema) else codec


def converted(block: Block, target: Target) -> Written:
    """Return the texts of a block's values as those of the target's schema, and the errors of those that do not fit."""
    if block.kind == "null":
        return [None] * len(block), {}
    schema = block.schema
    if schema is not None:
        if schema in target.schemas:
            return _encoded(block, target)
        if len(target.schemas) == 1:
            (written,) = target.schemas
            if alike(schema, written):
                return _encoded(_as(block, written), target)
            problem = problem_of(schema, written)
            if problem is not None:
                return [None] * len(block), dict.fromkeys(range(len(block)), RecordError(problem))
    texts, errors = encode_json(block)
    present = [index for index, text in enumerate(texts) if text is not None]
    bodies: list[bytes | None] = [None] * len(block)
    chosen = [text for text in texts if text is not None]
    blocks, failed = target.fitted(np.array(present, np.intp), chosen) if present else ([], {})
    errors = {**errors, **failed}
    for fitted in blocks:
        written_texts, wrong = _encoded(fitted, target)
        for at, (index, text) in enumerate(zip(fitted.rows.tolist(), written_texts, strict=True)):
            bodies[index] = text
            if at in wrong:
                errors[index] = wrong[at]
    return bodies, errors


def _encoded(block: Block, target: Target) -> Written:
    try:
        return target.encode(block)
    except RecordError as error:
        return [None] * len(block), dict.fromkeys(range(len(block)), error)


def _as(block: Block, schema: Schema) -> Block:
    """Return values as those of a schema that takes them as they are."""
    if block.kind == "object":
        nulls: list[None] = [None] * len(block)
        columns = block.columns
        return block.with_columns(schema, {field.name: columns.get(field.name, nulls) for field in schema.fields})
    return block.with_values(schema, block.values)
