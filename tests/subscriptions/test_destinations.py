"""Rules for destinations, and permissions to use them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.conditions import kiwi
from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subjects import is_publishable
from turnout.subjects.pattern import MAX_BYTES, Rights
from turnout.subscriptions import Subscription
from turnout.subscriptions.destinations import delivery_address, delivery_subject, problem_of, webhook_problem
from turnout.subscriptions.service import SubscriptionService
from turnout.subscriptions.stores.memory import MemoryStore


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


def to(*destinations: str) -> Subscription:
    return Subscription(destinations, kiwi("k", "v"))


@pytest.mark.parametrize("destination", ["dst0", "a.b.c", "sink:a.b", "ключ.née", "a*b.c>", "$KV.b.k", "x" * MAX_BYTES])
def test_what_can_be_published_to(destination: str) -> None:
    """Any text between dots; a star inside a token is a plain character. Rights are another question."""
    assert problem_of(destination) is None


@pytest.mark.parametrize(
    ("destination", "words"),
    [
        ("", "it is blank"),
        (" \t", "it is blank"),
        ("a b", "no subject can hold ' ' (at position 1)"),
        ("out.\u2003x", "(at position 4)"),
        ("out\r\nPUB other 1\r\nx", r"no subject can hold '\r' (at position 3)"),
        ("a\x00b", r"no subject can hold '\x00'"),
        ("a\x7f", r"no subject can hold '\x7f'"),
        ("\ud800", r"no subject can hold '\ud800'"),
        ("out.>", "the wildcard '>' (at position 4)"),
        ("*.x", "the wildcard '*' (at position 0)"),
        ("out..x", "an empty token at position 4"),
        (".out", "an empty token at position 0"),
        ("out.", "an empty token at position 4"),
        ("sink:", "there is no subject behind position 5"),
        ("sink:>", "the wildcard '>' (at position 5)"),
        ("x" * 5000, "5,000 bytes, at most 2,048"),
        ("é" * 1500, "3,000 bytes, at most 2,048"),
    ],
)
def test_what_cannot_be_published_to(destination: str, words: str) -> None:
    """The reason says what is wrong, and where."""
    problem = problem_of(destination)

    assert problem is not None
    assert problem.startswith("cannot be published to: ")
    assert words in problem


@pytest.mark.parametrize("subject", ["$JS.API.STREAM.DELETE.S", "$SYS.REQ.X", "$KV.b.k", "$O.b.C.x", "$", "_INBOX.a.b"])
def test_the_servers_own_subjects_are_protected(subject: str) -> None:
    """Nothing opens them but a pattern that names their first token: a wildcard there does not."""
    first = subject.split(".")[0]

    assert Rights().refusal(subject) is not None
    assert Rights((">", "*.>")).refusal(subject) is not None
    assert Rights((f"{first}.>", first)).refusal(subject) is None


def test_patterns_are_all_that_is_allowed() -> None:
    """If patterns are set, a subject must match one of them."""
    rights = Rights(("deliver.>", "audit.*"))

    assert rights.refusal("deliver.a.b") is None
    assert rights.refusal("audit.a") is None
    assert rights.refusal("audit.a.b") == "is not allowed: only deliver.>, audit.* are"
    assert Rights().refusal("anything.else") is None
    assert Rights(()).refusal("anything.else") == "is not allowed: nothing is"


def test_what_the_route_reads_is_protected() -> None:
    """It would read its own messages again, for ever, unless a pattern names the subject."""

    def own(subject: str) -> bool:
        return subject.startswith("in.")

    assert "would read its own messages again" in (Rights(own=own).refusal("in.a") or "")
    assert Rights(own=own).refusal("out.a") is None
    assert Rights(("in.again.>",), own).refusal("in.again.x") is None


def test_a_pattern_that_is_no_subject() -> None:
    """It is named with its place."""
    with pytest.raises(ConfigError, match=r"allow\[1\]: .*'deliver\.>\.x'"):
        Rights.of(["deliver.>", "deliver.>.x"])


def test_the_service_keeps_rights() -> None:
    """It takes only what it allows; behind a sink's name as well."""
    usual = SubscriptionService(MemoryStore())
    narrow = SubscriptionService(MemoryStore(), rights=Rights(("deliver.>",)))

    usual.create(to("orders.new", "archive:orders.new"))
    narrow.create(to("deliver.a"))
    for service, destination in (
        (usual, "$JS.API.STREAM.PURGE.S"),
        (usual, "archive:$SYS.x"),
        (narrow, "orders.new"),
        (narrow, "archive:deliver.a"),
    ):
        with pytest.raises(SubscriptionInvalidError, match=r"route\.destinations\[1\]: .* is not allowed"):
            service.create(to("deliver.a", destination))
    assert len(usual.store.search_by_metadata({}).items) == len(narrow.store.search_by_metadata({}).items) == 1


def test_a_pattern_may_name_a_sink() -> None:
    """Protected subjects remain forbidden unless the pattern after the name allows them."""
    named = SubscriptionService(MemoryStore(), rights=Rights(("archive:deliver.>", "kv:$KV.b.*", "*.c.k")))

    named.create(to("archive:deliver.a", "kv:$KV.b.k"))
    with pytest.raises(SubscriptionInvalidError, match="the server's own"):
        named.create(to("kv:$KV.c.k"))
