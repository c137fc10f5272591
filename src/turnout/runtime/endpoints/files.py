"""Adapter of files: folders on this machine can be checked, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from turnout.errors import ConfigError, Mistake, TurnoutError
from turnout.routes.endpoints import FileSink, FileSource
from turnout.runtime.endpoints.adapter import (
    Change,
    EndpointAdapter,
    EndpointProbe,
    Start,
    other_changes,
    unsafe_change,
)


class FileAdapter(EndpointAdapter):
    """Access to a folder of files."""

    endpoint: FileSource | FileSink

    @property
    def label(self) -> str:
        """Noun for a source of this format in messages."""
        return f"{self.endpoint.format} files"

    def probe(self, seconds: float) -> EndpointProbe:  # noqa: ARG002 - a folder answers at once
        """Return a check of the folder's permissions."""
        return _FolderProbe(self.endpoint.path, os.R_OK if isinstance(self.endpoint, FileSource) else os.W_OK)

    @property
    def fixed_start(self) -> str | None:
        """Reason that a source which is read once has no other start."""
        return "its source is read once, as a whole" if cast("FileSource", self.endpoint).is_bounded else None

    def checked_start(self, start: Start) -> Start:
        """Return the start if it is the only one of such a source.

        Raises:
            ConfigError: it is another one.
        """
        if start != "earliest":
            raise ConfigError([Mistake("to", f"{self.label}: expected earliest, found {start!r}")], what="bad offsets")
        return start

    def begun_at(self, start: Start) -> FileSource:  # noqa: ARG002 - there is one
        """Return the source itself."""
        return cast("FileSource", self.endpoint)

    def changes(self, new: FileSource) -> Iterator[Change]:
        """Yield the effects of a new version on the list of files that were read."""
        old = cast("FileSource", self.endpoint)
        if old.path != new.path:
            yield unsafe_change("source.path", "the checkpoint lists the files that were read in the other folder")
        if old.stream != new.stream:
            yield unsafe_change("source.stream", "a source that is read once keeps no checkpoint")
        yield from other_changes(old, new, {"path", "stream"})


class _FolderProbe(EndpointProbe):
    """Check of the permissions of a local folder; remote ones are not checked."""

    def __init__(self, path: str, right: int) -> None:
        self._path = path
        self._right = right

    def reach(self) -> str:
        path = self._path
        if "://" in path and not path.startswith("file://"):
            return f"{path} was not checked: it is not on this machine"
        folder = Path(path.removeprefix("file://")).absolute()
        writes = self._right == os.W_OK
        if writes:
            # The writer makes the folder, and those above it.
            folder = next(parent for parent in (folder, *folder.parents) if parent.exists())
        elif not folder.exists() and not any(sign in path for sign in "*?[{"):
            raise TurnoutError(f"there is nothing at {folder}")
        permission = "written" if writes else "read"
        if folder.exists() and not os.access(folder, self._right):
            raise TurnoutError(f"{folder} may not be {permission}")
        return f"{path} may be {permission}"
