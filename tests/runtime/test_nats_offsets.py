"""Offsets of open splits, and when there are any."""

from __future__ import annotations

import pytest

from turnout.nats.protocol.identity import Position, StreamIdentity
from turnout.runtime.offsets import (
    Backlog,
    closed,
    identities_in,
    identity_in,
    number_in,
    opened,
    position_keys,
    time_in,
)

CREATED = "2026-11-28T15:10:45.5Z"
PRESENT = StreamIdentity.of(CREATED)


def test_an_open_offset_has_a_beginning_and_a_number() -> None:
    """Numbers are kept by stream if requested; other names beside a stream are ignored."""
    offset = opened({"S": Position(PRESENT, 17)}, 4)

    assert offset == {"S": 17, "S.created": CREATED, "S.open": 4}
    assert (number_in(offset), number_in(offset, "S"), number_in(offset, "T")) == (4, 4, None)
    assert number_in({"S": 17, "S.from": 1, "subscriptions.revision": 3}) is None


def test_a_closed_offset_says_where_to_go_on() -> None:
    """Earlier versions without open splits read it too; an offset that is already closed is unchanged."""
    reached = {"S": Position(PRESENT, 90, 5)}
    expected = {"S": 90, "S.created": CREATED, "S.time": 5, "S.from": 90}
    assert closed({"S": 17, "S.open": 4, "subscriptions.revision": 3}, reached) == expected
    bounded = {"S": 17}
    assert closed(bounded, {"S": Position(PRESENT, 17)}) is bounded


@pytest.mark.parametrize("identity", [PRESENT, StreamIdentity.adopted(CREATED)])
def test_an_offset_has_the_identity_of_its_stream(identity: StreamIdentity) -> None:
    """What follows from the creation time is not repeated; an offset of an earlier release has none."""
    offset = position_keys({"S": Position(identity, 17, 5), "T": Position(PRESENT, 1)})

    assert (identity_in(offset, "S"), time_in(offset, "S")) == (identity, 5)
    assert identities_in(offset) == {"S": identity, "T": PRESENT}
    assert ("S.id" in offset) == (identity != PRESENT)
    assert identity_in({"S": 17}, "S") is None


def test_a_large_backlog_is_worked_off_before_a_split_is_opened() -> None:
    """It counts as large above 50,000 records, until it is reduced to 10,000."""
    backlog = Backlog()

    assert [backlog.is_large(n) for n in (0, 50_000, 50_001, 30_000, 10_001, 10_000, 30_000, 60_000)] == [
        False, False, True, True, True, False, False, True,
    ]  # fmt: skip
