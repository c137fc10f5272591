"""Client of a running server's REST interface, for commands."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from turnout.errors import ConfigError, ConnectionLostError, Mistake, RunError, TurnoutError
from turnout.http_exchange import exchange
from turnout.loopback import is_loopback
from turnout.secrets import masked_url

TOKEN = "TURNOUT_TOKEN"  # noqa: S105 - the name of the variable
_SECONDS = 30.0
_MOST_BYTES = 64 << 20
_WRONG = (400, 401, 403, 404, 405, 412, 413, 422)
"""Statuses that say that the request was wrong, and not that the work failed."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refusal of redirects, which would take the token to another server."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return no request: the redirect itself is the answer."""


@dataclass(frozen=True, slots=True)
class ServerClient:
    """REST client of one server.

    Attributes:
        url: ``http://host:port`` or ``https://…``.
        token: a bearer token; None without one.
        ca: file of the certificates to trust, in PEM; those of the system if not given.
    """

    url: str
    token: str | None = None
    ca: Path | None = None

    @classmethod
    def of(cls, url: str, token_file: Path | None, ca: Path | None, *, insecure: bool) -> ServerClient:
        """Return a client with the token of a file, or of the environment.

        Raises:
            ConfigError: the address is none, or the token would go to another machine in the clear.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            problem = f"expected http://host:port or https://host:port, found {masked_url(url)!r}"
            raise ConfigError([Mistake("--url", problem)])
        token = os.environ.get(TOKEN) if token_file is None else token_file.read_text(encoding="utf-8").strip()
        if token and parts.scheme == "http" and not is_loopback(parts.hostname) and not insecure:
            problem = "a token would go to another machine in the clear: use https://, or --insecure knowingly"
            raise ConfigError([Mistake("--url", problem)])
        if token and not (token.isascii() and token.isprintable()):
            raise ConfigError([Mistake("--token-file", "expected one token, without blanks and line breaks")])
        return cls(url.rstrip("/"), token or None, ca)

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Return the answer to a request, from its JSON; None for an empty one.

        Raises:
            ConfigError: the server says that the request was wrong.
            RunError: it cannot do it now.
            ConnectionLostError: it cannot be reached.
        """
        headers, data = self._request(method, body)
        try:
            answer = exchange(
                self.url + path,
                seconds=_SECONDS,
                max_bytes=_MOST_BYTES,
                method=method,
                headers=headers,
                body=data,
                tls=self._tls(),
                proxies=False,
            )
        except OSError as failure:
            raise ConnectionLostError(f"{self.url} cannot be reached: {failure}") from None
        text = answer.body
        if answer.status >= 300:
            raise self._refusal(answer.status, answer.reason, text)
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise RunError(f"{self.url} does not answer as turnout does: is it the server's HTTP address?") from None

    def events(self, path: str) -> Iterator[tuple[str, Any]]:
        """Yield the kind and the content of each event of a stream, until the server ends it.

        Raises:
            TurnoutError: as `call`.
        """
        kind = ""
        with self._opened_stream(path) as lines:
            for line in lines:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data":
                    yield kind, json.loads(value)

    def _tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context(cafile=self.ca) if self.url.startswith("https:") else None

    def _request(self, method: str, body: object) -> tuple[dict[str, str], bytes | None]:
        headers = {"Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        if method != "GET":
            # Of a browser's requests those with this type alone need the server's leave, and so do ours.
            headers["Content-Type"] = "application/json"
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers, data

    def _opened_stream(self, path: str) -> Any:
        """Open a stream of events, which lasts as long as the server does."""
        headers, _ = self._request("GET", None)
        request = urllib.request.Request(self.url + path, None, headers)  # noqa: S310 - http(s), see `of`
        context = ssl.create_default_context(cafile=self.ca)
        # Without proxies: the environment's are for the world, and this is a server of one's own.
        opener = urllib.request.build_opener(
            _NoRedirect, urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        try:
            return opener.open(request)
        except urllib.error.HTTPError as refused:
            with refused:
                raise self._refusal(refused.code, refused.reason, refused.read(1 << 16)) from None
        except OSError as failure:
            reason = getattr(failure, "reason", failure)
            raise ConnectionLostError(f"{self.url} cannot be reached: {reason}") from None

    def _refusal(self, status: int, reason: str, text: bytes) -> TurnoutError:
        """Return the error of an answer, with the sentence that the server gives."""
        try:
            problem = json.loads(text)
            detail = problem["detail"] or problem["title"]
        except (ValueError, TypeError, KeyError):
            detail = reason
        if status == 401:
            detail = f"{detail}: the variable {TOKEN} or --token-file has the token"
        if status in _WRONG:
            return ConfigError([Mistake(self.url, str(detail))], what="the server refuses the request")
        return RunError(f"{self.url} answers {status}: {detail}")


def route_path(name: str, *more: str) -> str:
    """Return the path of a route.

    >>> route_path("a b", "pause")
    '/v1/routes/a%20b/pause'
    """
    return "/".join(["/v1/routes", quote(name, safe=""), *more])
