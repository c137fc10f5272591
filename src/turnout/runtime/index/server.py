"""HTTP server in the driver that gives other processes revisions of the subscriptions and their index files."""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Sequence
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from urllib.parse import unquote

from turnout.base.background import Background
from turnout.base.untrusted import decimal
from turnout.errors import TurnoutError
from turnout.runtime.feeds.match_folder import MatchFolder

_CHUNK = 1 << 20


class ServedRevisions(Protocol):
    """Interface that the server reads: see `turnout.runtime.index.revisions.Revisions`."""

    folder: Path

    def newest(self) -> int:
        """Return the present revision."""
        ...

    def usable(self, revision: int) -> int:
        """Return this revision if it can be opened, else a later one."""
        ...

    def filters(self, revision: int) -> Sequence[str] | None:
        """Return the subjects that a revision can match, None for any."""
        ...

    def files(self, revision: int) -> Sequence[Path]:
        """Return the files of a revision, all in the folder."""
        ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The workers of a cluster connect at once; beyond Python's 5, one connects again only after a second or more.
    request_queue_size = 1_024


class IndexServer:
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
        self._token = secrets.token_urlsafe(24)
        self._server = _Server((host, 0), self._handler())
        self._background = Background("index server", self._server.serve_forever)

    @property
    def url(self) -> str:
        """URL of the server; it contains the token and must not be logged."""
        host, port = self._server.server_address[:2]
        name = host.decode() if isinstance(host, bytes) else str(host)
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/{self._token}"

    def __enter__(self) -> Self:
        self._background.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.stop()
        self._server.shutdown()
        self._server.server_close()
        self._background.join()

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
