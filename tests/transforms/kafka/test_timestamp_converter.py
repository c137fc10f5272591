"""TimestampConverter over batches; what Kafka's classes answer is in the vectors."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pytest

from turnout.codecs import Format, codec_of
from turnout.records import Failure, Field, Moment, Record, Schema
from turnout.records.schema import DATE, TIMESTAMP
from turnout.transforms import Chain
from turnout.transforms.kafka.timestamp_converter import Conversion

LONG = (1 << 63) - 1


def chain(**options: str) -> Chain:
    properties = {f"transforms.t.{name.replace('_', '.')}": value for name, value in options.items()}
    return Chain.from_config(
        {
            "transforms": "t",
            "transforms.t.type": "org.apache.kafka.connect.transforms.TimestampConverter$Value",
            **properties,
        }
    )


@pytest.mark.parametrize(
    ("source", "value", "target", "precision", "result"),
    [
        ("unix", -1999, "Timestamp", "microseconds", Moment(-1)),
        ("unix", LONG, "Timestamp", "seconds", Moment(LONG)),
        ("unix", -LONG, "Timestamp", "seconds", Moment(-LONG - 1)),
        ("Timestamp", Moment(-1500), "unix", "seconds", -1),
        ("Timestamp", Moment(LONG), "unix", "nanoseconds", LONG),
        ("Timestamp", Moment(-1), "Date", "milliseconds", Moment(-86_400_000)),
        ("Timestamp", Moment(-1), "Time", "milliseconds", Moment(86_399_999)),
        ("string", "1970-01-02", "unix", "milliseconds", 86_400_000),
        ("Date", Moment(86_400_000), "string", "milliseconds", "1970-01-02"),
    ],
)
def test_every_form_becomes_every_other(source: str, value: Any, target: str, precision: str, result: Any) -> None:
    """Through milliseconds, cut toward zero, and stopped at the ends of 64 bits."""
    converted = Conversion(target, "yyyy-MM-dd", precision).of(source)(value)

    assert (type(result), result) == (type(converted), converted)


def test_a_field_is_converted_and_loses_its_default() -> None:
    """The other fields stay as they are."""
    schema = Schema("struct", fields=(Field("at", Schema("string", default="1970-01-02")), Field("n", Schema("int32"))))

    (outcome,) = chain(field="at", target_type="Timestamp", format="yyyy-MM-dd").apply(
        [Record("t", {"at": None, "n": 1}, value_schema=schema)]
    )

    assert isinstance(outcome, Record)
    assert {"at": Moment(86_400_000), "n": 1} == outcome.value
    assert outcome.value_schema is not None
    assert Schema("int64", name=TIMESTAMP, version=1) == outcome.value_schema.field("at")


def test_the_default_of_a_struct_is_converted_with_it() -> None:
    """Its field is of the new type, too."""
    schema = Schema("struct", default={"at": 86_400_000}, fields=(Field("at", Schema("int64")),))

    (outcome,) = chain(field="at", target_type="Date").apply([Record("t", {"at": 1}, value_schema=schema)])

    assert isinstance(outcome, Record)
    assert outcome.value_schema is not None
    assert outcome.value_schema.default == {"at": 86_400_000}
    assert Schema("int32", name=DATE, version=1) == outcome.value_schema.field("at")


def test_what_cannot_be_read_fails_alone() -> None:
    """With the text and the pattern in the reason."""
    good, bad = chain(target_type="unix", format="yyyy-MM-dd").apply([Record("t", "1970-01-02"), Record("t", "soon")])

    assert isinstance(good, Record)
    assert good.value == 86_400_000
    assert isinstance(bad, Failure)
    assert "value (soon) does not match pattern (yyyy-MM-dd)" in bad.message


def test_a_text_without_a_format_is_a_null_pointer() -> None:
    """The failure is the same as in Connect."""
    (outcome,) = chain(target_type="unix").apply([Record("t", "1970-01-02")])

    assert isinstance(outcome, Failure)
    assert outcome.exception == "java.lang.NullPointerException"


def test_a_time_finer_than_a_millisecond_is_a_time() -> None:
    """MessagePack's nanoseconds, as msgpack packs them: each transform takes it for the time that it is."""
    packed = b"\x81\xa1t" + bytes.fromhex("d7ff") + (123456789 << 34 | 5).to_bytes(8, "big")
    (block,), _ = codec_of(Format("msgpack")).decode(np.arange(1), [packed])
    (value,) = block.whole()

    for options, expected in (
        ({"target.type": "unix", "field": "t"}, 5123),
        ({"target.type": "string", "format": "ss.SSS", "field": "t"}, "05.123"),
        ({"target.type": "Timestamp", "field": "t"}, Moment(5123)),
    ):
        (record,) = chain(**{name.replace(".", "_"): option for name, option in options.items()}).apply(
            [Record("t", dict(value))]
        )
        assert isinstance(record, Record)
        assert record.value == {"t": expected}
        assert type(record.value["t"]) is type(expected)
    masked = Chain.from_config(
        {"transforms": "m", "transforms.m.type": "MaskField$Value", "transforms.m.fields": "t"}
    ).apply(Record("t", dict(value)))
    assert masked is not None
    assert masked.value == {"t": Moment(0)}


def test_values_of_subclasses_are_those_of_their_classes() -> None:
    """A dict that is ordered, a number of NumPy, an enum that is a text: each at any depth."""

    class Kind(StrEnum):
        NEW = "new"

    class Number(IntEnum):
        ONE = 1

    inner: defaultdict[str, Any] = defaultdict(dict, a=OrderedDict(b=Number.ONE))
    value = OrderedDict(kind=Kind.NEW, n=np.float64(1.5), inner=inner)
    flatten = Chain.from_config({"transforms": "f", "transforms.f.type": "Flatten$Value"})
    cast = Chain.from_config(
        {"transforms": "c", "transforms.c.type": "Cast$Value", "transforms.c.spec": "kind:string,n:string"}
    )

    flat, record = flatten.apply(Record("t", value)), cast.apply(Record("t", value))
    assert flat is not None
    assert flat.value == {"kind": "new", "n": 1.5, "inner.a.b": 1}
    assert record is not None
    assert (record.value["kind"], record.value["n"]) == ("new", "1.5")
    assert type(record.value["kind"]) is str
