"""ExtractNewDocumentState: the document in a change event of MongoDB, whose parts are texts of extended JSON."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np

from turnout.base.clocks import microseconds_since_epoch, parse_time
from turnout.errors import RecordError
from turnout.records import Batch, Block, Field, Int32, Moment, Positions, Schema, group
from turnout.records.schema import TIMESTAMP
from turnout.records.types import DynamicValue, Value
from turnout.transforms.base import HEADERS, KEY, VALUE, Errors, Move, NamedField, Side, Transform, split
from turnout.transforms.debezium.extract_new_record_state import DELETED, MODES, FieldReference, is_envelope, references
from turnout.transforms.fields import NULL_POINTER, SCHEMA_BUILDER
from turnout.transforms.kafka.flatten import Flatten
from turnout.transforms.options import BOOLEAN, LIST, STRING, Option, Options, one_of

_UNSUPPORTED: Final = "io.debezium.DebeziumException"
_MAX_DEPTH: Final = 200
"""Documents and arrays inside each other; MongoDB takes 100."""

_ENVELOPE: Final = ".Envelope"


class Bson(NamedTuple):
    """Value of BSON: a document is a dict of them, an array a list of them."""

    type: str
    value: DynamicValue


Document: TypeAlias = "dict[str, Bson]"

_TEXT: Final = Schema("string", optional=True)
_REGEX: Final = Schema(
    "struct", optional=True, name="io.debezium.mongodb.regex", fields=(Field("regex", _TEXT), Field("options", _TEXT))
)
_SCHEMAS: Final[Mapping[str, Schema]] = {
    **dict.fromkeys(("null", "string", "code", "oid", "decimal"), _TEXT),
    "double": Schema("float64", optional=True),
    "binary": Schema("bytes", optional=True),
    "int": Schema("int32", optional=True),
    "long": Schema("int64", optional=True),
    "date": Schema("int64", optional=True, name=TIMESTAMP, version=1),
    "boolean": Schema("boolean", optional=True),
    "regex": _REGEX,
}
"""Schemas by type; the others have none."""


def _one(value: DynamicValue) -> DynamicValue:
    """Return the only value of a document such as ``{"$numberLong": "1"}``."""
    return value.value if isinstance(value, Bson) else value


def _date(value: Bson) -> Bson:
    if value.type == "string":
        try:
            return Bson("date", microseconds_since_epoch(parse_time(value.value)) // 1000)
        except ValueError:
            raise RecordError(f"expected a date of ISO 8601 in $date, found {value.value!r:.60}") from None
    return Bson("date", _integer(value, 63))


def _integer(value: Bson, bits: int) -> int:
    text = str(value.value)
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not -(1 << bits) <= int(text) < 1 << bits:
        raise RecordError(f"expected a whole number of {bits + 1} bits, found {text:.60}")
    return int(text)


def _binary(value: Bson) -> Bson:
    inner = value.value.get("base64") if value.type == "document" else value
    try:
        return Bson("binary", b64decode(_one(inner), validate=True))
    except (TypeError, ValueError):
        raise RecordError("expected base64 in $binary") from None


def _timestamp(value: Bson) -> Bson:
    seconds = value.value.get("t") if value.type == "document" else None
    if seconds is None:
        raise RecordError("expected the seconds as t in $timestamp")
    return Bson("date", 1000 * _integer(seconds, 63))


def _double(value: Bson) -> Bson:
    try:
        return Bson("double", float(value.value))
    except (TypeError, ValueError):
        raise RecordError(f"expected a number in $numberDouble, found {value.value!r:.60}") from None


_READERS: Final[Mapping[str, Callable[[Bson], Bson]]] = {
    "$oid": lambda value: Bson("oid", str(value.value)),
    "$numberInt": lambda value: Bson("int", _integer(value, 31)),
    "$numberLong": lambda value: Bson("long", _integer(value, 63)),
    "$numberDouble": _double,
    "$numberDecimal": lambda value: Bson("decimal", str(value.value)),
    "$date": _date,
    "$binary": _binary,
    "$timestamp": _timestamp,
    "$code": lambda value: Bson("code", value.value),
    "$undefined": lambda value: Bson("undefined", value.value),
    "$uuid": lambda value: Bson("binary", bytes.fromhex(str(value.value).replace("-", ""))),
    **{name: lambda value: Bson("other", value) for name in ("$minKey", "$maxKey", "$symbol", "$dbPointer")},
}
_COMPANIONS: Final = ("$type", "$options")


def parse_document(text: str) -> Document:
    """Return the document of a text in MongoDB's extended JSON, of version 1 or 2.

    Raises:
        RecordError: it is none.

    >>> parse_document('{"n": 1, "big": {"$numberLong": "7"}}')
    {'n': Bson(type='int', value=1), 'big': Bson(type='long', value=7)}
    """
    try:
        found = _JSON.decode(text)
    except (ValueError, RecursionError) as problem:
        raise RecordError(f"a document of MongoDB is no extended JSON: {problem}") from None
    if not isinstance(found, Bson) or found.type != "document":
        raise RecordError(f"expected a document of MongoDB, found {text!r:.60}")
    document: Document = found.value
    return document


def _number(text: str) -> Bson:
    number = int(text) if len(text) < 21 else 1 << 64
    if -(1 << 31) <= number < 1 << 31:
        return Bson("int", number)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"the number {text:.30} has more than 64 bits")
    return Bson("long", number)


def _float(text: str) -> Bson:
    return Bson("double", float(text))


def _plain(value: DynamicValue) -> Bson:
    if isinstance(value, Bson):
        return value
    if isinstance(value, list):
        return Bson("array", [_plain(item) for item in value])
    return Bson("null" if value is None else "boolean" if isinstance(value, bool) else "string", value)


def _object(pairs: list[tuple[str, DynamicValue]]) -> Bson:
    document = {name: _plain(value) for name, value in pairs}
    names = [name for name in document if name not in _COMPANIONS]
    if "$regex" in document:
        pattern, options = document["$regex"], document.get("$options", Bson("string", ""))
        return Bson("regex", {"regex": pattern.value, "options": "".join(sorted(str(options.value)))})
    if "$regularExpression" in document and document["$regularExpression"].type == "document":
        inner: Document = document["$regularExpression"].value
        return Bson("regex", {"regex": _one(inner.get("pattern")), "options": _one(inner.get("options"))})
    if len(names) == 1 and names[0] in _READERS:
        return _READERS[names[0]](document[names[0]])
    return Bson("other" if "$scope" in document else "document", document)


_JSON: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_number, parse_float=_float, parse_constant=_float)


@dataclass(frozen=True, slots=True)
class _Documents:
    """Schemas and values of documents.

    Attributes:
        as_documents: whether an array is a struct with fields `_0`, `_1` …
    """

    as_documents: bool

    def struct(self, document: Document, name: str | None, *, optional: bool, depth: int = 0) -> Schema:
        """Return the schema of a document.

        Raises:
            RecordError: an array has elements of several types, or something is nested too deep.
        """
        if depth > _MAX_DEPTH:
            raise RecordError(f"the document is nested deeper than {_MAX_DEPTH}")
        fields = []
        for key, value in document.items():
            schema = self.schema(value, f"{'null' if name is None else name}.{key}", depth + 1)
            if schema is not None:
                fields.append(Field(key, schema))
        return Schema("struct", optional=optional, name=name, fields=tuple(fields))

    def schema(self, value: Bson, name: str, depth: int) -> Schema | None:
        """Return the schema of a value; None for one that is no field.

        Raises:
            RecordError: see `struct`; or the type has no counterpart.
        """
        if value.type == "document":
            return self.struct(value.value, name if value.value else None, optional=True, depth=depth)
        if value.type == "array":
            return self._array(value.value, name, depth)
        if value.type == "undefined":
            return None
        if value.type not in _SCHEMAS:
            raise RecordError(f"{name.rpartition('.')[2]!r} has a type of MongoDB that has no schema", _UNSUPPORTED)
        return _SCHEMAS[value.type]

    def _array(self, items: list[Bson], name: str, depth: int) -> Schema:
        if self.as_documents:
            return self.struct(_numbered(items), name, optional=True, depth=depth)
        return Schema("array", optional=True, values=self._elements(items, name, depth) or _TEXT)

    def _elements(self, items: list[Bson], name: str | None, depth: int) -> Schema | None:
        """Return the schema of an array's elements; None for an empty one."""
        kinds = dict.fromkeys(
            item.type if item.type in ("document", "array") else _SCHEMAS.get(item.type) for item in items
        )
        if len(kinds) > 1 or None in kinds:
            raise RecordError(
                "Array elements with different Bson types are not supported: set array.encoding to document",
                _UNSUPPORTED,
            )
        if not items:
            return None
        if depth > _MAX_DEPTH:
            raise RecordError(f"the document is nested deeper than {_MAX_DEPTH}")
        if items[0].type == "array":
            inner = self._elements([one for item in items for one in item.value], None, depth + 1)
            return Schema("array", optional=True, values=inner or _TEXT)
        if items[0].type == "document":
            merged = _merged([item.value for item in items])
            struct = self.struct(merged, name, optional=True, depth=depth)
            return struct if struct.fields else struct.with_(name=None)
        return _SCHEMAS[items[0].type]

    def value(self, value: Bson, schema: Schema | None) -> Value:
        """Return a value as the schema has it; schemaless, as its own type is."""
        if value.type == "document":
            return self.fields(value.value, schema)
        if value.type == "array" and self.as_documents:
            return self.fields(_numbered(value.value), schema)
        if value.type == "array":
            inner = None if schema is None else schema.values
            return [self.value(item, inner) for item in value.value]
        if value.type == "date":
            return Moment(value.value)
        return Int32(value.value) if value.type == "int" and schema is None else value.value

    def fields(self, document: Document, schema: Schema | None) -> dict[str, Value]:
        """Return the values of a document."""
        if schema is None:
            return {name: self.value(item, None) for name, item in document.items() if item.type != "undefined"}
        return {
            field.name: self.value(document[field.name], field.schema) if field.name in document else None
            for field in schema.fields
        }


def _numbered(items: Sequence[Bson]) -> Document:
    return {f"_{index}": item for index, item in enumerate(items)}


def _merged(documents: Sequence[Document]) -> Document:
    """Return a document with the fields of all.

    Raises:
        RecordError: a field has several types.
    """
    found: dict[str, list[Bson]] = {}
    for document in documents:
        for name, value in document.items():
            found.setdefault(name, []).append(value)
    merged: Document = {}
    for name, values in found.items():
        kinds = {value.type if value.type in ("document", "array") else _SCHEMAS.get(value.type) for value in values}
        if len(kinds) > 1:
            raise RecordError(
                f"Array elements with different Bson types are not supported: {name!r} has several", _UNSUPPORTED
            )
        if values[0].type == "document":
            merged[name] = Bson("document", _merged([value.value for value in values]))
        elif values[0].type == "array":
            merged[name] = Bson("array", [item for value in values for item in value.value])
        else:
            merged[name] = values[-1]
    return merged


class _Made(NamedTuple):
    """New key and value of a record; no value for a deletion."""

    key: Document
    value: Document | None


@dataclass(frozen=True, slots=True)
class ExtractNewDocumentState(Transform):
    """See ``summary``. Debezium's transform; records without a key of Debezium are unchanged.

    Attributes:
        mode: handling of deletions and tombstones.
        with_id: whether a rewritten deletion has the document's id.
        as_documents: whether arrays are structs.
        delimiter: between the names of a flattened document; None for no flattening.
    """

    summary: ClassVar[str] = "Takes the document out of a change event of MongoDB; deletions and tombstones by a mode."
    java_names: ClassVar[tuple[str, ...]] = ("io.debezium.connector.mongodb.transforms.ExtractNewDocumentState",)
    sided: ClassVar[bool] = False
    keeps_topic: ClassVar[bool] = True
    schemas_by_topic: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "array.encoding",
            STRING,
            "An array of elements of one type, or a struct with the fields `_0`, `_1` …",
            default="array",
            check=one_of("array", "document", any_case=True),
            valid="array, document",
        ),
        Option("flatten.struct", BOOLEAN, "Whether fields of documents inside become fields.", default=False),
        Option("flatten.struct.delimiter", STRING, "What is between their names.", default="_"),
        Option(
            "delete.tombstone.handling.mode",
            STRING,
            "A deletion becomes nothing, a null, or its old document with `__deleted`; only rewrite-with-tombstone "
            "keeps tombstones.",
            default="tombstone",
            check=one_of(*MODES, any_case=True),
            valid=", ".join(MODES),
        ),
        Option(
            "delete.tombstone.handling.mode.rewrite-with-id",
            BOOLEAN,
            "Whether a rewritten deletion has the key's id as `_id`.",
            default=False,
        ),
        Option("add.fields", LIST, "Fields of the envelope to add: `op`, `source.collection`.", default=()),
        Option("add.fields.prefix", STRING, "Prefix of the names of added fields.", default="__"),
        Option("add.headers", LIST, "Fields of the envelope to append as headers.", default=()),
        Option("add.headers.prefix", STRING, "Prefix of the names of these headers.", default="__"),
        Option("route.by.field", STRING, "Has no effect, as in Debezium.", default=""),
        Option("replace.null.with.default", BOOLEAN, "Has no effect, as in Debezium.", default=True),
    )

    mode: str = "tombstone"
    with_id: bool = False
    as_documents: bool = False
    delimiter: str | None = None
    fields: tuple[FieldReference, ...] = ()
    headers: tuple[FieldReference, ...] = ()

    @classmethod
    def from_options(cls, options: Options, side: Side) -> Self:
        """Read the references to fields."""
        fields, headers = (references(options, name) for name in ("add.fields", "add.headers"))
        return cls(
            side,
            options["delete.tombstone.handling.mode"].strip().lower(),
            options["delete.tombstone.handling.mode.rewrite-with-id"],
            options["array.encoding"].lower() == "document",
            options["flatten.struct.delimiter"] if options["flatten.struct"] else None,
            fields,
            headers,
        )

    def needs_objects(self) -> tuple[Side, ...]:
        """See `Transform.needs_objects`."""
        return (Side.VALUE, Side.KEY)

    def named_fields(self) -> Iterator[NamedField]:
        """See `Transform.named_fields`."""
        for option, chosen in (("add.fields", self.fields), ("add.headers", self.headers)):
            for one in chosen:
                yield NamedField(option, Side.VALUE, (one.field,) if one.parent is None else (one.parent, one.field))

    def moves(self) -> tuple[Move, ...]:
        """See `Transform.moves`."""
        added = [((VALUE, one.field), (root, one.target)) for one in self.fields for root in (VALUE,)]
        added += [((VALUE, one.field), (HEADERS, one.target)) for one in self.headers]
        parts = [((VALUE, part), (VALUE,)) for part in ("after", "before", "updateDescription")]
        return tuple(Move(source, target, copy=True) for source, target in (*parts, ((KEY, "id"), (VALUE,)), *added))

    def apply(self, batch: Batch, rows: Positions) -> Errors:
        """Replace the keys and the values of these rows."""
        work = _Work(self, batch, rows)
        split(batch.value)
        for block in list(batch.value):
            work.examine(block.take(np.flatnonzero(np.isin(block.rows, rows))))
        work.finish()
        batch.filter(np.array(sorted(work.dropped), np.intp))
        return work.errors


class _Work:
    """Work on one batch."""

    def __init__(self, transform: ExtractNewDocumentState, batch: Batch, rows: Positions) -> None:
        self.transform = transform
        self.batch = batch
        self.errors: Errors = {}
        self.dropped: list[int] = []
        self._documents = _Documents(transform.as_documents)
        self._keys = dict(_keys(batch.key, rows))
        self._made: dict[int, tuple[Schema | None, Value, Schema | None, Value]] = {}

    def examine(self, block: Block) -> None:
        """Make the new keys and values of a block."""
        is_tombstone = block.kind == "null"
        if not len(block) or block.kind == "plain":
            return
        mine = block.take(np.array([at for at, row in enumerate(block.rows.tolist()) if row in self._keys], np.intp))
        if not len(mine):
            return
        try:
            self._append_headers(mine, is_tombstone=is_tombstone)
            if not is_tombstone and not is_envelope(block):
                return
            added = [] if is_tombstone else [(one.target, one.column(mine)) for one in self.transform.fields]
        except RecordError as error:
            self.errors.update(dict.fromkeys(mine.rows.tolist(), error))
            return
        more = [(name, found[0], list(found[1])) for name, found in added if found is not None]
        for index, (row, event) in enumerate(zip(mine.rows.tolist(), mine.whole(), strict=True)):
            try:
                made = self._documents_of(self._keys[row][1], event)
                if made is None:
                    self.dropped.append(row)
                else:
                    own = [(name, schema, values[index]) for name, schema, values in more]
                    self._made[row] = (*self._key(row, made), *self._value(mine.schema, made, own))
            except RecordError as error:
                self.errors[row] = error

    def _append_headers(self, block: Block, *, is_tombstone: bool) -> None:
        for one in self.transform.headers:
            if is_tombstone and one.field == "op":
                self.batch.headers.append(block.rows, one.target, Schema("string"), ["d"] * len(block))
            found = None if is_tombstone else one.column(block)
            if found is not None:
                self.batch.headers.append(block.rows, one.target, *found)

    def _documents_of(self, id_: object, event: DynamicValue) -> _Made | None:
        """Return the documents of an event; None if it is dropped."""
        mode = self.transform.mode
        if id_ is None:
            raise RecordError("the key has no id", NULL_POINTER)
        key = parse_document(f'{{"id": {id_}}}')
        if event is None:
            return _Made(key, None) if mode == "rewrite-with-tombstone" else None
        after, described = event.get("after"), event.get("updateDescription")
        deleted = after is None and described is None
        if deleted and mode == "drop":
            return None
        if deleted:
            before = event.get("before") if mode.startswith("rewrite") else None
            document = {} if before is None else _parsed(before)
        elif after is not None:
            document = _parsed(after)
        else:
            document = self._updated(described, key)
        if mode.startswith("rewrite"):
            document[DELETED] = Bson("boolean", deleted)
            if self.transform.with_id:
                document.setdefault("_id", key["id"])
        return _Made(key, document or None)

    def _updated(self, described: DynamicValue, key: Document) -> Document:
        """Return the changed fields of a partial update, with the document's id."""
        if not isinstance(described, dict):
            raise RecordError(f"expected an object as updateDescription, found {described!r:.60}")
        updated = described.get("updatedFields")
        document = {} if updated is None else _parsed(updated)
        for name in described.get("removedFields") or ():
            document.pop(name, None)
        document.setdefault("_id", key["id"])
        if self.transform.delimiter is None:
            return document
        return {name.replace(".", self.transform.delimiter): value for name, value in document.items()}

    def _key(self, row: int, made: _Made) -> tuple[Schema | None, Value]:
        schema = None
        if self._keys[row][0] is not None:
            schema = self._documents.struct(made.key, None, optional=False)
        return schema, self._documents.fields(made.key, schema)

    def _value(
        self, envelope: Schema | None, made: _Made, added: Iterable[tuple[str, Schema | None, Value]]
    ) -> tuple[Schema | None, Value]:
        if made.value is None:
            return None, None
        if envelope is None:
            return None, self._documents.fields(made.value, None) | {name: value for name, _, value in added}
        name = envelope.name or ""
        schema = self._documents.struct(made.value, name.removesuffix(_ENVELOPE), optional=False)
        values = self._documents.fields(made.value, schema)
        for target, inner, value in added:
            if schema.field(target) is not None:
                problem = f'Cannot create field because of field name duplication "{target}"'
                raise RecordError(problem, SCHEMA_BUILDER)
            schema = schema.with_(fields=(*schema.fields, Field(target, inner or _TEXT)))
            values[target] = value
        return schema, values

    def finish(self) -> None:
        """Put the new keys and values into the batch."""
        changed = np.array(sorted(self._made), np.intp)
        keys = {row: (schema, value) for row, (schema, value, _, _) in self._made.items()}
        values = {row: (schema, value) for row, (_, _, schema, value) in self._made.items()}
        for side, made in ((self.batch.key, keys), (self.batch.value, values)):
            rest = [block.take(np.flatnonzero(~np.isin(block.rows, changed))) for block in side]
            new = [block for blocks in _grouped(made) for block in blocks]
            if side is self.batch.value and self.transform.delimiter is not None:
                new = [self._flattened(block) for block in new]
            side[:] = [block for block in (*rest, *new) if len(block)]

    def _flattened(self, block: Block) -> Block:
        wrong: Errors = {}
        found = block
        if block.kind == "object":
            step = Flatten(delimiter=self.transform.delimiter or "").plan(block.shape)
            try:
                result = step.run(block, None, self.batch, wrong)
                (found,) = result if isinstance(result, list) else [result]
            except RecordError as error:
                wrong = dict.fromkeys(range(len(block)), error)
        self.errors.update({int(block.rows[index]): error for index, error in wrong.items()})
        return found


def _parsed(text: object) -> Document:
    if not isinstance(text, str):
        raise RecordError(f"expected a text of JSON as a document of MongoDB, found {text!r:.60}")
    return parse_document(text)


def _grouped(made: Mapping[int, tuple[Schema | None, Value]]) -> Iterator[list[Block]]:
    together: dict[Schema | None, list[int]] = {}
    for row in sorted(made):
        together.setdefault(made[row][0], []).append(row)
    for schema, rows in together.items():
        yield group(np.array(rows, np.intp), schema, [made[row][1] for row in rows])


def _keys(side: Sequence[Block], rows: Positions) -> Iterator[tuple[int, tuple[Schema | None, object]]]:
    """Yield the schema and the id of each key of Debezium, by row."""
    for block in side:
        if block.kind == "object" and "id" in block.columns:
            if block.schema is not None and not (block.schema.name or "").endswith(".Key"):
                continue
            chosen = block.take(np.flatnonzero(np.isin(block.rows, rows)))
            for row, id_ in zip(chosen.rows.tolist(), chosen.columns["id"], strict=True):
                yield row, (chosen.schema, id_)
