"""Sockets of clients that do less than a client should."""

from __future__ import annotations

import socket


def read_to_end(client: socket.socket) -> None:
    """Read until the other side has closed the connection."""
    try:
        while client.recv(4_096):
            pass
    except ConnectionError:
        pass
