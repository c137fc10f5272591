"""Table of a server's routes: the running version of each, the one that waits, and its supervisor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from turnout.errors import Mistake
from turnout.routes import Route
from turnout.runtime.endpoints.changes import Change
from turnout.server.activity_recorder import Recorder
from turnout.server.compatibility import compatibility, is_safe
from turnout.server.config import RestartsPart
from turnout.server.errors import ConflictError, RouteNotFoundError
from turnout.server.offsets import begun_at, set_aside
from turnout.server.restarts import Restarts
from turnout.server.route_entry import Pending, RouteEntry
from turnout.server.route_files import name_in
from turnout.server.runner import Runner
from turnout.server.state import Revision, State
from turnout.server.supervisor import RouteVersion, Supervisor
from turnout.server.watch import RouteFile


class RouteTable:
    """Routes by name. Not safe to use from several threads: `turnout.server.routes.Routes` holds a lock.

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
