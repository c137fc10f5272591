"""Where a checkpoint stands, and where it is to begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.test_compatibility import FILES, KAFKA, NATS, route
from turnout.errors import ConfigError
from turnout.runtime.open_splits.progress import OpenProgress, ProgressFolder
from turnout.server.errors import ConflictError
from turnout.server.offsets import Offsets, begun_at, checked_start, committed, set_aside

NATS_AS_TEXT: dict[str, Any] = {**NATS, "source": {**NATS["source"], "stream": "A, B"}}


def checkpoint(folder: Path, *places: str, done: int | None = None) -> Path:
    """As Spark writes it: the places of micro-batches, of which *done* are committed."""
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True)
    for batch, place in enumerate(places):
        (folder / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{place}")
        if done is None or batch < done:
            (folder / "commits" / str(batch)).write_text("v1\n{}")
    return folder


def test_the_last_committed_micro_batch_says_how_far_it_is(tmp_path: Path) -> None:
    """One that is only planned does not count; what stands beside the streams is no stream."""
    written = checkpoint(
        tmp_path / "c", '{"A": 3, "A.from": 1}', '{"A": 10, "subscriptions.revision": 4}', '{"A": 20}', done=2
    )

    assert committed(written) == Offsets(1, {"A": 10})


def test_kafka_topics_may_have_dots(tmp_path: Path) -> None:
    """Their offsets are those of partitions."""
    written = checkpoint(tmp_path / "c", '{"a.b": {"0": 5, "1": 7}}')

    assert committed(written).next == {"a.b": {"0": 5, "1": 7}}


def test_no_checkpoint_and_a_broken_one_say_nothing(tmp_path: Path) -> None:
    """Nothing is done then."""
    assert committed(tmp_path / "none") == Offsets(None, {})
    assert committed(checkpoint(tmp_path / "c", "nonsense")) == Offsets(None, {})


@pytest.mark.parametrize(
    ("document", "start", "checked"),
    [
        (NATS, "earliest", "earliest"),
        (NATS, 17, 17),
        (NATS, {"A": 1, "B": 2}, {"A": 1, "B": 2}),
        (NATS_AS_TEXT, {"A": 1, "B": 2}, {"A": 1, "B": 2}),
        (NATS, "2026-01-31T12:00:00", "2026-01-31T12:00:00+00:00"),
        (KAFKA, {"x": {"0": 5}}, {"x": {"0": 5}}),
        (KAFKA, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
        (FILES, "earliest", "earliest"),
    ],
)
def test_places_of_each_source_are_taken(document: dict[str, Any], start: Any, checked: Any) -> None:
    """A time without a zone is UTC."""
    assert checked_start(route(document), start) == checked


@pytest.mark.parametrize(
    ("document", "start", "kind"),
    [
        (NATS, "tomorrow", ConfigError),
        (NATS, 0, ConfigError),
        (NATS, {"A": 1}, ConfigError),
        (NATS, {"A": 1, "B": 2, "C": 3}, ConfigError),
        (NATS, {"A": 1, "B": "two"}, ConfigError),
        (FILES, "latest", ConfigError),
        ({**FILES, "source": {"format": "json", "path": "in"}}, "earliest", ConflictError),
        ({**NATS, "source": {"format": "nats", "servers": "a", "stream": "A", "ackConsumer": "c"}}, 5, ConflictError),
    ],
)
def test_what_is_no_place_of_the_source_is_refused(document: dict[str, Any], start: Any, kind: type[Exception]) -> None:
    """Before anything is set aside."""
    with pytest.raises(kind):
        checked_start(route(document), start)


def test_a_route_begins_where_it_is_told(tmp_path: Path) -> None:
    """Kafka takes a time by an option of its own; nothing told is what the route says."""
    assert begun_at(route(NATS), {"A": 5, "B": 6}).source.options()["startingOffsets"] == '{"A": 5, "B": 6}'
    assert begun_at(route(KAFKA), "1970-01-01T00:00:02+00:00").source.options()["startingTimestamp"] == "2000"
    assert begun_at(route(NATS), None) == route(NATS)


def test_checkpoints_are_set_aside_one_after_another(tmp_path: Path) -> None:
    """None is lost, and where none is there is nothing to do."""
    assert set_aside(tmp_path / "c") is None
    for number in (1, 2):
        checkpoint(tmp_path / "c", f'{{"A": {number}}}')
        assert set_aside(tmp_path / "c") == tmp_path / f"c.{number}"

    assert not (tmp_path / "c").exists()
    assert [committed(tmp_path / f"c.{number}").next for number in (1, 2)] == [{"A": 1}, {"A": 2}]


def test_an_open_split_says_how_far_it_is(tmp_path: Path) -> None:
    """Every second, also while its micro-batch is not committed; where that is lost, its beginning stands."""
    written = checkpoint(tmp_path / "c", '{"A": 1, "A.open": 1}', '{"A": 40, "A.open": 2}', done=1)
    assert committed(written) == Offsets(0, {"A": 1})
    folder = ProgressFolder(written)
    folder.write(1, OpenProgress(40))
    assert committed(written) == Offsets(0, {"A": 40})
    folder.write(2, OpenProgress(75))
    assert committed(written) == Offsets(0, {"A": 75})


def test_the_first_open_split_says_how_far_it_is(tmp_path: Path) -> None:
    """Nothing is committed for as long as it is open."""
    written = checkpoint(tmp_path / "c", '{"A": 1, "A.open": 1}', done=0)
    ProgressFolder(written).write(1, OpenProgress(9))

    assert committed(written) == Offsets(None, {"A": 9})
