"""Refused messages: which, why, and whether another attempt may help."""

from __future__ import annotations

import secrets
import threading

import pyarrow as pa
import pytest
from tests.nats.wire.samples import stored

from turnout.embedded import NatsServer
from turnout.errors import StreamError
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream
from turnout.nats.wire.packing import id_line, id_lines
from turnout.records.published import Published


@pytest.mark.parametrize("ids", [True, False])
def test_which_message_was_refused(nats_server: NatsServer, connection: Connection, stream: str, ids: bool) -> None:
    """It is named though messages with ids share a reply subject; the others of its chunk are stored, and once."""
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        for n in range(500):
            subject = "nobody.listens" if n == 250 else f"{stream}.{n}"
            publisher.publish(subject, b"x", message_id=f"r{n}" if ids else None)
        with pytest.raises(StreamError, match=r"no stream listens on 'nobody\.listens'"):
            publisher.flush()

    assert stored(connection, stream) == 499


def columns(subjects: list[str], payloads: list[bytes], ids: bool) -> tuple[pa.Array, pa.Array, pa.Array | None]:
    lines = id_lines(pa.array([f"c{n}" for n in range(len(subjects))])) if ids else None
    return pa.array(subjects), pa.array(payloads, pa.binary()), lines


@pytest.mark.parametrize("ids", [True, False])
def test_refusals_are_taken_note_of(nats_server: NatsServer, connection: Connection, stream: str, ids: bool) -> None:
    """By place and reason, whatever it was; all other messages are stored, and once."""
    full = f"FULL{secrets.token_hex(4)}"
    small = {"subjects": [f"{full}.a"], "max_msgs": 1, "discard": "new"}
    create_stream(connection, {"name": full, "storage": "memory", **small})
    good = [f"{stream}.{n % 7}" for n in range(900)]
    bad = {
        100: ("nobody.listens", b"x", "no stream listens on 'nobody.listens'"),
        200: ("a b", b"x", "'a b' is no subject"),
        300: (f"{stream}.big", b"x" * (1 << 20 | 1), "max_payload"),
        500: (f"{full}.a", b"x", "maximum messages exceeded"),
        800: ("nobody.listens", b"x", "no stream listens on 'nobody.listens'"),
    }
    subjects = [bad[n][0] if n in bad else subject for n, subject in enumerate(good)]
    payloads = [bad[n][1] if n in bad else b"%d" % n for n in range(len(good))]
    refused: dict[int, str] = {}
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened, window=200)
        publisher.publish(f"{full}.a", b"first")
        publisher.publish_columns(
            *columns(subjects, payloads, ids), refused=lambda place, why: refused.update({place: str(why)})
        )
        published = publisher.flush()

    assert sorted(refused) == sorted(bad)
    for place, (_, _, words) in bad.items():
        assert words in refused[place]
    assert stored(connection, stream) == 900 - len(bad)
    assert published == Published(900 - len(bad) + 1, 0)
    assert published.delivery.count == 900 - len(bad) + 1
    delete_stream(connection, full)


def test_known_messages_beside_a_refused_one(nats_server: NatsServer, stream: str) -> None:
    """Messages that are sent again are known to the stream, which stores no duplicates; the others are counted."""
    subjects = [f"{stream}.{n}" for n in range(10)]
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        publisher.publish_columns(*columns(subjects[:4], [b"x"] * 4, ids=True))
        publisher.flush()
        publisher.publish_columns(*columns([*subjects, "nobody.listens"], [b"x"] * 11, ids=True), lambda *_: None)

        assert publisher.flush() == Published(6, 4)


@pytest.mark.parametrize("ids", [True, False])
def test_a_forbidden_subject_concerns_its_messages_alone(ids: bool) -> None:
    """The server says only which subject it is; messages on it are refused, before and after, and the others stored."""
    config = 'authorization { users: [ {user: a, password: pw, permissions: {publish: {deny: "s.no.*"}}} ] }'
    with NatsServer(config=config) as server, Connection.open(server.url.replace("//", "//a:pw@")) as connection:
        create_stream(connection, {"name": "S", "subjects": ["s.>"], "storage": "memory"})
        subjects = [f"s.no.{n % 2}" if n % 5 == 0 else f"s.{n}" for n in range(1000)]
        refused: dict[int, str] = {}
        publisher = Publisher(connection, window=100)
        publisher.publish_columns(
            *columns(subjects, [b"x"] * 1000, ids), refused=lambda place, why: refused.update({place: str(why)})
        )
        published = publisher.flush()

        assert published == Published(800, 0)
        assert sorted(refused) == list(range(0, 1000, 5))
        assert "Permissions Violation for Publish to" in refused[0]
        with Connection.open(server.url.replace("//", "//a:pw@")) as reading:
            assert stored(reading, "S") == 800


def test_a_subject_that_no_stream_takes_is_given_up_at_once(nats_server: NatsServer) -> None:
    """The server knows its streams: there is nothing to wait for, and later messages are not even sent."""
    refused: list[int] = []
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        for _ in range(2):
            publisher.publish_columns(
                *columns(["nobody.at.all"] * 3, [b"x"] * 3, ids=True), refused=lambda place, _: refused.append(place)
            )
            assert publisher.flush() == Published(0, 0)

    assert sorted(refused) == [0, 0, 1, 1, 2, 2]


def test_a_subject_that_was_given_up_is_tried_again(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while: a publisher of an open split lives for days, and the stream may be made meanwhile."""
    monkeypatch.setattr("turnout.nats.wire._window._GIVEN_UP_SECONDS", -1.0)
    refused: list[int] = []
    with Connection.open(nats_server.url) as opened, Connection.open(nats_server.url) as other:
        publisher = Publisher(opened)

        def publish() -> Published:
            publisher.publish_columns(
                *columns(["late.a"], [b"x"], ids=True), refused=lambda row, _: refused.append(row)
            )
            return publisher.flush()

        assert publish() == Published(0, 0)
        create_stream(other, {"name": "LATE", "subjects": ["late.>"], "storage": "memory"})
        assert publish() == Published(1, 0)

    assert refused == [0]


def test_a_stream_without_a_leader_is_waited_for(
    nats_server: NatsServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens just now, but the server has a stream that takes the subject: messages are tried again."""
    questions: list[str] = []

    def two_streams(_connection: Connection, subject: str) -> list[str]:
        questions.append(subject)
        return ["LEADERLESS"]

    monkeypatch.setattr("turnout.nats.wire._window.streams_of", two_streams)
    refused: list[int] = []
    name = f"LATE{secrets.token_hex(4)}"
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        publisher.publish_columns(
            *columns([f"{name}.x"] * 3, [b"x"] * 3, ids=True), refused=lambda place, _: refused.append(place)
        )
        timer = threading.Timer(1.5, _create, (nats_server.url, name, f"{name}.>"))
        timer.start()
        published = publisher.flush()
        timer.join()
        delete_stream(opened, name)

    assert (refused, published.stored + published.duplicates) == ([], 3)
    assert set(questions) == {f"{name}.x"}


def test_a_stream_without_a_leader_for_too_long(nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as if the server were away: the publisher fails, and takes no message for undeliverable."""
    monkeypatch.setattr("turnout.nats.wire._window.streams_of", lambda *_: ["LEADERLESS"])
    refused: list[int] = []
    with Connection.open(nats_server.url, reconnect_timeout=0.6) as opened:
        publisher = Publisher(opened)
        publisher.publish_columns(
            *columns(["nobody.leads"] * 3, [b"x"] * 3, ids=True), refused=lambda place, _: refused.append(place)
        )
        with pytest.raises(StreamError, match=r"refused for too long .* as on 'nobody.leads': the stream that has"):
            publisher.flush()

    assert refused == []


def test_a_server_without_jetstream_concerns_all_messages() -> None:
    """No message is undeliverable because of it."""
    refused: list[int] = []
    with NatsServer(jetstream=False) as server, Connection.open(server.url, timeout=1) as opened:
        publisher = Publisher(opened)
        publisher.publish_columns(
            *columns(["s.a"] * 3, [b"x"] * 3, ids=True), refused=lambda place, _: refused.append(place)
        )
        with pytest.raises(StreamError):
            publisher.flush()

    assert refused == []


def _create(url: str, name: str, subjects: str) -> None:
    with Connection.open(url) as connection:
        create_stream(connection, {"name": name, "subjects": [subjects], "storage": "memory"})


def test_protected_subjects_are_never_sent(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """A request to JetStream's API from data is refused by row, as columns, as lists and one by one."""
    purge = f"$JS.API.STREAM.PURGE.{stream}"
    subjects = [f"{stream}.a", purge, f"{stream}.b", "_INBOX.x.y"]
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        for form in ("columns", "lists"):
            refused: dict[int, str] = {}

            def refuse(row: int, why: StreamError, refused: dict[int, str] = refused) -> None:
                refused[row] = str(why)

            if form == "columns":
                publisher.publish_columns(*columns(subjects, [b""] * 4, ids=False), refused=refuse)
            else:
                publisher.publish_lists(subjects, [b""] * 4, refused=refuse)
            assert publisher.flush() == Published(2, 0)
            assert sorted(refused) == [1, 3]
            assert repr(purge) in refused[1]
            assert "no pattern that begins with '$JS'" in refused[1]
        publisher.publish(purge, b"")
        with pytest.raises(StreamError, match="are the server's own"):
            publisher.flush()

    assert stored(connection, stream) == 4


def test_refused_before_anything_is_sent(nats_server: NatsServer, connection: Connection, stream: str) -> None:
    """Where refusals are errors, a bad subject at the end of many messages leaves the stream as it was."""
    subjects = [*[f"{stream}.a"] * 5000, f"{stream}.*"]
    with Connection.open(nats_server.url) as opened:
        publisher = Publisher(opened)
        with pytest.raises(StreamError, match="is no subject to publish on"):
            publisher.publish_columns(*columns(subjects, [b""] * 5001, ids=False))
        publisher.flush()

    assert stored(connection, stream) == 0


MAPPED = """
jetstream: enabled
accounts {
  A {
    jetstream: enabled
    users: [{user: a, password: pw}]
    mappings {
      "moved.b": "nostream.b"
      "moved.c": "taken.c"
      "moved.d": [{destination: "moved.d", weight: 0%}, {destination: "nostream.d", weight: 1%}]
    }
  }
}
"""


@pytest.mark.parametrize("ids", [True, False])
def test_a_subject_that_a_mapping_moves(ids: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages alone are refused, with subject and likely cause; the others are stored, and once."""
    monkeypatch.setattr("turnout.nats.wire.publisher._SILENCE_SECONDS", 2.0)
    with NatsServer(config=MAPPED) as server:
        url = server.url.replace("//", "//a:pw@")
        with Connection.open(url, reconnect_timeout=4.0) as opened, Connection.open(url) as other:
            create_stream(other, {"name": "M", "subjects": ["moved.>"], "storage": "memory"})
            # Something that takes messages and answers nothing.
            other.subscribe("taken.c")
            other.ping()
            names = ("a", "b", "a", "c", "a", "d", "a")
            refused: dict[int, str] = {}
            publisher = Publisher(opened)
            publisher.publish_columns(
                *columns([f"moved.{name}" for name in names], [b"x"] * len(names), ids),
                refused=lambda place, why: refused.update({place: str(why)}),
            )
            published = publisher.flush()

            assert stored(other, "M") == names.count("a") == published.stored
    assert sorted(refused) == [1, 3, 5]
    for place, reason in refused.items():
        assert f"moved.{names[place]}" in reason
        assert "a mapping of the account may move or drop it" in reason


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize("ids", [True, False])
def test_a_stream_without_acknowledgements(ids: bool, lists: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its messages is refused with the reason, and sent once; those for another stream are stored."""
    monkeypatch.setattr("turnout.nats.wire.publisher._SILENCE_SECONDS", 1.0)
    with NatsServer() as server, Connection.open(server.url) as opened, Connection.open(server.url) as other:
        create_stream(other, {"name": "QUIET", "subjects": ["quiet.>"], "storage": "memory", "no_ack": True})
        create_stream(other, {"name": "OK", "subjects": ["ok.>"], "storage": "memory"})
        subjects = [f"quiet.{n}" if n % 2 else f"ok.{n}" for n in range(20)]
        refused: dict[int, str] = {}
        publisher = Publisher(opened)

        def publish(mark: str) -> None:
            lines = [id_line(f"{mark}{n}") for n in range(20)] if ids else None
            if lists:
                publisher.publish_lists(subjects, [b"x"] * 20, lines, lambda at, why: refused.update({at: str(why)}))
            else:
                heads = None if lines is None else pa.array(lines, pa.binary())
                payloads = pa.array([b"x"] * 20, pa.binary())
                publisher.publish_columns(
                    pa.array(subjects), payloads, heads, lambda at, why: refused.update({at: str(why)})
                )

        publish("first")
        assert publisher.flush() == Published(10, 0)
        assert sorted(refused) == list(range(1, 20, 2))
        assert all(f"'quiet.{n}': the stream 'QUIET' has no_ack" in reason for n, reason in refused.items())
        # What is published after that is known to be refused, also on other subjects of the stream.
        refused.clear()
        subjects = [subject.replace("quiet.", "quiet.next.") for subject in subjects]
        publish("second")
        assert publisher.flush() == Published(10, 0)
        assert sorted(refused) == list(range(1, 20, 2))

        assert (stored(other, "OK"), stored(other, "QUIET")) == (20, 10)


def test_an_error_names_what_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where refusals are not collected, the error has the subject and the cause."""
    monkeypatch.setattr("turnout.nats.wire.publisher._SILENCE_SECONDS", 1.0)
    with NatsServer() as server, Connection.open(server.url) as opened, Connection.open(server.url) as other:
        create_stream(other, {"name": "QUIET", "subjects": ["quiet.>"], "storage": "memory", "no_ack": True})
        publisher = Publisher(opened)
        publisher.publish("quiet.a", b"x")
        with pytest.raises(StreamError, match=r"publishing on 'quiet.a': the stream 'QUIET' has no_ack"):
            publisher.flush()

        assert stored(other, "QUIET") == 1
