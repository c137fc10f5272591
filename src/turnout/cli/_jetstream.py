"""What the commands that talk to JetStream share: their options, and running a coroutine with a clear end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.jetstream import JetStream

__all__ = [
    "Access",
    "Ca",
    "Cert",
    "Creds",
    "Domain",
    "InboxPrefix",
    "KeyFile",
    "Prefix",
    "Server",
    "Timeout",
    "run",
    "show",
]

T = TypeVar("T")

Server = Annotated[str, typer.Option("--server", "-s", envvar="NATS_URL", help="Where the server is.")]
Prefix = Annotated[str | None, typer.Option(help="API prefix of another account's JetStream (ADR-19).")]
Domain = Annotated[str | None, typer.Option(help="Domain of the JetStream, behind a leaf node.")]
InboxPrefix = Annotated[str, typer.Option(help="Where answers come; an account import needs one that it exports.")]
Creds = Annotated[str | None, typer.Option(envvar="NATS_CREDS", help="Credentials file.")]
Ca = Annotated[Path | None, typer.Option("--tls-ca", envvar="NATS_CA", help="Authority of the server (PEM).")]
Cert = Annotated[Path | None, typer.Option("--tls-cert", envvar="NATS_CERT", help="Our certificate (PEM).")]
KeyFile = Annotated[Path | None, typer.Option("--tls-key", envvar="NATS_KEY", help="Its private key (PEM).")]
Timeout = Annotated[float, typer.Option(help="Seconds that a request may take.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the JetStream is, and how to get there: the options that its commands share."""

    server: str
    prefix: str | None
    domain: str | None
    inbox_prefix: str
    creds: str | None
    ca: Path | None
    cert: Path | None
    key: Path | None
    timeout: float

    def open(self) -> AbstractAsyncContextManager[JetStream]:
        """A connection; its errors go to standard error.

        Raises:
            ConfigError: the certificates cannot be read.
        """
        from turnout.jetstream import connect

        options: dict[str, Any] = {"user_credentials": self.creds} if self.creds else {}
        if self.ca or self.cert or self.key:
            options["tls"] = self._tls()
        return connect(
            self.server,
            prefix=self.prefix,
            domain=self.domain,
            inbox_prefix=self.inbox_prefix,
            timeout=self.timeout,
            error_callback=lambda failure: show(str(failure)),
            **options,
        )

    def _tls(self) -> ssl.SSLContext:
        if bool(self.cert) != bool(self.key):
            raise ConfigError([Mistake("--tls-cert", "a certificate and its key belong together")])
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.cert:
                context.load_cert_chain(self.cert, self.key)
        except OSError as failure:
            # ssl.SSLError is one too: a file that is not there, or that is no certificate.
            raise ConfigError([Mistake("--tls-ca, --tls-cert, --tls-key", str(failure))]) from failure
        return context


def show(text: str) -> None:
    """A line for people, apart from the output."""
    sys.stderr.write(f"turnout: {text}\n")


def run(work: Coroutine[Any, Any, T]) -> T | None:
    """The result of *work*; None where Ctrl-C ended it, which is an ordinary end here."""
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(work)
    return None
