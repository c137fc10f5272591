"""Tokens for logins by OAUTHBEARER: from a file, from a command, or signed for Amazon MSK; each is renewed in time."""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import subprocess
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from turnout.base.files import read_file
from turnout.errors import MissingExtraError, StreamError

FILE: Final = "turnout.token.file"
COMMAND: Final = "turnout.token.command"
AWS: Final = "turnout.token.aws"
"""Own properties of a client, beside those of librdkafka: where its tokens are from."""

ALLOWED: Final = "TURNOUT_TOKEN_COMMANDS"
"""Variable that allows routes to name commands: who may write a route could otherwise run any program."""

_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_LONGEST_SECONDS: Final = 300.0
"""A token is read again after so long, or after four fifths of its life, if that is shorter."""

_MOST_BYTES: Final = 1 << 20
_COMMAND_SECONDS: Final = 30.0
_SPARE_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)

Answer: TypeAlias = tuple[str, float, str, dict[str, str]]
"""Token, its end in seconds since 1970, principal, extensions."""


def file_of(url: str) -> str:
    """Return the path of a file URL, as Java's client takes one for its tokens (KIP-768).

    >>> file_of("file:///var/run/secrets/token")
    '/var/run/secrets/token'

    Raises:
        ValueError: it is none of this machine.
    """
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError("expected file:/// and an absolute path")
    return unquote(parts.path)


def command_of(text: str) -> str:
    """Return a command that prints a token, if the process may run commands of routes.

    Raises:
        ValueError: it may not, or there is no command.
    """
    if os.environ.get(ALLOWED) != "1":
        raise ValueError(f"commands of routes are run only with {ALLOWED}=1 in the environment of turnout")
    if not shlex.split(text):
        raise ValueError("found no command")
    return text


def tokens_of(properties: Mapping[str, str], servers: Sequence[str]) -> Callable[[str], Answer] | None:
    """Return the callback that gives a client its tokens; None for a client without.

    Args:
        properties: of the client, with own ones.
        servers: its bootstrap servers, whose names have the region at Amazon.

    Raises:
        ValueError: no region is known.
        MissingExtraError: the library of Amazon is not installed.
    """
    if FILE in properties:
        path = Path(properties[FILE])
        return _Tokens(f"the file {path}", lambda: _parsed(read_file(path, max_bytes=_MOST_BYTES).decode()))
    if COMMAND in properties:
        arguments = shlex.split(properties[COMMAND])
        return _Tokens(f"the command {arguments[0]}", lambda: _parsed(_printed(arguments)))
    if AWS in properties:
        return _Tokens("Amazon's credentials", _signer(json.loads(properties[AWS]), servers))
    return None


class _Tokens:
    """Callback of a client, which takes the last token again if a new one cannot be had yet."""

    def __init__(self, origin: str, make: Callable[[], tuple[str, float]]) -> None:
        self._origin = origin
        self._make = make
        self._last: tuple[str, float] | None = None

    def __call__(self, _config: str) -> Answer:
        now = time.time()
        try:
            self._last = token, until = _unexpired(self._make(), now)
        except Exception as failure:
            if self._last is None or self._last[1] < now + _SPARE_SECONDS:
                raise StreamError(f"{self._origin} gives no token: {failure}", code=401) from failure
            _log.warning("%s gives no new token, and the last one is used: %s", self._origin, failure)
            token, until = self._last
        return token, min(until, now + _LONGEST_SECONDS), str(_claims(token).get("sub", "")), {}


def _unexpired(made: tuple[str, float], now: float) -> tuple[str, float]:
    if made[1] <= now:
        raise ValueError("the token has expired")
    return made


def _parsed(text: str) -> tuple[str, float]:
    """Return a token and its end: a text, or an answer of OAuth 2 as JSON (RFC 6749, 5.1)."""
    token, seconds = text.strip(), None
    if token.startswith("{"):
        answer = json.loads(token)
        token, seconds = str(answer["access_token"]), answer.get("expires_in")
    if not token:
        raise ValueError("it is empty")
    until = _claims(token).get("exp")
    if not isinstance(until, int | float):
        until = time.time() + (float(seconds) if seconds is not None else _LONGEST_SECONDS)
    return token, float(until)


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JWT, unverified; none of another token."""
    parts = token.split(".")
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "==")) if len(parts) == 3 else {}
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


def _printed(arguments: Sequence[str]) -> str:
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        # What it prints may be secret.
        raise ValueError(f"it ended with {done.returncode}")
    return done.stdout


def _signer(settings: Mapping[str, str], servers: Sequence[str]) -> Callable[[], tuple[str, float]]:
    """Return what signs tokens by the settings of Amazon's login module."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider
    except ImportError as missing:
        raise MissingExtraError("msk", "aws_msk_iam_sasl_signer") from missing
    found = next((match[1] for server in servers if (match := _REGION.search(server))), None)
    region = found or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ValueError("no region is in the names of the servers, or in AWS_REGION")

    def signed() -> tuple[str, float]:
        if role := settings.get("awsRoleArn"):
            session = settings.get("awsRoleSessionName", "turnout")
            token, milliseconds = Provider.generate_auth_token_from_role_arn(region, role, session)
        elif profile := settings.get("awsProfileName"):
            token, milliseconds = Provider.generate_auth_token_from_profile(region, profile)
        else:
            token, milliseconds = Provider.generate_auth_token(region)
        return token, milliseconds / 1000

    return signed
