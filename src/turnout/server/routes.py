"""Routes of a server: their set, their files, and operations on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from turnout.errors import Mistake, RouteError
from turnout.files import replace_file
from turnout.routes import Route
from turnout.server.compatibility import Change, compatibility, is_safe
from turnout.server.config import RestartsPart
from turnout.server.entry import Pending, RouteEntry
from turnout.server.errors import ConflictError, RouteNotFoundError, StaleError, UnsafeChangeError
from turnout.server.offsets import Offsets, Start, begun_at, checked_start, committed, set_aside
from turnout.server.recorder import Recorder
from turnout.server.restarts import Restarts
from turnout.server.route_files import Author, RouteTexts, name_in
from turnout.server.runner import Runner
from turnout.server.sources import resolved
from turnout.server.state import State
from turnout.server.supervisor import Phase, RouteVersion, Supervisor
from turnout.server.watch import Files, RouteFile, digest_of, is_route

_log = logging.getLogger("turnout.server")


class Routes:
    """Routes that follow their files, and operations on single routes. Safe to use from several threads.

    Args:
        files: which files there are.
        runner: runs routes.
        state: what outlives the process.
        recorder: hears what becomes of routes.
        policy: how often a route that fails is started again.
        checkpoints: the folder of the progress of routes that name none; None is one beside each file.
        variables: the variables that the texts of callers may name.
        store: the URL of the server's own store, which those texts may name.
        resolve: makes the place in a source that a reset names an exact one.
    """

    def __init__(
        self,
        files: Files,
        runner: Runner,
        state: State,
        recorder: Recorder,
        policy: RestartsPart,
        *,
        checkpoints: Path | None = None,
        variables: Collection[str] = (),
        store: str | None = None,
        resolve: Callable[[Route, Start], Start] = resolved,
    ) -> None:
        self._files = files
        self._runner = runner
        self._state = state
        self._recorder = recorder
        self._policy = policy
        self._texts = RouteTexts(state, files.folder or Path(), checkpoints, variables=variables, store=store)
        self._resolve = resolve
        self._lock = threading.RLock()
        self._entries: dict[str, RouteEntry] = {}
        self._digests: dict[Path, str] = {}
        self._missing: set[Path] = set()
        self._leaving: dict[str, Supervisor] = {}

    # Reading

    def entries(self) -> list[RouteEntry]:
        """All routes, by name."""
        with self._lock:
            return [self._entries[name] for name in sorted(self._entries)]

    def entry(self, name: str) -> RouteEntry:
        """The route of that name.

        Raises:
            RouteNotFoundError: there is none.
        """
        with self._lock:
            if name not in self._entries:
                raise RouteNotFoundError(name, self._entries)
            return self._entries[name]

    def offsets(self, name: str) -> Offsets:
        """Return the committed offsets of a route."""
        checkpoint = self.entry(name).checkpoint
        return Offsets(None, {}) if checkpoint is None else committed(checkpoint)

    def check(self, text: str, file: Path | None = None, *, author: Author = Author.READER) -> Route:
        """Return the route in a text, checked for this server.

        Args:
            text: the text.
            file: where it lies, or would.
            author: decides which variables and files of this machine it may name.

        Raises:
            RouteError: lists every mistake.
        """
        route = self._texts.read(text, file, author)
        if mistakes := self._runner.mistakes(route):
            raise RouteError(mistakes, what=f"route {route.name} cannot be used")
        return route

    def check_change(self, entry: RouteEntry, text: str) -> Route:
        """Return the route in a caller's text for this file; an unchanged text keeps its author.

        Raises:
            RouteError: lists every mistake.
        """
        return self.check(text, entry.file.path, author=self._author(entry, text))

    def _author(self, entry: RouteEntry | None, text: str) -> Author:
        """Return the author of a text that a caller with the right to write puts into a file."""
        if entry is None or entry.file.text != text:
            return Author.WRITER
        return self._texts.author_of(text, entry.file.path)

    def changes(self, route: Route, *, masked: bool = False) -> list[Change]:
        """Return the changes of a route from the version last started under its name; see `compatibility`."""
        before = self._before(route.name)
        return [] if before is None else compatibility(before.route, route, masked=masked)

    # Files

    def look(self) -> None:
        """Scan the files, and apply their changes."""
        with self._lock:
            files = self._files.look()
            for path, file in files.items():
                if self._digests.get(path) != file.digest:
                    self._take_up(file)
            removed = {entry.file.path: entry for entry in self._entries.values() if entry.file.path not in files}
            for path in removed.keys() & self._missing:
                self._remove(removed[path], who="file")
            # An editor may remove a file and write it again: what is missed twice is gone.
            self._missing = removed.keys() - self._missing

    def _take_up(self, file: RouteFile) -> None:
        """Apply one file; after an unexpected error, others are still applied, and this one at the next scan."""
        try:
            self._offer(file, who="file")
            self._digests[file.path] = file.digest
        except Exception as failure:  # noqa: BLE001 - it is logged below, once
            problem = Mistake("", f"cannot be taken: {type(failure).__name__}; see the log")
            before = self._entry_of(file)
            if before is None or before.mistakes != (problem,):
                _log.exception("the route file %s cannot be taken", file.path)
                with suppress(Exception):
                    self._show_mistakes(before, file, (problem,))

    def _entry_of(self, file: RouteFile) -> RouteEntry | None:
        return next((entry for entry in self._entries.values() if entry.file.path == file.path), None)

    def _offer(self, file: RouteFile, *, who: str, confirmed: bool = False) -> None:
        """Apply the current content of a file: start its route, or show its mistakes."""
        before = self._entry_of(file)
        if file.problem:
            self._show_mistakes(before, file, (Mistake("", file.problem),))
            return
        try:
            route = self.check(file.text, file.path, author=self._texts.author_of(file.text, file.path))
            self._check_name(route.name, file.path)
        except RouteError as wrong:
            self._show_mistakes(before, file, wrong.mistakes)
            return
        if before is not None and before.name != route.name:
            self._remove(before, who=who)
        self._take(RouteVersion(route, file.text, file.digest, file.path, who), file, confirmed=confirmed)

    def _check_name(self, name: str, path: Path) -> None:
        """Refuse a second file with the name of another one that is still there."""
        other = self._entries.get(name)
        if other is not None and other.file.path != path and other.file.path.exists():
            raise RouteError([Mistake("name", f"{name!r} is the route in {other.file.path.name} already")])

    def _show_mistakes(self, before: RouteEntry | None, file: RouteFile, mistakes: tuple[Mistake, ...]) -> None:
        entry = before or RouteEntry(self._name_for(file), file)
        self._entries[entry.name] = replace(entry, file=file, mistakes=mistakes, pending=None)
        self._recorder.tell("route.mistakes", entry.name, mistakes=[str(mistake) for mistake in mistakes])

    def _name_for(self, file: RouteFile) -> str:
        """Return an unused name for a file with an unreadable route."""
        name = name_in(file)
        return f"{name}@{file.path.name}" if name in self._entries else name

    def _take(self, version: RouteVersion, file: RouteFile, *, confirmed: bool) -> None:
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
        self._recorder.tell("route.version", name, digest=version.digest, who=version.who, changes=names)
        if entry.supervisor is not None and not changes:
            # Words around the route: what runs is the same.
            self._entries[name] = entry
            return
        self._start(entry, version)

    def _park(self, entry: RouteEntry, before: RouteVersion, pending: Pending) -> None:
        """Keep a version that needs confirmation; the previous one continues, also after a server restart."""
        entry = replace(entry, pending=pending)
        unsafe = [f"{change.change}: {change.reason}" for change in pending.changes if not change.safe]
        self._recorder.tell("route.pending", entry.name, needs_new_checkpoint=unsafe)
        if entry.supervisor is None:
            self._start(replace(entry, version=before), before)
        else:
            self._entries[entry.name] = entry

    def _before(self, name: str) -> RouteVersion | None:
        """Return the running version, or that of an earlier server process; None if it cannot be read any more."""
        entry = self._entries.get(name)
        if entry is not None and entry.version is not None:
            return entry.version
        newest = self._state.newest_revision(name)
        return None if newest is None else self._texts.kept(newest)

    def _start(self, entry: RouteEntry, version: RouteVersion) -> None:
        supervisor = entry.supervisor or Supervisor(
            entry.name,
            self._runner,
            Restarts(self._policy),
            prepare=self._prepare,
            watcher=self._recorder,
            after=self._leaving.pop(entry.name, None),
        )
        self._entries[entry.name] = replace(entry, supervisor=supervisor)
        pause = self._state.paused(entry.name)
        supervisor.run(version, paused_by=pause.who if pause else "")

    def _prepare(self, version: RouteVersion) -> Route:
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

    def _remove(self, entry: RouteEntry, *, who: str) -> None:
        del self._entries[entry.name]
        # A file with the same name may have waited for this one to go.
        self._digests = {path: digest for path, digest in self._digests.items() if path in self._paths_in_use()}
        self._leaving = {name: leaving for name, leaving in self._leaving.items() if not leaving.join(0)}
        if entry.supervisor is not None:
            entry.supervisor.close()
            self._leaving[entry.name] = entry.supervisor
            self._state.forget(entry.name)
        self._recorder.tell("route.removed", entry.name, who=who)

    def _paths_in_use(self) -> set[Path]:
        return {entry.file.path for entry in self._entries.values() if entry.version is not None}

    # Requests

    def put(self, name: str, text: str, *, who: str, confirmed: bool = False, digest: str | None = None) -> bool:
        """Write a route's file and start the route; return True if the route is new.

        Args:
            name: the route's.
            text: what the file is to say.
            who: asks for it.
            confirmed: begin a new checkpoint where the old one does not fit.
            digest: of the version that the text was made from; None does not ask.

        Raises:
            RouteError: the text cannot be used; nothing is written.
            UnsafeChangeError: it needs a new checkpoint, which is not confirmed; nothing is written.
            StaleError: the route is another one by now.
            ConflictError: there is nowhere to write it.
        """
        with self._lock:
            entry = self._entries.get(name)
            self._check_digest(entry, digest)
            path = entry.file.path if entry else self._new_path(name)
            author = self._author(entry, text)
            route = self.check(text, path, author=author)
            if route.name != name:
                raise RouteError([Mistake("name", f"found {route.name!r}, expected {name!r}")])
            self._check_name(name, path)
            changes = self.changes(route)
            if not is_safe(changes) and not confirmed:
                raise UnsafeChangeError(name, changes)
            if author is not Author.OPERATOR:
                # Before it is written: a server that ends in between takes the file for the caller's all the same.
                self._state.add_caller_text(path, text)
            try:
                replace_file(path, text)
            except OSError as failure:
                raise ConflictError(f"{path} cannot be written: {failure.strerror}") from failure
            file = RouteFile(path, text, digest_of(text, path.parent))
            self._offer(file, who=who, confirmed=confirmed)
            self._digests[path] = file.digest
            return entry is None

    def confirm(self, name: str, digest: str, *, who: str) -> None:
        """Start the version of the file that waits for it, with a new checkpoint; the old one is moved aside.

        Args:
            name: the route's.
            digest: of the version whose changes somebody has seen.
            who: confirms them.

        Raises:
            ConflictError: nothing waits to be confirmed.
            StaleError: another version waits by now.
        """
        with self._lock:
            entry = self.entry(name)
            if entry.pending is None:
                raise ConflictError(f"route {name} has no change that waits to be confirmed")
            waiting = entry.pending.version
            if waiting.digest != digest:
                raise StaleError(f"the file has changed since you read it: it is {waiting.digest}, you had {digest}")
            self._take(replace(waiting, who=who), entry.file, confirmed=True)

    def _new_path(self, name: str) -> Path:
        folder = self._files.folder
        if folder is None:
            raise ConflictError("this server was given single files: there is no folder to write a new route into")
        path = folder / f"{name}.yaml"
        if not is_route(path):
            raise ConflictError(f"the file {path.name} is none of a route: take another name")
        if path.exists():
            raise ConflictError(f"the file {path.name} exists already, and holds another route")
        return path

    def _check_digest(self, entry: RouteEntry | None, digest: str | None) -> None:
        if digest is not None and (entry is None or entry.file.digest != digest):
            now = entry.file.digest if entry else "not there"
            raise StaleError(f"the route has changed since you read it: it is {now}, you had {digest}")

    def delete(self, name: str, *, who: str, digest: str | None = None) -> None:
        """Remove the route's file, and stop it after its last micro-batch. Its checkpoint stays."""
        with self._lock:
            entry = self.entry(name)
            self._check_digest(entry, digest)
            try:
                entry.file.path.unlink(missing_ok=True)
            except OSError as failure:
                raise ConflictError(f"{entry.file.path} cannot be removed: {failure.strerror}") from failure
            self._remove(entry, who=who)

    def pause(self, name: str, *, who: str) -> None:
        """Stop the route after the micro-batch that is under way; it stays so when the server is started again."""
        with self._lock:
            supervisor = self._supervisor(name)
            self._state.pause(name, who)
            supervisor.pause(who)

    def resume(self, name: str) -> None:
        """Go on from the checkpoint."""
        with self._lock:
            supervisor = self._supervisor(name)
            self._state.resume(name)
            supervisor.resume()

    def restart(self, name: str) -> None:
        """Stop after the micro-batch that is under way and start again; a route that has failed, or is done, starts."""
        with self._lock:
            supervisor = self._supervisor(name)
            if self._state.paused(name):
                raise ConflictError(f"route {name} is paused: resume it")
            supervisor.restart()

    def reset_offsets(self, name: str, start: Start) -> Start:
        """Set the start of the next run, and return it exactly. The checkpoint is set aside, not removed.

        Raises:
            ConflictError: the route is not paused, or its source cannot be told where to begin.
            ConfigError: it is no place of the route's source.
        """
        version = self._resettable(name)
        # A server is asked: others do not wait for its answer.
        exact = self._resolve(version.route, checked_start(version.route, start))
        with self._lock:
            if self._resettable(name) is not version:
                raise StaleError(f"route {name} has changed meanwhile")
            self._state.reset(name, exact)
            self._prepare(version)
            self._recorder.tell("route.offsets", name, to=exact)
            return exact

    def _resettable(self, name: str) -> RouteVersion:
        """Return the version of a route whose offsets can be reset now; raise `ConflictError` otherwise."""
        with self._lock:
            entry, supervisor = self.entry(name), self._supervisor(name)
            phase = supervisor.status.phase
            if not (self._state.paused(name) and phase is Phase.PAUSED and supervisor.idle):
                raise ConflictError(f"route {name} is {phase}: offsets are reset while it is paused")
            if entry.version is None or entry.checkpoint is None:
                raise ConflictError(f"route {name}: its checkpoint is not on this machine: remove it there")
            return entry.version

    def _supervisor(self, name: str) -> Supervisor:
        entry = self.entry(name)
        if entry.supervisor is None:
            raise ConflictError(f"route {name} cannot be used: {entry.status.reason}")
        return entry.supervisor

    def close(self) -> None:
        """Stop all routes, each after its last micro-batch, and wait until they have."""
        with self._lock:
            supervisors = [entry.supervisor for entry in self._entries.values() if entry.supervisor is not None]
            supervisors += self._leaving.values()
            for supervisor in supervisors:
                supervisor.close()
        for supervisor in supervisors:
            supervisor.join()
        self._recorder.flush()
