"""Authenticated principals of requests, and their bearer tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from turnout.rpc.caller import Caller
from turnout.rpc.jwt_tokens import JwtSettings, JwtVerifier
from turnout.rpc.tokens import Tokens, read_tokens


@dataclass(frozen=True, slots=True)
class Principal:
    """Authenticated principal of a request.

    Attributes:
        name: name recorded with changes.
        caller: tenant and rights, as in the gRPC service.
    """

    name: str
    caller: Caller = field(default_factory=Caller)


ANONYMOUS = Principal("anonymous")
"""Principal of every request to a server without tokens."""


class Authenticator(Protocol):
    """Authenticator of bearer tokens."""

    def principal(self, token: str | None) -> Principal | None:
        """Return the principal of a token; None if it is unknown. *token* is None if the request has none."""
        ...


@runtime_checkable
class SlowAuthenticator(Authenticator, Protocol):
    """Authenticator that needs milliseconds to verify a token, and caches the tokens that it has verified."""

    def remembered(self, token: str) -> Principal | None:
        """Return the bearer of a token that was recognised before; None if that is not known without computing."""
        ...


class TokenFile:
    """Bearer tokens of a file, or of an issuer, the same that the gRPC service takes.

    Raises:
        ConfigError: the file has no token, or entries that mean nothing.
        OSError: it cannot be read.
    """

    def __init__(self, file: Path | None, jwt: JwtSettings | None = None) -> None:
        self._tokens = Tokens(read_tokens(file) if file is not None else (), jwt=jwt)

    def principal(self, token: str | None) -> Principal | None:
        """Return the principal of a token; None if it is unknown.

        Raises:
            RefusedError: too many unknown tokens are being checked, or the issuer's keys are away.
        """
        return None if token is None else _principal_of(token, self._tokens.caller(token))

    def remembered(self, token: str) -> Principal | None:
        """See `SlowAuthenticator.remembered`."""
        return _principal_of(token, self._tokens.remembered(token))


def _principal_of(token: str, caller: Caller | None) -> Principal | None:
    if caller is None:
        return None
    if JwtVerifier.is_one(token):
        return Principal(caller.name, caller)
    # The part before the first dot is no secret.
    id_, dot, _ = token.partition(".")
    return Principal(f"token {id_}" if dot else "token", caller)
