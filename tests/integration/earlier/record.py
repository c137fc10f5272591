"""Keep what an earlier version leaves on a disk, for tests in a clone that has no history.

    python -m tests.integration.earlier.record

For each version and kind of route: the checkpoint as kill -9 in the middle of the second micro-batch leaves it, and
what that version has delivered, or would have. Of each version its store of subscriptions and a server's state, as
SQL. No test writes these files.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path

from tests.integration.earlier.scene import KINDS, OLD_STORE, publish, route_text
from tests.integration.earlier.version import COMMITS, EarlierVersion
from tests.integration.routes import Streams

from turnout.embedded import NatsServer

HERE = Path(__file__).parent
RECORDS, BATCH = 30, 20

STATE = """
import sys
from pathlib import Path
from turnout.engine.counts import Counts
from turnout.server.state import MinutePace, State

state = State(Path(sys.argv[1]))
state.add_revision("orders", digest="d1", text="name: orders", file="orders.yaml", who="file")
state.add_revision("orders", digest="d2", text="name: orders # again", file="orders.yaml", who="ann")
state.pause("orders", "ann")
state.reset("bills", 17)
state.add_counts("orders", Counts(read=5, filtered=2, delivered=3, messages=3), 4_000_000_020.0)
state.add_pace("orders", MinutePace(4_000_000_020, 4, 1.5, 100, 2.5))
state.add_event("paused", "orders", {"who": "ann"})
state.close()
"""
"""Files that a server of the version with the engine writes; the version before had none."""


def main() -> None:
    """Record every version, beside this file."""
    for version, commit in COMMITS.items():
        with tempfile.TemporaryDirectory() as folder:
            earlier = EarlierVersion.unpack(commit, Path(folder))
            assert earlier is not None, f"{commit} is not in this clone"
            shutil.rmtree(HERE / version, ignore_errors=True)
            for kind in KINDS:
                _record_run(earlier, HERE / version / kind, Path(folder) / kind, version, kind)
            if (earlier.source / "turnout" / "server" / "state.py").exists():
                earlier.python(STATE, f"{folder}/state")
                _dump(Path(folder) / "state" / "server.db", HERE / version / "server.sql")


def _record_run(earlier: EarlierVersion, target: Path, work: Path, version: str, kind: str) -> None:
    work.mkdir()
    store = work / "subscriptions.db" if kind == "subscribed" else None
    with NatsServer() as server:
        streams = Streams(server.url, f"{version}-{kind}")
        streams.create()
        if store is not None:
            earlier.python(OLD_STORE, f"sqlite:///{store}", streams.name)
            _dump(store, target.parent / "subscriptions.sql")
        route = work / "route.yaml"
        route.write_text(route_text(streams, batch=BATCH, store=store), encoding="utf-8")
        publish(streams, range(RECORDS))
        done = earlier.turnout("run", str(route), "--once", "--checkpoint", str(work / "checkpoint"), "--json")
        assert done.returncode == 0, done.stderr
        rows = [{"subject": row["topic"], "id": row["key"].decode(), "value": row["value"].decode()}
                for row in streams.delivered()]  # fmt: skip
    target.mkdir(parents=True)
    target.joinpath("delivered.jsonl").write_text(
        "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8"
    )
    for file in ("metadata", "offsets/0", "offsets/1", "commits/0"):
        kept = target / "checkpoint" / file
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(work / "checkpoint" / file, kept)


def _dump(database: Path, target: Path) -> None:
    """A database as SQL, with the two numbers of its header by which its version is known."""
    target.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(database)
    header = [
        f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
        for name in ("application_id", "user_version")
    ]
    target.write_text("\n".join([*header, *connection.iterdump()]) + "\n", encoding="utf-8")
    connection.close()


if __name__ == "__main__":
    main()
