"""Records in the form for the sinks: keys and values encoded once for each record, and the writable headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.codecs import Codec, EncodeErrors
from turnout.codecs.codec import RecordCodec, as_record_codec
from turnout.codecs.connect_json import ConnectJson
from turnout.codecs.json_writing import encode_json
from turnout.codecs.plain_json import SchemalessJson, TypedJson
from turnout.engine.unfit_headers import HeaderRules, without
from turnout.errors import RecordError
from turnout.records import Batch, Block, Failure, Struct
from turnout.records.header_column import ARROW
from turnout.records.types import ArrowArray, RowIds
from turnout.routes import Route
from turnout.transforms.base import split

Bodies = dict[int, bytes | None]
HeaderPairs = Sequence[tuple[str | None, bytes | None]]

_SCHEMA_FORMATS = frozenset({"avro", "protobuf", "jsonSchema"})
"""Formats whose readers need a schema: values without one are refused by the codec."""

_NESTED = frozenset({dict, list, tuple, Struct})

_MAX_LISTED_RECORDS = 200
"""Number of records up to which headers stay lists."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The records that are delivered, as they are sent.

    Attributes:
        rows: rows of the records.
        values: by row.
        keys: by row; none where no sink has keys.
        header_pairs: names and values for each of *rows*, as an array or as lists.
        dropped_headers: how many headers were left out, because they cannot be written.
    """

    rows: RowIds
    values: Bodies
    keys: Bodies
    header_pairs: ArrowArray | Sequence[HeaderPairs]
    dropped_headers: int = 0

    @property
    def headers(self) -> ArrowArray:
        """The headers as an Arrow array."""
        headers = self.header_pairs
        return headers if isinstance(headers, pa.Array) else pa.array(headers, ARROW)


class Writer:
    """Writes records for a route's sinks.

    Args:
        route: has the policy for headers that cannot be written.
        rules: rules for them.
        key: the codec of keys.
        value: the codec of values.

    Attributes:
        needs_keys: whether a sink has keys.
    """

    def __init__(self, route: Route, rules: HeaderRules, key: Codec, value: Codec) -> None:
        self._rules = rules
        self._drops = route.errors.bad_headers == "drop"
        self._key = key
        self._value = value
        self._has_schema_ids = as_record_codec(key) is not None or as_record_codec(value) is not None
        self.needs_keys = any(sink.takes_keys for sink in route.sinks.values())

    def written(self, records: Batch, rows: RowIds) -> Outgoing:
        """Encode the records at *rows*; records that cannot be written fail and are left out."""
        headers, bad = self._listed_pairs(records, rows), None
        if headers is None:
            headers, bad = self._headers(records, rows)
        values = _encoded(records, records.value, rows, self._value, "VALUE_CONVERTER")
        keys = _encoded(records, records.key, rows, self._key, "KEY_CONVERTER") if self.needs_keys else {}
        if self._has_schema_ids:
            headers, bad = self._headers(records, rows)
        if records.failures:
            written = np.flatnonzero(~np.isin(rows, list(records.failures)))
            rows, headers = rows[written], _taken(headers, written)
        if bad is None or not self._drops:
            return Outgoing(rows, values, keys, headers)
        bad = self._rules.unfit(headers)
        if bad is None:
            return Outgoing(rows, values, keys, headers)
        return Outgoing(rows, values, keys, without(headers, bad), int(bad.sum()))

    def _listed_pairs(self, records: Batch, rows: RowIds) -> Sequence[HeaderPairs] | None:
        """Return the headers of a few records as lists; None where they are not lists, or have to be changed."""
        if len(rows) > _MAX_LISTED_RECORDS or self._has_schema_ids or self.needs_keys:
            return None
        pairs = records.headers.pairs(rows)
        return pairs if pairs is not None and self._rules.fit(pairs) else None

    def _headers(self, records: Batch, rows: RowIds) -> tuple[ArrowArray, NDArray[np.bool_] | None]:
        """Return the headers of the records at *rows*, and the invalid ones, whose records fail."""
        headers = records.headers.to_arrow(rows)
        bad = self._rules.unfit(headers)
        if bad is not None and not self._drops:
            wrong = self._rules.failures(headers, bad)
            records.fail({int(rows[index]): failure for index, failure in wrong.items()})
        return headers, bad


def _taken(
    headers: ArrowArray | Sequence[HeaderPairs], indices: NDArray[np.intp]
) -> ArrowArray | Sequence[HeaderPairs]:
    if isinstance(headers, pa.Array):
        return headers.take(pa.array(indices))
    return [headers[index] for index in indices.tolist()]


def _encoded(records: Batch, side: list[Block], rows: RowIds, codec: Codec, stage: str) -> Bodies:
    """Encode these records, and return row → bytes; records that cannot be encoded fail."""
    chosen_rows = None if len(rows) == len(records) else np.zeros(len(records), np.bool_)
    if chosen_rows is not None:
        chosen_rows[rows] = True
    bodies: Bodies = {}
    failures: dict[int, Failure] = {}
    if not isinstance(codec, SchemalessJson | TypedJson | ConnectJson):
        split(side)
    for block in tuple(side):
        chosen = block if chosen_rows is None else block.take(np.flatnonzero(chosen_rows[block.rows]))
        if not len(chosen):
            continue
        encoded, wrong = encode_block(records, codec, chosen)
        block_rows = chosen.rows.tolist()
        bodies.update(zip(block_rows, encoded, strict=True))
        failures |= {block_rows[index]: Failure.of(error, stage, codec.class_name) for index, error in wrong.items()}
    records.fail(failures)
    return bodies


def encode_block(records: Batch, codec: Codec, block: Block) -> tuple[list[bytes | None], Mapping[int, RecordError]]:
    """Return the bytes of a block's values, and index → error for the values that cannot be encoded."""
    try:
        if block.form and codec.format not in _SCHEMA_FORMATS:
            return _in_form(block)
        if codec.format == "string":
            return _as_texts(codec, block)
        own = as_record_codec(codec)
        if own is not None:
            return _encode_of_records(records, own, block)
        return codec.encode(block), {}
    except EncodeErrors as errors:
        return errors.texts, errors.errors
    except RecordError as error:
        return [None] * len(block), dict.fromkeys(range(len(block)), error)


def _as_texts(codec: Codec, block: Block) -> tuple[list[bytes | None], Mapping[int, RecordError]]:
    """Return values as texts: objects and arrays as JSON, where Kafka's StringConverter prints what Java does."""
    if block.kind in ("object", "mixed"):
        return encode_json(block)
    if block.kind == "null" or _NESTED.isdisjoint(map(type, block.values)):
        return codec.encode(block), {}
    texts, errors = encode_json(block)
    nested = [type(value) in _NESTED for value in block.values]
    plain = [
        text if is_nested else own for text, own, is_nested in zip(texts, codec.encode(block), nested, strict=True)
    ]
    return plain, {index: error for index, error in errors.items() if nested[index]}


def _in_form(block: Block) -> tuple[list[bytes | None], Mapping[int, RecordError]]:
    """Return the values of a block in the form that a transform has chosen for them."""
    if block.form == "json":
        return encode_json(block)
    return [value.encode() if isinstance(value, str) else bytes(value) for value in block.whole()], {}


def _encode_of_records(
    records: Batch, codec: RecordCodec, block: Block
) -> tuple[list[bytes | None], Mapping[int, RecordError]]:
    """Encode a block, and give its records the header of the codec, or take it away."""
    encoded = codec.encode_for(block, records.by_row(records.topics, block.rows))
    headers = records.headers
    if headers and headers.has(codec.header).any():
        headers.drop((codec.header,), block.rows)
    if encoded.headers is not None:
        with_header = [index for index, header in enumerate(encoded.headers) if header]
        headers.append(block.rows[with_header], codec.header, None, [encoded.headers[index] for index in with_header])
    return encoded.texts, encoded.errors
