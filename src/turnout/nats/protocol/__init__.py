"""NATS protocol without sockets: addresses, TLS, credentials, headers, positions, prefixes, errors."""

from turnout.nats.protocol.credentials import Credentials
from turnout.nats.protocol.options import ConnectionOptions
from turnout.nats.protocol.positions import JSAck
from turnout.nats.protocol.prefix import Prefix
from turnout.nats.protocol.servers import Server
from turnout.nats.protocol.settings import CONNECTION_OPTIONS
from turnout.nats.protocol.status import Status
from turnout.nats.protocol.tls import Tls

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
