"""Values of one format, written in another: the codec that a writer needs, and values as those of one schema.

Of plain JSON as values of a schema, integers are of their width, decimals have no more digits than their scale, times
no part below their unit. Times are ISO 8601 texts or the number that the schema stores, bytes base64, decimals numbers
or texts of one. A union takes the first member that fits, or the struct of members that `json` writes.

The common form is that of Connect: a value with a schema, or a schemaless one. What a format of schemas gets without a
schema, or with another one, is read as plain JSON by the schema that is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from turnout.base.clocks import EPOCH, MILLISECONDS_PER_DAY
from turnout.base.startup import np
from turnout.codecs.codec import Codec, Decoded, EncodeErrors, attempt
from turnout.codecs.connect_json import ConnectJson
from turnout.codecs.format import Format, codec_of
from turnout.codecs.json_nodes import EXACT, NULL, Misfit, Node, Slow, declared_leaf, field_names, read_date, slow_node
from turnout.codecs.json_reading import Reader
from turnout.codecs.json_writing import Written, encode_json
from turnout.codecs.plain_json import TypedJson
from turnout.errors import RecordError
from turnout.records import Block, Moment, Positions, Schema
from turnout.records.schema import DATE, DECIMAL, PRECISION, TIME, TIMESTAMP
from turnout.records.types import DynamicValue

UNIONS: Final = ("io.confluent.connect.avro.Union", "io.confluent.connect.json.OneOf")
"""Names of structs of which one field has a value: that of a union's member."""

_LOGICAL: Final = "turnout.avro.logicalType"
_PER_SECOND: Final = {"millis": 10**3, "micros": 10**6, "nanos": 10**9}
_MAX_INT: Final = {"int32": 2**31, "int64": 2**63}
_point_and_zeros = re.compile(rb"(-?\d{1,20})\.0{1,20}").fullmatch
_moment = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d+))?\s*(Z|z|[+-]\d\d:?\d\d)?", re.ASCII).fullmatch
_clock = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?", re.ASCII).fullmatch


class Fitting:
    """Reads JSON texts as values of one schema.

    Args:
        schema: schema of the values.
        drops_unknown: whether fields that the schema does not have are left out; they are refused if not.
    """

    def __init__(self, schema: Schema, *, drops_unknown: bool = False) -> None:
        self._reader = Reader.of(schema, _leaf, _union)
        self._check = msgspec.json.Decoder(_outline(schema, drops_unknown=drops_unknown)).decode

    def read(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values, and the errors of the others by row."""
        errors: dict[int, RecordError] = {}
        good: list[int] = []
        for index, text in enumerate(texts):
            try:
                self._check(text)
                good.append(index)
            except (ValueError, RecursionError) as failure:
                errors[int(rows[index])] = RecordError(_in_words(str(failure)))
        if not good:
            return [], errors
        chosen = texts if len(good) == len(texts) else [texts[index] for index in good]
        blocks, failed = self._reader.read(rows[np.array(good, np.intp)], chosen)
        return blocks, errors | {row: RecordError(_with_cure(str(error))) for row, error in failed.items()}


def _with_cure(problem: str) -> str:
    problem = problem.removeprefix("the value is not of its schema: ")
    return f"{problem}; change the value by a transform, or write another schema"


_UNKNOWN: Final = "Object contains unknown field `"
_MISSING: Final = "Object missing required field `"
_WRONG: Final = "Expected `"


def _in_words(problem: str) -> str:
    """Return a problem that msgspec reports as the path, and the cure."""
    if problem.startswith(_UNKNOWN):
        name, above = _quoted(problem, _UNKNOWN)
        return _unknown(_path(above, name))
    if problem.startswith(_MISSING):
        name, above = _quoted(problem, _MISSING)
        return _missing(_path(above, name))
    if problem.startswith(_WRONG):
        kinds, above = _quoted(problem, _WRONG)
        expected, _, found = kinds.partition("`, got `")
        where = f"{above}: " if above else ""
        return f"{where}expected {expected.replace('object', 'an object').replace('array', 'an array')}, found {found}"
    return f"the value does not fit the schema that is written: {problem}"


def _quoted(problem: str, head: str) -> tuple[str, str]:
    """Return what a problem quotes behind its head, and the path that it names at its end, "" for the root."""
    quoted, named, path = problem.removeprefix(head).rpartition("` - at `$")
    return (quoted, path.removesuffix("`").removeprefix(".")) if named else (path.removesuffix("`"), "")


def _path(above: str, name: str) -> str:
    return f"{above}.{name}" if above else name


def _outline(schema: Schema, *, drops_unknown: bool) -> Any:
    """Return msgspec's type of the objects of a schema by their names alone: other values are looked into later."""
    if schema.type == "struct" and schema.name not in UNIONS:
        names = field_names(tuple(field.name for field in schema.fields))
        if names is None:
            return msgspec.Raw
        own, rename = names
        fields: list[Any] = []
        for name, field in zip(own, schema.fields, strict=True):
            kind = _outline(field.schema, drops_unknown=drops_unknown)
            absent = field.schema.optional or field.schema.default is not None
            fields.append((name, kind, None) if absent else (name, kind))
        kind = msgspec.defstruct(
            "Outline", fields, rename=rename, gc=False, kw_only=True, forbid_unknown_fields=not drops_unknown
        )
    elif schema.type == "array" and schema.values is not None:
        kind = list[_outline(schema.values, drops_unknown=drops_unknown)]  # type: ignore[misc]
    elif (
        schema.type == "map" and schema.values is not None and schema.keys is not None and schema.keys.type == "string"
    ):
        kind = dict[str, _outline(schema.values, drops_unknown=drops_unknown)]  # type: ignore[misc]
    else:
        return msgspec.Raw
    return kind | None if schema.optional or schema.default is not None else kind


# --- Leaves -----------------------------------------------------------------------------------------------------------


def _leaf(schema: Schema, digits: int) -> Node:
    logical = schema.logical
    if logical == DECIMAL:
        return slow_node(_decimal(schema))
    if logical == DATE:
        return slow_node(_whole(_date, "a date in ISO 8601, or a number of days", schema.type))
    if logical == TIMESTAMP:
        return slow_node(_whole(_timestamp("millis"), "a time in ISO 8601 of at most milliseconds", schema.type))
    if logical == TIME:
        return slow_node(_whole(_time("millis"), "a time of day of at most milliseconds", schema.type))
    own = dict(schema.parameters).get(_LOGICAL, "")
    kind, _, unit = own.rpartition("-")
    if schema.type == "int64" and unit in _PER_SECOND and kind in ("timestamp", "local-timestamp", "time"):
        read = (_time if kind == "time" else _timestamp)(unit)
        return slow_node(_whole(read, f"a {own} in ISO 8601, or its number", schema.type, moment=False))
    if schema.type == "string":
        return Node(str, msgspec.NODEFAULT, None, _string)
    if schema.type in ("int8", "int16", "int32", "int64"):
        node = declared_leaf(schema, digits)
        return Node(node.strict, node.absent, node.column, _integer(node.slow, schema.type), node.check)
    return declared_leaf(schema, digits)


def _string(text: bytes) -> str:
    value = _value(text, "a text")
    if type(value) is not str:
        raise Misfit("a text", text)
    return value


def _integer(read: Slow, type_: str) -> Slow:
    """Return the reader of an integer, which may be written with a point and zeros behind it."""

    def slow(text: bytes) -> int:
        try:
            return int(read(text))
        except Misfit:
            # A point and zeros are no fraction; an exponent may stand for more digits than any memory has.
            found = _point_and_zeros(text)
            if found is None:
                raise Misfit(f"an integer ({type_})", text) from None
            return int(read(found[1]))

    return slow


def _value(text: bytes, expected: str) -> DynamicValue:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise Misfit(expected, text) from None


def _decimal(schema: Schema) -> Slow:
    scale = schema.scale
    precision = dict(schema.parameters).get(PRECISION)
    digits = int(precision) if precision is not None and precision.isdecimal() else None
    expected = f"a decimal of at most {scale} digits after the point"
    if digits is not None:
        expected += f" and {digits} in all"

    def slow(text: bytes) -> Decimal:
        try:
            if len(text) > 1000:
                raise Misfit(expected, text)
            number = Decimal(str(_value(text, expected)) if text[:1] == b'"' else text.decode())
            if not number.is_finite() or abs(number.adjusted()) > 1000:
                raise Misfit(expected, text)
            scaled = number.quantize(Decimal(1).scaleb(-scale), context=EXACT)
        except (InvalidOperation, ValueError):
            raise Misfit(expected, text) from None
        if scaled != number or (digits is not None and len(scaled.as_tuple().digits) > digits):
            raise Misfit(expected, text)
        # Java has no negative zero here.
        return scaled or scaled.copy_abs()

    return slow


def _whole(read: Callable[[str], int | None], expected: str, type_: str, *, moment: bool = True) -> Slow:
    """Return the reader of a time: a text, or the number that the schema stores."""
    per_unit = MILLISECONDS_PER_DAY if read is _date else 1

    def slow(text: bytes) -> int:
        value = _value(text, expected)
        number: int | None = None
        if type(value) is str:
            number = read(value.strip())
        elif type(value) is int and -_MAX_INT[type_] <= value < _MAX_INT[type_]:
            number = value * per_unit
        if number is None:
            raise Misfit(expected, text)
        return Moment(number) if moment else number

    return slow


def _date(text: str) -> int | None:
    try:
        return int(read_date(text)) if len(text) == 10 else None
    except ValueError:
        return None


def _timestamp(unit: str) -> Callable[[str], int | None]:
    per_second = _PER_SECOND[unit]

    def read(text: str) -> int | None:
        found = _moment(text)
        if found is None:
            return None
        try:
            time = datetime.fromisoformat(f"{found[1]}T{found[2]}{(found[4] or 'Z').upper()}")
        except ValueError:
            return None
        since = time.astimezone(UTC) - EPOCH
        return _with_fraction(since.days * 86_400 + since.seconds, found[3], per_second)

    return read


def _time(unit: str) -> Callable[[str], int | None]:
    per_second = _PER_SECOND[unit]

    def read(text: str) -> int | None:
        found = _clock(text)
        if found is None:
            return None
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[:3])
        if hours > 23 or minutes > 59 or seconds > 59:
            return None
        return _with_fraction(hours * 3600 + minutes * 60 + seconds, found[4], per_second)

    return read


def _with_fraction(seconds: int, fraction: str | None, per_second: int) -> int | None:
    """Return seconds with their fraction in a unit; None where the unit is too coarse for it."""
    digits = (fraction or "").rstrip("0")
    width = len(str(per_second)) - 1
    if len(digits) > width:
        return None
    number = seconds * per_second + int(digits.ljust(width, "0") or 0)
    return number if -(2**63) <= number < 2**63 else None


# --- Unions -----------------------------------------------------------------------------------------------------------


def _union(schema: Schema, inner: Callable[[Schema], Node]) -> Node | None:
    """Return the reader of a union's struct; None of another schema."""
    if schema.type != "struct" or schema.name not in UNIONS:
        return None
    members = [(field.name, inner(field.schema)) for field in schema.fields]

    def slow(text: bytes) -> dict[str, DynamicValue]:
        nothing = dict.fromkeys(name for name, _ in members)
        written = _value(text, "a value of the union")
        if type(written) is dict and written and set(written) <= nothing.keys():
            parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            present = {name: bytes(part) for name, part in parts.items() if bytes(part) != NULL}
            if len(present) == 1:
                ((name, part),) = present.items()
                return {**nothing, name: dict(members)[name].slow(part)}
        for name, node in members:
            try:
                return {**nothing, name: node.slow(text)}
            except Misfit:
                continue
        raise Misfit(f"one of {', '.join(nothing)}", text)

    return slow_node(slow)


def problem_of(read: Schema, written: Schema, path: str = "") -> str | None:
    """Return why values of one schema are not written as those of another; None where their values decide.

    Bytes would become base64 in a text, and a decimal lose digits in a number, without an error.
    """
    if read.type == "bytes" and read.logical is None and written.type == "string":
        return f"{path or 'the value'}: bytes do not fit a string; the schema that is written needs bytes"
    if read.logical == DECIMAL and written.type in ("float32", "float64"):
        return (
            f"{path or 'the value'}: a decimal does not fit {written.type} exactly; write a decimal, or Cast it to "
            "float64 first"
        )
    if read.type == written.type == "struct":
        for field in read.fields:
            other = written.field(field.name)
            problem = None if other is None else problem_of(field.schema, other, _path(path, field.name))
            if problem is not None:
                return problem
    if read.values is not None and written.values is not None:
        return problem_of(read.values, written.values, f"{path}[]")
    return None


def misfit_of(read: Schema, written: Schema, *, drops_unknown: bool, path: str = "") -> str | None:
    """Return why no value of one schema is written as one of the other, as far as the schemas show it.

    >>> misfit_of(Schema("struct"), Schema("struct"), drops_unknown=False) is None
    True
    """
    if read.type != "struct" or written.type != "struct" or {read.name, written.name} & {*UNIONS}:
        return problem_of(read, written, path)
    for field in read.fields:
        name, other = _path(path, field.name), written.field(field.name)
        if other is None and not drops_unknown:
            return _unknown(name)
        problem = None if other is None else misfit_of(field.schema, other, drops_unknown=drops_unknown, path=name)
        if problem is not None:
            return problem
    for field in written.fields:
        needed = not field.schema.optional and field.schema.default is None and not field.schema.omissible
        if needed and read.field(field.name) is None:
            return _missing(_path(path, field.name))
    return None


def _unknown(name: str) -> str:
    return (
        f"{name}: the schema that is written has no such field; leave it out by ReplaceField, or let the format do it "
        "by unknownFields: drop"
    )


def _missing(name: str) -> str:
    return f"{name}: expected a value, which the schema that is written requires, found nothing"


def alike(read: Schema, written: Schema) -> bool:
    """Return True if every value of one schema is one of the other as it is, but for nulls.

    >>> alike(Schema("int32"), Schema("int32", optional=True)), alike(Schema("int32"), Schema("int64"))
    (True, False)
    """
    if read.type != written.type or read.logical != written.logical or (read.logical and read.scale != written.scale):
        return False
    if dict(read.parameters).get(_LOGICAL) != dict(written.parameters).get(_LOGICAL):
        return False
    if read.type == "struct":
        own = {field.name: field.schema for field in written.fields}
        missing = own.keys() - {field.name for field in read.fields}
        return (
            (read.name in UNIONS) == (written.name in UNIONS)
            and not any(own[name].default is not None or not own[name].optional for name in missing)
            and all(field.name in own and alike(field.schema, own[field.name]) for field in read.fields)
        )
    parts = ((read.keys, written.keys), (read.values, written.values))
    return all(one is not None and other is not None and alike(one, other) for one, other in parts if one or other)


class Target(Protocol):
    """Reader and writer of values of one schema, or of the members of a union."""

    @property
    def schemas(self) -> Sequence[Schema]:
        """Connect's schemas of the values."""

    def fitted(self, rows: Positions, texts: Sequence[bytes]) -> Decoded:
        """Return the values of plain JSON texts; of each error, the field, what was found, and what was expected."""

    def encode(self, block: Block) -> Written:
        """Return the texts of values of one of the schemas."""


@runtime_checkable
class OfOneSchema(Protocol):
    """Codec of the values of one schema, which writes those of others as far as they fit."""

    @property
    def format(self) -> str:
        """See `Codec.format`."""

    @property
    def class_name(self) -> str:
        """See `Codec.class_name`."""

    def decode(self, rows: Positions, texts: Sequence[bytes | None]) -> Decoded:
        """See `Codec.decode`."""

    def schema(self) -> Schema | None:
        """See `Codec.schema`."""

    def converted(self, block: Block) -> Written:
        """Return the texts of values of any schema, or of none."""


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

    def encode(self, block: Block) -> Sequence[bytes | None]:
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
