"""What every NATS client knows, without a socket: addresses, TLS, credentials, headers, positions, prefixes, errors."""

from turnout.protocol.credentials import Credentials
from turnout.protocol.options import ConnectionOptions
from turnout.protocol.positions import JSAck
from turnout.protocol.prefix import Prefix
from turnout.protocol.servers import Server
from turnout.protocol.settings import CONNECTION_OPTIONS
from turnout.protocol.status import Status
from turnout.protocol.tls import Tls

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
