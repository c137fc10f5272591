"""Varints as the libraries of Protobuf and Avro write them."""

from __future__ import annotations

import io

from fastavro import schemaless_writer
from google.protobuf.wrappers_pb2 import UInt64Value
from hypothesis import given
from hypothesis import strategies as st

from turnout.base.varint import varint, zigzag_varint

_BOUNDS = [bound for bits in range(7, 63, 7) for bound in ((1 << bits) - 1, 1 << bits)]


@given(st.one_of(st.sampled_from(_BOUNDS), st.integers(1, 2**64 - 1)))
def test_protobufs_varint(number: int) -> None:
    """Behind its tag an unsigned number has the bytes that Protobuf's own library writes."""
    assert varint(number) == UInt64Value(value=number).SerializeToString()[1:]


@given(st.one_of(st.sampled_from(_BOUNDS), st.integers(-(2**63), 2**63 - 1)))
def test_avros_long(number: int) -> None:
    """A signed number has the bytes that fastavro writes."""
    written = io.BytesIO()
    schemaless_writer(written, "long", number)

    assert zigzag_varint(number) == written.getvalue()
