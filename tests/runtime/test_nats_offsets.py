"""Offsets of open splits, and when there are any."""

from __future__ import annotations

from turnout.runtime.nats_offsets import Backlog, closed, number_in, opened


def test_an_open_offset_has_a_beginning_and_a_number() -> None:
    """Numbers are kept by stream if requested; other names beside a stream are ignored."""
    offset = opened({"S": 17}, 4)

    assert offset == {"S": 17, "S.open": 4}
    assert (number_in(offset), number_in(offset, "S"), number_in(offset, "T")) == (4, 4, None)
    assert number_in({"S": 17, "S.from": 1, "subscriptions.revision": 3}) is None


def test_a_closed_offset_says_where_to_go_on() -> None:
    """Earlier versions without open splits read it too; an offset that is already closed is unchanged."""
    assert closed({"S": 17, "S.open": 4, "subscriptions.revision": 3}, {"S": 90}) == {"S": 90, "S.from": 90}
    bounded = {"S": 17}
    assert closed(bounded, {"S": 17}) is bounded


def test_a_large_backlog_is_worked_off_before_a_split_is_opened() -> None:
    """It counts as large above 50,000 records, until it is reduced to 10,000."""
    backlog = Backlog()

    assert [backlog.is_large(n) for n in (0, 50_000, 50_001, 30_000, 10_001, 10_000, 30_000, 60_000)] == [
        False, False, True, True, True, False, False, True,
    ]  # fmt: skip
