"""``turnout feed``."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.documentation import blocks
from tests.engine.batches import sent
from tests.feeds import FedRoute
from turnout.cli.app import build_app
from turnout.conditions import parse
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.nats.wire import Connection, create_stream, stored_message
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index

runner = CliRunner()


def test_a_feed_is_printed_from_any_place(fed: FedRoute) -> None:
    """The output is JSON lines or text; --limit ends it."""
    command = ["feed", "oulu", "--route", str(fed.file)]

    lines = runner.invoke(build_app(), [*command, "--json", "--from", "4", "--limit", "2"])
    text = runner.invoke(build_app(), command)

    assert [json.loads(line)["cursor"] for line in lines.stdout.splitlines()] == [5, 7]
    assert text.stdout.count('"city": "Oulu"') == 5


def test_a_feed_has_the_bodies_that_a_subscription_computes(fed: FedRoute) -> None:
    """As its destinations would have them, by the expression of now; others keep the record's value."""
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    with open_store(fed.store_url) as store:
        oulu = store.read("oulu")
        store.update("oulu", replace(oulu, project="{'number': value.n, 'of': topic}"))
    values = {}
    for id_ in ("oulu", "turku"):
        command = ["feed", id_, "--route", str(fed.file), "--json", "--limit", "2"]
        lines = runner.invoke(build_app(), command).stdout.splitlines()
        values[id_] = [json.loads(line)["value"] for line in lines]

    topic = fed.streams.subject("order")
    assert [json.loads(value) if isinstance(value, str) else value for value in values["oulu"]] == [
        {"number": 0, "of": topic},
        {"number": 2, "of": topic},
    ]
    assert [json.loads(value) if isinstance(value, str) else value for value in values["turku"]] == [
        {"n": 1, "city": "Turku"},
        {"n": 3, "city": "Turku"},
    ]


def test_an_unknown_subscription_is_an_error(fed: FedRoute) -> None:
    """The work failed: its id is named."""
    result = runner.invoke(build_app(), ["feed", "nobody", "--route", str(fed.file)])

    assert result.exit_code != 0
    assert "nobody" in str(result.exception)


def test_the_route_of_the_page_can_be_loaded() -> None:
    """The route also stores feeds."""
    block, *_ = blocks("feeds.md", "yaml")

    route = Route.parse(block.text)

    assert route.subscriptions is not None
    assert route.subscriptions.feeds


ROUTE = """
name: traced
source: {{format: nats, servers: "{url}", stream: TRACED}}
value: {{format: json}}
subscriptions: {{store: "sqlite:///subscriptions.db", metadata: {{city: value.city}}}}
sink: {{format: nats, servers: "{url}", lineage: true}}
deadLetter: {{topic: traced.dead}}
errors: {{tolerance: all}}
"""


@pytest.fixture
def server():
    """A server of its own: the tests count what it holds."""
    with NatsServer() as server:
        yield server


@pytest.fixture
def delivered(tmp_path, monkeypatch, server):
    """A route, a record, and the message that the route made of it for one subscription."""
    import pyarrow as pa

    monkeypatch.chdir(tmp_path)
    (tmp_path / "route.yaml").write_text(ROUTE.format(url=server.url), encoding="utf-8")
    route = Route.load("route.yaml")
    with open_store("sqlite:///subscriptions.db") as store, Connection.open(server.url) as connection:
        store.create(Subscription(("got.oulu",), parse("city:Oulu"), {"name": "Oulu's desk"}, "oulu"))
        store.create(Subscription(("got.all",), parse("city exists"), id="all"))
        create_stream(connection, {"name": "TRACED", "subjects": ["seen.>"], "storage": "memory"})
        create_stream(connection, {"name": "DELIVERED", "subjects": ["got.>"], "storage": "memory"})
        connection.request("seen.a", b'{"city": "Oulu"}')
        record = stored_message(connection, "TRACED", 1).append_column("stream", pa.array(["TRACED"]))
        messages = Program.of(route).run(record, Index.of(store)).messages
        for topic, id_, value, headers in sent(messages):
            pairs = {key: data.decode() for key, data in headers}
            connection.request(topic, value or b"", {"Nats-Msg-Id": id_ or "", **pairs})
        yield next(
            sequence
            for sequence in (1, 2)
            if stored_message(connection, "DELIVERED", sequence).column("topic")[0].as_py() == "got.oulu"
        )


def test_the_whole_way(turnout, delivered) -> None:
    """The subscription is shown as it was, although it is another one by now."""
    with open_store("sqlite:///subscriptions.db") as store:
        store.delete("oulu")
        store.create(Subscription(("got.turku",), parse("city:Turku"), id="oulu"))

    code, out, err = turnout("lineage", f"DELIVERED:{delivered}", "--route", "route.yaml", "--json")

    walked = json.loads(out)
    assert (code, err, walked["gaps"]) == (0, "", [])
    assert walked["made"]["revision"] == 2
    assert walked["record"]["place"] == "TRACED:1"
    assert walked["record"]["value"] == '{"city": "Oulu"}'
    assert walked["subscription"] == {
        "id": "oulu",
        "condition": "city:Oulu",
        "destinations": ["got.oulu"],
        "metadata": {"name": "Oulu's desk"},
        "still": False,
    }
    assert walked["route"] == {"file": "route.yaml", "same": True, "commit": None}


def test_as_text(turnout, delivered) -> None:
    """A line for each step."""
    code, out, _ = turnout("lineage", f"DELIVERED:{delivered}", "--route", "route.yaml")

    assert code == 0
    assert [line.split()[0] for line in out.splitlines() if line[0] != " "] == ["message", "wanted", "route", "record"]
    assert "wanted   by oulu at revision 2, unchanged" in out
    assert "    route.yaml is as it was" in out


def test_the_server_alone(turnout, delivered, server) -> None:
    """Without the route there is the record, and what the message says of its route."""
    code, out, _ = turnout("lineage", f"DELIVERED:{delivered}", "--server", server.url, "--json")

    walked = json.loads(out)
    assert (code, walked["made"]["route"], walked["record"]["topic"]) == (0, "traced", "seen.a")
    assert (walked["subscription"], walked["route"]["same"]) == (None, None)


def test_a_route_that_has_changed(turnout, delivered, tmp_path, server) -> None:
    """The earlier version is unknown, unless git has it."""

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, capture_output=True, check=True)
        return done.stdout.decode().strip()

    arguments = ("lineage", f"DELIVERED:{delivered}", "--route", "route.yaml", "--json")
    git("init", "-q")
    assert json.loads(turnout(*arguments, "--git")[1] or "{}").get("route") is None
    git("add", "route.yaml")
    git("commit", "-qm", "as it was")
    commit = git("rev-parse", "HEAD")
    changed = ROUTE.format(url=server.url).replace("city: value.city", "city: value.town")
    (tmp_path / "route.yaml").write_text(changed, encoding="utf-8")
    git("commit", "-qam", "as it is")

    without, with_git = json.loads(turnout(*arguments)[1]), json.loads(turnout(*arguments, "--git")[1])

    assert (without["route"]["same"], without["subscription"]) == (False, None)
    assert "the route's file has changed since" in without["gaps"][0]
    assert (with_git["route"]["same"], with_git["route"]["commit"]) == (False, commit)
    assert (with_git["subscription"]["id"], with_git["gaps"]) == ("oulu", [])


def test_what_is_gone(turnout, delivered, server) -> None:
    """A record that its stream has lost, and a past that the store has forgotten, are told as such."""
    with Connection.open(server.url) as connection:
        connection.api("STREAM.PURGE.TRACED", {})

    code, out, _ = turnout("lineage", f"DELIVERED:{delivered}", "--route", "route.yaml")

    assert code == 0
    assert "unknown  the record TRACED:1: the stream 'TRACED' holds no message 1" in out


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("DELIVERED:1",), 2, "give --route, --server or both"),
        (("DELIVERED", "--route", "route.yaml"), 2, "expected STREAM:SEQ, as in DELIVERED:17, found 'DELIVERED'"),
        (("TRACED:1", "--route", "route.yaml"), 2, "was not delivered by a sink with lineage: true"),
        (("DELIVERED:9", "--route", "route.yaml"), 1, "holds no message 9"),
    ],
)
def test_what_cannot_be_asked(turnout, delivered, arguments, code, problem) -> None:
    """Exit codes tell a wrong request from a message that is not there."""
    ended, _, err = turnout("lineage", *arguments)

    assert ended == code
    assert problem in err


def test_a_message_leads_to_no_stream_that_its_route_does_not_read(turnout, delivered, server) -> None:
    """Another publisher's headers may name any record: it is not shown, and a number that does not fit is none."""
    with Connection.open(server.url) as connection:
        create_stream(connection, {"name": "PRIVATE", "subjects": ["private"], "storage": "memory"})
        connection.request("private", b"secret")
        forged = {"Turnout-Route": "traced@0", "Turnout-Source": "PRIVATE:1", "Turnout-Revision": "9" * 5000}
        connection.request("got.oulu", b"{}", forged)

    code, out, _ = turnout("lineage", "DELIVERED:3", "--route", "route.yaml", "--json")

    walked = json.loads(out)
    assert (code, walked["record"], walked["made"]["revision"]) == (0, None, None)
    assert any("the route does not read this stream" in gap for gap in walked["gaps"])
