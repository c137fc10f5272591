"""Dead letters of deliveries that fail or that a server refuses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.engine.batches import DEAD, ROUTE, SINK, WANTED, batch, program, sent
from tests.engine.routed import OULU, RAUMA, TWO_SINKS, dead, to
from turnout.conditions import kiwi
from turnout.engine import Counts
from turnout.engine.dead_letters import DESTINATION, SEAL, SUBSCRIPTION, is_sealed, seal
from turnout.engine.messages import VALUE_DIGEST, VALUE_LEFT_OUT
from turnout.errors import RouteError, RunError
from turnout.routes import Route
from turnout.subscriptions.index import Index

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


BAD = {
    "a b": "no subject can hold ' '",
    "out.>": "the wildcard '>'",
    "*": "the wildcard '*'",
    "out..x": "an empty token",
    "out\r\nPUB x 1\r\n": r"no subject can hold '\r'",
    "o\x00ut": r"no subject can hold '\x00'",
    "x" * 5000: "5,000 bytes",
    "$JS.API.STREAM.DELETE.S": "the server's own",
    "$SYS.REQ.ACCOUNT.X": "the server's own",
    "$KV.bucket.key": "the server's own",
    "$O.bucket.C.x": "the server's own",
    "_INBOX.abc.1": "an inbox",
    "_R_.abc.1": "an inbox",
}


@pytest.mark.parametrize("destination", BAD)
def test_a_delivery_that_cannot_be_is_a_dead_letter(destination: str) -> None:
    """The record as it came, with reason, subscription and destination; the good subscriptions get theirs."""
    index = Index.of([to("out.a", id="good"), to("out.b", destination, id="half"), to(destination, id="bad")])

    result = program(SINK, DEAD, WANTED).run(batch([{"value": OULU, "headers": [("Kind", "x")]}]), index)

    topics = Counter(result.messages.topics.to_pylist())
    letters = dead(result.messages)
    assert topics == {"out.a": 1, "out.b": 1, "dead": 2}
    assert sorted(letter[SUBSCRIPTION] for letter in letters) == ["bad", "half"]
    shown = destination.encode("unicode_escape").decode() if not destination.isprintable() else destination
    for letter in letters:
        assert letter[DESTINATION] == shown
        assert BAD[destination] in letter["__connect.errors.exception.message"]
        assert f"subscription '{letter[SUBSCRIPTION]}'" in letter["__connect.errors.exception.message"]
        assert letter["__connect.errors.stage"] == "TASK_PUT"
        assert letter["__connect.errors.offset"] == "1"
        assert letter["Kind"] == "x"
    assert result.counts == Counts(read=1, delivered=1, messages=2, undeliverable=2)
    assert len(set(result.messages.ids.to_pylist())) == 4


def test_a_delivery_to_the_connections_own_subjects() -> None:
    """An API prefix and an inbox prefix are no destinations, as ``$JS.`` and ``_INBOX.`` are none."""
    sink = SINK.replace("servers:", "apiPrefix: hub, inboxPrefix: replies, servers:")
    index = Index.of([to("hub.STREAM.PURGE.OUT", id="api"), to("replies.a", id="inbox"), to("hubs.a", id="good")])

    result = program(sink, DEAD, WANTED).run(batch([{"value": OULU}]), index)

    assert Counter(result.messages.topics.to_pylist()) == {"hubs.a": 1, "dead": 2}
    assert sorted(letter[SUBSCRIPTION] for letter in dead(result.messages)) == ["api", "inbox"]


def test_dead_letters_have_the_same_ids_when_it_is_done_again() -> None:
    """A stream that has them already stores nothing twice."""
    index = Index.of([to("out..x", "out.>", id="bad")])
    ids = [program(SINK, DEAD, WANTED).run(batch([{"value": OULU}]), index).messages.ids.to_pylist() for _ in range(2)]

    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_a_record_whose_every_delivery_failed_is_dead_lettered() -> None:
    """Once among the records, with a dead letter for each delivery; one that has a good delivery is delivered."""
    index = Index.of([to("out..x", "a b", id="bad"), to("out.a", id="good", condition=kiwi("town", "Oulu"))])

    result = program(SINK, DEAD, WANTED).run(batch([{"value": OULU}, {"value": RAUMA}]), index)

    assert result.counts == Counts(read=2, delivered=1, dead_lettered=1, messages=1, undeliverable=4)
    assert result.counts.conserved
    assert len(dead(result.messages)) == 4


def test_without_a_dead_letter_topic_deliveries_are_discarded() -> None:
    """Counted, and logged as other failures are; the others go out."""
    index = Index.of([to("out.a", "a b", id="half", condition=kiwi("town", "Oulu")), to("c d", id="bad")])
    engine = program(SINK, "errors: {tolerance: all, log: true}\n", WANTED)

    result = engine.run(batch([{"value": OULU}, {"value": RAUMA}]), index)

    assert result.messages.topics.to_pylist() == ["out.a"]
    assert result.counts == Counts(read=2, delivered=1, discarded=1, messages=1, undeliverable=3)
    assert [line["offset"] for line in result.failures] == ["1", "1", "2"]
    assert "subscription 'bad': destination 'c d' cannot be published to" in result.failures[2]["message"]


def test_the_dead_letter_topic_may_be_in_another_sink() -> None:
    """Dead letters of deliveries go where those of records go."""
    letters = "deadLetter: {topic: two:dead}\nerrors: {tolerance: all}\n"
    index = Index.of([to("a b", "c", id="s")])

    messages = program(TWO_SINKS, letters, WANTED).run(batch([{"value": OULU}, {"value": b"{"}]), index).messages

    assert messages.of_sink(0).topics.to_pylist() == ["c"]
    assert messages.of_sink(1).topics.to_pylist() == ["dead", "dead"]


def test_a_record_that_fails_is_one_dead_letter() -> None:
    """A record that cannot be written has no deliveries."""
    index = Index.of([to("out.a", "a b", id="s")])
    records = batch([{"value": OULU, "headers": [("bad name", "x")]}])

    result = program(SINK, DEAD, WANTED).run(records, index)

    assert result.counts == Counts(read=1, dead_lettered=1)
    assert dead(result.messages)[0]["__connect.errors.stage"] == "HEADER_CONVERTER"


def test_messages_that_a_server_refuses() -> None:
    """They become dead letters, and the counts are what they would have been had it been known before."""
    index = Index.of([to("out.a", "out.b", id="s"), to("out.c", id="t", condition=kiwi("town", "Oulu"))])
    result = program(SINK, DEAD, WANTED).run(batch([{"value": OULU}, {"value": RAUMA}, {"value": b"{"}]), index)
    topics = result.messages.topics.to_pylist()
    refused = {at: "no stream takes it" for at, topic in enumerate(topics) if topic in ("out.a", "out.b")}

    correction = result.refused(refused)

    assert correction.messages.topics.to_pylist() == ["dead"] * 4
    assert sorted((letter[SUBSCRIPTION], letter[DESTINATION]) for letter in dead(correction.messages)) == sorted(
        2 * [("s", "out.a"), ("s", "out.b")]
    )
    assert {letter["__connect.errors.offset"] for letter in dead(correction.messages)} == {"1", "2"}
    assert result.counts + correction.counts == Counts(
        read=3, delivered=1, dead_lettered=2, messages=1, undeliverable=4
    )
    assert not set(correction.messages.ids.to_pylist()) & set(result.messages.ids.to_pylist())


def test_refused_messages_without_a_dead_letter_topic() -> None:
    """They are discarded, counted and logged."""
    engine = program(SINK, "errors: {tolerance: all, log: true}\n", WANTED)
    result = engine.run(batch([{"value": OULU}]), Index.of([to("out.a", id="s")]))

    correction = result.refused({0: "no stream takes it"})

    assert len(correction.messages) == 0
    assert (result.counts + correction.counts) == Counts(read=1, discarded=1, undeliverable=1)
    assert "subscription 's': destination 'out.a' no stream takes it" in correction.failures[0]["message"]


def test_a_refusal_that_stops_the_run() -> None:
    """If nothing is tolerated, or a dead letter is refused, the run stops."""
    index = Index.of([to("out.a", id="s")])
    strict = program(SINK, WANTED).run(batch([{"value": OULU}]), index)
    tolerant = program(SINK, DEAD, WANTED).run(batch([{"value": OULU}, {"value": b"{"}]), index)

    with pytest.raises(RunError, match=r"offset 1: TASK_PUT: .*subscription 's': destination 'out\.a' is gone"):
        strict.check(0, "is gone")
    tolerant.check(0, "is gone")
    with pytest.raises(RunError, match="a dead letter cannot be written to 'dead': is gone"):
        tolerant.check(1, "is gone")
