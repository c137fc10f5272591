"""Shared parts of the JetStream commands: their options, and running a coroutine with a clear end.

No option takes a secret: all users of a machine can read its command lines. Passwords, tokens and
seeds come from the environment or from files.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import ConnectionOptions, option_of

if TYPE_CHECKING:
    from turnout.nats.jetstream import JetStream


Server = Annotated[str, typer.Option("--server", "-s", envvar="NATS_URL", help="Where the server is.")]
Prefix = Annotated[str | None, typer.Option(help="API prefix of another account's JetStream (ADR-19).")]
Domain = Annotated[str | None, typer.Option(help="Domain of the JetStream, behind a leaf node.")]
InboxPrefix = Annotated[str, typer.Option(help="Prefix of reply subjects; an account import needs an exported one.")]
Creds = Annotated[
    Path | None, typer.Option("--credentials", "--creds", envvar="NATS_CREDS", help="Credentials file (.creds).")
]
User = Annotated[
    str | None, typer.Option(envvar="TURNOUT_NATS_USER", help="User; the password is in TURNOUT_NATS_PASSWORD.")
]
SeedFile = Annotated[
    Path | None, typer.Option("--nkey-seed-file", envvar="NATS_NKEY", help="File with an nkey's seed.")
]
Ca = Annotated[Path | None, typer.Option("--tls-ca", envvar="NATS_CA", help="Authority of the server (PEM).")]
Cert = Annotated[Path | None, typer.Option("--tls-cert", envvar="NATS_CERT", help="Our certificate (PEM).")]
KeyFile = Annotated[Path | None, typer.Option("--tls-key", envvar="NATS_KEY", help="Its private key (PEM).")]
Timeout = Annotated[float, typer.Option(help="Seconds that connecting, or a request, may take.")]

SECRETS: Mapping[str, str] = {
    "TURNOUT_NATS_PASSWORD": "password",
    "TURNOUT_NATS_TOKEN": "token",
    "TURNOUT_NATS_NKEY_SEED": "nkeySeed",
}
"""Environment variables that hold secrets, and the corresponding options."""

_FLAGS = {"servers": "--server", "apiPrefix": "--prefix", **{option: variable for variable, option in SECRETS.items()}}
"""Options that are not given by a flag of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamAccess:
    """Connection options that the JetStream commands share."""

    servers: str
    api_prefix: str | None
    domain: str | None
    inbox_prefix: str
    credentials: Path | None
    user: str | None
    nkey_seed_file: Path | None
    tls_ca: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    timeout: float

    def open(self) -> AbstractAsyncContextManager[JetStream]:
        """Return a connection; its errors go to standard error.

        Raises:
            ConfigError: an option cannot be, or names a file that cannot be read.
        """
        from turnout.nats.jetstream import connect

        _warn_of_user_info(self.servers)
        return connect(self.options(os.environ), error_callback=lambda failure: show(str(failure)))

    def options(self, environment: Mapping[str, str]) -> ConnectionOptions:
        """Return the options for both clients, with the secrets from the *environment*.

        Raises:
            ConfigError: as `open`; each mistake names its flag or variable.
        """
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError([Mistake("--tls-cert", "a certificate and its key belong together")])
        settings = {option_of(field.name): getattr(self, field.name) for field in fields(self)}
        settings["connectTimeout"] = self.timeout
        settings |= {option: environment.get(variable) for variable, option in SECRETS.items()}
        try:
            return ConnectionOptions.from_mapping({name: str(value) for name, value in settings.items() if value})
        except ConfigError as wrong:
            mistakes = [Mistake(_flag(mistake.path), mistake.problem) for mistake in wrong.mistakes]
            raise ConfigError(mistakes, what="NATS connection") from None


def _access_of(
    server: Server = "nats://127.0.0.1:4222",
    prefix: Prefix = None,
    domain: Domain = None,
    inbox_prefix: InboxPrefix = "_INBOX",
    creds: Creds = None,
    user: User = None,
    nkey_seed_file: SeedFile = None,
    tls_ca: Ca = None,
    tls_cert: Cert = None,
    tls_key: KeyFile = None,
    timeout: Timeout = 5.0,
) -> JetStreamAccess:
    return JetStreamAccess(
        servers=server,
        api_prefix=prefix,
        domain=domain,
        inbox_prefix=inbox_prefix,
        credentials=creds,
        user=user,
        nkey_seed_file=nkey_seed_file,
        tls_ca=tls_ca,
        tls_cert=tls_cert,
        tls_key=tls_key,
        timeout=timeout,
    )


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Return the *command* for Typer: its parameter ``access`` is replaced by the options of a connection."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(_access_of, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        access = _access_of(**{name: options.pop(name) for name in shared})
        command(**options, access=access)

    parameters = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items()
        for option in (shared.values() if name == "access" else (parameter,))
    ]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {option.name: option.annotation for option in parameters}
    return with_options


def _flag(option: str) -> str:
    return _FLAGS.get(option) or "--" + re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", option)


def _warn_of_user_info(server: str) -> None:
    """Warn if a login in the server URL was given on the command line; from the environment it is private."""
    if "@" in server and any(server in argument for argument in sys.argv[1:]):
        show(
            "all users of this machine can read the login in --server while this runs: use --user and "
            f"{', '.join(SECRETS)}, --credentials, or NATS_URL"
        )


def show(text: str) -> None:
    """Print a message on standard error, with the prefix ``turnout:``."""
    sys.stderr.write(f"turnout: {text}\n")


def follow(work: Coroutine[Any, Any, None], *, has_end: bool = False) -> None:
    """Run work; Ctrl-C ends it, without an error if it has no end of its own."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        if has_end:
            raise
