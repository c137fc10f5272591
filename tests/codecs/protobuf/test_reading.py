"""Messages that are passed, held to the library that reads them one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnout.base.varint import varint
from turnout.codecs.codec import EncodeErrors
from turnout.codecs.protobuf.codec import Protobuf
from turnout.codecs.protobuf.connect_schema import plan_of
from turnout.codecs.protobuf.descriptors import file_of
from turnout.records import Moment
from turnout.records.block import rows_of
from turnout.records.spans import EncodedColumn, NumberColumn, replaced

_KINDS = (
    "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "fixed32", "fixed64", "sfixed32", "sfixed64",
    "float", "double", "string", "bytes", "Size", "google.protobuf.Timestamp",
)  # fmt: skip
_TEXT = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
enum Size {{ S = 0; M = 1; L = -7; }}
message All {{ {} }}
"""


def _name(label: str, kind: str) -> str:
    return f"f{label}{kind.rpartition('.')[2]}"


def codec_of(folder: Path, first: int) -> tuple[Protobuf, Any]:
    """The codec and the class of a message with each kind of field, with and without presence."""
    numbers = iter(range(first, first + 2 * len(_KINDS)))
    fields = [
        f"{label} {kind} {_name(label, kind)} = {next(numbers)};" for kind in _KINDS for label in ("", "optional")
    ]
    file = folder / f"all{first}.proto"
    file.write_text(_TEXT.format(" ".join(fields)))
    message = file_of(file).message()
    return Protobuf(plan_of(message)), GetMessageClass(message)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Protobuf, Any], tuple[Protobuf, Any]]:
    folder = tmp_path_factory.mktemp("proto")
    return codec_of(folder, 1), codec_of(folder, 300)


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{kind: st.integers(-(2**31), 2**31 - 1) for kind in ("int32", "sint32", "sfixed32")},
    **{kind: st.integers(-(2**63), 2**63 - 1) for kind in ("int64", "sint64", "sfixed64")},
    **{kind: st.integers(0, 2**32 - 1) for kind in ("uint32", "fixed32")},
    **{kind: st.integers(0, 2**64 - 1) for kind in ("uint64", "fixed64")},
    "bool": st.booleans(), "float": st.floats(width=32, allow_nan=False), "double": st.floats(allow_nan=False),
    "google.protobuf.Timestamp": st.builds(
        lambda seconds, millis: {"seconds": seconds, "nanos": millis * 1_000_000},
        st.integers(-62_135_596_800, 253_402_300_799), st.integers(0, 999),
    ),
    "string": st.text(max_size=200), "bytes": st.binary(max_size=200), "Size": st.sampled_from([0, 1, -7, 9]),
}  # fmt: skip
_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {}, optional={_name(label, kind): _VALUES[kind] for kind in _KINDS for label in ("", "optional")}
    ),
    min_size=17,
    max_size=20,
)  # fmt: skip
_settings = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _one_by_one(codec: Protobuf, texts: list[bytes]) -> list[Any]:
    found = []
    for text in texts:
        blocks, errors = codec.decode(rows_of(1), [text])
        found.append(str(errors[0]) if errors else blocks[0].whole()[0])
    return found


def _read(codec: Protobuf, texts: list[bytes]) -> list[Any]:
    blocks, errors = codec.decode(rows_of(len(texts)), texts)
    found: dict[int, Any] = {row: str(error) for row, error in errors.items()}
    for block in blocks:
        assert block.origin is not None
        assert list(block.origin.texts) == [texts[row] for row in block.rows.tolist()]
        found |= dict(zip(block.rows.tolist(), block.whole(), strict=True))
    return [found[row] for row in range(len(texts))]


@_settings
@given(values=_MESSAGES, data=st.data())
def test_values_are_those_of_the_library(made: Any, values: list[dict[str, Any]], data: st.DataObject) -> None:
    """Also of messages that are damaged, cut off, in another order, or with fields that nobody knows."""
    codec, message = made[0]
    texts = [message(**value).SerializeToString() for value in values]
    for row in data.draw(st.sets(st.integers(0, len(texts) - 1), max_size=4)):
        cut = data.draw(st.integers(0, len(texts[row])))
        noise = data.draw(st.binary(max_size=6))
        texts[row] = data.draw(
            st.sampled_from([texts[row][:cut] + noise, texts[row] + texts[row - 1], texts[row][cut:]])
        )

    assert list(map(repr, _read(codec, texts))) == list(map(repr, _one_by_one(codec, texts)))


@_settings
@given(values=_MESSAGES)
def test_bytes_go_into_messages_with_the_same_and_with_other_numbers(made: Any, values: list[dict[str, Any]]) -> None:
    """Unread, of the records that are left, they are what the values would be written as."""
    values = values * 4
    (codec, message), (other, _) = made
    (block,), _ = codec.decode(rows_of(len(values)), [message(**value).SerializeToString() for value in values])
    part = block.take(np.arange(0, len(values), 2))
    passed = part.with_columns(part.schema, part.columns)

    written = [_encoded(one, passed) for one in (codec, other)]

    assert all(isinstance(column, EncodedColumn) and column._values is None for column in part.columns.values())
    values_alone = part.with_columns(part.schema, {name: list(column) for name, column in part.columns.items()})
    assert written == [_encoded(one, values_alone) for one in (codec, other)]


@pytest.mark.parametrize(
    ("seconds", "nanos"),
    [(1, 1), (1, 999_999_999), (1, -1), (1, 2**31 - 1), (253_402_300_800, 0), (-62_135_596_801, 0)],
)
def test_timestamps_of_which_the_value_has_other_bytes(made: Any, seconds: int, nanos: int) -> None:
    """They are finer than a millisecond or out of range, and are read with the library."""
    codec, message = made[0]
    texts = [message(fTimestamp={"seconds": n}).SerializeToString() for n in range(24)]
    # The setters of the class check the range.
    body = b"\x08" + varint(seconds & (2**64 - 1)) + b"\x10" + varint(nanos & (2**64 - 1))
    head = message(fTimestamp={"seconds": 1}).SerializeToString()[:-3]
    texts[5] = head + bytes((len(body),)) + body

    assert list(map(repr, _read(codec, texts))) == list(map(repr, _one_by_one(codec, texts)))
    blocks, _ = codec.decode(rows_of(24), texts)
    assert len(blocks[0]) == 23


def test_a_field_that_is_written_twice(tmp_path: Path) -> None:
    """As itself and as another: the copy with the new tags has it once."""
    two, swapped = tmp_path / "two.proto", tmp_path / "swapped.proto"
    two.write_text('syntax = "proto3"; message M { string a = 1; string b = 2; }')
    swapped.write_text('syntax = "proto3"; message M { string b = 1; string c = 2; string a = 3; }')
    source, target = (file_of(file).message() for file in (two, swapped))
    texts = [GetMessageClass(source)(a=f"a{n}", b=f"b{n}" * (n % 3)).SerializeToString() for n in range(20)]
    (block,), _ = Protobuf(plan_of(source)).decode(rows_of(20), texts)
    columns = {"b": block.columns["b"], "c": block.columns["a"], "a": block.columns["a"]}

    written = Protobuf(plan_of(target)).encode(block.with_columns(None, columns))

    message = GetMessageClass(target)
    assert written == [message(a=f"a{n}", c=f"a{n}", b=f"b{n}" * (n % 3)).SerializeToString() for n in range(20)]


@settings(_settings, max_examples=8)
@given(values=_MESSAGES)
def test_columns_are_written_as_their_values(made: Any, values: list[dict[str, Any]]) -> None:
    """Patched ones, times as arrays, and one text for all; with the same and with other numbers."""
    values = values * 2
    (codec, message), (other, _) = made
    count = len(values)
    (block,), _ = codec.decode(rows_of(count), [message(**value).SerializeToString() for value in values])
    columns = dict(block.columns)
    for name, mask in (("fstring", np.arange(count) % 2 == 0), ("foptionalstring", np.ones(count, np.bool_))):
        columns[name] = replaced(columns[name], ["new"] * int(mask.sum()), mask)
    columns["foptionalint64"] = replaced(columns["foptionalint64"], [None] * 2, np.arange(count) < 2)
    columns["fTimestamp"] = NumberColumn(np.arange(count) * 500 - 3000, Moment)
    columns["fbytes"] = [b"x"] * count
    columns["foptionalTimestamp"] = NumberColumn(np.arange(count) - 1, int)

    written = [_encoded(one, block.with_columns(block.schema, columns)) for one in (codec, other)]

    listed = block.with_columns(block.schema, {name: list(column) for name, column in columns.items()})
    assert written == [_encoded(one, listed) for one in (codec, other)]
    one_by_one = [listed.take(np.array([row])) for row in range(count)]
    assert written == [[text for part in one_by_one for text in _encoded(one, part)] for one in (codec, other)]


def test_times_as_an_array_are_refused_as_their_values(made: Any) -> None:
    codec, message = made[0]
    (block,), _ = codec.decode(rows_of(20), [message().SerializeToString()] * 20)
    times = NumberColumn(np.where(np.arange(20) == 3, 253_402_300_800_000, 0), Moment)

    with pytest.raises(EncodeErrors) as refused:
        codec.encode(block.with_columns(block.schema, {**block.columns, "fTimestamp": times}))

    assert {row: str(error) for row, error in refused.value.errors.items()} == {
        3: "fTimestamp: expected a time of the years 1 to 9999, found 253402300800000 milliseconds since 1970"
    }


def _encoded(codec: Protobuf, block: Any) -> list[bytes | None]:
    try:
        return list(codec.encode(block))
    except EncodeErrors as errors:
        raise AssertionError(str(errors)) from errors
