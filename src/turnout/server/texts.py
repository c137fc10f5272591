"""What a route file's text says on this server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import yaml

from turnout.errors import RouteError
from turnout.routes import Route
from turnout.server.runner import Runner
from turnout.server.state import Revision
from turnout.server.supervisor import RouteVersion
from turnout.server.watch import RouteFile

__all__ = ["RouteTexts", "name_in"]


class RouteTexts:
    """Reads routes as this server runs them.

    Args:
        runner: says what it cannot run.
        folder: where a text is taken to lie that no file has yet.
        checkpoints: the folder of the progress of routes that name none; None is one beside each file.
    """

    def __init__(self, runner: Runner, folder: Path, checkpoints: Path | None) -> None:
        self._runner = runner
        self._folder = folder
        self._checkpoints = checkpoints

    def check(self, text: str, file: Path | None = None) -> Route:
        """The route that a text says, as this server can run it.

        Raises:
            RouteError: lists every mistake.
        """
        route = self._parsed(text, file or self._folder / "route.yaml")
        if mistakes := self._runner.mistakes(route):
            raise RouteError(mistakes, what=f"route {route.name} cannot be used")
        return route

    def kept(self, revision: Revision) -> RouteVersion | None:
        """The version that a server before this one has run; None where it cannot be read any more."""
        file = Path(revision.file)
        try:
            route = self._parsed(revision.text, file)
        except (RouteError, OSError):
            return None
        return RouteVersion(route, revision.text, revision.digest, file, revision.who)

    def _parsed(self, text: str, file: Path) -> Route:
        """The route that a text says, with a checkpoint where this server keeps those of routes that name none."""
        route = Route.parse(text, file=file)
        if route.checkpoint or self._checkpoints is None:
            return route
        return replace(route, checkpoint=str((self._checkpoints / route.name).absolute()))


def name_in(file: RouteFile) -> str:
    """What to call a file whose route cannot be read: by the name that it says, else by its own."""
    try:
        document = yaml.safe_load(file.text)
    except yaml.YAMLError:
        document = None
    name = document.get("name") if isinstance(document, dict) else None
    return name if isinstance(name, str) else file.path.stem
