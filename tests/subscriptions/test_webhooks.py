"""Webhook destinations: valid ones, and the subjects of their deliveries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.subjects import is_publishable
from turnout.subscriptions.destinations import problem_of
from turnout.subscriptions.webhooks import delivery_address, delivery_subject, webhook_problem


@pytest.mark.parametrize(
    ("destination", "problem"),
    [
        ("https://", "no host"),
        ("https:///path", "no host"),
        ("https://user:secret@host/", "a login"),
        ("https://host/#part", "a fragment"),
        ("https://host:port/", "Port could not be cast"),
        ("https://host:99999/", "out of range"),
        ("https://host:0/", "port 0"),
        (r"https://a\.example/x", "its host is no name and no address"),
        ("https://../x", "its host"),
        ("https://a..b/x", "its host"),
        (f"https://{'a' * 64}.example/x", "its host"),
        (f"https://{'a.' * 130}example/x", "its host"),
        ("https://%41.example/x", "its host"),
        ("https://a|b/x", "its host"),
        ("https://[v1.a]/x", "its host"),
        ("https://[::g]/x", "'::g' does not appear to be"),
        ("https://host/a b", "spaces"),
        ("https://host/\r\nX: 1", "control characters"),
        ("https://hôte/", "beyond ASCII"),
        ("https://host/" + "a" * 1024, "1,037 characters"),
        ("webhook:", "names no endpoint"),
        ("webhook:a.b", "names no endpoint"),
    ],
)
def test_problems(destination: str, problem: str) -> None:
    """An invalid URL is refused, and the reason names the value found."""
    assert problem in (webhook_problem(destination) or "")


def test_stored_urls() -> None:
    """A store takes a URL that a request can be sent to, although no subject looks like it, and refuses others."""
    assert problem_of("https://host:8443/v1/*/a..b?x=1&y=>") is None
    for host in ("a_b.example", "xn--mnchen-3ya.example.", "10.1.2.3", "[2001:db8::1]:8443", "localhost:8080"):
        assert problem_of(f"https://{host}/x") is None
    assert "no host" in (problem_of("https:///a") or "")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)


@given(TEXT, TEXT)
def test_subjects_restore(destination: str, subscription: str) -> None:
    """A delivery's subject can be published to, and gives back endpoint and subscription, whatever they hold."""
    subject = delivery_subject("deliver", destination, subscription)

    assert is_publishable(subject)
    assert delivery_address("deliver", subject) == (destination, subscription)


@pytest.mark.parametrize("subject", ["deliver.a", "deliver.a.b.c", "other.YQ.YQ", "deliver.a$.YQ", "deliver._w.YQ"])
def test_other_subjects(subject: str) -> None:
    """A subject that is not a delivery's has no address."""
    assert delivery_address("deliver", subject) is None
