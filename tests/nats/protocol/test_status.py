"""Status lines of messages without content."""

from __future__ import annotations

import pytest

from turnout.nats.protocol.status import read_status


def test_a_status_has_its_code_and_text() -> None:
    """The description is optional, and headers may follow."""
    with_text = read_status(b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\nNats-Pending-Messages: 1\r\n\r\n")
    without = read_status(b"NATS/1.0 100\r\n\r\n")

    assert with_text is not None
    assert without is not None
    assert (with_text.code, with_text.text) == (409, "Message Size Exceeds MaxBytes")
    assert (without.code, without.text) == (100, "")


@pytest.mark.parametrize("block", [b"NATS/1.0\r\n\r\n", b"NATS/1.0\r\nA: 503\r\n\r\n", b""])
def test_ordinary_headers_are_no_status(block: bytes) -> None:
    """A message's own headers begin with the version alone."""
    assert read_status(block) is None
