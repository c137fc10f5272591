"""Servers in the driver for the other processes of a run, and their clients: revisions, index files, open splits."""

from __future__ import annotations

import json
import select
import shutil
import socket
import socketserver
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hmac import compare_digest
from http.client import HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, Protocol, Self, cast
from urllib.error import HTTPError
from urllib.parse import unquote

from turnout.base.background import Background
from turnout.base.untrusted import JsonObject, decimal, is_whole
from turnout.errors import ConnectionLostError, RunError, TurnoutError
from turnout.records.types import Fields
from turnout.runtime.matches import MatchFolder
from turnout.runtime.open_splits import Attempt, OpenPosition, OpenProgress, OpenSplits, Plan

_TIMEOUT_SECONDS = 60.0


@contextmanager
def fetch(url: str, path: str) -> Iterator[HTTPResponse]:
    """Open *path* of the `turnout.runtime.driver` at *url* for reading.

    Raises:
        ConnectionLostError: it does not answer, or has no such thing; the message does not repeat the address.
    """
    with _opened(urllib.request.Request(f"{url}/{path}")) as answer:  # noqa: S310 - the driver's own address
        yield answer


def send(url: str, path: str, content: bytes) -> None:
    """Have the server at *url* store *content* at *path*.

    Raises:
        ConnectionLostError: it does not answer, or cannot store it.
    """
    request = urllib.request.Request(f"{url}/{path}", content, method="PUT")  # noqa: S310 - the driver's own address
    with _opened(request):
        pass


@contextmanager
def _opened(request: urllib.request.Request) -> Iterator[HTTPResponse]:
    # Proxy settings are for other hosts than the cluster's own.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            yield answer
    except OSError as failure:
        if isinstance(failure, HTTPError):
            failure.close()
        reason = getattr(failure, "reason", failure)
        raise ConnectionLostError(f"the driver does not give the subscriptions' index: {reason}") from None


class AskedRevisions:
    """Revision numbers as the source sees them, requested from the process that keeps the index.

    Args:
        url: URL of the index server.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def newest(self) -> int:
        """Return the present revision, which tasks can open from now on."""
        with fetch(self._url, "newest") as answer:
            return int(answer.read())

    def filters(self, revision: int) -> tuple[str, ...] | None:
        """Return the subjects that the subscriptions of a revision can match; None if they can match any."""
        with fetch(self._url, f"filters/{revision}") as answer:
            filters = json.loads(answer.read())
        return None if filters is None else tuple(filters)

    def usable(self, revision: int) -> int:
        """Return *revision* if it is kept, else a later one."""
        with fetch(self._url, f"usable/{revision}") as answer:
            return int(answer.read())


def ask_plan(address: str, number: int | None) -> Plan:
    """Request the plan of the next offset from the driver; see `turnout.runtime.open_splits.OpenSplits.plan`.

    Raises:
        ConnectionLostError: it does not answer.
    """
    with OpenSession(address) as session:
        answer = session.request({"plan": number})
    return Plan(answer["next"], answer["number"], answer["opens"], answer["time"], answer["tasks"])


def tell_loss(address: str, text: str) -> None:
    """Tell the driver of a loss that was stepped over: tasks and the source have no log that the run's user reads.

    Raises:
        ConnectionLostError: it does not answer.
    """
    with OpenSession(address) as session:
        session.request({"loss": text})


class OpenSession:
    """Connection of one task to the driver, for one open split.

    Args:
        address: as the server gives it.

    Attributes:
        socket: becomes readable when the driver has something to say.
        revision: the newest revision of the subscriptions that the driver has named.
        closing: whether the driver requires the split to close.
        seconds: how long it may stay open.

    Raises:
        ConnectionLostError: the driver does not answer.
    """

    def __init__(self, address: str) -> None:
        host, port, self._token = address.split(" ")
        self.revision: int | None = None
        self.closing = False
        self.seconds = 0.0
        self._unanswered = 0
        try:
            self.socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS)
        except OSError as failure:
            raise ConnectionLostError(f"the driver does not answer: {failure.strerror or failure}") from None
        self._lines = _Lines(self.socket, _TIMEOUT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.socket.close()

    def request(self, question: JsonObject) -> Fields:
        """Send the first line, and return the answer.

        Raises:
            ConnectionLostError: there is none.
        """
        self._send({"token": self._token, **question})
        try:
            return self._lines.next()
        except OSError as failure:
            raise _attempt_ended(failure) from None

    def begin(self, number: int, start: OpenPosition, revision: int | None, group: int | None = None) -> OpenProgress:
        """Take a split, and return its first position and its earlier counts; see `OpenSplits.begin`.

        Raises:
            ConnectionLostError: the driver does not answer.
        """
        answer = self.request({"begin": number, "start": start, "revision": revision, "group": group})
        progress = OpenProgress.from_dict(answer["progress"])
        self.seconds, self.revision = answer["seconds"], progress.revision
        return progress

    def reads(self) -> None:
        """Say that the task is ready for the next record.

        Raises:
            ConnectionLostError: the driver has ended.
        """
        self._send({"reads": True})

    def record(self, progress: OpenProgress, *, wait: bool = False, final: bool = False) -> None:
        """Have the progress recorded.

        Args:
            progress: position and counts.
            wait: return only when it is recorded.
            final: end the split with it; implies *wait*.

        Raises:
            ConnectionLostError: the driver has ended, or another task has the split.
            RunError: the driver cannot write, as on a full disk.
        """
        self._send({"progress": progress.as_dict(), "final": final})
        self._unanswered += 1
        while (wait or final) and self._unanswered:
            self._take(None)

    def listen(self) -> None:
        """Process the driver's messages, without waiting.

        Raises:
            ConnectionLostError: the driver has ended, or another task has the split.
            RunError: as `record`.
        """
        self._take(0)

    def _take(self, seconds: float | None) -> None:
        try:
            lines = self._lines.received(seconds)
        except OSError as failure:
            raise _attempt_ended(failure) from None
        for line in lines:
            if "refused" in line:
                raise RunError(f"the position of an open split cannot be recorded: {line['refused']}")
            self._unanswered -= "recorded" in line
            self.closing = self.closing or "close" in line
            self.revision = line.get("revision", self.revision)

    def _send(self, line: JsonObject) -> None:
        try:
            self._lines.send(line)
        except OSError as failure:
            raise _attempt_ended(failure) from None


def _attempt_ended(failure: OSError) -> ConnectionLostError:
    return ConnectionLostError(
        f"the driver has ended this attempt to read an open split: {failure.strerror or failure}"
    )


_CHUNK = 1 << 20


class ServedRevisions(Protocol):
    """Interface that the server reads: see `turnout.runtime.revisions.Revisions`."""

    folder: Path

    def newest(self) -> int:
        """Return the present revision."""

    def usable(self, revision: int) -> int:
        """Return this revision if it can be opened, else a later one."""

    def filters(self, revision: int) -> Sequence[str] | None:
        """Return the subjects that a revision can match, None for any."""

    def files(self, revision: int) -> Sequence[Path]:
        """Return the files of a revision, all in the folder."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The workers of a cluster connect at once; beyond Python's 5, one connects again only after a second or more.
    request_queue_size = 1_024


class DriverServer(Background):
    """Server that listens while it is entered, on a thread of its own."""

    def __init__(self, name: str, server: socketserver.BaseServer) -> None:
        # The end of a run waits for the next poll of the request to end: half a second by default, for each server.
        super().__init__(name, lambda: server.serve_forever(_PAUSE_SECONDS))
        self._server = server

    def close(self) -> None:
        """End the server, and wait for its thread."""
        self.stop()
        self._server.shutdown()
        self._server.server_close()
        self.join()


class IndexServer(DriverServer):
    """Serves five paths to clients that have the token.

    ``/TOKEN/newest`` and ``/TOKEN/usable/REVISION`` give the number of a revision, ``/TOKEN/filters/REVISION`` the
    subjects that it can match, ``/TOKEN/REVISION`` the names and sizes of its files, and ``/TOKEN/REVISION/NAME`` one
    of them. ``PUT /TOKEN/matches/NAME`` stores a file of matches beside the index. Nothing but these files is read or
    written.

    Args:
        revisions: revisions to serve.
        host: the address to listen on, and the one that others know it by.
    """

    def __init__(self, revisions: ServedRevisions, host: str = "127.0.0.1") -> None:
        self._revisions = revisions
        self._token = token_urlsafe(24)
        super().__init__("index server", _Server((host, 0), self._handler()))

    @property
    def url(self) -> str:
        """URL of the server; it contains the token and must not be logged."""
        host, port = cast("tuple[str, int]", self._server.server_address)[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/{self._token}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        find, put = self._find, self._receive

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                _answer(self, find(self.path))

            def do_PUT(self) -> None:
                _answer(self, put(self.path, self))

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Log nothing: the path contains the token."""

        return Handler

    def _find(self, path: str) -> Path | bytes | None:
        """Return the content of a path: a list, a file, or None."""
        token, _, rest = path.lstrip("/").partition("/")
        if not compare_digest(token.encode(), self._token.encode()):
            return None
        first, _, second = rest.partition("/")
        try:
            if rest == "newest":
                return b"%d" % self._revisions.newest()
            if first in ("usable", "filters"):
                return self._of_revision(first, decimal(second))
            revision = decimal(first)
            return None if revision is None else self._file(revision, unquote(second))
        except (TurnoutError, OSError):
            return None

    def _receive(self, path: str, request: BaseHTTPRequestHandler) -> bytes | None:
        """Store a file of matches; return None if it cannot be stored."""
        token, _, rest = path.lstrip("/").partition("/")
        size = decimal(request.headers.get("Content-Length", ""))
        first, _, name = rest.partition("/")
        if not compare_digest(token.encode(), self._token.encode()) or first != "matches" or size is None:
            return None
        try:
            MatchFolder.beside(self._revisions.folder.parent).put(unquote(name), request.rfile.read(size))
        except (ValueError, OSError):
            return None
        return b""

    def _of_revision(self, what: str, revision: int | None) -> bytes | None:
        if revision is None:
            return None
        if what == "usable":
            return b"%d" % self._revisions.usable(revision)
        return json.dumps(self._revisions.filters(revision)).encode()

    def _file(self, revision: int, name: str) -> Path | bytes | None:
        files = {file.relative_to(self._revisions.folder).as_posix(): file for file in self._revisions.files(revision)}
        if name:
            return files.get(name)
        return json.dumps({file_name: file.stat().st_size for file_name, file in files.items()}).encode()


def _answer(request: BaseHTTPRequestHandler, content: Path | bytes | None) -> None:
    if content is None:
        request.send_error(404)
        return
    size = len(content) if isinstance(content, bytes) else content.stat().st_size
    request.send_response(200)
    request.send_header("Content-Length", str(size))
    request.end_headers()
    if isinstance(content, bytes):
        request.wfile.write(content)
        return
    with content.open("rb") as file:
        shutil.copyfileobj(file, request.wfile, _CHUNK)


_LONGEST_LINE: Final = 1 << 20
_HELLO_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.05
"""Seconds between two checks of the subscriptions, and of a request to stop."""


class TaskServer(DriverServer):
    """Server of connections from tasks, which have its address with the token.

    Args:
        name: name of the work.
        handler: handles a connection.
        token: what a client has to say first.
        host: the address to listen on, and the one that others know it by.
    """

    def __init__(self, name: str, handler: type[socketserver.BaseRequestHandler], token: str, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        server = type("_Server", (socketserver.ThreadingTCPServer,), {"address_family": family, "daemon_threads": True})
        self._host, self._token = host, token
        super().__init__(name, server((host, 0), handler))

    @property
    def address(self) -> str:
        """``HOST PORT TOKEN`` of the server; it must not be logged."""
        _, port = cast("tuple[str, int]", self._server.server_address)[:2]
        return f"{self._host} {port} {self._token}"


class OpenSplitServer(TaskServer):
    """Serves a run's ledger to its source and its tasks, which have the token.

    Args:
        splits: the ledger.
        host: the address to listen on, and the one that others know it by.
    """

    def __init__(self, splits: OpenSplits, host: str = "127.0.0.1") -> None:
        self._splits = splits
        super().__init__("server of open splits", self._handler(), token_urlsafe(24), host)

    def close(self) -> None:
        """Refuse reports of tasks from now on, and end the server."""
        self._splits.end()
        super().close()

    def _handler(self) -> type[socketserver.BaseRequestHandler]:
        answer = self._answer

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                # A task that violates the protocol, or disconnects, is one that Spark has given up.
                with suppress(OSError, ValueError, KeyError, TypeError):
                    answer(_Lines(self.request, _HELLO_SECONDS))

        return Handler

    def _answer(self, lines: _Lines) -> None:
        hello = lines.next()
        if not compare_digest(str(hello["token"]).encode(), self._token.encode()):
            return
        if "plan" in hello:
            plan = self._splits.plan(_number(hello["plan"]))
            lines.send(
                {"next": plan.next, "number": plan.number, "opens": plan.opens, "time": plan.time, "tasks": plan.tasks}
            )
            return
        if "loss" in hello:
            self._splits.lost(str(hello["loss"]))
            lines.send({"noted": True})
            return
        number, start = _number(hello["begin"]), hello["start"]
        if number is None or not (is_whole(start) or isinstance(start, dict)):
            return
        attempt = self._splits.begin(number, start, _number(hello["revision"]), _number(hello.get("group")))
        lines.send({"progress": attempt.progress.as_dict(), "seconds": attempt.seconds})
        self._follow(attempt, lines)

    def _follow(self, attempt: Attempt, lines: _Lines) -> None:
        """Record a task's reports, and send it its updates, until one of the two ends."""
        revision, notified = attempt.progress.revision, False
        while self._splits.holds(attempt):
            for line in lines.received(_PAUSE_SECONDS):
                if "reads" in line:
                    self._splits.reads(attempt)
                    continue
                progress, final = OpenProgress.from_dict(line["progress"]), bool(line["final"])
                try:
                    recorded = self._splits.record(attempt, progress, final=final)
                except OSError as failure:
                    lines.send({"refused": failure.strerror or str(failure)})
                    return
                if not recorded:
                    return
                lines.send({"recorded": True})
                if final:
                    return
            if self._splits.closes(attempt) and not notified:
                notified = True
                lines.send({"close": True})
            newest = self._splits.newest_revision()
            if newest != revision:
                revision = newest
                lines.send({"revision": newest})


def _number(value: object) -> int | None:
    return value if is_whole(value) else None


class _Lines:
    """Lines of JSON objects over a socket.

    Args:
        connection: the socket.
        timeout: seconds after which the peer has to have sent what is waited for.
    """

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(timeout)
        self._socket = connection
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        self._buffer = bytearray()

    def send(self, line: JsonObject) -> None:
        self._socket.sendall(json.dumps(line).encode() + b"\n")

    def next(self) -> Fields:
        """Return the next line, and leave those behind it."""
        while (end := self._buffer.find(b"\n")) < 0:
            self._more()
        line: Fields = json.loads(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def received(self, seconds: float | None) -> list[Fields]:
        """Return the received lines, after a wait of at most *seconds*; None for the timeout, which raises."""
        if seconds is None or self._poll.poll(seconds * 1000):
            self._more()
        *whole, rest = self._buffer.split(b"\n")
        self._buffer = bytearray(rest)
        return [json.loads(line) for line in whole]

    def _more(self) -> None:
        data = self._socket.recv(1 << 16)
        if not data or len(self._buffer) > _LONGEST_LINE:
            raise ConnectionError("the peer has disconnected, or violates the protocol")
        self._buffer += data
