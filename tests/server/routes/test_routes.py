"""Routes that follow their files, fail, restart, and obey requests; without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.conftest import Bench, route_text, wait_for
from tests.server.routes.test_compatibility import checkpoint
from turnout.errors import RouteError
from turnout.runtime.offsets import Offsets
from turnout.server.errors import ConflictError, StaleError, UnsafeChangeError
from turnout.server.preconditions import Preconditions
from turnout.server.routes.supervisor import Phase


def test_added_changed_and_removed_files_are_started_restarted_and_stopped(bench: Bench) -> None:
    """A changed route continues from its checkpoint; changed comments have no effect."""
    bench.start("a", "b")
    bench.write("a", route_text("a", more="mappings: {x: y}"))
    bench.write("b", route_text("b") + "# a comment\n")

    bench.routes.scan()
    changed = bench.run_of("a", 2)
    (bench.folder / "b.yaml").unlink()
    for _ in range(2):
        bench.routes.scan()

    assert len(changed.route.mappings) == 1
    assert len(bench.runner.runs["b"]) == 1
    wait_for(bench.run_of("b").stop.is_set)
    assert [entry.name for entry in bench.routes.entries()] == ["a"]
    assert bench.state.revisions("a")[0].digest == bench.routes.entry("a").file.digest


def test_a_file_that_is_missed_once_is_not_gone(bench: Bench) -> None:
    """An editor that removes a file and writes it again stops nothing, and forgets no pause."""
    bench.start("a")
    bench.routes.pause("a", who="ann")
    (bench.folder / "a.yaml").unlink()
    bench.routes.scan()
    bench.write("a")
    bench.routes.scan()
    bench.routes.scan()

    assert bench.state.paused("a") is not None
    bench.wait_phase("a", Phase.PAUSED)


def test_a_renamed_file_is_the_same_route(bench: Bench) -> None:
    """The name in the file identifies the route."""
    bench.start("a")
    (bench.folder / "a.yaml").rename(bench.folder / "z.yaml")
    for _ in range(3):
        bench.routes.scan()

    assert bench.routes.entry("a").file.path.name == "z.yaml"
    assert len(bench.runner.runs["a"]) == 1


def test_a_wrong_file_shows_its_mistakes_and_leaves_the_version_before_alone(bench: Bench) -> None:
    """It starts once it is right; a wrong file of which nothing ran is shown as invalid."""
    bench.start("a")
    bench.write("a", route_text("a", more="unknwon: 1"))
    bench.write("new", "name: new\nsource: nothing\n")
    bench.write("not-yaml", "{")
    bench.routes.scan()

    assert (bench.phase("a"), bench.phase("new"), bench.phase("not-yaml")) == ("running", "invalid", "invalid")
    assert "unknwon" in str(bench.routes.entry("a").mistakes[0])
    assert not bench.run_of("a").stop.is_set()
    bench.write("a")
    bench.write("new")
    bench.routes.scan()
    bench.run_of("new")
    assert bench.routes.entry("a").mistakes == ()


def test_a_file_that_cannot_be_read_any_more_stops_nothing(bench: Bench) -> None:
    """The file exists, and the route was not removed."""
    bench.start("a")
    (bench.folder / "a.yaml").write_bytes(b"\xff")
    for _ in range(3):
        bench.routes.scan()

    assert "not UTF-8" in str(bench.routes.entry("a").mistakes[0])
    assert not bench.run_of("a").stop.is_set()


def test_two_files_of_one_name_are_one_route_and_a_mistake(bench: Bench) -> None:
    """The second waits until the first is gone."""
    bench.start("a")
    bench.write("copy", route_text("a", more="mappings: {x: y}"))
    bench.routes.scan()

    assert [entry.name for entry in bench.routes.entries()] == ["a", "a@copy.yaml"]
    assert "a.yaml already" in str(bench.routes.entry("a@copy.yaml").mistakes[0])
    (bench.folder / "a.yaml").unlink()
    for _ in range(3):
        bench.routes.scan()
    wait_for(lambda: len(bench.runner.runs["a"]) == 2)
    assert [entry.file.path.name for entry in bench.routes.entries()] == ["copy.yaml"]


def test_what_the_runner_cannot_run_is_a_mistake(bench: Bench) -> None:
    """For example properties of a JVM that is already running."""
    bench.runner.refused["a"] = "belongs to the server"
    bench.write("a")
    bench.routes.scan()

    assert (bench.phase("a"), bench.runner.runs["a"]) == (Phase.INVALID, [])


def test_an_unsafe_change_of_a_file_is_parked_until_somebody_confirms(bench: Bench) -> None:
    """The previous version continues, also after a restart of the server; then the checkpoint is renamed."""
    bench.start("a")
    bench.write("a", route_text("a", stream="OTHER"))
    bench.routes.scan()
    pending = bench.routes.entry("a").pending
    assert pending is not None
    assert [change.change for change in pending.changes if not change.safe] == ["source.stream"]
    assert not bench.run_of("a").stop.is_set()
    bench.close()
    bench.open()
    bench.routes.scan()
    assert bench.run_of("a", 2).route.source.options()["stream"] == "IN"
    folder = bench.routes.entry("a").checkpoint
    assert folder is not None
    checkpoint(folder, '{"IN": 5}')

    bench.routes.put("a", route_text("a", stream="OTHER"), who="ann", confirmed=True)

    assert bench.run_of("a", 3).route.source.options()["stream"] == "OTHER"
    assert bench.routes.entry("a").pending is None
    assert bench.routes.offsets("a") == Offsets(None, {})
    assert folder.with_name("checkpoint.1").exists()


def test_checkpoints_lie_where_the_server_keeps_them(tmp_path: Path) -> None:
    """Routes whose folder cannot be written keep their progress elsewhere, but for those that name a place."""
    routes, checkpoints, own = tmp_path / "routes", tmp_path / "checkpoints", tmp_path / "own"
    bench = Bench(routes, checkpoints=checkpoints)
    try:
        bench.write("a", route_text("a"))
        bench.write("b", route_text("b", more=f"checkpoint: {own}"))
        bench.routes.scan()

        assert {name: bench.routes.entry(name).checkpoint for name in "ab"} == {"a": checkpoints / "a", "b": own}
        assert bench.routes.changes(bench.routes.check(route_text("a"))) == []
    finally:
        bench.close()


def test_offsets_are_reset_while_paused_and_hold_for_the_next_checkpoint(bench: Bench) -> None:
    """The checkpoint is renamed; the run begins at the new position, also after a restart of the server."""
    bench.start("a")
    folder = bench.routes.entry("a").checkpoint
    assert folder is not None
    checkpoint(folder, '{"IN": 50}')
    with pytest.raises(ConflictError, match="while it is paused"):
        bench.routes.reset_offsets("a", 7)
    bench.routes.pause("a", who="ann")
    bench.wait_phase("a", Phase.PAUSED)
    wait_for(lambda: bench.routes.offsets("a") == Offsets(0, {"IN": 50}))

    assert bench.routes.reset_offsets("a", 7) == 7
    assert bench.routes.offsets("a") == Offsets(None, {})
    bench.close()
    bench.open()
    bench.routes.scan()
    bench.routes.resume("a")

    assert bench.run_of("a", 2).route.source.options()["startingOffsets"] == "7"


def test_a_reset_that_was_broken_off_is_completed_before_the_next_run(bench: Bench) -> None:
    """The server may die between writing down the reset and setting the checkpoint aside."""
    bench.start("a")
    bench.routes.pause("a", who="ann")
    bench.wait_phase("a", Phase.PAUSED)
    folder = bench.routes.entry("a").checkpoint
    assert folder is not None
    checkpoint(folder, '{"IN": 50}')
    bench.state.reset("a", "latest", pending=True)

    bench.routes.resume("a")

    assert bench.run_of("a", 2).route.source.options()["startingOffsets"] == "latest"
    assert not folder.exists()
    assert folder.with_name("checkpoint.1").exists()


def test_a_put_writes_what_can_be_used_and_nothing_else(bench: Bench) -> None:
    """Mistakes, unsafe changes, other names and stale digests leave the file as it is."""
    bench.start("a")
    before = (bench.folder / "a.yaml").read_text()
    digest = bench.routes.entry("a").file.digest
    with pytest.raises(RouteError):
        bench.routes.put("a", "name: a\n", who="ann")
    with pytest.raises(RouteError, match="expected 'a'"):
        bench.routes.put("a", route_text("b"), who="ann")
    with pytest.raises(UnsafeChangeError, match="IN"):
        bench.routes.put("a", route_text("a", stream="B"), who="ann")
    with pytest.raises(StaleError):
        bench.routes.put("a", route_text("a"), who="ann", conditions=Preconditions.parse('"another"'))
    assert (bench.folder / "a.yaml").read_text() == before

    assert not bench.routes.put(
        "a", route_text("a", more="mappings: {x: y}"), who="ann", conditions=Preconditions.parse(f'"{digest}"')
    )
    assert bench.routes.put("new", route_text("new"), who="ann")

    assert (bench.folder / "new.yaml").stat().st_mode & 0o077 == 0
    assert [revision.who for revision in bench.state.revisions("a")] == ["ann", "file"]
    bench.run_of("new")
    bench.routes.scan()
    assert len(bench.runner.runs["new"]) == 1


def test_single_files_have_no_folder_for_new_routes(tmp_path: Path) -> None:
    """A file that holds another route is not overwritten either."""
    bench = Bench(tmp_path / "r")
    bench.write("taken", route_text("other"))
    bench.routes.scan()
    with pytest.raises(ConflictError, match="holds another route"):
        bench.routes.put("taken", route_text("taken"), who="ann")
    bench.routes._files.paths = [bench.folder / "taken.yaml"]
    with pytest.raises(ConflictError, match="no folder"):
        bench.routes.put("new", route_text("new"), who="ann")
    bench.close()
