"""Digests of tokens."""

from __future__ import annotations

from tests.rpc.test_tokens import sha256
from turnout.rpc.digests import Scrypt, digest_of_text


def test_digests():
    """A digest read back from its text recognises the same token, and shows nothing of it."""
    digest = Scrypt.of("s3cret")

    assert digest_of_text(str(digest)) == digest
    assert digest.fits("s3cret")
    assert not digest.fits("s3cre")
    assert Scrypt.of("s3cret") != digest
    assert digest_of_text(sha256("s3cret")).fits("s3cret")
