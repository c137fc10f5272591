"""Seals of dead letters: without the route's secret, a letter cannot be written or changed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, ROUTE, SINK, batch, program, sent
from turnout.engine.letter_seal import SEAL, is_sealed, seal
from turnout.engine.messages import VALUE_DIGEST, VALUE_LEFT_OUT
from turnout.errors import RouteError
from turnout.routes import Route

SECRET = "a secret of sixteen or more"
SEALED = DEAD.replace("dead}", f'dead, secret: "{SECRET}"}}')

names = st.text(st.characters(codec="ascii", exclude_characters=": \r\n\t\f\v"), min_size=1, max_size=8)
values = st.binary(max_size=8).map(lambda raw: raw.replace(b"\r", b"").replace(b"\n", b""))
pairs = st.lists(st.tuples(names.filter(lambda name: not name.lower().startswith("nats-")), values), max_size=4)


@given(pairs, pairs, values, values)
def test_a_seal_is_of_one_message(ours, others, value, another) -> None:
    """Other headers, in other order or split elsewhere, or another value, have another seal."""
    written = seal(SECRET, ours, value)

    assert is_sealed(SECRET, ours, value, written)
    assert not is_sealed(f"{SECRET}!", ours, value, written)
    assert not is_sealed(SECRET, ours, value, None)
    stripped = [[(name, raw.lstrip(b" \t")) for name, raw in some] for some in (ours, others)]
    assume(stripped[0] != stripped[1] or value != another)
    assert not is_sealed(SECRET, others, another, written)


def test_what_a_server_adds_is_not_sealed() -> None:
    """A message id, a source and blanks before a value change nothing."""
    written = seal(SECRET, [("A", b" 1"), ("B", None)], None)

    assert is_sealed(
        SECRET, [("Nats-Msg-Id", b"x"), ("A", b"1"), ("B", b""), ("Nats-Stream-Source", b"y")], b"", written
    )


def test_a_dead_letter_keeps_its_seal_without_its_value() -> None:
    """A letter that is too large for its server goes without its value, and with the digest of it."""
    result = program(SINK, SEALED).run(batch([{"value": b"{" * 99, "headers": [("Kind", "odd")]}]))

    ((_, _, value, headers),) = sent(result.messages)
    ((_, _, nothing, cut),) = sent(result.messages.emptied(np.array([0])))

    assert is_sealed(SECRET, headers, value, dict(headers)[SEAL].decode())
    assert [name for name, _ in cut[-3:]] == [SEAL, VALUE_LEFT_OUT, VALUE_DIGEST]
    assert is_sealed(SECRET, cut, nothing, dict(cut)[SEAL].decode())
    assert not is_sealed(SECRET, cut[:-1], nothing, dict(cut)[SEAL].decode())
    assert not is_sealed(SECRET, cut, b"other", dict(cut)[SEAL].decode())


def test_a_secret_is_not_shown() -> None:
    """Neither a route nor a mistake in it quotes the secret."""
    assert SECRET not in repr(Route.parse(ROUTE + SINK + SEALED, {}))

    with pytest.raises(RouteError, match=r"deadLetter\.secret") as wrong:
        Route.parse(ROUTE + SINK + SEALED.replace(SECRET, "short one"), {})

    assert "short one" not in str(wrong.value)
