"""Routes of a server: their set, their files, and operations on them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from turnout.base.files import replace_file
from turnout.errors import Mistake, RouteError
from turnout.routes import Route
from turnout.runtime.endpoints import Change, Start
from turnout.runtime.offsets import Offsets, committed
from turnout.runtime.open_splits import SlotUse
from turnout.server.config import RestartsPart
from turnout.server.errors import ConflictError, StaleError, UnsafeChangeError
from turnout.server.preconditions import UNCONDITIONAL, Preconditions
from turnout.server.routes.compatibility import checked_start, is_safe, resolved
from turnout.server.routes.events import Recorder
from turnout.server.routes.state import State
from turnout.server.routes.supervisor import Phase, RouteVersion, Runner
from turnout.server.routes.table import (
    Author,
    Files,
    RouteEntry,
    RouteFile,
    RouteTable,
    RouteTexts,
    digest_of,
    is_route,
)

_log = logging.getLogger("turnout.server")


class Routes:
    """Routes that follow their files, and operations on single routes. Safe to use from several threads.

    Args:
        files: the route files.
        runner: runs routes.
        state: persistent state of the server.
        recorder: gets all changes of routes.
        policy: limits of restarts after failures.
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
        shared: bool = False,
        resolve: Callable[[Route, Start], Start] = resolved,
    ) -> None:
        self._files = files
        self._runner = runner
        self._state = state
        self._recorder = recorder
        self._texts = RouteTexts(
            state, files.folder or Path(), checkpoints, variables=variables, store=store, shared=shared
        )
        self._table = RouteTable(runner, state, recorder, policy, self._texts.kept)
        self._resolve = resolve
        self._lock = threading.RLock()
        self._digests: dict[Path, str] = {}
        self._missing: set[Path] = set()

    # Reading

    def slots(self) -> SlotUse | None:
        """Return the use of task slots by routes of ``latency: low``; None if there are no slots."""
        return self._runner.slots()

    def entries(self) -> list[RouteEntry]:
        """Return all routes, by name."""
        with self._lock:
            return self._table.entries()

    def entry(self, name: str) -> RouteEntry:
        """Return the route of that name.

        Raises:
            RouteNotFoundError: there is none.
        """
        with self._lock:
            return self._table.entry(name)

    def offsets(self, name: str) -> Offsets:
        """Return the committed offsets of a route."""
        checkpoint = self.entry(name).checkpoint
        return Offsets(None, {}) if checkpoint is None else committed(checkpoint)

    def check(self, text: str, file: Path | None = None, *, author: Author = Author.READER) -> Route:
        """Return the route in a text, checked for this server.

        Args:
            text: the text.
            file: its file, which need not exist.
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
        return self._table.changes(route, masked=masked)

    # Files

    def scan(self) -> None:
        """Scan the files, and apply their changes."""
        with self._lock:
            files = self._files.scan()
            for path, file in files.items():
                if self._digests.get(path) != file.digest:
                    self._take_up(file)
            removed = {entry.file.path: entry for entry in self._table.entries() if entry.file.path not in files}
            for path in removed.keys() & self._missing:
                self._remove(removed[path], who="file")
            # An editor may remove a file and write it again: one missing twice was deleted.
            self._missing = removed.keys() - self._missing

    def _take_up(self, file: RouteFile) -> None:
        """Apply one file; after an unexpected error, others are still applied, and this one at the next scan."""
        try:
            self._offer(file, who="file")
            self._digests[file.path] = file.digest
        except Exception as failure:  # noqa: BLE001 - it is logged below, once
            problem = Mistake("", f"cannot be taken: {type(failure).__name__}; see the log")
            before = self._table.entry_of(file.path)
            if before is None or before.mistakes != (problem,):
                _log.exception("the route file %s cannot be taken", file.path)
                with suppress(Exception):
                    self._table.show_mistakes(before, file, (problem,))

    def _offer(self, file: RouteFile, *, who: str, confirmed: bool = False) -> None:
        """Apply the current content of a file: start its route, or show its mistakes."""
        before = self._table.entry_of(file.path)
        if file.problem:
            self._table.show_mistakes(before, file, (Mistake("", file.problem),))
            return
        try:
            route = self.check(file.text, file.path, author=self._texts.author_of(file.text, file.path))
            self._check_name(route.name, file.path)
        except RouteError as wrong:
            self._table.show_mistakes(before, file, wrong.mistakes)
            return
        if before is not None and before.name != route.name:
            self._remove(before, who=who)
        self._table.take(RouteVersion(route, file.text, file.digest, file.path, who), file, confirmed=confirmed)

    def _check_name(self, name: str, path: Path) -> None:
        """Refuse a second file with the name of another one that is still there."""
        other = self._table.get(name)
        if other is not None and other.file.path != path and other.file.path.exists():
            raise RouteError([Mistake("name", f"{name!r} is the route in {other.file.path.name} already")])

    def _remove(self, entry: RouteEntry, *, who: str) -> None:
        self._table.remove(entry, who=who)
        # A file with the same name may have waited for this one to go.
        in_use = self._table.paths_in_use()
        self._digests = {path: digest for path, digest in self._digests.items() if path in in_use}

    # Requests

    def put(
        self, name: str, text: str, *, who: str, confirmed: bool = False, conditions: Preconditions = UNCONDITIONAL
    ) -> bool:
        """Write a route's file and start the route; return True if the route is new.

        Args:
            name: the route's.
            text: new content of the file.
            who: name of the caller.
            confirmed: begin a new checkpoint where the old one does not fit.
            conditions: conditions on the digest of the present version.

        Raises:
            RouteError: the text cannot be used; nothing is written.
            UnsafeChangeError: it needs a new checkpoint, which is not confirmed; nothing is written.
            StaleError: a condition is false, as the route is another one by now; nothing is written.
            ConflictError: there is nowhere to write it.
        """
        with self._lock:
            entry = self._table.get(name)
            conditions.check(entry.file.digest if entry else None)
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
        """Start the pending version of the file, with a new checkpoint; the old one is moved aside.

        Args:
            name: the route's.
            digest: digest of the version whose changes the caller has reviewed.
            who: name of the caller.

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
            self._table.take(replace(waiting, who=who), entry.file, confirmed=True)

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

    def delete(self, name: str, *, who: str, conditions: Preconditions = UNCONDITIONAL) -> None:
        """Remove the route's file, and stop it after its last micro-batch. Its checkpoint is kept."""
        with self._lock:
            entry = self.entry(name)
            conditions.check(entry.file.digest)
            try:
                entry.file.path.unlink(missing_ok=True)
            except OSError as failure:
                raise ConflictError(f"{entry.file.path} cannot be removed: {failure.strerror}") from failure
            self._remove(entry, who=who)

    def pause(self, name: str, *, who: str) -> None:
        """Stop the route after the current micro-batch; it stays stopped after a restart of the server."""
        with self._lock:
            supervisor = self._table.supervisor(name)
            self._state.pause(name, who)
            supervisor.pause(who)

    def resume(self, name: str) -> None:
        """Continue from the checkpoint."""
        with self._lock:
            supervisor = self._table.supervisor(name)
            self._state.resume(name)
            supervisor.resume()

    def restart(self, name: str) -> None:
        """Stop after the micro-batch that is under way and start again; a route that has failed, or is done, starts."""
        with self._lock:
            supervisor = self._table.supervisor(name)
            if self._state.paused(name):
                raise ConflictError(f"route {name} is paused: resume it")
            supervisor.restart()

    def reset_offsets(self, name: str, start: Start) -> Start:
        """Set the start of the next run, and return it exactly. The checkpoint is set aside, not removed.

        Raises:
            ConflictError: the route is not paused, or the position of its source cannot be set.
            ConfigError: it is no place of the route's source.
        """
        version = self._resettable(name)
        # A request to a server: other callers do not wait for it.
        exact = self._resolve(version.route, checked_start(version.route, start))
        with self._lock:
            if self._resettable(name) is not version:
                raise StaleError(f"route {name} has changed meanwhile")
            self._state.reset(name, exact)
            self._table.prepare(version)
            self._recorder.record("route.offsets", name, to=exact)
            return exact

    def _resettable(self, name: str) -> RouteVersion:
        """Return the version of a route whose offsets can be reset now; raise `ConflictError` otherwise."""
        with self._lock:
            entry, supervisor = self.entry(name), self._table.supervisor(name)
            phase = supervisor.status.phase
            if not (self._state.paused(name) and phase is Phase.PAUSED and supervisor.idle):
                raise ConflictError(f"route {name} is {phase}: offsets are reset while it is paused")
            if entry.version is None or entry.checkpoint is None:
                raise ConflictError(f"route {name}: its checkpoint is not on this machine: remove it there")
            return entry.version

    def close(self) -> None:
        """Stop all routes, each after its last micro-batch, and wait until they have."""
        with self._lock:
            supervisors = self._table.close()
        for supervisor in supervisors:
            supervisor.join()
        self._recorder.flush()
