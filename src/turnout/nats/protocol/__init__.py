"""NATS protocol without sockets: addresses, TLS, credentials, headers, positions, prefixes, errors."""

from turnout.nats.protocol.headers import Status
from turnout.nats.protocol.options import CONNECTION_OPTIONS, ConnectionOptions, Credentials, Prefix, Server, Tls
from turnout.nats.protocol.positions import JSAck

__all__ = ["CONNECTION_OPTIONS", "ConnectionOptions", "Credentials", "JSAck", "Prefix", "Server", "Status", "Tls"]
