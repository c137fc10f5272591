"""Table of a server's routes: their files, the running version of each, the one that waits, and its supervisor."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path

import yaml

from turnout.base.files import read_file
from turnout.base.untrusted import is_text
from turnout.base.yaml_values import load
from turnout.errors import Mistake, RouteError
from turnout.routes import Route
from turnout.routes.limits import CallerLimits
from turnout.runtime.checkpoint import checkpoint_of, local_folder
from turnout.runtime.endpoints import Change
from turnout.server.config import RestartsPart
from turnout.server.errors import ConflictError, RouteNotFoundError
from turnout.server.routes.compatibility import begun_at, compatibility, is_safe, set_aside
from turnout.server.routes.events import Recorder
from turnout.server.routes.state import Revision, State
from turnout.server.routes.supervisor import Phase, Restarts, RouteStatus, RouteVersion, Runner, Supervisor


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
        shared: whether several servers take turns, so that no route has a checkpoint of its own.
    """

    def __init__(
        self,
        state: State,
        folder: Path,
        checkpoints: Path | None,
        *,
        variables: Collection[str] = (),
        store: str | None = None,
        shared: bool = False,
    ) -> None:
        self._shared = shared
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
        if route.checkpoint and self._shared:
            problem = "several servers take turns (ha), and a leader has a folder of its own: remove it"
            raise RouteError([Mistake("checkpoint", problem)], what=f"{path} cannot be used")
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


class RouteTable:
    """Routes by name. Not safe to use from several threads: `turnout.server.routes.routes.Routes` holds a lock.

    Args:
        runner: runs routes.
        state: persistent state of the server.
        recorder: hears of new versions and of mistakes.
        policy: limits of restarts after failures.
        kept: reads the version that an earlier server process ran; None if it is no longer readable.
    """

    def __init__(
        self,
        runner: Runner,
        state: State,
        recorder: Recorder,
        policy: RestartsPart,
        kept: Callable[[Revision], RouteVersion | None],
    ) -> None:
        self._runner = runner
        self._state = state
        self._recorder = recorder
        self._policy = policy
        self._kept = kept
        self._entries: dict[str, RouteEntry] = {}
        self._leaving: dict[str, Supervisor] = {}

    def entries(self) -> list[RouteEntry]:
        """Return all routes, by name."""
        return [self._entries[name] for name in sorted(self._entries)]

    def get(self, name: str) -> RouteEntry | None:
        """Return the route of that name; None if there is none."""
        return self._entries.get(name)

    def entry(self, name: str) -> RouteEntry:
        """Return the route of that name.

        Raises:
            RouteNotFoundError: there is none.
        """
        if name not in self._entries:
            raise RouteNotFoundError(name, self._entries)
        return self._entries[name]

    def entry_of(self, path: Path) -> RouteEntry | None:
        """Return the route in a file; None if the file has none."""
        return next((entry for entry in self._entries.values() if entry.file.path == path), None)

    def paths_in_use(self) -> set[Path]:
        """Return the files of routes with a version that runs, or would."""
        return {entry.file.path for entry in self._entries.values() if entry.version is not None}

    def supervisor(self, name: str) -> Supervisor:
        """Return the supervisor of a route.

        Raises:
            RouteNotFoundError: there is no such route.
            ConflictError: no version of the route could ever be used.
        """
        entry = self.entry(name)
        if entry.supervisor is None:
            raise ConflictError(f"route {name} cannot be used: {entry.status.reason}")
        return entry.supervisor

    def changes(self, route: Route, *, masked: bool = False) -> list[Change]:
        """Return the changes of a route from the version last started under its name."""
        before = self._before(route.name)
        return [] if before is None else compatibility(before.route, route, masked=masked)

    def show_mistakes(self, before: RouteEntry | None, file: RouteFile, mistakes: tuple[Mistake, ...]) -> None:
        """Set the mistakes of a file; the version *before* continues."""
        entry = before or RouteEntry(self._name_for(file), file)
        self._entries[entry.name] = replace(entry, file=file, mistakes=mistakes, pending=None)
        self._recorder.record("route.mistakes", entry.name, mistakes=[str(mistake) for mistake in mistakes])

    def _name_for(self, file: RouteFile) -> str:
        """Return an unused name for a file with an unreadable route."""
        name = name_in(file)
        return f"{name}@{file.path.name}" if name in self._entries else name

    def take(self, version: RouteVersion, file: RouteFile, *, confirmed: bool) -> None:
        """Start a version, or have it wait if it needs a new checkpoint that is not *confirmed*."""
        name = version.route.name
        entry = self._entries.get(name) or RouteEntry(name, file)
        before = self._before(name)
        changes = compatibility(before.route, version.route) if before else []
        if before is not None and not is_safe(changes) and not confirmed:
            self._park(replace(entry, file=file, mistakes=()), before, Pending(version, tuple(changes)))
            return
        if not is_safe(changes):
            self._state.reset(name, None)
        entry = replace(entry, file=file, mistakes=(), pending=None, version=version)
        row = {"digest": version.digest, "text": version.text, "file": str(version.path), "who": version.who}
        self._state.add_revision(name, **row)
        names = [change.change for change in changes]
        self._recorder.record("route.version", name, digest=version.digest, who=version.who, changes=names)
        if entry.supervisor is not None and not changes:
            # Words around the route: what runs is the same.
            self._entries[name] = entry
            return
        self._start(entry, version)

    def _park(self, entry: RouteEntry, before: RouteVersion, pending: Pending) -> None:
        """Keep a version that needs confirmation; the previous one continues, also after a server restart."""
        entry = replace(entry, pending=pending)
        unsafe = [f"{change.change}: {change.reason}" for change in pending.changes if not change.safe]
        self._recorder.record("route.pending", entry.name, needs_new_checkpoint=unsafe)
        if entry.supervisor is None:
            self._start(replace(entry, version=before), before)
        else:
            self._entries[entry.name] = entry

    def _before(self, name: str) -> RouteVersion | None:
        """Return the running version, or that of an earlier server process; None if it is no longer readable."""
        entry = self._entries.get(name)
        if entry is not None and entry.version is not None:
            return entry.version
        newest = self._state.newest_revision(name)
        return None if newest is None else self._kept(newest)

    def _start(self, entry: RouteEntry, version: RouteVersion) -> None:
        supervisor = entry.supervisor or Supervisor(
            entry.name,
            self._runner,
            Restarts(self._policy),
            prepare=self.prepare,
            watcher=self._recorder,
            after=self._leaving.pop(entry.name, None),
        )
        self._entries[entry.name] = replace(entry, supervisor=supervisor)
        pause = self._state.paused(entry.name)
        supervisor.run(version, paused_by=pause.who if pause else "")

    def prepare(self, version: RouteVersion) -> Route:
        """Return the route for the next run; with a pending reset, its checkpoint is first set aside."""
        reset = self._state.reset_of(version.route.name)
        if reset is None:
            return version.route
        if reset.pending:
            checkpoint = RouteEntry("", RouteFile(version.path, "", ""), version).checkpoint
            if checkpoint is not None:
                set_aside(checkpoint)
            self._state.reset(version.route.name, reset.start, pending=False)
        return begun_at(version.route, reset.start)

    def remove(self, entry: RouteEntry, *, who: str) -> None:
        """Remove a route, and stop it after its last micro-batch."""
        del self._entries[entry.name]
        self._leaving = {name: leaving for name, leaving in self._leaving.items() if not leaving.join(0)}
        if entry.supervisor is not None:
            entry.supervisor.close()
            self._leaving[entry.name] = entry.supervisor
            self._state.forget(entry.name)
        self._recorder.record("route.removed", entry.name, who=who)

    def close(self) -> list[Supervisor]:
        """Stop all routes, each after its last micro-batch; return the supervisors that have to be waited for."""
        supervisors = [entry.supervisor for entry in self._entries.values() if entry.supervisor is not None]
        supervisors += self._leaving.values()
        for supervisor in supervisors:
            supervisor.close()
        return supervisors


_SUFFIXES = (".yaml", ".yml")
_NO_ROUTES = (
    "turnout.yaml", "turnout.yml", "compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"
)  # fmt: skip
_TESTS = (".test.yaml", ".test.yml")


@dataclass(frozen=True, slots=True)
class RouteFile:
    """A route file as it was found.

    Attributes:
        digest: digest of its text and of the files that it names for its transforms and mappings.
        problem: reason why its text could not be read; "" if it could.
    """

    path: Path
    text: str
    digest: str
    problem: str = ""


def digest_of(text: str, folder: Path) -> str:
    """Return a short digest of a route's text and of the connector and mapping files that it names."""
    digest = hashlib.sha256(text.encode())
    for file in _included(text, folder):
        with contextlib.suppress(OSError):
            digest.update(b"\0" + read_file(file))
    return digest.hexdigest()[:16]


def _included(text: str, folder: Path) -> list[Path]:
    files = [folder / name for name in _named(text)]
    # A device or a pipe would never end.
    return [file for file in files if os.path.isfile(file) or not os.path.lexists(file)]  # noqa: PTH113


@lru_cache(maxsize=1024)
def _named(text: str) -> tuple[str, ...]:
    """Return the files that a route names. The result is cached, as parsing takes milliseconds."""
    try:
        document = load(text)
    except yaml.YAMLError:
        return ()
    named = [document.get(key) for key in ("transforms", "mappings")] if isinstance(document, dict) else []
    return tuple(name for name in named if isinstance(name, str))


_Stamp = tuple[tuple[str, int, int], ...]


class Files:
    """Route files of a server: single files, and the files of folders.

    Args:
        paths: folders and files. Of a folder these are the files ``*.yaml`` and ``*.yml``, but for ``turnout.yaml``,
            ``compose.yaml``, ``*.test.yaml`` and those that begin with a dot.

    Attributes:
        paths: the same, absolute.
    """

    def __init__(self, paths: Sequence[Path], *, config: Path | None = None) -> None:
        self.paths = [path.absolute() for path in paths]
        self._config = config.absolute() if config else None
        self._cached: dict[Path, tuple[_Stamp, RouteFile]] = {}

    @property
    def folder(self) -> Path | None:
        """Folder for new routes; None if the server was given files only."""
        return next((path for path in self.paths if path.is_dir()), None)

    def scan(self) -> dict[Path, RouteFile]:
        """Return the current files; files with unchanged size and time are not read again."""
        read: dict[Path, tuple[_Stamp, RouteFile]] = {}
        for path in self._listed():
            try:
                read[path] = self._read(path)
            except FileNotFoundError:
                continue
            except OSError as failure:
                read[path] = _unreadable(path, f"cannot be read: {failure.strerror}")
            except UnicodeDecodeError as failure:
                read[path] = _unreadable(path, f"is not UTF-8: the byte at {failure.start}")
            except Exception as failure:  # noqa: BLE001 - the other files are read nevertheless
                _log.exception("the route file %r cannot be read", str(path))
                read[path] = _unreadable(path, f"cannot be read: {type(failure).__name__}; see the log")
        self._cached = read
        return {path: file for path, (_, file) in read.items()}

    def _listed(self) -> Iterator[Path]:
        listed: dict[Path, None] = {}
        for path in self.paths:
            inside = self._inside(path) if path.is_dir() else [path]
            listed |= dict.fromkeys(file for file in inside if file == path or is_route(file))
        return (path for path in listed if path != self._config)

    def _inside(self, folder: Path) -> list[Path]:
        try:
            return sorted(folder.iterdir())
        except OSError as failure:
            _log.error("the folder %s cannot be listed: %s", folder, failure.strerror)
            return [path for path in self._cached if path.parent == folder]

    def _read(self, path: Path) -> tuple[_Stamp, RouteFile]:
        before = self._cached.get(path)
        if before is not None and _stamp(path, before[1].text) == before[0]:
            return before
        if not is_text(path.name):
            raise OSError(errno.EINVAL, "its name is not UTF-8", repr(path.name))
        text = read_file(path).decode("utf-8")
        return _stamp(path, text), RouteFile(path, text, digest_of(text, path.parent))


def _unreadable(path: Path, problem: str) -> tuple[_Stamp, RouteFile]:
    """Return an entry for an unreadable file; it is read again at each scan."""
    return (), RouteFile(path, "", problem, problem)


def is_route(path: Path) -> bool:
    """Return True if a file in a folder is a route's, by its name: no settings, tests or containers."""
    name = path.name
    return path.suffix in _SUFFIXES and name not in _NO_ROUTES and not name.endswith(_TESTS) and name[0] != "."


def _stamp(path: Path, text: str) -> _Stamp:
    """Return times and sizes of a route file and of the files that it names."""
    stamps = []
    for file in (path, *_included(text, path.parent)):
        try:
            stat = file.stat()
        except OSError:
            stamps.append((str(file), 0, -1))
        else:
            stamps.append((str(file), stat.st_mtime_ns, stat.st_size))
    return tuple(stamps)
