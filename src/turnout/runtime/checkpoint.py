"""Checkpoint folder of a run, and the files that a run keeps in it beside Spark's own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from turnout.base.files import private_folder, replace_file
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

    @classmethod
    def in_checkpoint(cls, checkpoint: str | None) -> Self:
        """Return the revisions kept in a checkpoint; none are kept if it is not on this machine, as on HDFS."""
        folder = local_folder(checkpoint)
        return cls(None if folder is None else folder / "revisions")

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
