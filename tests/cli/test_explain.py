"""``turnout explain`` as a person or a script runs it."""

from __future__ import annotations

import json

import pytest

from tests.nats.jetstream.support import fresh
from turnout.conditions import parse
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, create_stream, stream_info
from turnout.subscriptions import Subscription, open_store

ROUTE = """
name: explained
source: {{format: nats, servers: "{url}", stream: EXPLAINED}}
value: {{format: json}}
transforms:
  - {{name: rename, type: ReplaceField$Value, renames: "city:town"}}
mappings: {{"in.*": "mapped.{{{{wildcard(1)}}}}"}}
subscriptions: {{store: "sqlite:///subscriptions.db", metadata: {{town: value.town, n: value.n}}}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all}}
"""


@pytest.fixture
def route(tmp_path, monkeypatch):
    """A route file with two subscriptions in a folder that is the present one."""
    monkeypatch.chdir(tmp_path)
    store = open_store("sqlite:///subscriptions.db")
    store.create(Subscription(("out.oulu",), parse("town:Oulu"), id="oulu"))
    store.create(Subscription(("out.many",), parse("n>5 AND (town:Turku OR Kind:odd)"), id="many"))
    store.close()

    def written(url: str = "nats://127.0.0.1:1") -> str:
        (tmp_path / "route.yaml").write_text(ROUTE.format(url=url), encoding="utf-8")
        return "route.yaml"

    return written


def test_a_record_on_standard_input(turnout, route) -> None:
    """The stages, the mapping, who wants it, who does not and whose fault that is, and what goes out."""
    record = {"topic": "in.a", "offset": 3, "value": {"city": "Oulu", "n": 7}}

    code, out, err = turnout("explain", route(), "--stdin", "--subscription", "many", stdin=json.dumps(record))

    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "record  in.a, partition 0, offset 3",
        "stage   rename (ReplaceField$Value): applied",
        '    - value.city: "Oulu"',
        '    + value.town: "Oulu"',
        "mapping in.*: in.a → mapped.a",
        "wanted  oulu → out.oulu",
        "    town:Oulu; town is 'Oulu'",
        "asked   many does not want it: n>5 AND (town:Turku OR Kind:odd)",
        "    the leaf to blame:",
        "        town:Turku; town is 'Oulu'",
        "outcome  delivered",
        *out.splitlines()[-2:],
    ]
    sent, note = out.splitlines()[-2:]
    assert sent.startswith("sent    out.oulu for oulu, id EXPLAINED:3:")
    assert note.startswith("note    the source and the sink could not be queried: no NATS server can be reached")


def test_a_file_as_json(turnout, route, tmp_path) -> None:
    """For programs: the same with everything in it."""
    (tmp_path / "record.json").write_text('{"topic": "in.a", "value": "{"}', encoding="utf-8")

    code, out, _ = turnout("explain", route(), "--file", "record.json", "--json")

    explanation = json.loads(out)
    assert (code, explanation["outcome"], explanation["failure"]["stage"]) == (0, "dead_lettered", "VALUE_CONVERTER")
    assert explanation["messages"][0]["topic"] == "dead"
    assert ["__connect.errors.topic", "in.a"] in explanation["messages"][0]["headers"]


def test_a_record_does_not_control_the_terminal(turnout, route) -> None:
    """Its escapes, and characters that reverse text, are shown as escapes; a value forges no line."""
    hostile = "\x1b]0;owned\x07\x9b2J\u202egnp.exe\nsent    forged"
    record = json.dumps({"topic": "in.a", "headers": {"Kind": hostile}, "value": {"city": hostile}})

    for arguments in ((), ("--json",)):
        code, out, err = turnout("explain", route(), "--stdin", *arguments, stdin=record)

        assert (code, err) == (0, "")
        assert "x1b" in out or "u001b" in out
        assert not set(out) & {"\x1b", "\x07", "\x9b", "\u202e"}
        assert "sent    forged" not in out.splitlines()


def test_a_message_of_the_routes_stream(turnout, route, nats_server) -> None:
    """It is read from the server, with its sequence and its headers."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "EXPLAINED", "subjects": ["in.>"], "storage": "memory"})
        create_stream(connection, {"name": "EXPLAINED_OUT", "subjects": ["out.>", "dead"], "storage": "memory"})
        connection.request("in.first", b"{}")
        connection.request("in.b", b'{"city": "Oulu", "n": 7}', {"Kind": "odd"})

    code, out, err = turnout("explain", route(nats_server.url), "--record", "EXPLAINED:2", "--json")

    explanation = json.loads(out)
    assert (code, err) == (0, "")
    assert (explanation["record"]["offset"], explanation["record"]["headers"]) == (2, [["Kind", "odd"]])
    assert sorted(message["topic"] for message in explanation["messages"]) == ["out.many", "out.oulu"]
    with Connection.open(nats_server.url) as connection:
        label = StreamIdentity.of(stream_info(connection, "EXPLAINED")["created"]).label("EXPLAINED")
    assert all(message["id"].startswith(f"{label}:2:") for message in explanation["messages"])
    assert explanation["notes"] == []
    assert turnout("explain", route(nats_server.url), "--record", "EXPLAINED:9")[::2] == (
        1, "turnout: the stream 'EXPLAINED' holds no message 9\n",
    )  # fmt: skip


def test_what_a_run_refuses(turnout, tmp_path, monkeypatch, nats_server) -> None:
    """A mapping that leads back into the source, and a subject that no stream stores, as a run has them."""
    monkeypatch.chdir(tmp_path)
    name = fresh("LOOP")
    lines = [
        "name: loop",
        f'source: {{format: nats, servers: "{nats_server.url}", stream: {name}}}',
        f'mappings: {{"{name}.back": "{name}.again", "{name}.away": "{name}-nowhere"}}',
        f'sink: {{format: nats, servers: "{nats_server.url}"}}',
        f"deadLetter: {{topic: {name}-dead}}",
        "errors: {tolerance: all}",
    ]
    (tmp_path / "route.yaml").write_text("\n".join(lines), encoding="utf-8")
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": name, "subjects": [f"{name}.>"], "storage": "memory"})

    def explained(topic: str) -> list[str]:
        code, out, err = turnout("explain", "route.yaml", "--stdin", stdin=json.dumps({"topic": topic, "value": "1"}))
        assert (code, err) == (0, "")
        return out.splitlines()

    back, away = explained(f"{name}.back"), explained(f"{name}.away")

    assert "outcome  dead lettered" in back
    assert "outcome  dead lettered" in away
    assert any("the route reads it, and would read its own messages again" in line for line in back), back
    assert any(f"destination '{name}-nowhere' is stored by no stream" in line for line in away), away
    assert back[-1] == (
        f"note    dead letters: '{name}-dead' is stored by no stream, so that the first of them ends a run"
    )


def test_a_message_of_one_of_two_streams_in_one_text(turnout, tmp_path, monkeypatch, nats_server) -> None:
    """Each of them may be named; a filter with commas is several filters."""
    monkeypatch.chdir(tmp_path)
    first, second = fresh("FIRST"), fresh("SECOND")
    text = ROUTE.format(url=nats_server.url).replace("stream: EXPLAINED", f'stream: "{first}, {second}"')
    (tmp_path / "route.yaml").write_text(text, encoding="utf-8")
    open_store("sqlite:///subscriptions.db").close()
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": first, "subjects": [f"{first}.>"], "storage": "memory"})
        create_stream(connection, {"name": second, "subjects": [f"{second}.>"], "storage": "memory"})
        connection.request(f"{second}.a", b"{}")

    code, out, err = turnout("explain", "route.yaml", "--record", f"{second}:1", "--json")

    assert (code, err) == (0, "")
    assert json.loads(out)["record"]["topic"] == f"{second}.a"
    code, _, err = turnout("explain", "route.yaml", "--record", "1")
    assert (code, f"with a stream of {first}, {second}" in err) == (2, True)


def test_subscriptions_as_they_were(turnout, route) -> None:
    """A record is explained with the subscriptions of a revision or of a time; what is gone since then wants it."""
    path, record = route(), json.dumps({"topic": "in.a", "value": {"city": "Oulu"}})
    store = open_store("sqlite:///subscriptions.db")
    created = store.births()["oulu"].at
    assert created is not None
    then = created.isoformat()
    store.delete("oulu")
    store.close()

    def wanted_ids(*arguments: str) -> list[str]:
        out = turnout("explain", path, "--stdin", "--json", *arguments, stdin=record)[1]
        return [load["subscription"] for load in json.loads(out)["wanted"]]

    assert wanted_ids() == wanted_ids("--subscriptions-as-of", "now") == wanted_ids("--subscriptions-as-of", "3") == []
    assert wanted_ids("--subscriptions-as-of", "1") == wanted_ids("--subscriptions-as-of", then) == ["oulu"]
    assert turnout("explain", path, "--stdin", "--subscriptions-as-of", "9", stdin=record)[::2] == (
        1,
        "turnout: the store does not know what it held at revision 9: it remembers revisions 0 to 3\n",
    )
    assert turnout("explain", path, "--stdin", "--subscriptions-as-of", "then", stdin=record)[0] == 2


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "give one of --record PLACE, --file FILE and --stdin"),
        (("--stdin", "--record", "EXPLAINED:1"), "give one of"),
        (("--record", "EXPLAINED"), "with a stream of EXPLAINED, as in EXPLAINED:17; found 'EXPLAINED'"),
        (("--record", "OTHER:1"), "with a stream of EXPLAINED, as in EXPLAINED:17; found 'OTHER:1'"),
        (("--stdin",), "is not JSON"),
    ],
)
def test_what_cannot_be_asked(turnout, route, arguments, problem) -> None:
    """Exit code 2, with what was expected."""
    code, _, err = turnout("explain", route(), *arguments)

    assert code == 2
    assert problem in err


def test_the_url_of_a_webhook(turnout, route, tmp_path) -> None:
    """A delivery says where it is posted: the URL of its destination, or that of the route's endpoint."""
    store = open_store("sqlite:///subscriptions.db")
    for id_, destination in (
        ("named", "webhook:billing"),
        ("own", "https://desk.example/in?token=t"),
        ("none", "webhook:no"),
    ):
        store.create(Subscription((destination,), parse("town:Oulu"), id=id_))
    store.close()
    webhooks = 'webhooks: {endpoints: {billing: {url: "https://billing.example/in"}}}'
    file = tmp_path / route()
    file.write_text(f"{file.read_text(encoding='utf-8')}{webhooks}\n", encoding="utf-8")
    record = {"topic": "in.a", "offset": 3, "value": {"city": "Oulu", "n": 7}}

    _, out, _ = turnout("explain", "route.yaml", "--stdin", stdin=json.dumps(record))
    _, plain, _ = turnout("explain", "route.yaml", "--stdin", "--json", stdin=json.dumps(record))

    posted = [line for line in out.splitlines() if line.startswith("    posted to ")]
    assert posted == [
        "    posted to https://billing.example/in",
        "    posted to webhook:no",
        "    posted to https://desk.example/in?token=***",
    ]
    urls = {message["subscription"]: message["url"] for message in json.loads(plain)["messages"]}
    assert urls["oulu"] is None
    assert urls["named"] == "https://billing.example/in"
