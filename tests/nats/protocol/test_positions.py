"""JSAck by its vectors, and by construction."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.vectors import jsack
from tests.vectors.outcome import Outcome

from turnout.nats.jetstream.errors import NotJetStreamMessageError
from turnout.nats.protocol.positions import JSAck

VECTORS = list(jsack.run(Path(__file__).parents[2] / "vectors" / "jetstream" / "jsack.json"))
NAMES = st.text(st.characters(blacklist_characters=".*> \r\n\t", blacklist_categories=("Cs", "Cc")), min_size=1)
NUMBERS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("outcome", VECTORS, ids=lambda outcome: outcome.name)
def test_vectors(outcome: Outcome) -> None:
    """Each reply of the vectors is read as they say."""
    assert outcome.status == "passed", outcome.reason


def test_there_are_vectors() -> None:
    """An empty file of vectors proves nothing."""
    assert len(VECTORS) >= 20


@given(st.sampled_from([1, 2]), NAMES, NAMES, NAMES, st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_round_trip(version: int, stream: str, consumer: str, domain: str, numbers: tuple[int, ...]) -> None:
    """A formatted position is parsed unchanged, for any names and numbers."""
    given_domain = "" if version == 1 or domain == "_" else domain
    ack = JSAck(version, given_domain, None if version == 1 else "hash", stream, consumer, *numbers)

    assert ack == JSAck.parse(str(ack))


@given(st.text())
def test_anything_else_is_an_error_of_ours(text: str) -> None:
    """Any other reply raises NotJetStreamMessageError, never another exception."""
    for reply in (text, f"$JS.ACK.{text}", f"$JS.ACK.S.C.1.2.3.4.{text}"):
        with contextlib.suppress(NotJetStreamMessageError):
            assert isinstance(JSAck.parse(reply), JSAck)


def test_time() -> None:
    """Nanoseconds are kept; the time is cut to microseconds, exactly."""
    ack = JSAck.parse("$JS.ACK.S.C.1.1.1.1795250826015188396.0")

    assert ack.timestamp_ns == 1795250826015188396
    assert ack.timestamp == datetime.fromtimestamp(1795250826, UTC).replace(microsecond=15188)
