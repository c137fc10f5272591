"""Checkpoint of a route: its folder, its lock, and the repair of one that a crash has torn."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import struct
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from turnout.base.files import FileLock, private_folder, replace_file
from turnout.errors import RunError
from turnout.routes import Route

_log = logging.getLogger(__name__)

_KEPT_BATCHES = 10


def checkpoint_of(route: Route) -> Path | str:
    """Return the default checkpoint of the route."""
    if route.checkpoint:
        return route.checkpoint
    folder = route.file.parent if route.file else Path()
    return (folder / ".turnout" / route.name / "checkpoint").absolute()


def local_folder(checkpoint: str | None) -> Path | None:
    """Return the folder of a checkpoint on this machine; None for a remote checkpoint, and for none."""
    if checkpoint is None:
        return None
    parts = urlsplit(checkpoint)
    if parts.scheme == "file":
        return Path(parts.path)
    return None if "://" in checkpoint else Path(checkpoint).absolute()


def keep_private(checkpoint: str) -> None:
    """Create a local checkpoint readable by its owner only, before Spark creates it readable by all users.

    Spark's files in it have the modes of the umask, but other users cannot reach them. An existing one keeps its mode.
    """
    folder = local_folder(checkpoint)
    if folder is not None:
        private_folder(folder)


class BatchRevisions:
    """Subscription revision of each micro-batch, for sources whose offsets cannot hold one.

    It is written down before the micro-batch runs, so that one that is done again finds it.

    Args:
        folder: folder to store in; None stores nothing, and a repeated micro-batch is matched with the newest revision.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def of(self, batch: int) -> int | None:
        """Return the revision that the micro-batch was matched with before; None if it is new or that is unreadable."""
        if self._folder is None:
            return None
        file = self._folder / str(batch)
        try:
            return int(file.read_text(encoding="ascii"))
        except FileNotFoundError:
            return None
        except ValueError:
            _log.warning("%s is torn: micro-batch %d is matched with the newest subscriptions", file, batch)
            return None

    def note(self, batch: int, revision: int) -> None:
        """Store the revision of a micro-batch, and remove the files of old micro-batches."""
        if self._folder is None:
            return
        private_folder(self._folder)
        replace_file(self._folder / str(batch), str(revision))
        for old in self._folder.iterdir():
            if old.name.isdigit() and int(old.name) <= batch - _KEPT_BATCHES:
                old.unlink()


_NAME: Final = "run.lock"


@contextmanager
def claimed(folder: Path | None) -> Iterator[None]:
    """Keep the checkpoint in *folder* for this run; None, for one that is not on this machine, keeps nothing.

    The contents of a leftover file are ignored: it counts only while it is locked.

    Raises:
        RunError: another run has the checkpoint (the message names its process, host and beginning), or the folder
            cannot be written.
    """
    if folder is None:
        yield
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _NAME)
    except OSError as failure:
        raise RunError(f"the checkpoint {folder} cannot be written: {failure.strerror}") from failure
    with lock:
        _acquire(lock, folder)
        yield


def _acquire(lock: FileLock, folder: Path) -> None:
    try:
        lock.acquire()
    except BlockingIOError:
        raise RunError(
            f"another run has the checkpoint {folder}: {_holder(lock)};"
            " wait for its end or stop it, or give this run a checkpoint of its own"
        ) from None
    except OSError as failure:
        _log.warning("the checkpoint %s is not guarded against a second run: %s", folder, failure.strerror)
        return
    about = {"pid": os.getpid(), "host": socket.gethostname(), "since": datetime.now(UTC).isoformat(timespec="seconds")}
    # The lock is what counts: a full disk has its own, clearer words later.
    with suppress(OSError):
        os.truncate(lock.descriptor, 0)
        os.write(lock.descriptor, json.dumps(about).encode())


def _holder(lock: FileLock) -> str:
    """Return the first run's description of itself."""
    try:
        about = json.loads(os.pread(lock.descriptor, 4096, 0))
        return f"process {about['pid']} on {about['host']}, since {about['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "a process that has not said which it is"


_VERSION: Final = re.compile(r"\0?v\d+")
_NO_OFFSET: Final = "-"
"""Entry of ``offsets`` for a source that has not begun."""

_CHECKSUMS: Final = struct.Struct(">4si")
"""Hadoop's: magic and version, bytes for each checksum."""


def mend(route: Route, folder: Path | None) -> None:
    """Repair the checkpoint of a route, and log the changes.

    Args:
        route: route of the checkpoint.
        folder: folder of the checkpoint; None, for one that is not on this machine, is left as it is.

    Raises:
        RunError: a damaged file is needed.
    """
    if folder is None:
        return
    start = str(getattr(route.source, "start", "earliest"))
    # Kafka's offset -1 is the latest, too.
    from_the_beginning = "latest" not in start and "-1" not in start
    needs_id = any(sink.has_transactions for sink in route.sinks.values())
    notes = repair_torn_entries(folder, from_the_beginning=from_the_beginning, needs_id=needs_id)
    if notes:
        warning = "route %s: the checkpoint %s was torn, as by a power cut: removed %s; the rest is done again"
        _log.warning(warning, route.name, folder, ", ".join(notes))


def repair_torn_entries(folder: Path, *, from_the_beginning: bool, needs_id: bool = False) -> list[str]:
    """Remove the torn entries of a checkpoint without a run; return descriptions of the changes for the log.

    Args:
        folder: folder of the checkpoint; it may be new.
        from_the_beginning: whether a source without a position begins with its first record, so that a first
            micro-batch without known offsets loses nothing.
        needs_id: whether notes of finished splits have the query's id, so that it cannot be replaced.

    Raises:
        RunError: a damaged file is needed.
    """
    for checksum in _wrong_checksums(folder):
        checksum.unlink()
    offsets, commits = _Log(folder / "offsets", lines=3), _Log(folder / "commits", lines=2)
    notes = _mend_sources(folder / "sources", offsets, commits, from_the_beginning=from_the_beginning)
    if offsets.torn:
        newest = offsets.newest_usable()
        if newest is None and (commits.whole or min(offsets.entries) > 0 or not from_the_beginning):
            raise RunError(
                f"the checkpoint {folder} no longer has the position of the run: "
                f"offsets/{min(offsets.torn)} is torn, as after a power cut, and none before it is left; "
                "remove the folder, and the run begins where its source says"
            )
        last_number = -1 if newest is None else newest
        notes += offsets.drop(number for number in offsets.entries if number > last_number)
        notes += commits.drop(number for number in commits.entries if number > last_number)
    notes += commits.drop(commits.torn)
    return notes + _mend_metadata(
        folder / "metadata", logged=bool(offsets.entries or commits.entries), needs_id=needs_id
    )


class _Log:
    """Log of Spark: a folder with a numbered file for each micro-batch.

    Args:
        folder: folder, which may not exist.
        lines: minimum number of lines of a whole entry.
    """

    def __init__(self, folder: Path, lines: int) -> None:
        self.folder = folder
        files = folder.iterdir() if folder.is_dir() else ()
        self.entries = {int(file.name.partition(".")[0]): file for file in files if _is_entry(file.name)}
        self.torn = {number for number, file in self.entries.items() if not _is_whole(file, lines)}

    @property
    def whole(self) -> set[int]:
        """The numbers of the entries that can be read."""
        return self.entries.keys() - self.torn

    def newest_usable(self) -> int | None:
        """Return the newest whole entry with a whole previous one, where the micro-batch begins; None if none is."""
        usable = (number for number in self.whole if number == 0 or number - 1 in self.whole)
        return max(usable, default=None)

    def drop(self, numbers: Iterable[int]) -> list[str]:
        """Remove entries, and return their names."""
        dropped = sorted(numbers)
        for number in dropped:
            self.entries.pop(number).unlink()
            (self.folder / f".{number}.crc").unlink(missing_ok=True)
        torn = dict.fromkeys(self.torn, " (torn)")
        self.torn -= set(dropped)
        return [f"{self.folder.name}/{number}{torn.get(number, '')}" for number in dropped]


def _is_entry(name: str) -> bool:
    return name.partition(".")[0].isdigit() and name.partition(".")[2] in ("", "compact")


def _is_whole(file: Path, lines: int) -> bool:
    """Return True if an entry has its version and *lines* lines, each but the first JSON."""
    try:
        version, *rest = file.read_text(encoding="utf-8").splitlines()
        return len(rest) + 1 >= lines and bool(_VERSION.fullmatch(version)) and all(map(_is_json, rest))
    except ValueError:  # also of bytes that are no UTF-8, and of no line at all
        return False


def _is_json(line: str) -> bool:
    if line == _NO_OFFSET:
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _wrong_checksums(folder: Path) -> list[Path]:
    """Return the ``.crc`` files that are torn, or that do not match their file."""
    return [crc for crc in folder.rglob(".*.crc") if not _fits(crc, crc.with_name(crc.name[1:-4]))]


def _fits(crc: Path, file: Path) -> bool:
    raw = crc.read_bytes()
    if len(raw) < _CHECKSUMS.size or not file.exists():
        return False
    _, size = _CHECKSUMS.unpack_from(raw)
    if size <= 0:
        return False
    content = file.read_bytes()
    sums = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]
    return raw[_CHECKSUMS.size :] == struct.pack(f">{len(sums)}I", *sums)


def _mend_sources(folder: Path, offsets: _Log, commits: _Log, *, from_the_beginning: bool) -> list[str]:
    """Remove the torn entries of a source's own log, and the micro-batches that depend on them.

    Raises:
        RunError: it names what no other entry does.
    """
    notes: list[str] = []
    for log in (_Log(source, lines=2) for source in sorted(folder.iterdir())) if folder.is_dir() else ():
        if not log.torn:
            continue
        first_torn = min(log.torn)
        first = first_torn == 0 and (commits.whole or not from_the_beginning)
        if first or any(log.entries[number].suffix for number in log.torn):
            raise RunError(
                f"{log.entries[first_torn]} is torn, as after a power cut, and no other file of the checkpoint says the"
                " same: remove the checkpoint's folder, and the run begins where its source says"
            )
        dependants = [number for number in offsets.whole if _file_log_offset(offsets.entries[number]) >= first_torn]
        notes += [f"sources/{note}" for note in log.drop(number for number in log.entries if number >= first_torn)]
        notes += offsets.drop(dependants) + commits.drop(commits.entries.keys() & set(dependants))
    return notes


def _file_log_offset(entry: Path) -> int:
    """Return the number of a file source's log at which a micro-batch ends; -1 of other sources'."""
    offset = entry.read_text(encoding="utf-8").splitlines()[-1]
    position = json.loads(offset) if offset != _NO_OFFSET else None
    return int(position.get("logOffset", -1)) if isinstance(position, dict) else -1


def _mend_metadata(file: Path, *, logged: bool, needs_id: bool) -> list[str]:
    """Replace the query's id if its file is torn; without an id Spark refuses the logs beside it.

    Raises:
        RunError: the id is needed.
    """
    if not file.exists():
        return []
    try:
        if json.loads(file.read_bytes())["id"]:
            return []
    except (ValueError, KeyError, TypeError):
        pass
    if logged and needs_id:
        raise RunError(
            f"{file} is torn, as after a power cut, and without the query's id it is not known which splits of the last"
            " micro-batch are in Kafka: remove the checkpoint's folder, and begin where the route's start says"
        )
    if logged:
        replace_file(file, json.dumps({"id": str(uuid.uuid4())}))
    else:
        file.unlink()
    return ["metadata (torn)"]
