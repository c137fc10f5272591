"""NATS protocol without sockets: addresses, TLS, credentials, headers, positions, prefixes, errors."""

from turnout.nats.protocol.options import CONNECTION_OPTIONS, ConnectionOptions
from turnout.nats.protocol.positions import JSAck
from turnout.nats.protocol.prefix import Prefix
from turnout.nats.protocol.security import Credentials, Tls
from turnout.nats.protocol.servers import Server
from turnout.nats.protocol.status import Status

__all__ = [
    "CONNECTION_OPTIONS",
    "ConnectionOptions",
    "Credentials",
    "JSAck",
    "Prefix",
    "Server",
    "Status",
    "Tls",
]
