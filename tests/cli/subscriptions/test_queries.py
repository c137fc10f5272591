"""``turnout subscriptions analyze`` as a person or a script runs it."""

from __future__ import annotations

import json

import pytest

from turnout.conditions import parse
from turnout.nats.wire import Connection, create_stream
from turnout.subscriptions import Subscription, open_store

ROUTE = """
name: analysed
source: {{format: nats, servers: "{url}", stream: ANALYSED}}
value: {{format: json}}
mappings: {{"seen.drop": {{destination: seen.drop, weight: 0%}}}}
subscriptions: {{store: "sqlite:///subscriptions.db", metadata: {{city: value.city, n: value.n}}}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: analysed.dead}}
errors: {{tolerance: all}}
"""


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store in the present folder."""
    monkeypatch.chdir(tmp_path)
    opened = open_store("sqlite:///subscriptions.db")
    for id_, text, to in (
        ("oulu", "city:Oulu", "got.oulu"),
        ("late", "city:Oulu AND n>5", "got.oulu"),
        ("turku", "city:Turku AND n>5", "lost.turku"),
        ("again", "n>5 AND city:Turku", "lost.turku"),
        ("never", "n<5 AND n>9", "got.never"),
    ):
        opened.create(Subscription((to,), parse(text), id=id_))
    yield opened
    opened.close()


def test_as_text(turnout, store) -> None:
    """Duplicates, the subsumed and the impossible, each with its reason."""
    code, out, err = turnout("subscriptions", "analyze", "--hottest", "1")

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "5 subscriptions at revision 5, in 4 forms",
        "equivalent  1",
        "    again, turku (duplicates): n>5 AND city:Turku",
        "subsumed  1",
        "    late by oulu, which has its destinations: city:Oulu AND n>5 is within city:Oulu",
        "never true  1",
        "    never: n<5 and n>9",
        "looked up by 3 anchors for 5 terms; the hottest:",
        "    city = 'Oulu': 2 terms",
    ]


def test_against_a_stream(turnout, store, tmp_path, nats_server) -> None:
    """Unmatched subscriptions, wasted verifications, exclusive deliveries, and destinations without a stream."""
    (tmp_path / "route.yaml").write_text(ROUTE.format(url=nats_server.url), encoding="utf-8")
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "ANALYSED", "subjects": ["seen.>"], "storage": "memory"})
        create_stream(connection, {"name": "ANALYSED-OUT", "subjects": ["got.>"], "storage": "memory"})
        for body in (b'{"city":"Oulu","n":9}', b'{"city":"Oulu","n":1}', b"{", b'{"city":"Turku","n":2}'):
            connection.request("seen.a", body)

    code, out, err = turnout("subscriptions", "analyze", "--against", "route.yaml", "--json")

    analysis = json.loads(out)
    assert (code, err) == (0, "")
    assert analysis["traffic"] == {
        "records": 3,
        "matches": 3,
        "never": ["again", "never", "turku"],
        "losses": [{"id": "oulu", "destination": "got.oulu", "only": 1, "deliveries": 2}],
    }
    vain = {anchor["anchor"]: (anchor["messages"], anchor["in_vain"]) for anchor in analysis["access"]["hottest"]}
    assert vain == {"city = 'Oulu'": (2, 1), "city = 'Turku'": (1, 2), "n has ''": (3, 3)}
    assert analysis["unread"] == [{"destination": "lost.turku", "ids": ["again", "turku"]}]
    of_two = turnout("subscriptions", "analyze", "--against", "route.yaml", "--from", "2", "--to", "3", "--json")[1]
    assert json.loads(of_two)["traffic"]["records"] == 1
    future = turnout("subscriptions", "analyze", "--against", "route.yaml", "--from", "2100-01-01", "--json")[1]
    assert json.loads(future)["traffic"]["records"] == 0


def test_a_place_that_is_none(turnout, store, tmp_path) -> None:
    """Exit code 2, with what was expected."""
    (tmp_path / "route.yaml").write_text(ROUTE.format(url="nats://127.0.0.1:1"), encoding="utf-8")

    code, _, err = turnout("subscriptions", "analyze", "--against", "route.yaml", "--from", "yesterday")

    assert code == 2
    assert "--from: expected earliest, latest, a sequence, an ISO time, an age such as 10m" in err


def test_spark_without_records(turnout, store) -> None:
    """A request without records is refused, and no JVM is started."""
    code, _, err = turnout("subscriptions", "analyze", "--spark")

    assert code == 2
    assert "--spark: expected --against: without records there is nothing to match" in err


def test_keys_that_are_nearly_listed(turnout, store, tmp_path, nats_server) -> None:
    """A key that a condition misspells is named with the listed one; another may be a header."""
    (tmp_path / "route.yaml").write_text(ROUTE.format(url=nats_server.url), encoding="utf-8")
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "ANALYSED", "subjects": ["seen.>"], "storage": "memory"})
    store.create(Subscription(("got.oulu",), parse("ctiy:Oulu AND trace-id exists AND subject:a"), id="typo"))

    code, _, err = turnout("subscriptions", "analyze", "--against", "route.yaml")

    problem = 'the route lists no such name; did you mean "city"?'
    assert (code, err) == (0, f"warning: ctiy: {problem} Without such a header it is absent, in: typo\n")
