"""JSAck vectors: reply subjects, and what they say or why they say nothing (ADR-15)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.vectors.outcome import Outcome
from turnout.nats.jetstream.errors import NotJetStreamMessageError
from turnout.nats.protocol.positions import JSAck

_FIELDS = (
    "version",
    "domain",
    "account_hash",
    "stream",
    "consumer",
    "num_delivered",
    "stream_seq",
    "consumer_seq",
    "timestamp_ns",
    "num_pending",
)


def run(path: Path) -> Iterator[Outcome]:
    """Every vector of a file against the parser."""
    for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]:
        reply, expect = vector["reply"], vector["expect"]
        try:
            read = JSAck.parse(reply)
            actual = {name: getattr(read, name) for name in _FIELDS}
        except NotJetStreamMessageError:
            actual = {"error": "not_a_jetstream_message"}
        name = f"{reply!r} {vector.get('note', '')}".rstrip()
        if actual == expect:
            yield Outcome(name, "python", "passed")
        else:
            yield Outcome(name, "python", "failed", f"expected {expect}, got {actual}")
