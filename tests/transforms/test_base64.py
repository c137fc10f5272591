"""Bytes as Base64, and back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.chains import outcome_values, route_chain


@given(st.lists(st.binary(), min_size=1))
def test_base64_is_read_again(contents: list[bytes]) -> None:
    """Any bytes."""
    stages = [{"type": "Base64$Value", "operation": operation} for operation in ("encode", "decode")]

    assert outcome_values(route_chain(*stages), *contents) == contents
