"""Settings of a connection to NATS: routes, Spark's formats and commands accept these options and no others."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final


@dataclass(kw_only=True)
class ConnectionSettings:
    """Settings of a connection to a nats-server, one field per option of docs/nats.md; None is the default.

    Attributes:
        servers: nats://host:port, or a list of them.
        user: one way to log in, with a password.
        password: of the user.
        token: one way to log in.
        nkey_seed: one way to log in: the seed itself; better is the name of its file.
        nkey_seed_file: one way to log in: a file with the seed.
        credentials: a .creds file.
        tls: whether the connection is encrypted; a server that asks for it gets it in any case.
        tls_first: begin with TLS, for servers with handshake_first.
        tls_ca: a file with the authorities to trust.
        tls_cert: a file with the client's own certificate.
        tls_key: the file with its key.
        tls_hostname: the name that the server's certificate must have, where it is not the host's.
        tls_insecure: do not check the server's certificate.
        api_prefix: what stands before the API's subjects, for a JetStream of another account (ADR-19): $JS.API.
        domain: the JetStream domain; stands for the prefix $JS.<domain>.API.
        inbox_prefix: what answers come back on; an account import may ask for one of its own.
        timeout: seconds to wait for one answer.
        connect_timeout: seconds.
        reconnect_timeout: seconds to keep trying.
        client_name: what the server shows of this connection.
    """

    servers: str | list[str]
    user: str | None = None
    password: str | None = None
    token: str | None = None
    nkey_seed: str | None = None
    nkey_seed_file: str | None = None
    credentials: str | None = None
    tls: bool | None = None
    tls_first: bool | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_hostname: str | None = None
    tls_insecure: bool | None = None
    api_prefix: str | None = None
    domain: str | None = None
    inbox_prefix: str | None = None
    timeout: float | None = None
    connect_timeout: float | None = None
    reconnect_timeout: float | None = None
    client_name: str | None = None


def option_of(name: str) -> str:
    """Return the option name of a field.

    >>> option_of("nkey_seed_file")
    'nkeySeedFile'
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


CONNECTION_OPTIONS: Final = tuple(option_of(field.name) for field in fields(ConnectionSettings))
"""The names of the options, in a route and for Spark's reader and writer."""

LOGINS: Final = ("user", "token", "nkey_seed", "nkey_seed_file", "credentials")
"""The fields that each are a way to log in: one of them is enough."""

TOGETHER: Final = (("password", "user"), ("tls_key", "tls_cert"))
"""Fields that mean nothing without another."""

FILE_OPTIONS: Final = ("tls_ca", "tls_cert", "tls_key", "credentials", "nkey_seed_file")
"""The fields that name a file on the machine where the connection is planned."""
