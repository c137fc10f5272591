"""Files of a run in its checkpoint beside Spark's own."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from turnout.errors import RunError
from turnout.routes import Route
from turnout.runtime.checkpoint import BatchRevisions, checkpoint_of, claimed, repair_torn_entries

ROUTE = "name: kept\nsource: {format: json, path: in}\nsink: {format: json, path: out}\n"


def test_a_micro_batch_done_again_has_its_revision(tmp_path: Path) -> None:
    """The revision is the same in another process; a new micro-batch has none, and only the latest are kept."""
    revisions = BatchRevisions(tmp_path / "c" / "revisions")
    for batch in range(30):
        assert revisions.of(batch) is None
        revisions.note(batch, 100 + batch)

    again = BatchRevisions(tmp_path / "c" / "revisions")
    assert [again.of(batch) for batch in (29, 20, 3, 30)] == [129, 120, None, None]
    assert len(list((tmp_path / "c" / "revisions").iterdir())) == 10


def test_a_checkpoint_that_is_elsewhere() -> None:
    """Nothing is kept, and nothing fails."""
    revisions = BatchRevisions(None)
    revisions.note(1, 5)

    assert revisions.of(1) is None


def test_where_a_route_keeps_its_progress(tmp_path: Path) -> None:
    """The checkpoint is where the route sets it, otherwise beside its file."""
    assert checkpoint_of(Route.parse(ROUTE + "checkpoint: /c\n", {})) == "/c"
    named = checkpoint_of(Route.parse(ROUTE, {}, file=tmp_path / "route.yaml"))
    assert named == tmp_path / ".turnout" / "kept" / "checkpoint"


HOLD = """
import sys
from pathlib import Path
from turnout.runtime.checkpoint import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_second_run_learns_of_the_first(tmp_path: Path) -> None:
    """By process, host and time; after kill -9 of the first the folder is free, whatever the file says."""
    checkpoint = tmp_path / "new" / "checkpoint"
    command = [sys.executable, "-c", HOLD, str(checkpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(RunError) as refused, claimed(checkpoint):
            pass
        first.kill()
        first.wait(30)

    for part in (str(checkpoint), f"process {first.pid} on {socket.gethostname()}, since 20"):
        assert part in str(refused.value)
    with claimed(checkpoint):
        assert json.loads((checkpoint / "run.lock").read_text())["pid"] == os.getpid()
    with claimed(checkpoint):
        pass


def test_two_runs_of_one_process(tmp_path: Path) -> None:
    """Threads of a server exclude each other as processes do."""
    with (
        claimed(tmp_path),
        pytest.raises(RunError, match=f"another run has .*: process {os.getpid()} "),
        claimed(tmp_path),
    ):
        pass


def test_a_first_run_that_says_nothing(tmp_path: Path) -> None:
    """A full disk takes the lock and not the words."""
    with claimed(tmp_path):
        (tmp_path / "run.lock").write_text("")
        with pytest.raises(RunError, match="a process that has not said which it is"), claimed(tmp_path):
            pass


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    """The sentence names it, and why."""
    (tmp_path / "file").touch()

    with (
        pytest.raises(RunError, match="file/checkpoint cannot be written: Not a directory"),
        claimed(tmp_path / "file" / "checkpoint"),
    ):
        pass


def test_a_checkpoint_elsewhere() -> None:
    """Nothing guards it."""
    with claimed(None):
        pass


OFFSETS = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"IN": %d}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
EMPTY = b""
ZEROS = b"\0" * 29
CUT = OFFSETS.encode()[:20]


def write(file: Path, text: str) -> None:
    """A file and Hadoop's checksum beside it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    content = text.encode()
    file.write_bytes(content)
    sums = [zlib.crc32(content[at : at + 512]) for at in range(0, len(content), 512)]
    file.with_name(f".{file.name}.crc").write_bytes(struct.pack(f">4si{len(sums)}I", b"crc\0", 512, *sums))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Four micro-batches, the last of which is done."""
    write(tmp_path / "metadata", '{"id":"e4e22c91-cbfc-4b30-9cd9-d3161f4f2775"}')
    for number in range(4):
        write(tmp_path / "offsets" / str(number), OFFSETS % (number + 1))
        write(tmp_path / "commits" / str(number), COMMIT)
    return tmp_path


def numbers(folder: Path) -> list[int]:
    return sorted(int(file.name) for file in folder.iterdir() if file.name.isdigit())


def logs(checkpoint: Path) -> tuple[list[int], list[int]]:
    return numbers(checkpoint / "offsets"), numbers(checkpoint / "commits")


def tear(checkpoint: Path, *names: str, content: bytes = EMPTY) -> None:
    for name in names:
        (checkpoint / name).write_bytes(content)


def test_a_whole_checkpoint_is_left_as_it_is(checkpoint: Path) -> None:
    """Every file of it, byte by byte; and a folder that is not there yet stays away."""
    before = {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()}

    assert repair_torn_entries(checkpoint, from_the_beginning=True) == []
    assert {file: file.read_bytes() for file in checkpoint.rglob("*") if file.is_file()} == before
    assert repair_torn_entries(checkpoint / "new", from_the_beginning=True) == []
    assert not (checkpoint / "new").exists()


@pytest.mark.parametrize("content", [EMPTY, ZEROS, b"v1\n", b'v1\n{"nextBatch'])
def test_a_torn_commit(checkpoint: Path, content: bytes) -> None:
    """The micro-batch counts as not done."""
    tear(checkpoint, "commits/3", content=content)

    assert repair_torn_entries(checkpoint, from_the_beginning=True) == ["commits/3 (torn)"]
    assert logs(checkpoint) == ([0, 1, 2, 3], [0, 1, 2])
    assert not (checkpoint / "commits" / ".3.crc").exists()


@pytest.mark.parametrize("content", [EMPTY, ZEROS, CUT])
def test_a_torn_offset(checkpoint: Path, content: bytes) -> None:
    """The micro-batch is planned again from the end of the previous one, so its commit is removed too."""
    tear(checkpoint, "offsets/3", content=content)

    assert repair_torn_entries(checkpoint, from_the_beginning=True) == ["offsets/3 (torn)", "commits/3"]
    assert logs(checkpoint) == ([0, 1, 2], [0, 1, 2])


def test_everything_since_a_while_ago(checkpoint: Path) -> None:
    """A disk that was written to last half a minute before the cut has lost several."""
    tear(checkpoint, "offsets/2", "offsets/3", "commits/1", "commits/2", "commits/3", content=ZEROS)

    repair_torn_entries(checkpoint, from_the_beginning=True)

    assert logs(checkpoint) == ([0, 1], [0])


def test_a_hole(checkpoint: Path) -> None:
    """An entry whose predecessor is torn does not say where its micro-batch begins."""
    tear(checkpoint, "offsets/2")

    repair_torn_entries(checkpoint, from_the_beginning=True)

    assert logs(checkpoint) == ([0, 1], [0, 1])


def only_one(checkpoint: Path) -> None:
    for number in (1, 2, 3):
        (checkpoint / "offsets" / str(number)).unlink()
        (checkpoint / "commits" / str(number)).unlink()


def test_the_very_first_offset(checkpoint: Path) -> None:
    """A run that has just begun starts again, if its source can return the same records."""
    only_one(checkpoint)
    (checkpoint / "commits" / "0").unlink()
    tear(checkpoint, "offsets/0")
    with pytest.raises(RunError, match="offsets/0 is torn"):
        repair_torn_entries(checkpoint, from_the_beginning=False)

    repair_torn_entries(checkpoint, from_the_beginning=True)

    assert logs(checkpoint) == ([], [])


def test_no_offset_is_left(checkpoint: Path) -> None:
    """A run with lost positions fails with one sentence, and changes no entry."""
    tear(checkpoint, *(f"offsets/{number}" for number in range(4)))

    with pytest.raises(RunError, match=r"no longer has the position of the run: offsets/0 is torn.*remove the folder"):
        repair_torn_entries(checkpoint, from_the_beginning=True)
    assert logs(checkpoint) == ([0, 1, 2, 3], [0, 1, 2, 3])


@pytest.mark.parametrize("content", [EMPTY, b"{}", b'{"id":', ZEROS])
def test_a_torn_metadata(checkpoint: Path, content: bytes) -> None:
    """The query gets another id; one that has not begun gets it from Spark."""
    tear(checkpoint, "metadata", content=content)

    assert repair_torn_entries(checkpoint, from_the_beginning=True) == ["metadata (torn)"]
    assert len(json.loads((checkpoint / "metadata").read_text())["id"]) == 36
    assert not (checkpoint / ".metadata.crc").exists()


def test_a_torn_metadata_of_a_new_run(tmp_path: Path) -> None:
    """There is nothing that it belongs to."""
    (tmp_path / "metadata").touch()

    repair_torn_entries(tmp_path, from_the_beginning=True)

    assert not (tmp_path / "metadata").exists()


@pytest.mark.parametrize("content", [EMPTY, ZEROS, b"crc\0\0\0\2\0"])
def test_a_torn_checksum(checkpoint: Path, content: bytes) -> None:
    """Its file is whole, which it shows by itself; Spark would not read it."""
    tear(checkpoint, "offsets/.3.crc", "commits/.3.crc", ".metadata.crc", content=content)

    assert repair_torn_entries(checkpoint, from_the_beginning=True) == []
    assert logs(checkpoint) == ([0, 1, 2, 3], [0, 1, 2, 3])
    assert not list(checkpoint.rglob(".3.crc"))


@pytest.fixture
def with_files(checkpoint: Path) -> Path:
    """The same of a source of files."""
    for number in range(4):
        file, offset = {"path": f"file:/in/{number}.json", "batchId": number}, {"logOffset": number}
        write(checkpoint / "sources" / "0" / str(number), f"v1\n{json.dumps(file)}")
        write(checkpoint / "offsets" / str(number), f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offset)}')
    return checkpoint


def test_files_that_a_source_has_forgotten(with_files: Path) -> None:
    """The files are read again, and their micro-batch is removed, because it must not be repeated without them."""
    tear(with_files, "sources/0/3")

    repair_torn_entries(with_files, from_the_beginning=True)

    assert numbers(with_files / "sources" / "0") == [0, 1, 2]
    assert logs(with_files) == ([0, 1, 2], [0, 1, 2])


def compact(checkpoint: Path) -> None:
    (checkpoint / "sources" / "0" / "3").rename(checkpoint / "sources" / "0" / "3.compact")
    tear(checkpoint, "sources/0/3.compact")


@pytest.mark.parametrize("damage", [lambda checkpoint: tear(checkpoint, "sources/0/0"), compact])
def test_what_a_source_alone_knows(with_files: Path, damage: Callable[[Path], None]) -> None:
    """A source's first entry may hold its start, and a compact one replaces all before it."""
    damage(with_files)

    with pytest.raises(RunError, match=r"sources/0/\S+ is torn"):
        repair_torn_entries(with_files, from_the_beginning=True)
    assert logs(with_files) == ([0, 1, 2, 3], [0, 1, 2, 3])
