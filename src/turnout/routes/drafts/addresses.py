"""Sources and sinks given as one address: ``nats://host:4222/STREAM``."""

from __future__ import annotations

from pathlib import Path

from turnout.base.terminal import did_you_mean
from turnout.errors import ConfigError, Mistake
from turnout.routes.endpoints import FORMATS
from turnout.routes.line_numbers import Document
from turnout.secrets import masked_url

SINK: Document = {"format": "nats", "servers": "${NATS_URL:-nats://127.0.0.1:4222}"}
"""Default sink of a draft."""

_SCHEMES = {"nats": "nats", "tls": "nats", "kafka": "kafka"}
_FILES = tuple(name for name in FORMATS if name not in ("nats", "kafka"))


def source_of(address: str) -> Document:
    """Return the ``source`` block of an address.

    >>> source_of("nats://127.0.0.1:4222/ORDERS")
    {'format': 'nats', 'servers': 'nats://127.0.0.1:4222', 'stream': 'ORDERS'}
    >>> source_of("kafka://broker:9092/orders,returns")
    {'format': 'kafka', 'servers': 'broker:9092', 'topics': ['orders', 'returns']}
    >>> source_of("parquet:lake/orders")
    {'format': 'parquet', 'path': 'lake/orders'}

    Raises:
        ConfigError: it is no address, or does not name the streams or topics to read.
    """
    end, path = _end(address, "--from")
    if end["format"] == "nats":
        return {**end, "stream": _needed(path, address, "a stream: nats://host:4222/STREAM")}
    if end["format"] == "kafka":
        topics = _needed(path, address, "topics: kafka://host:9092/topic,topic").split(",")
        return {**end, "topics": topics[0] if len(topics) == 1 else topics}
    return end


def sink_of(address: str) -> Document:
    """Return the ``sink`` block of an address.

    >>> sink_of("nats://127.0.0.1:4222")
    {'format': 'nats', 'servers': 'nats://127.0.0.1:4222'}
    >>> sink_of("kafka://broker:9092")
    {'format': 'kafka', 'servers': 'broker:9092'}

    Raises:
        ConfigError: it is no address.
    """
    end, path = _end(address, "--to")
    if end["format"] == "nats" and path:
        return {**end, "stream": path}
    if end["format"] == "kafka" and path:
        problem = f"found {masked_url(address)!r}, expected brokers alone: a message's topic is its destination"
        raise ConfigError([Mistake("--to", problem)])
    return end


def from_environment(end: Document, variable: str | None = None) -> Document:
    """Return the endpoint with its servers as the default of a variable, so that one file serves several deployments.

    Addresses with a password in them are no defaults: the variable has to be set then.
    """
    if "servers" not in end:
        return end
    name = variable or {"nats": "NATS_URL", "kafka": "KAFKA_SERVERS"}[end["format"]]
    servers = end["servers"]
    default = "" if masked_url(servers) != servers else f":-{servers}"
    return {**end, "servers": f"${{{name}{default}}}"}


def _end(address: str, option: str) -> tuple[Document, str]:
    """Return the options shared by source and sink, and the text after the servers."""
    scheme, colon, rest = address.partition(":")
    if scheme in _FILES and colon and rest:
        return {"format": scheme, "path": rest}, ""
    if scheme not in _SCHEMES or not rest.startswith("//"):
        schemes = (*_SCHEMES, *_FILES)
        examples = "nats://host:4222/STREAM, kafka://host:9092/topic or parquet:folder"
        problem = f"found {masked_url(address)!r}, expected {examples}{did_you_mean(scheme, schemes)}"
        raise ConfigError([Mistake(option, problem)])
    authority, _, path = rest.removeprefix("//").partition("/")
    servers = authority if scheme == "kafka" else f"{scheme}://{authority}"
    return {"format": _SCHEMES[scheme], "servers": servers}, path.strip("/")


def _needed(path: str, address: str, expected: str) -> str:
    if not path:
        raise ConfigError([Mistake("--from", f"found {masked_url(address)!r}, expected {expected}")])
    return path


def named_after(file: Path) -> str:
    """Return the name of a route drafted from a file."""
    return file.name.partition(".")[0]
