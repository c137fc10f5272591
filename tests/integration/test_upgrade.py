"""What an earlier version has left is taken up exactly by the present one, and the way back: docs/deploy.md's table.

What lies in `tests/integration/earlier` was left by earlier versions and works in every clone; where a clone has the
repository's history, those versions themselves run here too.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.earlier.record import BATCH, RECORDS, STATE
from tests.integration.earlier.scene import KINDS, OLD_STORE, books, publish, route_text
from tests.integration.earlier.version import COMMITS, EarlierVersion
from tests.integration.routes import Streams, turnout, wait_for, write_route

from turnout.conditions import kiwi
from turnout.embedded import NatsServer
from turnout.engine.counts import Counts
from turnout.nats.wire import Connection, Publisher
from turnout.routes import Route
from turnout.server.routes.state import MinutePace, State
from turnout.spark.running import job
from turnout.subscriptions import Subscription, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent / "earlier"


@pytest.fixture(scope="session")
def unpack(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], EarlierVersion]:
    """Gives an earlier version; the test is skipped where there is no history."""
    unpacked: dict[str, EarlierVersion | None] = {}

    def give(version: str) -> EarlierVersion:
        if version not in unpacked:
            unpacked[version] = EarlierVersion.unpack(COMMITS[version], tmp_path_factory.mktemp(version))
        earlier = unpacked[version]
        if earlier is None:
            pytest.skip(f"this clone has no commit {COMMITS[version]}: its version cannot run here")
        return earlier

    return give


def restored(version: str, database: str, target: Path) -> Path:
    """A database that an earlier version has left."""
    with contextlib.closing(sqlite3.connect(target)) as connection:
        connection.executescript((HERE / version / f"{database}.sql").read_text(encoding="utf-8"))
    return target


# Checkpoints


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", COMMITS)
def test_a_checkpoint_in_the_middle_of_a_micro_batch(
    spark: SparkSession, nats_server: NatsServer, tmp_path: Path, version: str, kind: str
) -> None:
    """An earlier run that was killed half-way is gone on with: none lost, none twice, each where it would have gone."""
    left = HERE / version / kind
    streams = Streams(nats_server.url, f"{version}-{kind}")
    streams.create()
    publish(streams, range(RECORDS))
    delivered = [json.loads(line) for line in (left / "delivered.jsonl").read_text(encoding="utf-8").splitlines()]
    first = [tapped for tapped in delivered if int(tapped["id"].split(":")[1]) <= BATCH]
    halves = first + delivered[len(first) :: 2]
    with Connection.open(streams.url) as connection, Publisher(connection) as publisher:
        for half in halves:
            publisher.publish(half["subject"], half["value"].encode(), message_id=half["id"])
    shutil.copytree(left / "checkpoint", tmp_path / "checkpoint")
    store = None if kind == "plain" else restored(version, "subscriptions", tmp_path / "subscriptions.db")
    publish(streams, range(RECORDS, RECORDS + 5))
    route = Route.parse(route_text(streams, batch=BATCH, store=store), {})

    result = job.run(route, spark, once=True, checkpoint=tmp_path / "checkpoint")

    assert len(halves) < len(delivered)
    assert result.counts.read == RECORDS - BATCH + 5
    stored = books(streams)
    assert set(stored.values()) == {1}
    rest = len(f"out-{streams.name}.")
    before = {(tapped["subject"][rest:], tapped["id"], tapped["value"]) for tapped in delivered}
    assert {one for one in stored if int(one[1].split(":")[1]) <= RECORDS} == before
    assert {int(one[1].split(":")[1]) for one in stored} == set(range(1, RECORDS + 6))
    streams.delete()


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_killed_and_back(
    spark: SparkSession,
    streams: Streams,
    tmp_path: Path,
    kind: str,
    unpack: Callable[[str], EarlierVersion],
) -> None:
    """kill -9 of an earlier run, the present version, and back to the earlier one in the middle of a micro-batch.

    The earlier one has the copy of its own store, as the present version migrates the store.
    """
    earlier = unpack("engine")
    store, copy = _store_and_copy(earlier, streams, tmp_path, kind)
    text = route_text(streams, batch=10_000, store=store)
    file = write_route(tmp_path, text)
    publish(streams, range(30_000))
    with earlier.switch(tmp_path, file).start() as switch:
        # In the second of three micro-batches: with subscriptions a record is delivered once or twice.
        wait_for(lambda: streams.stored(streams.sink) > (12_000 if kind == "plain" else 20_000))
        switch.kill()

    result = job.run(Route.parse(text, {}), spark, once=True, checkpoint=switch.checkpoint)

    assert 0 < result.counts.read < 30_000
    publish(streams, range(30_000, 30_010))
    present = job.run(Route.parse(text, {}), spark, once=True, checkpoint=switch.checkpoint)
    assert present.counts.read == 10
    _undo_last_commit(switch.checkpoint)
    publish(streams, range(30_010, 30_020))
    file = write_route(tmp_path, route_text(streams, batch=10_000, store=copy))
    done = earlier.turnout("run", str(file), "--once", "--checkpoint", str(switch.checkpoint), "--json")
    assert (done.returncode, json.loads(done.stdout)["counts"]["read"]) == (0, 20), done.stderr
    stored = books(streams)
    assert set(stored.values()) == {1}
    assert {int(one[1].split(":")[1]) for one in stored} == set(range(1, 30_021))


def _store_and_copy(
    earlier: EarlierVersion, streams: Streams, folder: Path, kind: str
) -> tuple[Path, Path] | tuple[None, None]:
    """Return a store that an earlier version has written, and a copy of it."""
    if kind == "plain":
        return None, None
    store, copy = folder / "subscriptions.db", folder / "copy.db"
    earlier.python(OLD_STORE, f"sqlite:///{store}", streams.name)
    shutil.copyfile(store, copy)
    return store, copy


def _undo_last_commit(checkpoint: Path) -> None:
    """Leave a checkpoint as a run does that is killed when all is delivered and not yet committed."""
    commits = checkpoint / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    commits.joinpath(str(last)).unlink()
    commits.joinpath(f".{last}.crc").unlink(missing_ok=True)


@pytest.mark.heavy
@pytest.mark.parametrize("kind", KINDS)
def test_back_to_the_version_before_the_engine(
    spark: SparkSession, streams: Streams, tmp_path: Path, kind: str, unpack: Callable[[str], EarlierVersion]
) -> None:
    """It continues with the current version's checkpoint, and with the copy of its own store: the ids are the same."""
    earlier = unpack("columns")
    store, copy = _store_and_copy(earlier, streams, tmp_path, kind)
    text = route_text(streams, batch=20, store=store)
    publish(streams, range(30))
    job.run(Route.parse(text, {}), spark, once=True, checkpoint=tmp_path / "checkpoint")
    _undo_last_commit(tmp_path / "checkpoint")
    publish(streams, range(30, 35))

    file, checkpoint = write_route(tmp_path, route_text(streams, batch=20, store=copy)), str(tmp_path / "checkpoint")
    done = earlier.turnout("run", str(file), "--once", "--checkpoint", checkpoint, "--json")

    assert (done.returncode, json.loads(done.stdout)["counts"]["read"]) == (0, 15), done.stderr
    stored = books(streams)
    assert set(stored.values()) == {1}
    assert {int(one[1].split(":")[1]) for one in stored} == set(range(1, 36))


# Stores of subscriptions

IDS = ["one", "two"]


@pytest.mark.parametrize("version", COMMITS)
def test_a_store_of_an_earlier_version(tmp_path: Path, version: str) -> None:
    """Its content is unchanged, changes are fetched from a reader's position, and it can be written."""
    file = restored(version, "subscriptions", tmp_path / "subscriptions.db")

    with open_store(f"sqlite:///{file}") as store:
        before = {subscription.id: subscription for subscription in store.snapshot()}
        revision = store.snapshot().revision
        assert sorted(before) == IDS
        assert before["one"].metadata == {"owner": "Änne"}
        store.create(Subscription(["new"], kiwi("subject", "new"), id="three"))
        store.delete("one")
        changes = store.changes(revision)

    assert ([subscription.id for subscription in changes.created], changes.deleted_ids) == (["three"], ("one",))


@pytest.mark.parametrize(("version", "known"), [("columns", 1), pytest.param("engine", 2, marks=pytest.mark.heavy)])
def test_a_store_goes_back(tmp_path: Path, version: str, known: int, unpack: Callable[[str], EarlierVersion]) -> None:
    """An earlier version refuses it in one line; what is exported here is imported there, with its ids."""
    earlier = unpack(version)
    file = restored(version, "subscriptions", tmp_path / "subscriptions.db")
    url = f"sqlite:///{file}"
    with open_store(url) as store:
        kept = list(store.snapshot())

    refused = earlier.turnout("subscriptions", "export", "--store", url)
    lines = tmp_path / "subscriptions.jsonl"
    lines.write_text(turnout("subscriptions", "export", "--store", url).stdout, encoding="utf-8")
    other = f"sqlite:///{tmp_path / 'other.db'}"
    imported = earlier.turnout("subscriptions", "import", str(lines), "--store", other)

    assert refused.returncode != 0
    assert refused.stderr.count("\n") == 1
    assert f"was written by a newer turnout (schema 3, this one knows {known})" in refused.stderr
    assert imported.returncode == 0, imported.stderr
    with open_store(other) as store:
        assert _without_revisions(store.snapshot()) == _without_revisions(kept)


def _without_revisions(subscriptions: Iterable[Subscription]) -> list[str]:
    """Their texts, in order; a revision is of one store only."""
    return sorted(repr(replace(subscription, revision=0)) for subscription in subscriptions)


# A server's state


def _state(folder: Path) -> dict[str, Any]:
    """Return the contents that the present version reads from a state folder written to `STATE`."""
    state = State(folder)
    try:
        return {
            "revisions": [(revision.digest, revision.who) for revision in state.revisions("orders")],
            "paused": paused.who if (paused := state.paused("orders")) else None,
            "reset": reset.start if (reset := state.reset_of("bills")) else None,
            "counts": [count.counts for count in state.counts("orders")],
            "pace": state.pace("orders"),
            "events": [(event.kind, event.detail) for event in state.events()],
        }
    finally:
        state.close()


LEFT = {
    "revisions": [("d2", "ann"), ("d1", "file")],
    "paused": "ann",
    "reset": 17,
    "counts": [Counts(read=5, filtered=2, delivered=3, messages=3)],
    "pace": [MinutePace(4_000_000_020, 4, 1.5, 100, 2.5)],
    "events": [("paused", {"who": "ann"})],
}


def test_the_state_of_an_earlier_server(tmp_path: Path) -> None:
    """Versions, pauses, resets, counts, pace and events are what they were."""
    restored("engine", "server", tmp_path / "server.db")

    assert _state(tmp_path) == LEFT


def test_a_servers_state_goes_back(tmp_path: Path, unpack: Callable[[str], EarlierVersion]) -> None:
    """The earlier version reads and adds to what the present one has written, flows of stages included, and back."""
    earlier = unpack("engine")
    present = STATE.replace("turnout.server.state", State.__module__).replace("sys.argv[1]", repr(str(tmp_path)))
    exec(present, {})
    read = (
        "import sys; from pathlib import Path; from turnout.server.state import State; s = State(Path(sys.argv[1]));"
        "print(s.newest_revision('orders').digest, s.paused('orders').who, s.reset_of('bills').start,"
        " s.counts('orders')[0].counts.read, len(s.events())); s.resume('orders'); s.add_event('x', 'orders', {})"
    )

    printed = earlier.python(read, str(tmp_path))

    assert printed.split() == ["d2", "ann", "17", "5", "1"]
    again = _state(tmp_path)
    assert (again["paused"], len(again["events"]), again["counts"]) == (None, 2, LEFT["counts"])
