"""Formats of sampled streams."""

from __future__ import annotations

import pytest

from turnout.routes.drafts import SampledMessage, SampledStream

EVENT = b'{"before": null, "after": {"id": 1}, "source": {}, "op": "c"}'


def sampled(*values: bytes) -> SampledStream:
    return SampledStream((), tuple(SampledMessage("t", value) for value in values))


@pytest.mark.parametrize(
    ("values", "format_"),
    [
        ([b"{}"] * 20, "json"),
        ([b"{}", b"{}", b"cut{"], "json"),
        ([b"{}", b"cut{"], "raw"),
        ([b"cut{"], "raw"),
        ([b"{}"] * 18 + [b"cut{"] * 2, "json"),
        ([b"{}"] * 8 + [b"cut{"] * 2, "raw"),
        ([b'{"schema": {}, "payload": 1}'] * 2 + [b"1"], "connect-json"),
    ],
)
def test_a_few_exceptions_do_not_decide(values: list[bytes], format_: str) -> None:
    """One value of three, or a tenth, may be malformed: such records are dead letters."""
    assert sampled(*values).format() == format_


def test_change_events_are_taken_apart_only_if_they_are_read() -> None:
    """A stage on values that stay bytes would do nothing."""
    assert sampled(EVENT, EVENT, b"cut{").has_change_events()
    assert not sampled(EVENT, b"cut{", b"cut{").has_change_events()
