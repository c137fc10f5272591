"""JSON texts of blocks, and the encodings of a schema's values: plain, or as Connect's JsonConverter writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from itertools import accumulate, chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from turnout.base.clocks import MILLISECONDS_PER_DAY
from turnout.base.startup import np
from turnout.codecs.json_nodes import EXACT, dates_as_text, each, timestamps_as_text
from turnout.errors import RecordError
from turnout.loops import json as loops
from turnout.loops import times
from turnout.records import BigInt, Block, Float32, Int8, Int16, Int32, Moment, Schema, Struct
from turnout.records.block import choosing
from turnout.records.schema import ANY, DATE, DECIMAL, TIME, TIMESTAMP
from turnout.records.spans import (
    SCHEMALESS,
    ArrowBytes,
    Layout,
    Layouts,
    MixedObjects,
    NumberColumn,
    PatchedColumn,
    SpanColumn,
    Spans,
    Texts,
    is_repeated,
)
from turnout.records.text import iso_of, text_of
from turnout.records.types import Codes, Column, ConvertColumn, DynamicValue, Entries, Mask, Octets, Offsets, Value

_KeyText: TypeAlias = Callable[[Hashable, Schema | None], str]


@dataclass(frozen=True, slots=True)
class Form:
    """JSON encoding of the values of one schema, nulls included.

    Attributes:
        column: returns the encoder's input; None if that is the values themselves.
        free: whether there is schemaless data inside, which can hold anything.
        whole: whether structs are converted whole: they are no objects with their fields.
        kind: kind of JSON texts that are copied, see `turnout.records.spans.SpanKind`; nulls only if *column* is None.
    """

    column: ConvertColumn | None = None
    free: bool = False
    whole: bool = False
    kind: str = ""

    def copies(self, column: SpanColumn) -> bool:
        """Return True if the texts of a column are what its values are written as."""
        return self.kind == column.form and (self.column is None or not column.nullable)


_FREE = Form(free=True, kind=SCHEMALESS)
_INTEGERS = (Int8, Int16, Int32, BigInt)


@lru_cache(maxsize=1024)
def json_form(schema: Schema | None) -> Form:
    """Plain JSON: times in ISO 8601, a time of day in milliseconds, decimals as numbers, bytes in base64."""
    return _FREE if schema is None else _nested(schema, json_form, _json_leaf, _text_key)


Composite: TypeAlias = Callable[[Schema, Callable[[Schema | None], Form]], Form | None]
"""Returns the form of a schema, given the forms of its parts; None if it is written as usual."""


@lru_cache(maxsize=1024)
def wire_form(schema: Schema | None, *, defaults: bool, numeric: bool, composite: Composite | None = None) -> Form:
    """JsonConverter's: times as numbers, and with *defaults* a null as its default.

    Decimals are bytes, or with *numeric* numbers (KIP-481), of whatever scale they have, as there. Schemas for which
    *composite* has a form have that one.
    """
    if schema is None:
        return _FREE
    form_of = partial(wire_form, defaults=defaults, numeric=numeric, composite=composite)
    own = None if composite is None else composite(schema, form_of)
    inner = own or _nested(schema, form_of, partial(_wire_leaf, numeric=numeric), None)
    column = inner.column
    default = schema.default if defaults else None
    if default is None and schema.optional:
        return inner

    def strict(values: Column) -> Column:
        if None in values:
            if default is None:
                raise RecordError("a null where the schema requires a value and has no default")
            values = [default if value is None else value for value in values]
        return values if column is None else column(values)

    return Form(strict, inner.free, inner.whole, inner.kind)


def _nested(
    schema: Schema, form_of: Callable[[Schema | None], Form], leaf: Callable[[Schema], Form], key: _KeyText | None
) -> Form:
    if schema.type == "struct":
        return _struct(schema, form_of)
    if schema.type == "array":
        item = form_of(schema.values)
        column = item.column
        return Form(None if column is None else each(lambda values: column(values)), item.free)
    if schema.type == "map":
        return _map(schema, form_of, key)
    return leaf(schema)


def _struct(schema: Schema, form_of: Callable[[Schema | None], Form]) -> Form:
    forms = [(field.name, form_of(field.schema)) for field in schema.fields]
    free = any(form.free for _, form in forms)
    changed = [(name, form.column) for name, form in forms if form.column is not None]
    if not changed:
        return Form(free=free)

    def written(value: Entries) -> Entries:
        return value | {name: column([value.get(name)])[0] for name, column in changed}

    return Form(each(written), free)


def _map(schema: Schema, form_of: Callable[[Schema | None], Form], key: _KeyText | None) -> Form:
    item = form_of(schema.values)
    column = item.column
    texts = schema.keys is not None and schema.keys.type == "string"
    if texts and column is None:
        return item
    keys = None if texts else form_of(schema.keys).column

    def written(value: Entries) -> Value:
        values = list(value.values()) if column is None else column(list(value.values()))
        if texts:
            return dict(zip(value, values, strict=True))
        if key is not None:
            return {key(name, schema.keys): item for name, item in zip(value, values, strict=True)}
        names = list(value) if keys is None else keys(list(value))
        return [list(pair) for pair in zip(names, values, strict=True)]

    return Form(each(written), item.free)


def _text_key(name: Hashable, schema: Schema | None) -> str:
    return str(text_of(name, schema))


def _json_leaf(schema: Schema) -> Form:
    logical = schema.logical
    if logical == TIMESTAMP:
        return Form(timestamps_as_text)
    if logical == DATE:
        return Form(dates_as_text)
    if logical == TIME:
        return Form(each(int))
    return _leaf(schema)


def _leaf(schema: Schema) -> Form:
    if schema.type == "float64":
        return Form(_finite)
    if schema.type == "float32":
        return Form(each(single))
    return Form(free=True) if schema.type == ANY else Form(kind=schema.type)


def _finite(values: Column) -> Column:
    try:
        if all(map(math.isfinite, values)):
            return values
    except TypeError:
        pass  # There are nulls.
    return [finite(value) if type(value) is float else value for value in values]


def _wire_leaf(schema: Schema, *, numeric: bool) -> Form:
    logical = schema.logical
    if logical == TIMESTAMP:
        return Form(each(int))
    if logical == DATE:
        return Form(each(_day_number))
    if logical == TIME:
        return Form(each(_time_number))
    if logical == DECIMAL:
        if numeric:
            return Form(each(_number))
        scale = schema.scale
        return Form(each(lambda value: _unscaled(value, scale)))
    return _leaf(schema)


def _day_number(moment: int) -> int:
    day, rest = divmod(int(moment), MILLISECONDS_PER_DAY)
    if rest:
        raise RecordError(f"a Date has no time of day, found {moment} milliseconds since 1970")
    return day


def _time_number(moment: int) -> int:
    if not 0 <= moment <= MILLISECONDS_PER_DAY:
        raise RecordError(f"a Time is within a day, found {moment} milliseconds since 1970")
    return int(moment)


def _number(value: Decimal) -> Decimal:
    """Return the decimal itself: its text is that of ``BigDecimal.toString``."""
    if not isinstance(value, Decimal):
        raise RecordError(f"expected a decimal, found {value!r}")
    # Java has no negative zero here.
    return value or value.copy_abs()


def _unscaled(value: Decimal, scale: int) -> bytes:
    """Return the shortest bytes, big-endian, of a decimal's integer."""
    if value.as_tuple().exponent != -scale:
        raise RecordError(f"expected a decimal of the scale {scale}, found {value}")
    number = int(value.scaleb(scale, EXACT))
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def hook(value: Value) -> Value:
    """Encode a value of a class that msgspec does not support.

    Raises:
        TypeError: when the value has no form in JSON.
    """
    if isinstance(value, Moment):
        return iso_of(value)
    if isinstance(value, _INTEGERS):
        return int(value)
    if isinstance(value, Float32):
        return single(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no form in JSON")


def builtin_of(value: Value) -> Value:
    """Convert a value to dicts, lists, texts, numbers, booleans and None; slow, but correct for all values.

    Raises:
        TypeError: when something in it has no form in JSON.

    >>> builtin_of({"at": Moment(0), "share": float("nan")})
    {'at': '1970-01-01T00:00:00.000Z', 'share': 'NaN'}
    """
    if value is None or type(value) in (bool, str, int, bytes, Decimal):
        return value
    if type(value) is float:
        return finite(value)
    if isinstance(value, Struct):
        column = json_form(value.schema).column
        return builtin_of(value.fields if column is None else column([value.fields])[0])
    if isinstance(value, Mapping):
        return {("null" if key is None else str(text_of(key))): builtin_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [builtin_of(item) for item in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return hook(value)


def finite(value: float) -> float | str:
    """Return the number; Java's name of one that JSON has no number for."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def single(value: float) -> float | str:
    """Return the shortest decimal number that means the same in single precision."""
    return float(str(np.float32(value))) if math.isfinite(value) else finite(value)


Written: TypeAlias = tuple[Sequence[bytes | None], dict[int, RecordError]]
"""The text of each value, and the errors of the others by index."""

_LINE_END: Final = 10

_encoder = msgspec.json.Encoder(enc_hook=hook, decimal_format="number")
_encode = _encoder.encode
_encode_lines = _encoder.encode_lines


def encode_json(block: Block) -> Written:
    """Return the values as JSON without their schema: every field, nulls too; a null itself is a tombstone."""
    if block.kind == "null":
        return [None] * len(block), {}
    return texts_of(block, json_form)


def texts_of(
    block: Block, form_of: Callable[[Schema | None], Form], field_form_of: Callable[[Schema | None], Form] | None = None
) -> Written:
    """Return the JSON texts of values that are no nulls.

    Args:
        block: of objects or plain values.
        form_of: how the values of a schema are written in JSON.
        field_form_of: the same of an object's fields, if it differs; a field that becomes `msgspec.UNSET` is omitted.
    """
    errors: dict[int, RecordError] = {}
    if block.kind == "object":
        is_whole, forms = _forms_of(block, form_of, field_form_of or form_of)
        if not is_whole:
            return _object_texts(block, forms, errors), errors
        block = Block(block.rows, block.schema, values=block.whole())
    if block.kind == "plain":
        form = form_of(block.schema)
        return _texts(_formed(block.values, form, errors), form, errors), errors
    return _mixed_texts(block.mixed_objects, form_of(None), errors), errors


def _object_texts(
    block: Block, forms: Mapping[Hashable, Form], errors: dict[int, RecordError]
) -> Sequence[bytes | None]:
    spans: Spans | None = None
    steps: dict[str, tuple[int, int]] = {}
    computed: list[_Computed] = []
    for name, column in block.columns.items():
        field, number, mask, base = loops.COMPUTED, -1, None, column
        # By their classes: a check of an instance of an abstract one takes as long as all the rest.
        if type(column) is PatchedColumn:
            base = column.base
        if (
            type(base) is SpanColumn
            and (spans is None or base.spans is spans)
            and isinstance(base.slot, int)
            and forms[name].copies(base)
        ):
            spans, field = base.spans, base.slot
            if type(column) is PatchedColumn:
                mask, column = column.mask, column.patch
        if field == loops.COMPUTED or mask is not None:
            number = len(computed)
            computed.append((column, forms[name], mask))
        # Of names that are written alike the last counts, at the position of the first.
        steps[name if type(name) is str else str(text_of(name))] = field, number
    if spans is None:
        spans = _no_spans(len(block))
    plan = _plan_of(spans.names or (), tuple([(name, *step) for name, step in steps.items()]))
    return _written(spans, None, plan, computed, errors)


def _mixed_texts(objects: MixedObjects, form: Form, errors: dict[int, RecordError]) -> Sequence[bytes | None]:
    layouts = objects.layouts
    occurs = np.zeros(len(layouts.items), np.bool_)
    occurs[objects.layout_ids] = True
    used = np.zeros((len(objects.added), len(occurs)), np.bool_)
    plan, columns, owners = layouts.kept.get(_mixed_texts) or _plan_of_layouts(layouts)
    used[columns, owners] = True
    used &= occurs
    computed: list[_Computed] = []
    for column, own in zip(objects.added, used, strict=True):
        mask = None if (own == occurs).all() else own[objects.layout_ids]
        if mask is not None:
            column = choosing(np.flatnonzero(mask), len(mask))(column)
        computed.append((column, form, mask))
    return _written(objects.spans, objects.layout_ids, plan, computed, errors)


def _plan_of_layouts(layouts: Layouts) -> tuple[_Plan, list[int], Offsets]:
    """Return the plan of layouts, and their added columns, each with its layout; they are kept with the layouts."""
    pairs = [layout.kept.get(_plan_of) or _plan_of_layout(layout) for layout in layouts.items]
    columns = list(chain.from_iterable(own for _, own in pairs))
    owners = np.repeat(np.arange(len(pairs)), [len(own) for _, own in pairs])
    plan: tuple[_Plan, list[int], Offsets]
    plan = layouts.kept[_mixed_texts] = _Plan.joined([plan for plan, _ in pairs]), columns, owners
    return plan


def _plan_of_layout(layout: Layout) -> tuple[_Plan, list[int]]:
    """Return the plan of a layout, and the added columns that it has; they are kept with the layout."""
    sources = layout.sources.items()
    steps = tuple((name, max(source, loops.COMPUTED), -1 - min(source, 0)) for name, source in sources)
    added = [-1 - source for source in layout.sources.values() if source < 0]
    plan: tuple[_Plan, list[int]]
    plan = layout.kept[_plan_of] = _plan_of(layout.names, steps), added
    return plan


@lru_cache(maxsize=16)
def _no_spans(count: int) -> Spans:
    """Return the texts of objects that were not read as spans."""
    nothing = np.zeros(count + 1, np.int64)
    return Spans(Texts([b""] * count, np.zeros(0, np.uint8), nothing, nothing, nothing), nothing[1:])


class _Plan(NamedTuple):
    """Steps to write objects of one layout, or of several, see `turnout.loops.json.write`.

    Attributes:
        steps: the steps of each layout.
        numbers: the same with the index of each layout's first.
        prefixes: their prefixes.
        longest: number of bytes of the prefixes of one layout, at most.
        is_whole: the objects are their texts.
    """

    steps: Sequence[Offsets]
    numbers: Offsets
    prefixes: Octets
    longest: int
    is_whole: bool = False

    @classmethod
    def of(cls, steps: Sequence[tuple[int, int, int]], prefixes: Sequence[bytes], *, is_whole: bool = False) -> _Plan:
        """Return the plan of one layout."""
        offsets = accumulate(map(len, prefixes), initial=0)
        numbers = np.zeros((len(steps), loops.STEP_SIZE), np.int64)
        for number, (step, offset) in enumerate(zip(steps, offsets, strict=False)):
            numbers[number] = *step, offset
        joined = np.frombuffer(b"".join(prefixes), np.uint8)
        return cls._with([numbers], numbers, joined, len(joined), is_whole)

    @classmethod
    def joined(cls, plans: Sequence[_Plan]) -> _Plan:
        """Return the plan of several layouts."""
        if len(plans) == 1:
            return plans[0]
        steps = [plan.steps[0] for plan in plans]
        sizes = [len(plan.prefixes) for plan in plans]
        joined = np.concatenate(steps)
        joined[:, -1] += np.repeat(np.add.accumulate([0, *sizes[:-1]]), list(map(len, steps)))
        return cls._with(steps, joined, np.concatenate([plan.prefixes for plan in plans]), max(sizes))

    @classmethod
    def _with(
        cls, steps: Sequence[Offsets], joined: Offsets, prefixes: Octets, longest: int, is_whole: bool = False
    ) -> _Plan:
        starts = np.add.accumulate([len(steps) + 1, *map(np.size, steps)])
        numbers = np.concatenate([starts, joined.reshape(-1), [0, 0, 0, len(prefixes)]])
        return cls(steps, numbers, prefixes, longest, is_whole)


_Step: TypeAlias = tuple[str, int, int]
"""A name, the field of the text that has its value, and the number of the computed column that has it."""


@lru_cache(maxsize=4096)
def _plan_of(original: tuple[str, ...], steps: tuple[_Step, ...]) -> _Plan:
    """Return the plan of objects with these names in their text."""
    if steps and steps == tuple((name, slot, -1) for slot, name in enumerate(original)):
        return _Plan.of([(loops.WHOLE, -1, 0)], [b""], is_whole=True)
    last = loops.COMPUTED
    numbers: list[tuple[int, int, int]] = []
    for name, field, number in steps:
        numbers.append((field, number, 0 < field == last + 1 and original[field] == name))
        last = field
    return _Plan.of(numbers, [b"," + _encode(name) + b":" for name, _, _ in steps])


_Computed: TypeAlias = "tuple[Column, Form, Mask | None]"
"""Values that are encoded, and the mask of the objects that have them: None for all."""


def _encoded(columns: Sequence[_Computed], count: int, errors: dict[int, RecordError]) -> tuple[bytes, Offsets]:
    """Encode columns one behind another; return the begins and ends of the values; -1 for one that is omitted."""
    pieces: list[bytes] = []
    size = 0
    spans = np.full((2, len(columns), count), -1, np.int64)
    for number, (values, form, mask) in enumerate(columns):
        wrong: dict[int, RecordError] = {}
        data, begins, ends = _encoded_column(values, form, wrong)
        rows = slice(None) if mask is None else mask
        spans[0, number, rows] = np.where(begins == ends, -1, begins + size)
        spans[1, number, rows] = ends + size
        pieces.append(data)
        size += len(data)
        if wrong:
            indices = range(count) if mask is None else np.flatnonzero(mask).tolist()
            for index, error in wrong.items():
                errors.setdefault(indices[index], error)
    return b"".join(pieces), spans.reshape(-1)


def _encoded_column(column: Column, form: Form, errors: dict[int, RecordError]) -> tuple[bytes, Offsets, Offsets]:
    """Encode a column; return the begins and ends of the values, which are equal where one is omitted."""
    written = _numbers(column, form) if type(column) is NumberColumn else None
    if written is not None:
        return written
    values = _formed(column, form, errors)
    count = len(values)
    if is_repeated(values):
        data = _encode(values[0])
        return data, np.zeros(count, np.int64), np.full(count, len(data))
    data = b""
    if not form.free or _is_plain(values):
        with suppress(*_UNWRITABLE):
            data = _encode_lines(values if type(values) is list else list(values))
    if not data:
        data = b"".join([(text or b"") + b"\n" for text in _texts(values, form, errors)])
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _LINE_END)
    begins = np.zeros(count, np.int64)
    begins[1:] = ends[:-1] + 1
    return data, begins, ends


def _numbers(column: NumberColumn, form: Form) -> tuple[bytes, Offsets, Offsets] | None:
    """Encode integers, or moments as times; None if they are written in another form."""
    are_times = column.kind is Moment
    if not (form.free or form.column is (timestamps_as_text if are_times else None)):
        return None
    count = len(column)
    out, spans = np.empty(count * times.MAX_NUMBER, np.uint8), np.empty(2 * count, np.int64)
    size = times.write_numbers(column.numbers, are_times, out, spans)
    return None if size < 0 else (out[:size].tobytes(), spans[:count], spans[count:])


def _written(
    spans: Spans,
    layout_ids: Codes | None,
    plan: _Plan,
    computed: Sequence[_Computed],
    errors: dict[int, RecordError],
) -> Sequence[bytes | None]:
    """Write each object by the plan of its layout."""
    source, records = spans.source, spans.records
    if plan.is_whole:
        return [source.texts[record] for record in records.tolist()]
    count = len(records)
    values, value_spans = _encoded(computed, count, errors)
    size = _size_of(spans) + (plan.longest + 2) * count + len(values)
    out_offsets = np.empty(count + 1, np.int64)
    while True:
        out = np.empty(size, np.uint8)
        done = loops.write(
            source.data, source.offsets, source.firsts, source.spans, records,
            np.zeros(0, np.int32) if layout_ids is None else layout_ids, plan.numbers, plan.prefixes,
            np.frombuffer(values, np.uint8), value_spans, out, out_offsets,
        )  # fmt: skip
        if done >= 0:
            break
        # Several fields have the same bytes.
        size *= 2
    if count == 1:
        return [out[:done].tobytes()]
    return ArrowBytes.of_offsets(out[:done], out_offsets)


def _size_of(spans: Spans) -> int:
    """Return the size of all of some texts, or more."""
    source, records = spans.source, spans.records
    if len(records) == len(source.texts):
        return len(source.data)
    return int((source.offsets[records + 1] - source.offsets[records]).sum())


def _forms_of(block: Block, form_of: _FormOf, field_form_of: _FormOf) -> tuple[bool, Mapping[Hashable, Form]]:
    """Return whether objects are converted whole, and the forms of their fields."""
    schema = block.schema
    if schema is None:
        return False, dict.fromkeys(block.columns, field_form_of(None))
    key = id(schema), form_of, field_form_of
    known = _forms.get(key)
    if known is not None and known[0] is schema:
        return known[1]
    if len(_forms) >= _MAX_FORMS:
        _forms.clear()
    forms: Mapping[Hashable, Form] = {field.name: field_form_of(field.schema) for field in schema.fields}
    found = form_of(schema).whole, forms
    _forms[key] = schema, found
    return found


_FormOf: TypeAlias = Callable[[Schema | None], Form]

_MAX_FORMS: Final = 1024

_forms: dict[tuple[int, _FormOf, _FormOf], tuple[Schema, tuple[bool, Mapping[Hashable, Form]]]] = {}
"""Forms by schema: the hash of a schema of many fields takes longer than a small batch."""


def _formed(column: Column, form: Form, errors: dict[int, RecordError]) -> Column:
    """Return the column as its form has it; null where a value has none."""
    if form.column is None:
        return _with_moments_as_text(column) if form.free else column
    try:
        return form.column(column)
    except (RecordError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError):
        return [_formed_alone(form.column, index, value, errors) for index, value in enumerate(column)]


def _with_moments_as_text(column: Column) -> Column:
    """Return a column of nothing but moments and nulls as texts, which value by value takes ten times as long."""
    first = next((value for value in column if value is not None), None)
    if type(first) is not Moment or not _MOMENTS.issuperset(map(type, column)):
        return column
    try:
        return timestamps_as_text(column)
    except (ValueError, ArithmeticError):
        return column


def _formed_alone(convert: ConvertColumn, index: int, value: Value, errors: dict[int, RecordError]) -> DynamicValue:
    try:
        return convert([value])[0]
    except RecordError as error:
        errors.setdefault(index, error)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as failure:
        errors.setdefault(index, RecordError(f"the value does not fit its schema: {failure}"))
    return None


_PLAIN_TYPES: Final = frozenset({str, int, bool, type(None), Int8, Int16, Int32, BigInt, Moment, bytes})
"""Types of values that msgspec writes as they should be written, whatever they are."""

_MOMENTS: Final = frozenset({Moment, type(None)})

_UNWRITABLE = (TypeError, ValueError, RecursionError, OverflowError)


def _texts(values: Column, form: Form, errors: dict[int, RecordError]) -> list[bytes | None]:
    """Encode each value separately; what msgspec cannot write, or writes in the wrong form, by the Python fallback."""
    texts: list[bytes | None] = []
    for index, value in enumerate(values):
        try:
            texts.append(None if value is msgspec.UNSET else _encode(value))
        except _UNWRITABLE:
            texts.append(_slowly(index, value, errors))
    if form.free and not _is_plain(values):
        for index, value in enumerate(values):
            # Infinities, and structs in a map.
            if _is_odd(value):
                texts[index] = _slowly(index, value, errors)
    return texts


def _slowly(index: int, value: Value, errors: dict[int, RecordError]) -> bytes | None:
    try:
        return _encode(builtin_of(value))
    except _UNWRITABLE as failure:
        errors.setdefault(index, RecordError(f"the value cannot be written as JSON: {failure}"))
        return None


def _is_plain(column: Column) -> bool:
    """Return True if the types of a column show that msgspec writes all of it correctly."""
    kinds = list(map(type, column))
    # Mostly all are of one type, which is counted in less time than a set takes.
    one = not kinds or kinds.count(kinds[0]) == len(kinds)
    different = set(kinds[:1] if one else kinds)
    if float not in different:
        return _PLAIN_TYPES.issuperset(different)
    different.discard(float)
    return _PLAIN_TYPES.issuperset(different) and all(
        map(math.isfinite, column if one else [item for item in column if type(item) is float])
    )


def _is_odd(value: DynamicValue) -> bool:
    kind = type(value)
    if kind is float:
        return not math.isfinite(value)
    if kind is dict:
        return any(map(_is_odd, value.values()))
    if kind is list or kind is tuple:
        return any(map(_is_odd, value))
    return kind is Struct
