"""The rule on TLS: who encrypts, who refuses."""

from __future__ import annotations

import pytest

from turnout.errors import StreamError
from turnout.nats.protocol.security import begins_tls


@pytest.mark.parametrize(
    ("greeting", "required", "expected"),
    [
        ({}, False, False),
        ({"tls_available": True}, False, False),
        ({"tls_required": True}, False, True),
        ({"tls_available": True}, True, True),
        ({"tls_required": True}, True, True),
    ],
)
def test_when_a_handshake_follows(greeting: dict[str, object], required: bool, expected: bool) -> None:
    """A handshake follows if the server requires it, or if both sides want it."""
    assert begins_tls(greeting, requested=required, server="a:1") is expected


@pytest.mark.parametrize("greeting", [{}, {"tls_required": False, "tls_available": False}])
def test_tls_that_is_not_offered(greeting: dict[str, object]) -> None:
    """Asked for and not offered is a refusal that names the server."""
    with pytest.raises(StreamError, match="a:1 offers no TLS"):
        begins_tls(greeting, requested=True, server="a:1")
