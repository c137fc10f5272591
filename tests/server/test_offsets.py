"""Start positions of a route, and renamed checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runtime.test_committed_offsets import checkpoint
from tests.server.test_compatibility import FILES, KAFKA, NATS, route
from turnout.errors import ConfigError
from turnout.runtime.committed_offsets import committed
from turnout.server.errors import ConflictError
from turnout.server.offsets import begun_at, checked_start, set_aside

NATS_AS_TEXT: dict[str, Any] = {**NATS, "source": {**NATS["source"], "stream": "A, B"}}


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
    """A position by name, or a time; without one the route's setting applies."""
    assert begun_at(route(NATS), {"A": 5, "B": 6}).source.options()["startingOffsets"] == '{"A": 5, "B": 6}'
    assert begun_at(route(KAFKA), "1970-01-01T00:00:02+00:00").source.start == "1970-01-01T00:00:02+00:00"  # type: ignore[attr-defined]
    assert begun_at(route(NATS), None) == route(NATS)


def test_checkpoints_are_set_aside_one_after_another(tmp_path: Path) -> None:
    """None is lost, and where none is there is nothing to do."""
    assert set_aside(tmp_path / "c") is None
    for number in (1, 2):
        checkpoint(tmp_path / "c", f'{{"A": {number}}}')
        assert set_aside(tmp_path / "c") == tmp_path / f"c.{number}"

    assert not (tmp_path / "c").exists()
    assert [committed(tmp_path / f"c.{number}").next for number in (1, 2)] == [{"A": 1}, {"A": 2}]
