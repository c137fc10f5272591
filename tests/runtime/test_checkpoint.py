"""Files of a run in its checkpoint beside Spark's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.routes import Route
from turnout.runtime.checkpoint import BatchRevisions, checkpoint_of

ROUTE = "name: kept\nsource: {format: json, path: in}\nsink: {format: json, path: out}\n"


def test_a_micro_batch_done_again_has_its_revision(tmp_path: Path) -> None:
    """The revision is the same in another process; a new micro-batch has none, and only the latest are kept."""
    revisions = BatchRevisions.in_checkpoint(str(tmp_path / "c"))
    for batch in range(30):
        assert revisions.of(batch) is None
        revisions.note(batch, 100 + batch)

    again = BatchRevisions.in_checkpoint(f"file:{tmp_path / 'c'}")
    assert [again.of(batch) for batch in (29, 20, 3, 30)] == [129, 120, None, None]
    assert len(list((tmp_path / "c" / "revisions").iterdir())) == 10


@pytest.mark.parametrize("checkpoint", ["hdfs://host/c", None])
def test_a_checkpoint_that_is_elsewhere(checkpoint: str | None) -> None:
    """Nothing is kept, and nothing fails."""
    revisions = BatchRevisions.in_checkpoint(checkpoint)
    revisions.note(1, 5)

    assert revisions.of(1) is None


def test_where_a_route_keeps_its_progress(tmp_path: Path) -> None:
    """The checkpoint is where the route sets it, otherwise beside its file."""
    assert checkpoint_of(Route.parse(ROUTE + "checkpoint: /c\n", {})) == "/c"
    named = checkpoint_of(Route.parse(ROUTE, {}, file=tmp_path / "route.yaml"))
    assert named == tmp_path / ".turnout" / "kept" / "checkpoint"
