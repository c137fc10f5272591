"""Each option's value is looked at before the run: what was found, what was expected, and a guess."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import RouteError
from turnout.routes import Route
from turnout.routes.values import interval

SOURCE = "format: nats, servers: 'nats://127.0.0.1:4222', stream: S"
KAFKA = "format: kafka, servers: 'broker:9092'"
SINK = "format: nats, servers: 'nats://127.0.0.1:4222'"


def route(source: str = SOURCE, sink: str = SINK, more: str = "") -> str:
    return f"name: a\nsource: {{{source}}}\nsink: {{{sink}}}\n{more}\n"


def mistakes(text: str) -> dict[str, str]:
    """The problems by path; every one has a line."""
    with pytest.raises(RouteError) as raised:
        Route.parse(text, {})
    assert all(mistake.line for mistake in raised.value.mistakes)
    return {mistake.path: mistake.problem for mistake in raised.value.mistakes}


@pytest.mark.parametrize(
    ("source", "path", "problem"),
    [
        (SOURCE.replace("nats://", "gopher://u:hunter2@"), "servers", "found 'gopher://***@127.0.0.1:4222'"),
        (SOURCE.replace("nats://", "natz://"), "servers", 'did you mean "nats"?'),
        (SOURCE.replace("4222", "42222222"), "servers", "expected an address like nats://host:4222"),
        (SOURCE.replace("stream: S", "stream: 'a b>.*'"), "stream", "found 'a b>.*', expected the name of a stream"),
        (SOURCE.replace("stream: S", "stream: [A, b.c]"), "stream", "found 'b.c'"),
        (SOURCE.replace("stream: S", "stream: []"), "stream", "found [], expected at least one"),
        (SOURCE + ", start: earlist", "start", 'did you mean "earliest"?'),
        (SOURCE + ", start: -1", "start", "found -1, expected a sequence"),
        (SOURCE + ", start: {S.x: 1}", "start", "found 'S.x', expected the name of a stream"),
        (SOURCE + ", filterSubject: a..b", "filterSubject", "found 'a..b', expected a subject filter"),
        (SOURCE + ", apiPrefix: 'a.*'", "apiPrefix", "found 'a.*', expected a subject without wildcards"),
        (SOURCE + ", ackConsumer: a b", "ackConsumer", "found 'a b'"),
        (SOURCE + ", ackConsumer: c, pushDown: true", "", "pushDown and ackConsumer exclude each other"),
        (SOURCE + ", tlsCa: nowhere.pem", "tlsCa", "found 'nowhere.pem', expected a file: there is none at"),
        (SOURCE + ", user: a, token: b", "", "user and token exclude each other"),
        (SOURCE + ", password: b", "", "password needs user"),
        (SOURCE + ", start: {T: 1}", "", "start: found sequences for T, expected one for each of S"),
        (KAFKA.replace(":9092", "") + ", topics: t", "servers", "found 'broker', expected host:port"),
        (KAFKA + ", topics: a b", "topics", "found 'a b', expected a topic"),
        (KAFKA + ", topicPattern: '('", "topicPattern", "expected a Java regular expression"),
        (KAFKA + ", topics: t, start: latst", "start", 'did you mean "latest"?'),
    ],
)  # fmt: skip
def test_sources(source: str, path: str, problem: str) -> None:
    """A value that no server would take is a mistake."""
    problems = mistakes(route(source))

    assert problem in problems[f"source.{path}".rstrip(".")]


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("'nats://127.0.0.1:4222'", "'nats://u:p@a:1, tls://b, c:4222, [::1]:4222'"),
        SOURCE.replace("stream: S", "stream: 'A, B'") + ", start: {A: 1, B: 7}",
        SOURCE + ", start: '2026-01-31T12:00:00Z'",
        SOURCE + ", start: 17",
        SOURCE + ", filterSubject: [a.*, 'b.>'], apiPrefix: fromA., inboxPrefix: _IN, user: u, password: p",
        KAFKA + ", topics: [a, b.c_d-e], start: {a: {'0': 1}}",
        KAFKA + ", topicPattern: 'a.*'",
        KAFKA.replace("broker", "PLAINTEXT://a:1, [::1]") + ", topics: t",
    ],
)
def test_sources_that_are_right(source: str) -> None:
    """Every form that the documentation names is taken."""
    assert Route.parse(route(source), {}).source.format in ("nats", "kafka")


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("postgres://u:hunter2@h/db", "no store is named 'postgres://***@h/db'; expected one of grpc://"),
        ("sqlit:///x.db", 'did you mean "sqlite"?'),
        ("sqlite://x.db", "needs a third slash"),
        ("'sqlite:///x.db?mod=ro'", "unknown option 'mod'"),
        ("[mongodb://u:hunter2@h]", "expected text"),
    ],
)
def test_stores(store: str, problem: str) -> None:
    """A missing store is a mistake of the route, and no password is repeated."""
    problems = mistakes(route(more=f"subscriptions: {{store: {store}}}"))["subscriptions.store"]

    assert problem in problems
    assert "hunter2" not in problems


def test_secrets_under_spark() -> None:
    """A value under a name like that of a secret is not shown, and neither is user info in any URL."""
    problems = mistakes(route(more="spark: {fs.s3a.secret.key: [hunter2], url: ['http://u:hunter2@h']}"))

    assert problems['spark["fs.s3a.secret.key"]'].startswith("found a value that is not shown, expected text or")
    assert "http://***@h" in problems["spark.url"]


def test_secrets_in_a_connectors_properties() -> None:
    """An unknown option whose name is that of a secret is named without its value."""
    block = "transforms: [{type: InsertHeader, header: a, value.literal: b, password: hunter2}]"

    assert "hunter2" not in str(mistakes(route(more=block)))


def test_printed_endpoints_show_no_secret() -> None:
    """Printing the route shows none either."""
    source = SOURCE.replace("nats://", "nats://ann:hunter2@") + ", nkeySeed: SUHUNTER2"

    shown = repr(Route.parse(route(source), {}).source)

    assert "hunter2" not in shown.lower()
    assert "nats://***@127.0.0.1:4222" in shown


@pytest.mark.parametrize("topic", ["dead letters", "dead.*", "dead..x", "a:dead letters"])
def test_a_dead_letter_that_cannot_be_sent(topic: str) -> None:
    """Records that fail would fail again."""
    text = f"name: a\nsource: {{{SOURCE}}}\nsinks: {{a: {{{SINK}}}}}\ndeadLetter: {{topic: '{topic}'}}\n"

    assert mistakes(text)["deadLetter.topic"] == f"found {topic!r}, expected a subject that can be published to"


@pytest.mark.parametrize(
    ("topic", "more", "problem"),
    [
        ("$JS.API.STREAM.PURGE.OUT", "", "subjects that begin with '$' are the server's own, unless the sink's allow"),
        ("a:$JS.API.STREAM.PURGE.OUT", ", allow: ['>']", "the server's own"),
        ("_INBOX.x", "", "an inbox"),
        ("js.STREAM.PURGE.OUT", ", apiPrefix: js", "begin with 'js.' are the connection's own"),
        ("replies.x", ", inboxPrefix: replies", "begin with 'replies.' are the connection's own"),
        ("$KV.dead.x", ", allow: ['$KV.dead.>']", None),
        ("dead", ", allow: ['deliver.>']", None),
    ],
)
def test_dead_letters_to_subjects_of_the_server(topic: str, more: str, problem: str | None) -> None:
    """A failed record would be a request to JetStream's API; a bucket is opened by name."""
    text = f"name: a\nsource: {{{SOURCE}}}\nsinks: {{a: {{{SINK}{more}}}}}\ndeadLetter: {{topic: '{topic}'}}\n"
    if problem is None:
        Route.parse(text, {})
    else:
        assert problem in mistakes(text)["deadLetter.topic"]


INTERVALS = [
    "1 second",
    "500 milliseconds",
    "interval 1 minute 30 seconds",
    "1.5 seconds",
    "2 HOURS",
    "+ 1 day",
    "1 week",
]
NO_INTERVALS = ["200 ms", "1s", "1second", "soon", "", "1", "1.5 minutes", "second", "1 second,", "1  parsec"]


@pytest.mark.parametrize("text", INTERVALS)
def test_intervals(text: str) -> None:
    """Intervals that Spark accepts are accepted."""
    assert interval(text) == text


@pytest.mark.parametrize("text", NO_INTERVALS)
def test_what_is_no_interval(text: str) -> None:
    """Intervals that Spark refuses are refused, with a suggestion if possible."""
    with pytest.raises(ValueError, match="expected an interval") as raised:
        interval(text)

    assert ('did you mean "200 milliseconds"?' in str(raised.value)) == (text == "200 ms")


def test_a_files_place_is_the_routes(tmp_path: Path) -> None:
    """Files, store and checkpoint start from the route's folder, wherever it is run from."""
    (tmp_path / "ca.pem").write_text("x")
    more = "subscriptions: {store: 'sqlite:///a b.db?timeout=1'}\ncheckpoint: ck"
    (tmp_path / "route.yaml").write_text(route(SOURCE + ", tlsCa: ca.pem", more=more))

    loaded = Route.load(tmp_path / "route.yaml", {})

    assert loaded.source.options()["tlsCa"] == str(tmp_path / "ca.pem")
    assert loaded.subscriptions is not None
    assert loaded.subscriptions.store == f"sqlite:///{tmp_path}/a%20b.db?timeout=1"
    assert loaded.checkpoint == str(tmp_path / "ck")


def test_what_lies_elsewhere_stays() -> None:
    """A URL is not resolved relative to the route file."""
    loaded = Route.parse(route(more="subscriptions: {store: 'mongodb://h/db'}\ncheckpoint: s3a://b/ck"), {})

    assert loaded.subscriptions is not None
    assert (loaded.subscriptions.store, loaded.checkpoint) == ("mongodb://h/db", "s3a://b/ck")
