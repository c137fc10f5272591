"""Acknowledged positions of named readers of feeds: one small file for each."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from turnout.files import replace_file
from turnout.private_files import private_folder
from turnout.untrusted import is_whole

_FOLDER: Final = "feed-readers"


class FeedCursors:
    """Cursors beside a checkpoint. An acknowledgement only moves a cursor forward.

    Args:
        checkpoint: the folder, on this machine.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / _FOLDER

    def read(self, subscription_id: str, reader: str) -> int | None:
        """Return the acknowledged sequence of a reader; None if it has acknowledged nothing."""
        try:
            written = json.loads(self._file(subscription_id, reader).read_text(encoding="utf-8"))
            sequence = written["sequence"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None
        return sequence if is_whole(sequence) else None

    def acknowledge(self, subscription_id: str, reader: str, sequence: int) -> int:
        """Record that a reader has everything up to a sequence, and return its cursor.

        Raises:
            OSError: it cannot be written.
        """
        known = self.read(subscription_id, reader) or 0
        if sequence > known:
            private_folder(self._folder)
            about = {"subscription": subscription_id, "reader": reader, "sequence": sequence}
            replace_file(self._file(subscription_id, reader), json.dumps(about))
        return max(known, sequence)

    def _file(self, subscription_id: str, reader: str) -> Path:
        digest = hashlib.sha256(json.dumps([subscription_id, reader]).encode()).hexdigest()
        return self._folder / f"{digest[:32]}.json"
