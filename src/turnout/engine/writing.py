"""Records in the form for the sinks: keys and values encoded once for each record, and the writable headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from turnout.base.startup import pc
from turnout.codecs import Codec, EncodeErrors, Format, Notation, notation_of
from turnout.codecs.arrow_columns import WrittenColumn, arrow_type
from turnout.codecs.codec import Decoded, RecordCodec, as_record_codec, attempt
from turnout.codecs.connect_json import ConnectJson
from turnout.codecs.conversion import Converting, Fitting, alike, converted, problem_of, writing_codec
from turnout.codecs.json_writing import Written, encode_json
from turnout.codecs.plain_json import SchemalessJson, TypedJson
from turnout.engine.deliveries import OutgoingDeliveries
from turnout.engine.messages import HeaderRules, without
from turnout.errors import RecordError
from turnout.records import Batch, Block, Failure, Headers, Positions, Schema, Struct
from turnout.records.block import rows_of
from turnout.records.headers import headers_type
from turnout.records.spans import ArrowBytes
from turnout.records.text import text_of
from turnout.records.types import ArrowArray, Binaries, NewColumns, RowIds, Structs
from turnout.routes import Route
from turnout.routes.endpoints import KafkaSink
from turnout.routes.endpoints.tables import ColumnSpec
from turnout.routes.rows import ColumnRule, RowPlan
from turnout.routes.written_formats import WrittenFormats
from turnout.transforms.base import split

_REFERENCE_BYTES = 8


class _Columns:
    """Values of one schema as Arrow columns; see `turnout.codecs.conversion.Target`."""

    def __init__(self, schema: Schema, rules: Sequence[tuple[ColumnSpec, ColumnRule]]) -> None:
        self.schemas = (schema,)
        self._rules = rules
        self._fitting: dict[tuple[str, ...], Fitting] = {}
        self.parts: list[ArrowArray] = []
        self._count = 0

    def fitted(self, rows: Positions, texts: Sequence[bytes], names: tuple[str, ...] = ()) -> Decoded:
        """Return the values of plain JSON texts; of some fields alone, if names are given."""
        fitting = self._fitting.get(names)
        if fitting is None:
            (schema,) = self.schemas
            chosen = tuple(field for field in schema.fields if not names or field.name in names)
            fitting = self._fitting[names] = Fitting(schema.with_(fields=chosen), drops_unknown=True)
        return fitting.read(rows, texts)

    def written(self, block: Block) -> Written:
        """Return the references of a block's rows; a field that has its column's type keeps its values as they are."""
        (target,), typed = self.schemas, block.schema
        if block.kind == "null":
            null = RecordError("a null has no columns for a row: filter it, or turn it into a value")
            return [None] * len(block), dict.fromkeys(range(len(block)), null)
        if typed is None or typed.type != "struct" or block.kind != "object":
            return converted(block, self)
        pairs = [(field.name, typed.field(field.name), field.schema) for field in target.fields]
        other = tuple(name for name, read, own in pairs if read is not None and not alike(read, own))
        problems = (problem_of(read, own, name) for name, read, own in pairs if read is not None and name in other)
        problem = next((one for one in problems if one is not None), None)
        if problem is not None:
            return [None] * len(block), dict.fromkeys(range(len(block)), RecordError(problem))
        rows, columns, errors = self._read_again(block, other) if other else (rows_of(len(block)), {}, {})
        whole = block.take(rows)
        own = {name: whole.columns[name] for name, read, _ in pairs if read is not None and name not in other}
        nulls = [None] * len(whole)
        references, wrong = self.encode(
            whole.with_columns(target, {name: {**own, **columns}.get(name, nulls) for name, _, _ in pairs})
        )
        listed: list[bytes | None] = [None] * len(block)
        for at, (index, reference) in enumerate(zip(rows.tolist(), references, strict=True)):
            listed[index] = reference
            if at in wrong:
                errors[index] = wrong[at]
        return listed, errors

    def _read_again(self, block: Block, names: tuple[str, ...]) -> tuple[Positions, NewColumns, dict[int, RecordError]]:
        """Return some fields as values of their columns' types, the indices of the values that fit, and the errors."""
        assert block.schema is not None
        chosen = tuple(field for field in block.schema.fields if field.name in names)
        part = block.with_columns(block.schema.basics(chosen), {name: block.columns[name] for name in names})
        texts, errors = encode_json(part)
        good = np.array([index for index, text in enumerate(texts) if text is not None], np.intp)
        blocks, failed = self.fitted(good, [text for text in texts if text is not None], names)
        blocks = sorted(blocks, key=lambda one: one.rows[0])
        if len(blocks) == 1:
            return blocks[0].rows, dict(blocks[0].columns), {**errors, **failed}
        rows = np.concatenate([np.zeros(0, np.intp), *(one.rows for one in blocks)])
        order = np.argsort(rows)
        joined = {name: [value for one in blocks for value in one.columns[name]] for name in names}
        return rows[order], {name: [joined[name][at] for at in order] for name in names}, {**errors, **failed}

    def encode(self, block: Block) -> Written:
        """Keep the rows of values of the schema, and return their references."""
        column = WrittenColumn.of([block], self.schemas[0])
        self.parts.append(column.values)
        references = (np.arange(len(column.values)) + self._count).astype("<i8").tobytes()
        self._count += len(column.values)
        starts = range(0, len(references), _REFERENCE_BYTES)
        each = (references[at : at + _REFERENCE_BYTES] for at in starts)
        by_row = dict(zip(column.rows.tolist(), each, strict=True))
        problems = {**column.problems, **self._refused(column)}
        listed = block.rows.tolist()
        errors = {at: RecordError(problems[row]) for at, row in enumerate(listed) if row in problems}
        return [None if row in problems else by_row.get(row) for row in listed], errors

    def _refused(self, column: WrittenColumn) -> dict[int, str]:
        """Return the rows that the table would refuse, and why."""
        problems: dict[int, str] = {}
        for spec, rule in self._rules:
            values = pc.struct_field(column.values, list(spec.path))
            refused = values.is_null() if rule.required else pa.repeat(False, len(values))
            if pa.types.is_string(values.type) and rule.longest is not None:
                refused = pc.or_kleene(refused, pc.greater(pc.utf8_length(values), rule.longest))
            if pa.types.is_string(values.type) and rule.refuses_nul:
                refused = pc.or_kleene(refused, pc.match_substring(values, "\0"))
            for at in np.flatnonzero(pc.fill_null(refused, False).to_numpy(zero_copy_only=False)).tolist():
                problems[int(column.rows[at])] = f"the column {spec.name} {rule.problem(values[at].as_py())}"
        return problems

    def clear(self) -> None:
        self.parts, self._count = [], 0

    def whole(self) -> Structs:
        """Return all rows."""
        return pa.concat_arrays([pa.nulls(0, arrow_type(self.schemas[0])), *self.parts])


class Rows:
    """Codec of the values of a table's rows: their bytes are references among the rows of this batch.

    Fields of their column's type keep its values; others are read as plain JSON by the column's type, exactly or not
    at all. A null has no row.

    Args:
        schema: struct of the columns.
        rules: columns in which the table refuses something.

    >>> from turnout.records import Field, group
    >>> rows = Rows(Schema("struct", True, fields=(Field("n", Schema("int32", True)),)))
    >>> (block,) = group(np.arange(2), None, [{"n": 17, "city": "Oulu"}, {"n": 18, "city": "Kemi"}])
    >>> rows.taken(pa.array(rows.encode(block), pa.binary())).to_pylist()
    [{'n': 17}, {'n': 18}]
    """

    format = "columns"
    class_name = "turnout.sink.columns"

    def __init__(self, schema: Schema, rules: Sequence[tuple[ColumnSpec, ColumnRule]] = ()) -> None:
        self._schema = schema
        self._columns = _Columns(schema, rules)

    def schema(self) -> Schema:
        """Return the struct of the columns."""
        return self._schema

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:  # noqa: ARG002 - none can be read
        """Refuse all: nothing is read in this format."""
        return [], dict.fromkeys(rows.tolist(), RecordError("a reference of a row is no value"))

    def encode(self, block: Block) -> Sequence[bytes | None]:
        """Return the references of the rows.

        Raises:
            EncodeErrors: some do not fit, or are null.
        """
        return attempt(*self._columns.written(block))

    def clear(self) -> None:
        """Forget the rows of the last batch."""
        self._columns.clear()

    def taken(self, references: Binaries) -> Structs:
        """Return the rows of some messages of the last batch, null where there is no reference."""
        rows = self._columns.whole()
        present = references.is_valid()
        joined = b"".join(references.filter(present).to_pylist())
        numbers = pa.array(np.frombuffer(joined, "<i8").astype(np.int64))
        if len(numbers) == len(references):
            return rows.take(numbers)
        positions = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        return rows.take(numbers.take(pc.if_else(present, positions, None)))


class Bodies:
    """Bytes of keys or values, and their rows, block by block."""

    def __init__(self) -> None:
        self._parts: list[tuple[RowIds, Sequence[bytes | None]]] = []

    def add(self, rows: RowIds, contents: Sequence[bytes | None]) -> None:
        """Add those of a block."""
        self._parts.append((rows, contents))

    def listed(self, rows: RowIds) -> list[bytes | None]:
        """Return those of some rows, None for rows without any."""
        by_row = {row: one for own, contents in self._parts for row, one in zip(own.tolist(), contents, strict=True)}
        return [by_row.get(row) for row in rows.tolist()]

    def array(self, rows: RowIds) -> Binaries:
        """Return those of some rows as an array; nulls if there are none at all, and else each row has some."""
        if not self._parts:
            return pa.nulls(len(rows), pa.binary())
        arrays = [
            contents.array if isinstance(contents, ArrowBytes) else pa.array(contents, pa.binary())
            for _, contents in self._parts
        ]
        own = np.concatenate([part for part, _ in self._parts])
        if len(own) == len(rows) and (own == rows).all():
            return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        order = np.argsort(own)
        return pa.concat_arrays(arrays).take(pa.array(order[np.searchsorted(own, rows, sorter=order)]))


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
        values: their bytes.
        keys: likewise; none where no sink has keys.
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
        return headers if isinstance(headers, pa.Array) else pa.array(headers, headers_type())

    def without(self, failures: Mapping[int, Failure]) -> Outgoing:
        """Return these without records that have failed since."""
        if np.isin(self.rows, list(failures)).any():
            left = np.flatnonzero(~np.isin(self.rows, list(failures)))
            return replace(self, rows=self.rows[left], header_pairs=_taken(self.header_pairs, left))
        return self


@dataclass(frozen=True, slots=True)
class _Encoder:
    """Codecs of keys and values in one pair of formats.

    Attributes:
        id_headers: headers with the ids of schemas that records were read with, and that are not written.
        texts: columns of texts for the key and headers; see `turnout.routes.rows.RowPlan.texts`.
    """

    key: Codec
    value: Codec
    id_headers: tuple[str, ...]
    texts: tuple[tuple[ColumnSpec, ColumnRule], ...] = ()

    @property
    def has_schema_ids(self) -> bool:
        """True if encoding may change headers."""
        return bool(self.id_headers) or not (as_record_codec(self.key) is None and as_record_codec(self.value) is None)


class Writer:
    """Writes records for a route's sinks: once for each pair of formats that these have.

    A format that equals the one that is read has its codec, so that unchanged values keep their bytes.

    Args:
        route: has the formats, and the policy for headers that cannot be written.
        rules: rules for them.
        key: the codec of keys that are read.
        value: the codec of values that are read.
        plans: index of a sink → columns of the rows that it receives.

    Attributes:
        rows: index of a sink → rows of the last batch that it receives in columns.
        needs_keys: whether a sink has keys.
        lists_keys: whether the sink takes the keys of a few messages as lists, or has none.
        forms: number of different pairs of formats.
    """

    def __init__(
        self, route: Route, rules: HeaderRules, key: Codec, value: Codec, plans: Mapping[int, RowPlan] | None = None
    ) -> None:
        self._rules = rules
        self._drops = route.errors.bad_headers == "drop"
        self._read = WrittenFormats(route.key, route.value)
        formats = [route.formats_of(name) for name in route.sinks]
        self._deliveries: str | None = None
        if route.webhooks is not None and route.webhook_format is not None:
            self._deliveries = f"{route.webhooks.subject}."
            stored = formats[route.webhooks.sink_index(list(route.sinks))]
            formats.append(stored._replace(value=route.webhook_format))
        # Sinks of tables have a form each, as each takes its rows out of its own codec.
        plans = plans or {}
        self.rows = {number: Rows(plan.value, plan.field_rules) for number, plan in plans.items() if plan.value.fields}
        kinds: list[WrittenFormats | int] = [at if at in plans else one for at, one in enumerate(formats)]
        different = list(dict.fromkeys(map(kinds.index, kinds)))
        self._encoders = [
            self._encoder(formats[at], key, value, self.rows.get(at), plans[at].texts if at in plans else ())
            for at in different
        ]
        self._form_of_sink = np.array([different.index(kinds.index(one)) for one in kinds], np.int8)
        self.forms = len(different)
        self.needs_keys = any(sink.takes_keys for sink in route.sinks.values())
        self.lists_keys = not self.needs_keys or all(isinstance(sink, KafkaSink) for sink in route.sinks.values())

    def _encoder(
        self,
        formats: WrittenFormats,
        key: Codec,
        value: Codec,
        rows: Rows | None,
        texts: tuple[tuple[ColumnSpec, ColumnRule], ...],
    ) -> _Encoder:
        own_key = writing_codec(formats.key, self._read.key, key)
        own_value = rows or writing_codec(formats.value, self._read.value, value)
        pairs = ((key, own_key), (value, own_value))
        headers = tuple(read.header for read, own in pairs if own is not read and isinstance(read, RecordCodec))
        return _Encoder(own_key, own_value, headers, texts)

    def forms_of(self, deliveries: OutgoingDeliveries) -> NDArray[np.int8]:
        """Return the pair of formats of each delivery, by its number."""
        if self.forms == 1:
            return np.zeros(len(deliveries), np.int8)
        sinks = np.zeros(len(deliveries), np.int8) if deliveries.sinks is None else deliveries.sinks
        # What only a feed has is written as for the first sink.
        forms: NDArray[np.int8] = self._form_of_sink[np.maximum(sinks, 0)]
        if self._deliveries is not None:
            stored = pc.fill_null(pc.starts_with(deliveries.topics.array, self._deliveries), False)
            forms = np.where(stored.to_numpy(zero_copy_only=False), self._form_of_sink[-1], forms)
        return forms

    def written_for(self, records: Batch, deliveries: OutgoingDeliveries, *, repeated: bool) -> list[Outgoing]:
        """Encode the records of some deliveries, for each pair of formats those that need it.

        Args:
            records: records that fail if they cannot be written in all their formats.
            deliveries: messages of them.
            repeated: whether a record may have several deliveries.
        """
        for own in self.rows.values():
            own.clear()
        if self.forms == 1:
            rows = np.unique(deliveries.rows) if repeated else deliveries.rows
            return [self._written(records, rows, self._encoders[0])]
        forms, headers = self.forms_of(deliveries), records.headers
        outgoing: list[Outgoing] = []
        for form, encoder in enumerate(self._encoders):
            rows = np.unique(deliveries.rows[forms == form])
            rows = rows[~np.isin(rows, list(records.failures))]
            # A codec may change the headers of its own messages alone.
            records.headers = Headers.of_arrow(headers.to_arrow(rows_of(len(records))))
            outgoing.append(self._written(records, rows, encoder))
        records.headers = headers
        return [part.without(records.failures) for part in outgoing]

    def _written(self, records: Batch, rows: RowIds, encoder: _Encoder) -> Outgoing:
        """Encode the records at *rows*; records that cannot be written fail and are left out."""
        has_schema_ids = encoder.has_schema_ids
        headers, bad = self._listed_pairs(records, rows, has_schema_ids=has_schema_ids), None
        if headers is None:
            headers, bad = self._headers(records, rows)
        if encoder.id_headers:
            records.headers.drop(encoder.id_headers, rows)
        values = _encoded(records, records.value, rows, encoder.value, "VALUE_CONVERTER")
        keys = _encoded(records, records.key, rows, encoder.key, "KEY_CONVERTER") if self.needs_keys else Bodies()
        if has_schema_ids:
            headers, bad = self._headers(records, rows)
        if encoder.texts:
            records.fail(_no_texts(Outgoing(rows, values, keys, headers), encoder.texts))
        if records.failures:
            written = np.flatnonzero(~np.isin(rows, list(records.failures)))
            rows, headers = rows[written], _taken(headers, written)
        if bad is None or not self._drops:
            return Outgoing(rows, values, keys, headers)
        bad = self._rules.unfit(headers)
        if bad is None:
            return Outgoing(rows, values, keys, headers)
        return Outgoing(rows, values, keys, without(headers, bad), int(bad.sum()))

    def _listed_pairs(self, records: Batch, rows: RowIds, *, has_schema_ids: bool) -> Sequence[HeaderPairs] | None:
        """Return the headers of a few records as lists; None where they are not lists, or have to be changed."""
        if len(rows) > _MAX_LISTED_RECORDS or has_schema_ids or not self.lists_keys or self.forms > 1:
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


class MessageNotations:
    """Notations of the keys and values of a route's messages, for people and tests; each is made once.

    Args:
        route: has the formats.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._sinks = list(route.sinks)
        self._known: list[tuple[Format, Notation]] = []

    @property
    def read(self) -> tuple[Notation, Notation]:
        """Notations of records as they are read, and so of dead letters."""
        return self._of(self._route.key), self._of(self._route.value)

    def of_message(self, sink: int, topic: str | None) -> tuple[Notation, Notation]:
        """Return the notations of a message that is no dead letter, by its sink and its topic there."""
        key, value = self._route.formats_of(self._sinks[max(sink, 0)])
        webhooks = self._route.webhooks
        if webhooks is not None and self._route.webhook_format is not None:
            value = self._route.webhook_format if (topic or "").startswith(f"{webhooks.subject}.") else value
        return self._of(key), self._of(value)

    def _of(self, format_: Format) -> Notation:
        known = next((notation for one, notation in self._known if one == format_), None)
        if known is None:
            known = notation_of(format_)
            self._known.append((format_, known))
        return known


def _no_texts(outgoing: Outgoing, texts: Sequence[tuple[ColumnSpec, ColumnRule]]) -> dict[int, Failure]:
    """Return the failures of records whose keys or headers have to be texts that a table takes, and are not."""
    names = {"".join(spec.path) for spec, _ in texts if spec.part == "headers"}
    headers = Headers.of_arrow(outgoing.headers).named(names, rows_of(len(outgoing.rows))) if names else {}
    keys = outgoing.keys.listed(outgoing.rows)
    failures: dict[int, Failure] = {}
    for index, row in enumerate(outgoing.rows.tolist()):
        # A column has the last header of its name.
        last = {one.name: one.value for one in headers.get(index, ())}
        for spec, rule in texts:
            name = "".join(spec.path)
            value = keys[index] if spec.part == "key" else last.get(name)
            text = None if value is None else text_of(value)
            problem = f"in the column {spec.name}, which {problem}" if (problem := rule.problem(text)) else ""
            if value is not None and text is None:
                problem = "is no UTF-8, and its column has texts: declare it as BINARY"
            if problem:
                stage, what = ("KEY_CONVERTER", "key") if spec.part == "key" else ("HEADER_CONVERTER", f"header {name}")
                failures[row] = Failure.of(RecordError(f"the {what} {problem}"), stage, Rows.class_name)
    return failures


def _taken(
    headers: ArrowArray | Sequence[HeaderPairs], indices: NDArray[np.intp]
) -> ArrowArray | Sequence[HeaderPairs]:
    if isinstance(headers, pa.Array):
        return headers.take(pa.array(indices))
    return [headers[index] for index in indices.tolist()]


def _encoded(records: Batch, side: list[Block], rows: RowIds, codec: Codec, stage: str) -> Bodies:
    """Encode these records, and return their bytes; records that cannot be encoded fail."""
    chosen_rows = None if len(rows) == len(records) else np.zeros(len(records), np.bool_)
    if chosen_rows is not None:
        chosen_rows[rows] = True
    bodies = Bodies()
    failures: dict[int, Failure] = {}
    if not isinstance(codec, SchemalessJson | TypedJson | ConnectJson | Converting):
        split(side)
    for block in tuple(side):
        chosen = block if chosen_rows is None else block.take(np.flatnonzero(chosen_rows[block.rows]))
        if not len(chosen):
            continue
        encoded, wrong = encode_block(records, codec, chosen)
        bodies.add(chosen.rows, encoded)
        failures |= {int(chosen.rows[at]): Failure.of(error, stage, codec.class_name) for at, error in wrong.items()}
    records.fail(failures)
    return bodies


def encode_block(
    records: Batch, codec: Codec, block: Block
) -> tuple[Sequence[bytes | None], Mapping[int, RecordError]]:
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


def _as_texts(codec: Codec, block: Block) -> tuple[Sequence[bytes | None], Mapping[int, RecordError]]:
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


def _in_form(block: Block) -> tuple[Sequence[bytes | None], Mapping[int, RecordError]]:
    """Return the values of a block in the form that a transform has chosen for them."""
    if block.form == "json":
        return encode_json(block)
    return [value.encode() if isinstance(value, str) else bytes(value) for value in block.whole()], {}


def _encode_of_records(
    records: Batch, codec: RecordCodec, block: Block
) -> tuple[Sequence[bytes | None], Mapping[int, RecordError]]:
    """Encode a block, and give its records the header of the codec, or take it away."""
    encoded = codec.encode_for(block, records.by_row(records.topics, block.rows))
    headers = records.headers
    if headers and headers.has(codec.header).any():
        headers.drop((codec.header,), block.rows)
    if encoded.headers is not None:
        with_header = [index for index, header in enumerate(encoded.headers) if header]
        headers.append(block.rows[with_header], codec.header, None, [encoded.headers[index] for index in with_header])
    return encoded.texts, encoded.errors
