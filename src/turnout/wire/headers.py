"""NATS headers on the wire: one block of ``Key: value`` lines behind the version line ``NATS/1.0``."""

from __future__ import annotations

from collections.abc import Iterable

from turnout.errors import ConfigError, Mistake

__all__ = ["MESSAGE_ID", "encode", "lines", "parse", "status"]

MESSAGE_ID = "Nats-Msg-Id"
"""The header that JetStream deduplicates by."""

_VERSION = b"NATS/1.0"
_BAD_IN_NAME = frozenset(b": \t\r\n")


def encode(headers: Iterable[tuple[str, bytes | str]]) -> bytes:
    """The header block of *headers*, its closing blank line included; empty where there are none.

    A name may come several times; the order is kept.

    Raises:
        ConfigError: when a name or a value would break out of its line.
    """
    block = lines(headers)
    return b"%b\r\n%b\r\n" % (_VERSION, block) if block else b""


def lines(headers: Iterable[tuple[str, bytes | str]]) -> bytes:
    """The lines of *headers* without what opens and closes a block.

    Raises:
        ConfigError: as `encode`.
    """
    return b"".join([_line(name, value) for name, value in headers])


def _line(name: str, value: bytes | str) -> bytes:
    raw_name = name.encode()
    raw_value = value.encode() if isinstance(value, str) else value
    if not raw_name or not _BAD_IN_NAME.isdisjoint(raw_name):
        raise ConfigError([Mistake(f"headers.{name}", "a header's name has no blanks, colons or line breaks")])
    if b"\n" in raw_value or b"\r" in raw_value:
        raise ConfigError([Mistake(f"headers.{name}", "a header's value cannot hold a line break")])
    return raw_name + b": " + raw_value + b"\r\n"


def parse(block: bytes) -> list[tuple[str, bytes]]:
    """The names and values of a header *block*, in their order; lines without a colon are left out.

    Blanks before a value are not part of it (nats.go reads it so); those behind it are.
    """
    found = []
    for line in block.split(b"\n")[1:]:
        name, colon, value = line.removesuffix(b"\r").partition(b":")
        if colon:
            found.append((name.decode("utf-8", "replace"), value.lstrip(b" \t")))
    return found


def status(block: bytes) -> tuple[int, str] | None:
    """The code and text of a status line (``NATS/1.0 404 No Messages``); None for the headers of a message."""
    line = block.split(b"\r\n", 1)[0][len(_VERSION) :].strip()
    code, _, text = line.partition(b" ")
    return (int(code), text.decode("utf-8", "replace").strip()) if code.isdigit() else None
