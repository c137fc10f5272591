"""Two servers: the folder of each leadership, and the HTTP application of the server that waits.

A leader has a folder of its own for all that outlives it, with its term in the name. The next one begins with a copy:
what a former leader writes after its lease is not read.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sqlite3
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnout.base.files import private_folder, replace_file
from turnout.errors import MissingExtraError, RunError
from turnout.server.election import Elector

if TYPE_CHECKING:
    import aiohttp

_TERM: Final = re.compile(r"term-(\d{8})")
_PATHS: Final = "paths.json"
_LASTING_TERMS: Final = 2
"""Folders of terms that are kept; the newest is the leader's."""

_NOT_COPIED: Final = re.compile(r"(run\.)?lock|.*\.tmp|.*\.db-(wal|shm|journal)")
_LINKED: Final = "subscriptions"
"""Folder of a checkpoint whose files are replaced, never changed: copies share them."""


def folder_of_term(shared: Path, term: int, paths: Sequence[Path]) -> Path:
    """Return the folder of a leadership that has just begun: a copy of the one before, if there is one.

    Args:
        shared: folder that all servers reach.
        term: number of the leadership, which is higher than all before.
        paths: folders and files of routes, which have to be the same on all servers.

    Raises:
        RunError: the folder of a later term is there already, or the paths are others than those of the leader before.
    """
    private_folder(shared)
    terms = sorted(int(match[1]) for entry in shared.iterdir() if (match := _TERM.fullmatch(entry.name)))
    if terms and terms[-1] >= term:
        raise RunError(
            f"{shared} has the folder of term {terms[-1]}, and the lease says {term}: the store of the lease has lost "
            f"its contents, or another one is configured; remove the folders of terms from {term} on if no server runs"
        )
    own = shared / f"term-{term:08d}"
    named = [str(path.absolute()) for path in paths]
    # What a server that was killed meanwhile has begun has another term.
    part = shared / f"{own.name}.tmp"
    shutil.rmtree(part, ignore_errors=True)
    private_folder(part)
    if terms:
        before = shared / f"term-{terms[-1]:08d}"
        found = json.loads((before / _PATHS).read_text(encoding="utf-8"))
        if found != named:
            shutil.rmtree(part)
            raise RunError(
                f"the routes are in {', '.join(named)} here, and were in {', '.join(found)} for the leader before: "
                "start all servers with the same paths"
            )
        _copy(before, part)
    replace_file(part / _PATHS, json.dumps(named))
    part.rename(own)
    for old in terms[: 1 - _LASTING_TERMS]:
        shutil.rmtree(shared / f"term-{old:08d}", ignore_errors=True)
    link = shared / "current.tmp"
    link.unlink(missing_ok=True)
    link.symlink_to(own.name)
    link.rename(shared / "current")
    return own


def _copy(source: Path, target: Path, *, link: bool = False) -> None:
    for entry in os.scandir(source):
        if _NOT_COPIED.fullmatch(entry.name):
            continue
        path, copied = Path(entry.path), target / entry.name
        if entry.is_dir(follow_symlinks=False):
            copied.mkdir(mode=0o700)
            _copy(path, copied, link=link or entry.name == _LINKED)
        elif entry.name.endswith(".db"):
            try:
                with closing(sqlite3.connect(path)) as database, closing(sqlite3.connect(copied)) as copy:
                    database.backup(copy)
            except sqlite3.Error as failure:
                raise RunError(f"{path} cannot be read: {failure}") from failure
            copied.chmod(0o600)
        else:
            # A file that its writer replaces meanwhile may be gone; its successor is another entry, or the next one's.
            with suppress(FileNotFoundError):
                _link_or_copy(path, copied) if link else shutil.copy2(path, copied)


def _link_or_copy(path: Path, copied: Path) -> None:
    try:
        os.link(path, copied)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(path, copied)


_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade".split()
)
_FORWARDED: Final = b"turnout-forwarded"
_CONNECT_SECONDS: Final = 5.0
_WEBSOCKET_BYTES: Final = 16 << 20


class StandbyApp:
    """HTTP application of a server that may lead: its own where it leads, else the leader's, to which it forwards.

    Args:
        elector: knows the leader.
        url: where this server answers, as other servers reach it.
        tls: context for connections to the leader.

    Attributes:
        app: the application of the leader; None on a standby.
        is_warm: returns True when routes can begin here without a wait.
    """

    def __init__(self, elector: Elector, url: str, tls: ssl.SSLContext | None = None) -> None:
        try:
            import aiohttp
        except ModuleNotFoundError as absent:
            raise MissingExtraError("ha", "aiohttp") from absent
        self.app: ASGIApp | None = None
        self.is_warm: Callable[[], bool] = bool
        self._aiohttp = aiohttp
        self._elector = elector
        self._url = url.rstrip("/")
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or forward."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self.app is not None and not self._elector.has_lost():
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._forward_socket(scope, receive, send)
        elif scope["path"] == "/live":
            await _answer(send, 200, {"live": True, "reason": None})
        elif scope["path"] == "/ready" and not scope["query_string"]:
            problem = self._problem()
            await _answer(send, 503 if problem else 200, {"ready": not problem, "problems": problem})
        elif scope["path"] == "/metrics":
            await _respond(send, 200, b"# TYPE turnout_leader gauge\nturnout_leader 0\n", b"text/plain; version=0.0.4")
        else:
            await self._forward(scope, receive, send)

    async def close(self) -> None:
        """Close the connections to the leader."""
        if self._session is not None:
            await self._session.close()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Close the connections to the leader when the HTTP server ends, on its loop."""
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": f"{message['type']}.complete"})
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _problem(self) -> dict[str, str]:
        lease = {} if self._elector.lease is not None else {"lease": "the store of the lease has not answered yet"}
        return lease if self.is_warm() else {**lease, "spark": "the session is being prepared"}

    def _leader(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return the URL of the leader; None if there is none that this request has not come from."""
        lease = self._elector.lease
        url = "" if lease is None else lease.member.url.rstrip("/")
        return None if url in ("", self._url) or any(name.lower() == _FORWARDED for name, _ in headers) else url

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = self._aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
            connector = self._aiohttp.TCPConnector(limit=0, ssl=True if self._tls is None else self._tls)
            jar = self._aiohttp.DummyCookieJar()
            self._session = self._aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False, cookie_jar=jar
            )
        return self._session

    def _headers(self, scope: Scope, leader: str) -> list[tuple[str, str]]:
        """Return the headers for the leader, which is asked under its own name."""
        named = {name.lower(): value for name, value in scope["headers"]}
        host = named.get(b"host", b"")
        headers = [("Host", urlsplit(leader).netloc), (_FORWARDED.decode(), "1")]
        dropped = _HOP | {b"host", *(part.strip() for part in named.get(b"connection", b"").lower().split(b","))}
        for name, value in scope["headers"]:
            key = name.lower()
            if key in dropped or key.startswith(b"sec-websocket"):
                continue
            if key == b"origin" and urlsplit(value.decode("latin-1")).netloc.encode() == host:
                value = leader.encode()
            headers.append((name.decode("latin-1"), value.decode("latin-1")))
        if scope.get("client"):
            headers.append(("X-Forwarded-For", scope["client"][0]))
        return headers

    def _target(self, scope: Scope, leader: str) -> str:
        query = scope["query_string"].decode("latin-1")
        path = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        return f"{leader}{path}{f'?{query}' if query else ''}"

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        from yarl import URL

        leader = self._leader(scope["headers"])
        if leader is None:
            problem = {"title": "no leader", "status": 503, "detail": "no server leads at present; try again"}
            await _answer(send, 503, problem, retry=True)
            return
        begun = False
        try:
            names = {name.lower() for name, _ in scope["headers"]}
            has_body = names & {b"content-length", b"transfer-encoding"}
            async with self._client().request(
                scope["method"],
                URL(self._target(scope, leader), encoded=True),
                headers=self._headers(scope, leader),
                data=_body(receive) if has_body else None,
                allow_redirects=False,
                # The answer is in an encoding that the caller takes.
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            ) as answer:
                kept = [(name, value) for name, value in answer.raw_headers if name.lower() not in _HOP]
                await send({"type": "http.response.start", "status": answer.status, "headers": kept})
                begun = True
                async for chunk in answer.content.iter_any():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
        except (TimeoutError, self._aiohttp.ClientError) as failure:
            if begun:
                raise
            detail = f"the leader at {leader} does not answer: {failure}"
            await _answer(send, 503, {"title": "no leader", "status": 503, "detail": detail}, retry=True)

    async def _forward_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        leader = self._leader(scope["headers"])
        await receive()
        if leader is None:
            await send({"type": "websocket.close", "code": 1013, "reason": "no server leads at present"})
            return
        kinds = self._aiohttp.WSMsgType
        try:
            async with self._client().ws_connect(
                self._target(scope, leader),
                headers=self._headers(scope, leader),
                protocols=scope.get("subprotocols") or (),
                max_msg_size=_WEBSOCKET_BYTES,
            ) as socket:
                await send({"type": "websocket.accept", "subprotocol": socket.protocol})

                async def up() -> None:
                    while (message := await receive())["type"] == "websocket.receive":
                        if message.get("text") is not None:
                            await socket.send_str(message["text"])
                        else:
                            await socket.send_bytes(message["bytes"])
                    await socket.close()

                sending = asyncio.create_task(up())
                try:
                    async for message in socket:
                        part = {"text": message.data} if message.type is kinds.TEXT else {"bytes": message.data}
                        await send({"type": "websocket.send", **part})
                    await send({"type": "websocket.close", "code": socket.close_code or 1006})
                finally:
                    sending.cancel()
        except self._aiohttp.WSServerHandshakeError:
            await send({"type": "websocket.close", "code": 1008, "reason": "the leader refuses it"})
        except self._aiohttp.ClientError:
            await send({"type": "websocket.close", "code": 1013, "reason": "the leader does not answer"})


async def _body(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message: Message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError("the client has gone")
        if message.get("body"):
            yield message["body"]
        if not message.get("more_body"):
            return


async def _answer(send: Send, status: int, body: Mapping[str, object], *, retry: bool = False) -> None:
    kind = b"application/problem+json" if retry else b"application/json"
    await _respond(send, status, json.dumps(body).encode(), kind, *([(b"retry-after", b"1")] if retry else []))


async def _respond(send: Send, status: int, body: bytes, kind: bytes, *more: tuple[bytes, bytes]) -> None:
    headers = [(b"content-type", kind), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
