"""Rules for destinations, and permissions to use them."""

from __future__ import annotations

import pytest

from turnout.conditions import kiwi
from turnout.errors import ConfigError, SubscriptionInvalidError
from turnout.subjects.pattern import Rights
from turnout.subjects.tokens import MAX_BYTES
from turnout.subscriptions import Subscription
from turnout.subscriptions.destinations import problem_of
from turnout.subscriptions.service import SubscriptionService
from turnout.subscriptions.stores.memory import MemoryStore


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
