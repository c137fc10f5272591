"""What the commands that talk to JetStream share: their options, and running a coroutine with a clear end."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from turnout.jetstream import JetStream

__all__ = ["Creds", "Domain", "InboxPrefix", "Prefix", "Server", "Timeout", "open_jetstream", "run", "show"]

T = TypeVar("T")

Server = Annotated[str, typer.Option("--server", "-s", envvar="NATS_URL", help="Where the server is.")]
Prefix = Annotated[str | None, typer.Option(help="API prefix of another account's JetStream (ADR-19).")]
Domain = Annotated[str | None, typer.Option(help="Domain of the JetStream, behind a leaf node.")]
InboxPrefix = Annotated[str, typer.Option(help="Where answers come; an account import needs one that it exports.")]
Creds = Annotated[str | None, typer.Option(envvar="NATS_CREDS", help="Credentials file.")]
Timeout = Annotated[float, typer.Option(help="Seconds that a request may take.")]


def open_jetstream(
    server: str, *, prefix: str | None, domain: str | None, inbox_prefix: str, creds: str | None, timeout: float
) -> AbstractAsyncContextManager[JetStream]:
    """A connection as the options say; its errors go to standard error."""
    from turnout.jetstream import connect

    options: dict[str, Any] = {"user_credentials": creds} if creds else {}
    return connect(
        server,
        prefix=prefix,
        domain=domain,
        inbox_prefix=inbox_prefix,
        timeout=timeout,
        error_callback=lambda failure: show(str(failure)),
        **options,
    )


def show(text: str) -> None:
    """A line for people, apart from the output."""
    sys.stderr.write(f"turnout: {text}\n")


def run(work: Coroutine[Any, Any, T]) -> T | None:
    """The result of *work*; None where Ctrl-C ended it, which is an ordinary end here."""
    with contextlib.suppress(KeyboardInterrupt):
        return asyncio.run(work)
    return None
