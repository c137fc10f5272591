"""Sessions of Spark Connect: Spark's driver is a server's process, and this one speaks to it."""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from turnout.errors import MissingExtraError, RunError
from turnout.runtime.java import in_one_line

_SCHEME: Final = "sc://"
_PORT: Final = 15002
"""Default port of a server."""

_KNOCK_SECONDS: Final = 10.0
_RETRIES: Final = 6
"""Retries of a request to a server that does not answer: about a minute. PySpark's 15 take more than ten, in which a
run says nothing and does not stop; a server that was restarted does not know the session anyway."""

_ANY_PORT: Final = 9
"""Nothing is sent to it: it is only for the system to say which way it would take."""

_log = logging.getLogger(__name__)


def is_connect(session_or_master: SparkSession | str) -> bool:
    """Return True for a Spark Connect session, or the address of its server as master."""
    if isinstance(session_or_master, str):
        return session_or_master.startswith(_SCHEME)
    return getattr(session_or_master, "_jsparkSession", None) is None


def connect(url: str, properties: Mapping[str, str]) -> SparkSession:
    """Return a session of the Connect server at *url*, with the properties that a session may set.

    Args:
        url: ``sc://HOST:PORT``.
        properties: of Spark. What belongs to the whole application is the server's to have: it is logged, and left.

    Raises:
        MissingExtraError: PySpark's client for such a server is not installed.
        RunError: the server does not answer.
    """
    # What follows the address may hold a token.
    server = url.partition(";")[0]
    _knock(server)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    try:
        session = SparkSession.builder.remote(url).getOrCreate()
        from pyspark.sql.connect.client.retries import DefaultPolicy

        session.client.set_retry_policies([DefaultPolicy(max_retries=_RETRIES)])
        for name, value in properties.items():
            if session.conf.isModifiable(name):
                session.conf.set(name, value)
            elif session.conf.get(name, None) != value:
                _log.warning("%s is set where the Spark Connect server is started, not by a session: left out", name)
    except ImportError as missing:
        raise MissingExtraError("connect", missing.name or "grpc") from missing
    except PySparkException as failure:
        raise RunError(f"the Spark Connect server at {server} does not answer: {in_one_line(failure)}") from failure
    return session


def _knock(server: str) -> None:
    """Check that a server accepts connections: PySpark alone would retry for ten minutes."""
    try:
        address = urlsplit(server)
        socket.create_connection((address.hostname or "", address.port or _PORT), timeout=_KNOCK_SECONDS).close()
    except (OSError, ValueError) as failure:
        raise RunError(f"the Spark Connect server at {server} does not answer: {failure}") from failure


def knock(session: SparkSession) -> None:
    """Check that a session's server accepts connections.

    Raises:
        RunError: it does not.
    """
    client: Any = session.client
    _knock(f"{_SCHEME}{client._builder.endpoint}")  # noqa: SLF001 - PySpark tells the host alone


def own_address(session: SparkSession) -> str:
    """Return the address of this machine that the Connect server's network reaches it by.

    Raises:
        RunError: the server's name leads nowhere.
    """
    client: Any = session.client
    host = str(client.host).strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as route:
            route.connect(address)
            return str(route.getsockname()[0])
    except OSError as failure:
        raise RunError(f"no address of this machine leads to the Spark Connect server {host}: {failure}") from failure
