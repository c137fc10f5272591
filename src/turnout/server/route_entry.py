"""State of one route in a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnout.errors import Mistake
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.endpoints.changes import Change
from turnout.server.supervisor import Phase, RouteStatus, RouteVersion, Supervisor
from turnout.server.watch import RouteFile


@dataclass(frozen=True, slots=True)
class Pending:
    """Version that waits for confirmation, as it needs a new checkpoint."""

    version: RouteVersion
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """State of one route: its file, and its running version.

    Attributes:
        file: as it is now.
        version: the running version, or the one that would run; None if no version could ever be used.
        mistakes: mistakes of the current file, while the previous version continues.
        pending: the file's version, if it needs to be confirmed.
        supervisor: runs the version.
    """

    name: str
    file: RouteFile
    version: RouteVersion | None = None
    mistakes: tuple[Mistake, ...] = ()
    pending: Pending | None = None
    supervisor: Supervisor | None = None

    @property
    def status(self) -> RouteStatus:
        """Return the status of the route."""
        if self.supervisor is not None:
            return self.supervisor.status
        return RouteStatus(Phase.INVALID, 0.0, str(self.mistakes[0]) if self.mistakes else "")

    @property
    def checkpoint(self) -> Path | None:
        """Folder of the route's progress; None if it is not on this machine."""
        return None if self.version is None else local_folder(str(checkpoint_of(self.version.route)))
