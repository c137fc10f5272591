"""Progress of a replay that is continued."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.history.scene import Scene
from turnout.conditions import parse
from turnout.errors import ConfigError
from turnout.history import replay
from turnout.history.replay import BackfillPart, ReplayState, StreamRange, next_part
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Publisher
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger
from turnout.subscriptions import Store, Subscription
from turnout.subscriptions.model import Start
from turnout.subscriptions.store import edit

FORMER, PRESENT = (StreamIdentity.of(f"2026-11-2{day}T00:00:00Z") for day in (1, 2))


def plan(folder: Path, identity: StreamIdentity | None) -> Any:
    ranges = (StreamRange("S", 1, 101, 100, identity),)
    route = SimpleNamespace(digest="d", name="r")
    return SimpleNamespace(
        folder=folder, asked={"route": "r"}, ranges=ranges, route=route, subscriptions=None, is_exact=False
    )


def test_a_stream_that_was_made_anew_is_not_read_on(tmp_path: Path) -> None:
    """Its sequences are not those that the replay has planned."""
    state = replace(ReplayState.of(plan(tmp_path, FORMER)), next={"S": 51})
    state.write(tmp_path)

    assert ReplayState.of(plan(tmp_path, FORMER)) == state
    part = state.left(10)
    assert part is not None
    assert (part.start, part.end, part.identity) == (51, 61, FORMER)
    with pytest.raises(ConfigError, match="give this one another id") as raised:
        ReplayState.of(plan(tmp_path, PRESENT))
    assert all(created in str(raised.value) for created in (FORMER.created, PRESENT.created))


def test_a_replay_of_an_earlier_release_is_continued(tmp_path: Path) -> None:
    """It has noted no identity."""
    replace(ReplayState.of(plan(tmp_path, None)), next={"S": 51}).write(tmp_path)

    assert ReplayState.of(plan(tmp_path, PRESENT)).next == {"S": 51}


class Late:
    """A route over 30 records, of which a run has read 20, and the ledger of its checkpoint."""

    def __init__(self, scene: Scene, store: Store, folder: Path) -> None:
        self.stream, self.store, self.checkpoint = f"IN_{scene.name}", store, folder / "c"
        self.route = Route.parse(scene.text, {})
        with Connection.open(scene.url) as connection, Publisher(connection) as publisher:
            for number in range(1, 31):
                publisher.publish(f"in-{scene.name}.a", json.dumps({"n": number}).encode())
        for name in ("offsets", "commits"):
            (self.checkpoint / name).mkdir(parents=True)
        self.batch(0, 20, store.revision())
        (self.checkpoint / "commits" / "0").write_text("v1\n{}", encoding="utf-8")
        self.ledger = BackfillLedger(self.checkpoint)

    def batch(self, number: int, last: int, revision: int) -> None:
        """Plan a micro-batch up to a record."""
        offset = {self.stream: last + 1, "subscriptions.revision": revision}
        offset |= {f"{self.stream}.from": 1} if number == 0 else {}
        text = f"v1\n{{}}\n{json.dumps(offset)}"
        (self.checkpoint / "offsets" / str(number)).write_text(text, encoding="utf-8")

    def create(self, id_: str, start: object, *, enabled: bool = True) -> None:
        begin = Start.from_plain(start)
        self.store.create(Subscription(["d"], parse("n>0"), id=id_, enabled=enabled, start=begin))

    def parts(self) -> Iterator[tuple[list[str], int, int]]:
        """Yield subscriptions and range of each part, which is delivered then."""
        self.ledger.see_all(self.store.snapshot())
        while (part := self.next()) is not None:
            (range_,) = part.plan.ranges
            yield [one.id for one in part.plan.subscriptions or ()], range_.start, range_.end
            part.note(self.ledger)

    def next(self) -> BackfillPart | None:
        return next_part(self.route, self.checkpoint, self.ledger)


@pytest.fixture
def late(scene: Scene, tmp_path: Path) -> Iterator[Late]:
    with scene.store() as store:
        made = Late(scene, store, tmp_path)
        yield made
        made.ledger.close()


def test_those_who_miss_the_same_are_served_together(late: Late, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the position of the run, in parts, and then up to the seam; a time before all records is the first."""
    monkeypatch.setattr(replay, "_PART_SEQUENCES", 15)
    late.create("a", "earliest")
    late.create("b", datetime(2020, 1, 1, tzinfo=UTC).isoformat())
    late.create("c", 18)
    late.create("d", "latest")

    assert list(late.parts()) == [(["a", "b"], 1, 16), (["a", "b"], 16, 21), (["c"], 18, 21)]
    assert len(late.ledger.rows) == 3
    late.batch(1, 25, 1)
    late.batch(2, 30, late.store.revision())
    assert list(late.parts()) == [(["a", "b", "c"], 21, 26)]
    assert late.ledger.rows == []


def test_who_is_disabled_waits_and_who_is_deleted_is_forgotten(late: Late) -> None:
    """The others go on meanwhile."""
    late.create("deleted", "earliest")
    late.create("disabled", "earliest", enabled=False)
    late.create("other", 3)
    late.ledger.see_all(late.store.snapshot())
    late.store.delete("deleted")

    part = late.next()
    assert part is not None
    assert [row.id for row in late.ledger.rows] == ["disabled", "other"]
    part.note(late.ledger)
    assert late.next() is None
    edit(late.store, "disabled", lambda found: replace(found, enabled=True))
    assert list(late.parts()) == [(["disabled"], 1, 21)]


def test_what_the_stream_does_not_hold_any_more_is_passed_over(late: Late, scene: Scene) -> None:
    """A place below the first record, and one behind the last: nothing to read is no part that is read."""
    late.create("a", "earliest")
    late.create("b", 40)
    late.ledger.see_all(late.store.snapshot())
    late.next()
    with Connection.open(scene.url) as connection:
        request = json.dumps({"seq": 25}).encode()
        connection.request(f"$JS.API.STREAM.PURGE.{late.stream}", request)

    assert list(late.parts()) == [(["a"], 21, 21)]
    late.batch(1, 30, late.store.revision())
    assert list(late.parts()) == []
    assert late.ledger.rows == []
