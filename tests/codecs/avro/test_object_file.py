"""Avro object files: what fastavro writes is read, with every compression; damage is said where it is."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.codecs.avro import object_file
from turnout.codecs.avro.object_file import AvroObjectFile
from turnout.codecs.avro.reading import MalformedError
from turnout.records import Moment
from turnout.records.schema import DATE, DECIMAL

SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "shop.Order",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "city", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)
ORDERS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.integers(-(1 << 63), (1 << 63) - 1),
            "city": st.none() | st.text(max_size=9),
            "tags": st.lists(st.text(max_size=5), max_size=3),
        }
    ),
    max_size=30,
)


def written(rows: list[dict[str, Any]], codec: str = "null", schema: Any = SCHEMA) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, codec=codec, sync_interval=200)
    return file.getvalue()


def repacked(content: bytes, codec: str, pack: Callable[[bytes], bytes]) -> bytes:
    """A file whose blocks are packed by other means: their libraries for fastavro are not installed."""
    head = io.BytesIO()
    fastavro.writer(head, SCHEMA, [], codec="null", sync_marker=bytes(16))
    result = head.getvalue().replace(b"\x08null", bytes([len(codec) * 2]) + codec.encode())
    for block in cast("Any", fastavro.block_reader(io.BytesIO(content))):
        data = pack(block.bytes_.getvalue())
        count, size = io.BytesIO(), io.BytesIO()
        fastavro.schemaless_writer(count, "long", block.num_records)
        fastavro.schemaless_writer(size, "long", len(data))
        result += count.getvalue() + size.getvalue() + data + bytes(16)
    return result


PACKS: dict[str, Callable[[bytes], bytes]] = {
    "snappy": lambda raw: pa.compress(raw, "snappy", asbytes=True) + zlib.crc32(raw).to_bytes(4, "big"),
    "zstandard": lambda raw: pa.compress(raw, "zstd", asbytes=True),
    "lz4": lambda raw: len(raw).to_bytes(4, "little") + pa.compress(raw, "lz4_raw", asbytes=True),
}


def read(content: bytes) -> list[Any]:
    return [value for block in AvroObjectFile(content).blocks() for value in block]


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard", "lz4"])
@given(rows=ORDERS)
def test_compressions(codec: str, rows: list[dict[str, Any]]) -> None:
    """The values are those that were written, whatever their blocks are packed with."""
    content = written(rows) if codec in PACKS else written(rows, codec)
    content = repacked(content, codec, PACKS[codec]) if codec in PACKS else content

    file = AvroObjectFile(content)

    assert (file.codec, file.type.name) == (codec, "shop.Order")
    assert read(content) == rows


def test_every_compression_of_fastavro() -> None:
    """There is none that it knows and this does not."""
    from fastavro import _read_py

    assert set(_read_py.BLOCK_READERS) <= set(object_file._CODECS)


def test_logical_types() -> None:
    """Decimals and times are those of Connect."""
    types = {
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "day": {"type": "int", "logicalType": "date"},
    }
    schema = {"type": "record", "name": "T", "fields": [{"name": name, "type": one} for name, one in types.items()]}
    row = {"price": Decimal("12.50"), "at": 1_700_000_000_123, "day": 2}

    content = written([row], schema=fastavro.parse_schema(schema))

    assert read(content) == [
        {"price": Decimal("12.50"), "at": Moment(1_700_000_000_123), "day": Moment(2 * 86_400_000)}
    ]


def test_logical_types_by_the_names_of_connect() -> None:
    """A day without ``logicalType``, as old converters write it, is a day, and no number."""
    types = {
        "total": {"type": "bytes", "connect.name": DECIMAL, "connect.parameters": {"scale": "127"}},
        "day": {"type": "int", "connect.name": DATE},
    }
    schema = {"type": "record", "name": "T", "fields": [{"name": name, "type": one} for name, one in types.items()]}

    content = written([{"total": b"\5", "day": 5}], schema=fastavro.parse_schema(schema))

    assert read(content) == [{"total": Decimal("5E-127"), "day": Moment(5 * 86_400_000)}]


ROWS = [{"n": n, "city": "Oulu", "tags": ["x"]} for n in range(200)]


@given(at=st.integers(0, 3_000), byte=st.integers(0, 255), cut=st.booleans())
def test_damage(at: int, byte: int, cut: bool) -> None:
    """A changed or missing byte gives the values before it, or an error, and nothing else."""
    content = written(ROWS, "deflate")
    at %= len(content)
    damaged = content[:at] if cut else content[:at] + bytes([byte]) + content[at + 1 :]
    found: list[Any] = []

    try:
        for block in AvroObjectFile(damaged).blocks():
            found += block
    except MalformedError:
        pass

    assert len(found) <= len(ROWS)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda raw: b"PAR1" + raw[4:], "expected an Avro object file, which begins with b'Obj"),
        (lambda raw: raw[:-3], "the block at byte"),
        (lambda raw: raw.replace(b"\x08null", b"\x08lzma"), "expected one of the codecs null, deflate"),
        (lambda raw: raw.replace(b"avro.schema", b"avro.schemo"), "expected the schema as avro.schema"),
        (lambda raw: raw.replace(b'"long"', b'"lang"'), "its schema: "),
        (lambda raw: raw[:20], "expected"),
    ],
)
def test_what_is_wrong(change: Callable[[bytes], bytes], problem: str) -> None:
    """The error says what was expected, and where."""
    with pytest.raises(MalformedError) as raised:
        read(change(written(ROWS)))

    assert problem in str(raised.value)


def test_small_files_that_unpack_to_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is unpacked to a bound only, whatever its compression claims."""
    monkeypatch.setattr(object_file, "MAX_BLOCK", 1_000)
    rows = [{"n": 0, "city": "x" * 5_000, "tags": []}]
    for codec in ("deflate", "bzip2", *PACKS):
        content = repacked(written(rows), codec, PACKS[codec]) if codec in PACKS else written(rows, codec)
        with pytest.raises(MalformedError, match="expected at most 1000 bytes unpacked"):
            read(content)


def test_values_without_bytes() -> None:
    """A count that no bytes stand for is bounded."""
    schema = {"type": "record", "name": "Empty", "fields": []}
    assert read(written([{}, {}], schema=fastavro.parse_schema(schema))) == [{}, {}]
    huge = io.BytesIO()
    fastavro.schemaless_writer(huge, "long", 1 << 40)
    head = written([], schema=fastavro.parse_schema(schema))

    with pytest.raises(MalformedError, match="expected the values of 0 bytes, found the count"):
        read(head + huge.getvalue() + b"\x00" + head[-16:])


def test_metadata_is_json() -> None:
    """The schema is found among other metadata."""
    file = io.BytesIO()
    fastavro.writer(file, SCHEMA, ROWS[:1], metadata={"by": "a test"})

    assert json.dumps(read(file.getvalue())) == json.dumps(ROWS[:1])
