"""Output of gzip, and bytes that are none."""

from __future__ import annotations

import gzip

from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.chains import outcome_values, route_chain

from turnout.records import Failure


@given(st.binary(), st.binary(max_size=30))
def test_any_bytes_are_decompressed_or_refused(content: bytes, noise: bytes) -> None:
    """Output of gzip is decompressed unchanged; any other input fails alone."""
    good, other = outcome_values(route_chain({"type": "GzipDecompress$Value"}), gzip.compress(content), noise)

    assert good == content
    assert isinstance(other, Failure)


def test_a_bomb_is_not_unpacked() -> None:
    """Of a gigabyte that fits into a megabyte no more is kept than may be."""
    member = gzip.compress(bytes(1 << 20))
    bomb, small = outcome_values(
        route_chain({"type": "GzipDecompress$Value", "max.bytes": 1000}), member * 1000, gzip.compress(b"x")
    )

    assert isinstance(bomb, Failure)
    assert "more than 1,000 bytes" in bomb.message
    assert small == b"x"


def test_many_small_members_are_decompressed() -> None:
    """Files of gzip one after the other, also across the pieces in which they are read, up to an incomplete one."""
    members = [bytes([number % 251]) * (number % 5000) for number in range(0, 90_000, 7)]
    whole = b"".join(map(gzip.compress, members))
    options = {"type": "GzipDecompress$Value", "max.bytes": 1 << 30}
    good, cut = outcome_values(route_chain(options), whole, whole[:-1])

    assert good == b"".join(members)
    assert isinstance(cut, Failure)
    assert "ends too early" in cut.message
