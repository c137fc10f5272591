"""Route files as this server reads them."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from dataclasses import replace
from enum import Enum, auto
from pathlib import Path

import yaml

from turnout.base.yaml_values import load
from turnout.errors import Mistake, RouteError
from turnout.routes import Route
from turnout.routes.caller_limits import CallerLimits
from turnout.server.state import Revision, State
from turnout.server.supervisor import RouteVersion
from turnout.server.watch import RouteFile

_log = logging.getLogger("turnout.server")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,254}")


class Author(Enum):
    """Origin of a text: it decides which variables and files of the machine the text may name."""

    OPERATOR = auto()
    """A file of the server's own folder."""
    WRITER = auto()
    """A caller with the right to write, or the file that one has written."""
    READER = auto()
    """A caller without that right."""


class RouteTexts:
    """Reader of route texts, with the settings of this server.

    Args:
        state: knows the texts that callers have written.
        folder: folder of a text without a file.
        checkpoints: the folder of the progress of routes that name none; None is one beside each file.
        variables: the variables that the texts of callers may name.
        store: the URL of the server's own store of subscriptions.
    """

    def __init__(
        self,
        state: State,
        folder: Path,
        checkpoints: Path | None,
        *,
        variables: Collection[str] = (),
        store: str | None = None,
    ) -> None:
        self._state = state
        self._folder = folder
        self._checkpoints = checkpoints
        self._variables = frozenset(variables)
        self._store = store

    def author_of(self, text: str, file: Path) -> Author:
        """Return the author of a text that is in a file."""
        return Author.WRITER if self._state.is_caller_text(file, text) else Author.OPERATOR

    def read(self, text: str, file: Path | None, author: Author) -> Route:
        """Read a text; a route that names no checkpoint gets one in this server's folder, if it has one.

        Raises:
            RouteError: lists every mistake; nothing else is raised, whatever the text is.
        """
        path = file or self._folder / "route.yaml"
        try:
            route = Route.parse(text, file=path, limits=self._limits(path.parent, author))
        except RouteError:
            raise
        except Exception as failure:
            _log.exception("the route file %s cannot be read", path)
            problem = f"cannot be read: {type(failure).__name__}; see the log"
            raise RouteError([Mistake("", problem)], what=f"{path} cannot be used") from failure
        if route.checkpoint or self._checkpoints is None:
            return route
        return replace(route, checkpoint=str((self._checkpoints / route.name).absolute()))

    def _limits(self, folder: Path, author: Author) -> CallerLimits | None:
        if author is Author.OPERATOR:
            return None
        if author is Author.READER:
            return CallerLimits(writer=False, folder=folder)
        return CallerLimits(True, folder, self._variables, self._store, self._checkpoints)

    def kept(self, revision: Revision) -> RouteVersion | None:
        """Return the version that an earlier server process ran; None if it is no longer readable."""
        file = Path(revision.file)
        try:
            route = self.read(revision.text, file, self.author_of(revision.text, file))
        except RouteError:
            return None
        return RouteVersion(route, revision.text, revision.digest, file, revision.who)


def name_in(file: RouteFile) -> str:
    """Return the name for a file whose route cannot be read: the one in its text, else the file's."""
    try:
        document = load(file.text)
    except yaml.YAMLError:
        document = None
    name = document.get("name") if isinstance(document, dict) else None
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    return file.path.stem.encode(errors="backslashreplace").decode()
