"""``turnout check`` as a user calls it: what it says of a file, and with ``--connect`` of real servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.nats.jetstream.support import fresh
from turnout.conditions import kiwi
from turnout.embedded import NatsServer, free_port
from turnout.nats.wire import Connection, ConnectionOptions, create_stream, stream_info
from turnout.runtime.nats.probe import NatsProbe
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.delivery_settings import DeliverySettings

ROUTE = """name: checked
source: {{format: nats, servers: "{url}", stream: {stream}}}
value: {{format: json, schema: "n INT, town STRING"}}
transforms:
  - {{type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
sink: {{format: nats, servers: "{url}"}}
"""
ACCOUNTS = """
jetstream: enabled
accounts {
  A {
    jetstream: enabled
    users: [
      {user: all, password: hunter2}
      {user: blind, password: hunter2, permissions: {publish: {deny: "$JS.API.CONSUMER.>"}}}
      {user: unpulled, password: hunter2, permissions: {publish: {deny: "$JS.API.CONSUMER.MSG.NEXT.S.>"}}}
      {user: mute, password: hunter2, permissions: {publish: {deny: "OUT.dead"}}}
    ]
  }
}
"""


Turnout = Callable[..., tuple[int, str, str]]


def checked(turnout: Turnout, route: Path) -> tuple[int, dict[str, tuple[bool, str]]]:
    """The exit code, and name → (ok, detail) of each check."""
    code, out, _ = turnout("check", str(route), "--connect", "--json")
    checks: list[dict[str, Any]] = json.loads(out)["checks"]
    return code, {check["name"]: (check["ok"], check["detail"]) for check in checks}


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[tuple[Connection, str, str]]:
    """A connection and two streams: one with five messages of which one is old and one is no JSON, and one to fill."""
    source, out = fresh("CHECKED"), fresh("OUT")
    with Connection.open(ConnectionOptions.of(nats_server.url)) as connection:
        for name in (source, out):
            create_stream(connection, {"name": name, "subjects": [f"{name}.>"]})
        for n, town in enumerate(["Oulu", "Turku", "Oulu"]):
            connection.request(f"{source}.{n}", json.dumps({"n": n, "town": town}).encode())
        connection.request(f"{source}.3", b'{"n": 3}', {"Old": "yes"})
        connection.request(f"{source}.4", b"no json")
        yield connection, source, out


def write(folder: Path, url: str, stream: str, more: str = "") -> Path:
    (folder / "route.yaml").write_text(ROUTE.format(url=url, stream=stream) + more)
    return folder / "route.yaml"


def test_a_route_that_is_right(tmp_path: Path) -> None:
    """One line, exit code 0, and no JVM: the command as a person runs it."""
    command = [sys.executable, "-m", "turnout", "check", str(write(tmp_path, "nats://127.0.0.1:1", "S"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert "route checked is fine: nats → 1 transform → 0 mappings → no subscriptions → nats" in done.stdout


def test_a_route_that_is_wrong(turnout: Turnout, tmp_path: Path) -> None:
    """Path, value, what was expected and the line; exit code 2; the same as JSON."""
    route = write(tmp_path, "gopher://u:hunter2@h", "S")

    code, out, err = turnout("check", str(route))
    code_of_json, as_json, err_of_json = turnout("check", str(route), "--json")

    assert code == code_of_json == 2
    assert "  source.servers: found 'gopher://***@h', expected nats://host:4222" in err
    assert "(line 2)" in err
    mistakes = json.loads(as_json)["mistakes"]
    assert [(mistake["path"], mistake["line"]) for mistake in mistakes] == [("source.servers", 2), ("sink.servers", 6)]
    assert "hunter2" not in out + err + as_json + err_of_json


def test_several_routes_and_folders(turnout: Turnout, tmp_path: Path) -> None:
    """Each is reported, of a folder those that a server would run, without tests; the exit code is the worst one."""
    text = ROUTE.format(url="nats://127.0.0.1:1", stream="S")
    (tmp_path / "routes").mkdir()
    for name in ("routes/a.yaml", "routes/b.yml", "single.yaml"):
        (tmp_path / name).write_text(text)
    for name in ("routes/a.test.yaml", "routes/turnout.yaml", "routes/compose.yaml", "routes/.hidden.yaml"):
        (tmp_path / name).write_text("not: a route")
    (tmp_path / "wrong.yaml").write_text("name: wrong\n")
    (tmp_path / "empty").mkdir()

    code, out, err = turnout("check", "routes", "single.yaml")
    wrong = turnout("check", "wrong.yaml", "routes")
    document = json.loads(turnout("check", "routes", "wrong.yaml", "--json")[1])

    assert (code, err) == (0, "")
    fine = [line.partition(":")[0] for line in out.splitlines() if not line.startswith("warning: mappings")]
    assert fine == ["routes/a.yaml", "routes/b.yml", "single.yaml"]
    assert (wrong[0], wrong[1].count(" is fine: ")) == (2, 2)
    assert "wrong.yaml" in wrong[2]
    assert [(route["route"], route["valid"]) for route in document["routes"]] == [
        ("routes/a.yaml", True), ("routes/b.yml", True), ("wrong.yaml", False),
    ]  # fmt: skip
    code, _, err = turnout("check", "empty")
    assert (code, "empty: the folder has no route file" in err) == (2, True)


def test_streams_and_filters_with_commas(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """Each stream is tried, with each of the filters; and what a run would not deliver is no delivery here."""
    _, source, out = streams
    route = write(tmp_path, nats_server.url, f'"{source}, {out}", filterSubject: "{source}.0, {source}.1"')

    code, checks = checked(turnout, route)

    # Records keep their topics, which the route reads.
    assert code == 1
    assert "the route reads it, and would read its own messages again" in checks["sample"][1]
    assert checks[f"stream {source}"][1].startswith("5 messages, may be read; 2 of the latest 100 were")
    assert checks[f"stream {out}"][1].startswith("0 messages, may be read")


def test_everything_is_there(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """Servers, streams, permissions and store are tried, and the latest records go through the route."""
    connection, source, out = streams
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.create(Subscription([f"{out}.oulu"], kiwi("town", "Oulu")))
    more = "subscriptions: {store: 'sqlite:///s.db', metadata: {town: value.town}}\n"
    more += f"deadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\n"

    code, checks = checked(turnout, write(tmp_path, nats_server.url, source, more))

    assert code == 0
    assert all(ok for ok, _ in checks.values()), checks
    assert checks[f"stream {source}"][1] == "5 messages, may be read; 5 of the latest 100 were"
    assert checks["subscriptions"][1].endswith("1 subscription at revision 1")
    assert checks["sample"][1].startswith(
        "5 read, 1 filtered, 1 unmatched, 2 delivered, 1 dead lettered, 2 messages; 1 failed at VALUE_CONVERTER: "
    )
    assert checks["sink, streams"][1].startswith("2 topics of the sample and the dead letters belong to OUT")
    assert checks["sink, permissions"][1] == "2 topics may be published to"
    assert stream_info(connection, out)["state"]["messages"] == 0
    assert stream_info(connection, source)["state"]["consumer_count"] == 0


def test_conditions_that_are_probably_not_meant_so(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """Misspelt keys, and what JSON takes of other query languages: each is a warning with its subscription."""
    _, source, out = streams
    conditions = [kiwi("twon", "Oulu"), kiwi("-town", "Oulu"), kiwi("town", ">10"), kiwi("_exists_", "town")]
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        for number, condition in enumerate(conditions):
            store.create(Subscription([f"{out}.oulu"], condition, id=f"s{number}"))
        store.create(Subscription([f"{out}.oulu"], kiwi("trace", "x"), id="header"))
    more = "subscriptions: {store: 'sqlite:///s.db', metadata: {town: value.town}}\n"
    more += f"deadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\n"

    file = write(tmp_path, nats_server.url, source, more)
    code, shown, _ = turnout("check", str(file), "--connect")

    warned = [line for line in shown.splitlines() if line.startswith("warn    subscriptions: ")]
    # Names that the sample's records have not are a failure of their own.
    assert code == 1
    assert any('twon: the route lists no such name; did you mean "town"?' in line and "s0" in line for line in warned)
    assert any("'-' is part of the key; a negation is written NOT" in line and "s1" in line for line in warned)
    assert any("'>10' is compared as a text: write town>10" in line and "s2" in line for line in warned)
    assert any("write town exists" in line and "s3" in line for line in warned)
    assert not any("header" in line and "trace" in line for line in warned)


@pytest.mark.parametrize(
    ("mapped", "code", "ok", "said"),
    [
        ("{}", 1, False, "nothing would be delivered; correct the route"),
        ("{'CHECKED*.0': 'OUT*.0'}", 0, True, "would read its own messages again: send to another one"),
    ],
)
def test_a_sample_that_fails_is_not_ok(
    turnout: Turnout,
    streams: tuple[Connection, str, str],
    nats_server: NatsServer,
    tmp_path: Path,
    mapped: str,
    code: int,
    ok: bool,
    said: str,
) -> None:
    """As a whole it is an error with the reason, in part a warning; what is filtered or unmatched is neither."""
    _, source, out = streams
    mappings = mapped.replace("CHECKED*", source).replace("OUT*", out)
    more = f"mappings: {mappings}\ndeadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\n"
    route = write(tmp_path, nats_server.url, f'{source}, filterSubject: "{source}.0, {source}.1"', more)

    ended, out_text, _ = turnout("check", str(route), "--connect", "--json")

    (sample,) = (check for check in json.loads(out_text)["checks"] if check["name"] == "sample")
    assert (ended, sample["ok"], sample["warning"]) == (code, ok, ok)
    assert said in sample["detail"]
    assert "the route reads it" in sample["detail"]


@pytest.mark.parametrize("parts", [1, 30])
def test_a_sample_counts_failures_alike_however_it_arrives(
    turnout: Turnout,
    streams: tuple[Connection, str, str],
    nats_server: NatsServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parts: int,
) -> None:
    """The server sends it in parts of any size; the first twenty failures are told with their reasons."""
    connection, source, out = streams
    for _ in range(25):
        connection.request(f"{source}.9", b"no json")
    read = NatsProbe.latest

    def in_parts(self: NatsProbe, stream: str, count: int) -> tuple[list[pa.RecordBatch], str]:
        batches, detail = read(self, stream, count)
        (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
        size = -(-len(whole) // parts)
        return [whole.slice(begin, size) for begin in range(0, len(whole), size)], detail

    monkeypatch.setattr(NatsProbe, "latest", in_parts)
    more = f"deadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\n"
    _, shown, _ = turnout("check", str(write(tmp_path, nats_server.url, source, more)), "--connect")

    (line,) = (line for line in shown.splitlines() if " sample: " in line)
    assert "; 9 more failed" in line


def test_unmatched_records_are_no_failures(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """Also where the route makes dead letters of them."""
    _, source, out = streams
    open_store(f"sqlite:///{tmp_path}/s.db").close()
    more = "subscriptions: {store: 'sqlite:///s.db'}\nunmatched: deadLetter\n"
    more += f"deadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\n"
    route = write(tmp_path, nats_server.url, f'{source}, filterSubject: "{source}.0, {source}.1"', more)

    code, shown, _ = turnout("check", str(route), "--connect")

    assert code == 0
    assert "ok      sample: 2 read, 2 dead lettered" in shown


LOOPS = """name: loops
source: {{format: {source}}}
value: {{format: json}}
transforms: {transforms}
mappings: {mappings}
sink: {{format: {sink}}}
"""
NATS = 'nats, servers: "nats://a"'
KAFKA = 'kafka, servers: "a:1"'
SET = "[{{type: Set, fields: {{topic: '\"{}\"'}}}}]"


@pytest.mark.parametrize(
    ("source", "transforms", "mappings", "sink", "shown"),
    [
        (f"{NATS}, stream: S", "[]", "{}", NATS, "their own topics"),
        (f'{NATS}, stream: S, filterSubject: "in.>"', "[]", "{}", NATS, "in.>"),
        (f'{NATS}, stream: S, filterSubject: "in.>"', "[]", "{'in.*': 'in.x.{{wildcard(1)}}'}", NATS, "in.>, in.x.*"),
        (f'{NATS}, stream: S, filterSubject: "in.>"', SET.format("in.again"), "{}", NATS, "in.again"),
        (f"{KAFKA}, topics: in", "[]", "{}", KAFKA, "in"),
        (f"{KAFKA}, topics: in", SET.format("in"), "{}", KAFKA, "in"),
        # What is not known to be read again.
        (f"{NATS}, stream: S", "[]", "{}", 'nats, servers: "nats://b"', None),
        (f"{NATS}, stream: S", "[]", "{}", f"{NATS}, user: u, password: p", None),
        (f"{NATS}, stream: S", "[]", "{'>': 'out.>'}", NATS, None),
        (f'{NATS}, stream: S, filterSubject: "in.>"', "[]", "{'in.*': 'out.{{wildcard(1)}}'}", NATS, None),
        (f'{NATS}, stream: S, filterSubject: "in.>"', "[]", "{}", f'{NATS}, allow: ["in.>"]', None),
        (f'{NATS}, stream: S, filterSubject: "in.>"', SET.format("out"), "{}", NATS, None),
        (f"{KAFKA}, topics: in", "[]", "{in: out}", KAFKA, None),
        (f"{KAFKA}, topics: in", "[]", "{}", 'kafka, servers: "b:1"', None),
    ],
)
def test_a_route_that_would_read_its_messages_again(
    turnout: Turnout, tmp_path: Path, source: str, transforms: str, mappings: str, sink: str, shown: str | None
) -> None:
    """Known without a server, it is a warning; what only may be so is none."""
    if "Set" in transforms:
        pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    text = LOOPS.format(source=source, transforms=transforms, mappings=mappings, sink=sink)
    (tmp_path / "route.yaml").write_text(text)

    code, out, err = turnout("check", "route.yaml")

    assert (code, err) == (0, "")
    warned = [line for line in out.splitlines() if line.startswith("warning: mappings: ")]
    assert [line.partition(", which the source reads")[0].partition("go to ")[2] for line in warned] == (
        [] if shown is None else [shown]
    )


def test_what_a_run_would_leave_unread(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """The filters of the subscriptions as they are now, and why there are none."""
    _, source, out = streams
    more = "subscriptions: {store: 'sqlite:///s.db', metadata: {town: value.town}}\n"
    route = write(tmp_path, nats_server.url, f"{source}, pushDown: true", more)
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.create(Subscription([f"{out}.oulu"], kiwi("topic", f"{source}.1"), id="one"))
        assert checked(turnout, route)[1]["push-down"] == (True, f"read are {source}.1")
        store.create(Subscription([f"{out}.oulu"], kiwi("town", "Oulu")))
        assert checked(turnout, route)[1]["push-down"][1].startswith(
            "all is read: a subscription can match any subject"
        )


def test_what_would_stop_the_run(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """A record that fails, a topic that no stream takes, a condition on a mistyped name; each is one line."""
    _, source, _ = streams
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.create(Subscription(["nowhere.at.all"], kiwi("town", "Oulu")))
        store.create(Subscription(["nowhere.at.all"], kiwi("twon", "Oulu")))
    more = "subscriptions: {store: 'sqlite:///s.db', metadata: {town: value.town}}\n"

    route = write(tmp_path, nats_server.url, source, more)
    code, checks = checked(turnout, route)

    assert code == 1
    assert {name for name, (ok, _) in checks.items() if not ok} == {"sample", "conditions", "sink, streams"}
    assert checks["sample"][1].endswith("would stop the run (errors: tolerance: none)")
    assert "test 'twon'; did you mean \"town\"?; under metadata are listed: town" in checks["conditions"][1]
    assert checks["sink, streams"][1] == "nowhere.at.all: no stream takes messages there"
    shown = turnout("check", str(route), "--connect", "--records", "4")[1]
    assert "\nfailed  sink, streams: nowhere.at.all: no stream takes messages there\n" in shown
    assert f"\nok      stream {source}: 5 messages, may be read; 4 of the latest 4 were\n" in shown


@pytest.mark.parametrize(
    ("start", "ok", "told"),
    [
        ("6", True, ""),
        ("7", False, "the start, 7, is beyond the last message, 5: a run that begins there fails"),
        ("{{{stream}: 7}}", False, "the start, 7, is beyond the last message, 5"),
        ('"2999-01-01"', True, "the start, 2999-01-01, is in the future: a run begins with the next record"),
        ('"2020-01-01"', True, ""),
        ("latest", True, ""),
    ],
)
def test_a_start_that_reads_nothing(
    turnout: Turnout,
    streams: tuple[Connection, str, str],
    nats_server: NatsServer,
    tmp_path: Path,
    start: str,
    ok: bool,
    told: str,
) -> None:
    """A slip in it would leave all messages of the stream unread."""
    _, source, _ = streams
    given = start.replace("{{{stream}: 7}}", f"{{{source}: 7}}")
    route = write(tmp_path, nats_server.url, f"{source}, start: {given}")

    found, detail = checked(turnout, route)[1][f"stream {source}"]

    assert (found, told in detail) == (ok, True)
    assert told or "start" not in detail


def test_what_is_not_there(turnout: Turnout, nats_server: NatsServer, tmp_path: Path) -> None:
    """A server, a stream, a broker, a folder and a store; the store is not made."""
    away = free_port()
    more = "subscriptions: {store: 'sqlite:///mistyped.db'}\n"
    code, checks = checked(turnout, write(tmp_path, nats_server.url, "NOT_THERE", more))
    assert code == 1
    assert not checks["stream NOT_THERE"][0]
    assert "there is no stream 'NOT_THERE'" in checks["stream NOT_THERE"][1]
    assert f"there is no store at '{tmp_path}/mistyped.db'" in checks["subscriptions"][1]
    assert not (tmp_path / "mistyped.db").exists()

    text = f"""
name: away
source: {{format: kafka, servers: "127.0.0.1:{away}", topics: t}}
sinks: {{a: {{format: nats, servers: "nats://u:hunter2@127.0.0.1:{away}"}}, b: {{format: csv, path: "{tmp_path}/out"}}}}
"""
    (tmp_path / "route.yaml").write_text(text)
    code, checks = checked(turnout, tmp_path / "route.yaml")
    assert code == 1
    assert {name: ok for name, (ok, _) in checks.items()} == {"source": False, "sink a": False, "sink b": True}
    assert "refused" in checks["source"][1]
    assert "hunter2" not in str(checks)


def test_permissions(turnout: Turnout, tmp_path: Path) -> None:
    """A user who may not read, and one who may not publish to the dead letters, are told before the run."""
    with NatsServer(config=ACCOUNTS) as server:
        url = server.url.replace("nats://", "nats://all:hunter2@")
        with Connection.open(ConnectionOptions.of(url)) as connection:
            create_stream(connection, {"name": "S", "subjects": ["S.>"]})
            create_stream(connection, {"name": "OUT", "subjects": ["OUT.>"]})
        answers = {}
        for user in ("all", "blind", "mute", "unpulled"):
            url = server.url.replace("nats://", f"nats://{user}:hunter2@")
            answers[user] = checked(turnout, write(tmp_path, url, "S", "deadLetter: {topic: OUT.dead}\n"))
        wrong = server.url.replace("nats://", "nats://all:hunter3@")
        answers["wrong"] = checked(turnout, write(tmp_path, wrong, "S"))

    assert answers["all"][0] == 0
    assert "Permissions Violation" in answers["blind"][1]["stream S"][1]
    assert answers["blind"][1]["stream S"][0] is False
    assert 'Permissions Violation for Publish to "$JS.API.CONSUMER.MSG.NEXT.S.' in answers["unpulled"][1]["stream S"][1]
    assert answers["unpulled"][1]["stream S"][0] is False
    assert answers["mute"][1]["sink, permissions"] == (False, "the user 'mute' may not publish to OUT.dead")
    assert "Authorization Violation" in answers["wrong"][1]["source"][1]
    assert "hunter" not in str(answers)


def test_a_reader_never_makes_a_store(turnout: Turnout, tmp_path: Path) -> None:
    """``subscriptions search`` and its like say that there is no store, and leave none behind."""
    url = f"sqlite:///{tmp_path}/mistyped.db"

    for command in (["search"], ["match", "a=b"], ["export"]):
        code, _, err = turnout("subscriptions", *command, "--store", url)
        assert code == 2, (command, err)
        assert f"there is no store at '{tmp_path}/mistyped.db'" in err
    assert list(tmp_path.iterdir()) == []


def test_webhooks(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """Deliveries need no stream before the first run, which makes it; one that is in its way is a failure."""
    connection, source, _ = streams
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        store.create(Subscription(["https://hooks.example/in"], kiwi("town", "Oulu")))
    name = fresh("HOOKED")
    more = "subscriptions: {store: 'sqlite:///s.db', metadata: {town: value.town}}\nerrors: {tolerance: all}\n"
    more += f"webhooks: {{stream: {name}, subject: {name}}}\n"
    route = write(tmp_path, nats_server.url, source, more)

    code, checks = checked(turnout, route)
    create_stream(connection, {"name": f"{name}-other", "subjects": [f"{name}.*.x"]})
    code_in_the_way, in_the_way = checked(turnout, route)

    assert code == 0, checks
    assert checks["webhooks"] == (True, f"a run makes {name}, {name}-dead")
    assert code_in_the_way == 1
    assert f"{name}-other has such subjects" in in_the_way["webhooks"][1]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"no_ack": True}, "has no_ack: it acknowledges nothing"),
        ({"sealed": True}, "is sealed, and stores no new messages"),
    ],
)
def test_a_sink_stream_that_acknowledges_nothing(
    turnout: Turnout,
    streams: tuple[Connection, str, str],
    nats_server: NatsServer,
    tmp_path: Path,
    setting: dict[str, bool],
    problem: str,
) -> None:
    """A stream with no_ack or sealed is found before a run, which could not know that its messages are stored."""
    connection, source, out = streams
    connection.api(f"STREAM.UPDATE.{out}", {"name": out, "subjects": [f"{out}.>"], **setting})
    more = f'deadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\nmappings: {{"{source}.*": "{out}.x"}}\n'

    code, checks = checked(turnout, write(tmp_path, nats_server.url, source, more))

    ok, detail = checks["sink, streams"]
    assert (code, ok) == (1, False)
    assert detail.startswith(f"the stream {out!r} {problem}")


def test_a_sink_stream_that_is_a_mirror(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """A stream that is named for the sink, and stores another stream's messages alone, is found before a run."""
    connection, source, out = streams
    create_stream(connection, {"name": f"{out}M", "mirror": {"name": out}})
    more = f"deadLetter: {{topic: {out}.dead}}\nerrors: {{tolerance: all}}\n"
    route = write(tmp_path, nats_server.url, source, more)
    sink = f'sink: {{format: nats, servers: "{nats_server.url}"'
    route.write_text(route.read_text().replace(sink, f"{sink}, stream: {out}M"))

    code, checks = checked(turnout, route)

    assert (code, checks["sink, streams"]) == (
        1,
        (False, f"the stream '{out}M' is a mirror of {out!r}, and stores only that stream's messages"),
    )


def test_names_that_no_record_has(
    turnout: Turnout, streams: tuple[Connection, str, str], nats_server: NatsServer, tmp_path: Path
) -> None:
    """Each name of a field, header or topic with its records; a mask of nothing fails, the others are warnings."""
    _, source, out = streams
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        project = 'value.twn + ""'
        store.create(Subscription([f"{out}.oulu"], kiwi("town", "Oulu"), id="p", project=project))
        settings = DeliverySettings(order_by="value.acount")
        store.create(Subscription(["https://a.example/x"], kiwi("town", "Oulu"), id="o", delivery=settings))
    text = ROUTE.format(url=nats_server.url, stream=source).replace(', schema: "n INT, town STRING"', "")
    text = text.replace(
        "sink:",
        "  - {type: MaskField$Value, fields: 'town,twon'}\n"
        "  - {type: ReplaceField$Value, exclude: nn, predicate: {type: TopicNameMatches, pattern: x}, negate: true}\n"
        "mappings: {'nobody.*': 'a.{{wildcard(1)}}'}\n"
        "subscriptions: {store: 'sqlite:///s.db', metadata: {town: value.town, n: 'value.m.n'}}\n"
        "errors: {tolerance: all}\nsink:",
    )
    (tmp_path / "route.yaml").write_text(text)

    code, checks = checked(turnout, tmp_path / "route.yaml")
    shown = turnout("check", str(tmp_path / "route.yaml"), "--connect")[1]

    assert code == 1
    assert checks["transforms[0].predicate.name, header Old"] == (True, "in 1 of 4 records")
    assert checks["transforms[1].fields, value.town"] == (True, "in 3 of 3 records")
    assert checks["transforms[1].fields, value.twon"] == (
        False,
        'in 0 of 3 records: nothing is masked; did you mean "town"?',
    )
    assert checks["transforms[2].predicate.pattern, topic x"][1].startswith("in 0 of 3 records")
    assert checks["transforms[2].exclude, value.nn"] == (True, 'in 0 of 3 records; did you mean "n"?')
    assert checks['mappings "nobody.*", topic nobody.*'] == (True, "in 0 of 3 records")
    assert checks["subscriptions.metadata.n, value.m.n"][1].startswith("in 0 of 3 records")
    assert checks["projection of subscription p, value.twn"][1].startswith("in 0 of 3 records")
    assert checks["orderBy of subscription o, value.acount"][1].startswith("in 0 of 3 records")
    assert "\nwarn    subscriptions.metadata.n, value.m.n: in 0 of 3 records" in shown


def test_a_dot_under_v1_is_warned_of(turnout: Turnout, tmp_path: Path) -> None:
    """With line and cure, unless a path is meant by V2, a schema has the name, or Flatten made it."""
    stages = (
        "  - {type: MaskField$Value, fields: payment.card}\n"
        "  - {type: MaskField$Value, fields: payment.card, field.syntax.version: V2}\n"
        "  - {type: Flatten$Value}\n"
        "  - {type: MaskField$Value, fields: payment.card}\n"
    )
    text = ROUTE.format(url="nats://127.0.0.1:1", stream="S")
    text = text.replace(
        'sink: {format: nats, servers: "nats://127.0.0.1:1"', 'sink: {format: nats, servers: "nats://127.0.0.1:2"'
    )
    route = tmp_path / "route.yaml"
    route.write_text(text.replace('schema: "n INT, town STRING"', "").replace("sink:", f"{stages}sink:", 1))
    code, out, _ = turnout("check", str(route))
    _, as_json, _ = turnout("check", str(route), "--json")

    assert code == 0
    assert out.count("warning: ") == 1
    assert (
        "warning: transforms[1].fields: 'payment.card' has a dot, and V1 takes it for one name, and not for a path: "
        "set field.syntax.version to V2 if it is the path to a field (line 6)\n"
    ) in out
    assert [(one["path"], one["line"]) for one in json.loads(as_json)["warnings"]] == [("transforms[1].fields", 6)]

    route.write_text(text.replace("town STRING", "`payment.card` STRING").replace("sink:", f"{stages[:48]}\nsink:", 1))
    assert "warning" not in turnout("check", str(route))[1]


def test_a_stage_that_can_do_nothing_is_refused(turnout: Turnout, tmp_path: Path) -> None:
    """Envelopes that are not decoded would all pass unchanged: the cure is named with the line."""
    text = ROUTE.format(url="nats://127.0.0.1:1", stream="S")
    text = text.replace('value: {format: json, schema: "n INT, town STRING"}\n', "")
    (tmp_path / "route.yaml").write_text(text.replace("sink:", "  - {type: ExtractNewRecordState}\nsink:", 1))

    code, _, err = turnout("check", str(tmp_path / "route.yaml"))

    assert code == 2
    assert (
        "transforms[1]: ExtractNewRecordState works on objects, and at that point every value is of type bytes; it is "
        "bytes, as the route does not say how it is read: add value: {format: …} (line 5)"
    ) in err
