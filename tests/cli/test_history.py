"""``turnout redrive``, ``tap`` and ``replay`` as a script runs them; what people see is on the page about history."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream

ROUTE = """
name: told
source: {{format: nats, servers: "{url}", stream: TOLD}}
value: {{format: json}}
transforms:
  - {{name: mark, type: InsertField$Value, static.field: via, static.value: turnout}}
mappings: {{"tale.in": told.out}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: told.dead}}
errors: {{tolerance: all}}
"""


@pytest.fixture
def route(tmp_path, nats_server: NatsServer) -> Iterator[str]:
    """A route file over a stream of two records, one of them no JSON, and a stream with its dead letter."""
    path = tmp_path / "told.yaml"
    path.write_text(ROUTE.format(url=nats_server.url), encoding="utf-8")
    context = {"topic": "tale.in", "partition": "0", "offset": "2", "connector.name": "told"}
    context |= {"stage": "VALUE_CONVERTER", "exception.message": "no JSON"}
    with Connection.open(nats_server.url) as connection:
        for name, subject in (("TOLD", "tale.in"), ("TOLD_OUT", "told.*")):
            create_stream(connection, {"name": name, "subjects": [subject], "storage": "memory"})
        with Publisher(connection) as publisher:
            publisher.publish("tale.in", b'{"n": 1}')
            publisher.publish("tale.in", b"{")
            headers = [(f"__connect.errors.{name}", text) for name, text in context.items()]
            publisher.publish("told.dead", b"{", headers, message_id="TOLD:2:AB")
    yield "told.yaml"
    with Connection.open(nats_server.url) as connection:
        for name in ("TOLD", "TOLD_OUT"):
            delete_stream(connection, name)


def test_a_redrive_that_fails(turnout, route) -> None:
    """Exit code 1, and the report as JSON with the tries and the reason of now; a dry run asks only."""
    code, out, err = turnout("redrive", route, "--json")

    report = json.loads(out)
    assert (code, err, report["outcomes"]) == (1, "", {"failed": 1})
    (failure,) = report["failures"]
    assert (failure["sequence"], failure["tries"]) == (1, 1)
    assert failure["reason"].startswith("the value is not JSON")
    assert report["groups"] == [{"stage": "VALUE_CONVERTER", "reason": "no JSON", "outcomes": {"failed": 1}}]
    code, out, _ = turnout("redrive", route, "--dry-run", "--json")
    assert (code, json.loads(out)["failures"][0]["tries"]) == (0, 2)
    assert turnout("redrive", route, "--stage", "TASK_PUT")[1] == "0 dead letters of told\n"
    assert turnout("redrive", route, "--where", "topic:other")[1] == "0 dead letters of told\n"
    code, _, err = turnout("redrive", route, "--where", "topic:")
    assert (code, "topic:" in err) == (2, True)
    code, out, _ = turnout("redrive", route, "--where", "topic:tale*")
    assert (code, out.splitlines()[-2][:35]) == (1, "fails now: the value is not JSON: I")


def test_a_redrive_with_a_secret(turnout, route, tmp_path) -> None:
    """Letters without its seal are counted as unverified, and are tried only if that is asked for."""
    file = tmp_path / route
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("told.dead}", 'told.dead, secret: "of sixteen and more"}'), encoding="utf-8")

    code, out, _ = turnout("redrive", route)

    assert (code, out.splitlines()[2].strip()) == (0, "1 not verified: --unverified redrives these too")
    code, out, _ = turnout("redrive", route, "--unverified", "--dry-run", "--json")
    assert (code, json.loads(out)["outcomes"]) == (0, {"failed": 1})


def test_a_tap_as_json_lines(turnout, route) -> None:
    """A line for each record, with everything that is known of it."""
    code, out, err = turnout("tap", route, "--stage", "mark", "--from", "earliest", "--to", "latest", "--json")

    (line,) = out.splitlines()
    tapped = json.loads(line)
    assert (code, err) == (0, "")
    assert (tapped["stream"], tapped["sequence"], tapped["outcome"]) == ("TOLD", 1, "changed")
    assert (tapped["before"]["value"], tapped["after"]["value"]) == ({"n": 1}, {"n": 1, "via": "turnout"})
    _, out, _ = turnout("tap", route, "--from", "1", "--limit", "2", "--json")
    assert [json.loads(line)["outcome"] for line in out.splitlines()] == ["delivered", "dead_lettered"]
    assert json.loads(out.splitlines()[1])["messages"][0]["deadLetter"] is True


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("tap", "--stage", "marc"), "there is no stage 'marc'; did you mean \"mark\""),
        (("tap", "--where", "n="), "expected"),
        (("tap", "--where", "topc:a"), "where: 'topc' is not listed under metadata; did you mean \"topic\"?"),
        (("tap", "--where", "value.n:1"), "where: 'value.n' is not listed under metadata"),
        (
            ("tap", "--from", "1", "--to", "latest", "--where", "other:1"),
            "'other' is not listed under metadata, and no",
        ),
        (("redrive", "--dry-run", "--where", "topc:a"), 'did you mean "topic"?'),
        (("replay", "--from", "1", "--where", "valu.n:1 OR topc:a"), "'topc' is not listed under metadata"),
        (("tap", "--from", "noon"), "--from: expected earliest, latest, a sequence, an ISO time, an age such as 10m"),
        (("redrive", "--from", "noon"), "--from: expected earliest"),
        (("replay", "--from", "noon"), "--from: expected earliest"),
        (("replay", "--from", "10m", "--to", "0m0"), "--to: expected earliest"),
        (("replay", "--from", "1", "--subscription", "x"), "the route told has none to choose from"),
        (("replay", "--from", "1", "--where", "n="), "expected"),
    ],
)
def test_what_cannot_be_asked(turnout, route, arguments, problem) -> None:
    """Exit code 2, before Spark is started, with what was expected."""
    command, *options = arguments

    code, _, err = turnout(command, route, *options)

    assert code == 2
    assert problem in err
