"""Messages that are delivered later, on real servers: by their schedules, and from a delay stream by a leader."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest

from turnout.delivery.scheduled import DelayLeader, cancel, opened_leader, pending
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.errors import StreamError
from turnout.nats.jetstream import RawMessage, StreamConfig, connect
from turnout.nats.jetstream.errors import MessageNotFoundError
from turnout.nats.wire import Connection, PullReader, Range, create_stream, stream_info
from turnout.nats.wire.records import with_stream
from turnout.routes import Route
from turnout.runtime.nats.sink import SinkOptions
from turnout.runtime.preflight import make_delay_stream
from turnout.runtime.publishing import Publishers

ROUTE = """
name: later
source: {{format: nats, servers: "{url}", stream: IN}}
value: {{format: json}}
mappings: {{"in.*": "out.{{{{wildcard(1)}}}}"}}
sink: {{format: nats, servers: "{url}", deliverAt: value.due}}
scheduled: {{id: value.id{stream}}}
errors: {{tolerance: all}}
deadLetter: {{topic: dead}}
"""


class Later:
    """A route with its streams on one server."""

    def __init__(self, server: NatsServer, *, leader: bool, schedules: bool = True) -> None:
        self.server = server
        self.text = ROUTE.format(url=server.url, stream=", stream: WAITING" if leader else "")
        self.route = Route.parse(self.text)
        subjects = ["out.>"] if leader else ["out.>", "scheduled.>"]
        with Connection.open(server.url) as connection:
            create_stream(connection, {"name": "IN", "subjects": ["in.>"]})
            create_stream(connection, {"name": "DEAD", "subjects": ["dead"]})
            allowed = {"allow_msg_schedules": True} if schedules and not leader else {}
            create_stream(connection, {"name": "OUT", "subjects": subjects, **allowed})
        make_delay_stream(self.route)
        self._read = 1

    def send(self, records: Sequence[tuple[str, float, object]]) -> int:
        """Send records of a subject, a time and an id through the route; return how many were delivered."""
        import json

        program = Program.of(self.route)
        (sink,) = self.route.sinks.values()
        counts = 0
        with Connection.open(self.server.url) as connection:
            for subject, due, identity in records:
                connection.request(f"in.{subject}", json.dumps({"due": due, "id": identity}).encode())
            end = stream_info(connection, "IN")["state"]["last_seq"] + 1
            with Publishers((SinkOptions.of(sink),)) as publishers:  # type: ignore[arg-type]
                for batch in PullReader(connection, Range("IN", self._read, end)).batches():
                    result = program.run(with_stream(batch, "IN"))
                    counts += sum(r.counts.delivered for r in [result, *publishers.publish(result)])
                counts += sum(r.counts.delivered for r in publishers.flush())
            self._read = end
        return counts

    def stored(self, prefix: str = "out.") -> list[RawMessage]:
        """Return the messages of the streams below a prefix."""

        async def read() -> list[RawMessage]:
            async with connect(self.server.url) as js:
                name = "DEAD" if prefix == "dead" else "OUT"
                stream = await js.stream(name)
                found = []
                for sequence in range(1, (await stream.info()).state.last_seq + 1):
                    with suppress(MessageNotFoundError):
                        found.append(await stream.get_message(sequence))
                return [message for message in found if message.subject.startswith(prefix)]

        return asyncio.run(read())

    def wait(self, count: int, prefix: str = "out.") -> list[RawMessage]:
        """Wait until there are so many messages."""
        limit = time.monotonic() + 60
        while len(found := self.stored(prefix)) < count and time.monotonic() < limit:
            time.sleep(0.1)
        return found


@contextmanager
def leading(route: Route) -> Iterator[DelayLeader]:
    """Run a leader on a thread."""
    stop, ready = threading.Event(), threading.Event()
    leaders: list[DelayLeader] = []

    async def run() -> None:
        async with opened_leader(route) as leader:
            leaders.append(leader)
            ready.set()
            await leader.run(stop)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert ready.wait(20)
        yield leaders[0]
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


def due_of(message: RawMessage) -> float:
    from datetime import datetime

    return datetime.fromisoformat(message.header("Turnout-Deliver-At")).timestamp()


@pytest.fixture
def server() -> Iterator[NatsServer]:
    with NatsServer() as started:
        yield started


@pytest.mark.parametrize("leader", [False, True])
def test_delivered_at_their_times(server: NatsServer, leader: bool) -> None:
    """Messages come at their times and not before, with headers and values; a past one within the grace at once."""
    later = Later(server, leader=leader)
    now = time.time()
    with leading(later.route) if leader else nullcontext():
        assert later.send([("a", now + 1.0, "1"), ("b", now + 0.5, "2"), ("c", now - 60, "3"), ("d", 0, "4")]) == 3
        found = later.wait(3)

        assert {m.subject: m.data for m in found}.keys() == {"out.a", "out.b", "out.c"}
        for message in found:
            assert message.time is not None
            assert message.time.timestamp() >= due_of(message)
            assert {name for name in message.headers if name.startswith("Turnout")} == {"Turnout-Deliver-At"}
        (letter,) = later.stored("dead")
        assert "value.due is '0'" in letter.header("__connect.errors.exception.message")
    assert asyncio.run(pending(later.route)) == 0


@pytest.mark.parametrize("leader", [False, True])
def test_replaced_and_cancelled(server: NatsServer, leader: bool) -> None:
    """One more message with an id replaces the first, and an id cancels what waits; both are exact."""
    later = Later(server, leader=leader)
    # A busy machine replaces and cancels within these seconds, too.
    now = time.time()
    with leading(later.route) if leader else nullcontext():
        later.send([("a", now + 5.0, "x"), ("b", now + 5.0, "y/1"), ("c", now + 5.0, "z")])
        assert asyncio.run(pending(later.route)) == 3
        later.send([("a", now + 6.0, "x")])
        assert asyncio.run(cancel(later.route, ["y/1", "none"])) == {"y/1": 1, "none": 0}
        assert asyncio.run(pending(later.route)) == 2
        assert [m.subject for m in later.wait(2)] == ["out.c", "out.a"]
        time.sleep(0.5)
        assert len(later.stored()) == 2


def test_a_stream_without_schedules(server: NatsServer) -> None:
    """Its refusal is a dead letter that says why."""
    later = Later(server, leader=False, schedules=False)
    later.send([("a", time.time() + 5, "1")])

    (letter,) = later.stored("dead")
    assert "message schedules is disabled" in letter.header("__connect.errors.exception.message")


def test_what_a_sink_refuses(server: NatsServer) -> None:
    """A message whose stream is gone when it is due becomes a dead letter, and leaves the delay stream."""
    later = Later(server, leader=True)
    later.send([("a", time.time() + 0.5, "1")])
    with Connection.open(server.url) as connection:
        connection.api("STREAM.DELETE.OUT")
    with leading(later.route) as leader:
        (letter,) = later.wait(1, "dead")

        assert letter.data
        assert "no stream" in letter.header("__connect.errors.exception.message")
        limit = time.monotonic() + 60
        while asyncio.run(pending(later.route)) and time.monotonic() < limit:
            time.sleep(0.05)
        assert asyncio.run(pending(later.route)) == 0
        assert leader.counts.refused == 1


def test_a_delay_stream_that_cannot_keep(server: NatsServer) -> None:
    """A stream of the name whose limits remove messages is refused before a run."""
    with Connection.open(server.url) as connection:
        create_stream(connection, {"name": "WAITING", "subjects": ["scheduled.>"], "max_age": 10**9})
    with pytest.raises(StreamError, match="cannot keep messages that wait"):
        make_delay_stream(Route.parse(ROUTE.format(url=server.url, stream=", stream: WAITING")))


def _probe(later: Later) -> dict[str, str]:
    """Return what ``check --connect`` finds about the sink and what waits."""
    from turnout.cli.check import probe

    return {
        found.name: f"{'ok' if found.ok else 'failed'} {found.detail}"
        for found in probe(later.route, 10)
        if "schedule" in found.name or "streams" in found.name
    }


def test_check_connect(server: NatsServer) -> None:
    """The needs of the sink's stream are verified, with what is wrong by name; a run would make a delay stream."""
    later = Later(server, leader=False)
    with Connection.open(server.url) as connection:
        connection.request("in.a", b'{"due": "2020-01-01T00:00:00Z", "id": 1}')
        connection.request("in.a", b'{"due": %d, "id": 1}' % (time.time() + 60))
        good = _probe(later)
        assert good["sink, schedules"].startswith("ok OUT publishes waiting messages")
        assert good["sink, streams"].startswith("ok ")
        for change, problem in (
            ({"max_age": 10**12}, "a max_age below 30 days"),
            ({"max_msgs": 10}, "max_msgs with discard: old"),
            ({"subjects": ["scheduled.>", "other.>"]}, "publishes in that stream alone"),
            ({"subjects": ["out.>"]}, "no stream takes scheduled.>"),
        ):
            config = {"name": "OUT", "subjects": ["out.>", "scheduled.>"], "allow_msg_schedules": True, **change}
            connection.api("STREAM.UPDATE.OUT", config)
            bad = _probe(later)["sink, schedules"]
            assert bad.startswith("failed")
            assert problem in bad
    with NatsServer() as other:
        waiting = Later(other, leader=True)
        with Connection.open(other.url) as connection:
            assert _probe(waiting)["scheduled"] == "ok the stream WAITING keeps messages that wait"
            connection.api("STREAM.DELETE.WAITING")
            assert _probe(waiting)["scheduled"] == "ok a run makes the delay stream WAITING"


def test_commands(server: NatsServer, tmp_path: Path) -> None:
    """The commands count and cancel; an id under which nothing waits is a failure."""
    from typer.testing import CliRunner

    from turnout.cli.serve import scheduled

    later = Later(server, leader=True)
    later.send([("a", time.time() + 3600, n) for n in "123"])
    file = tmp_path / "later.yaml"
    file.write_text(later.text, encoding="utf-8")
    outputs = [
        (result.exit_code, result.stdout.strip())
        for result in (
            CliRunner().invoke(scheduled, arguments)
            for arguments in (
                ["pending", str(file)],
                ["cancel", str(file), "1", "2", "--json"],
                ["cancel", str(file), "1"],
                ["pending", str(file)],
            )
        )
    ]

    assert [code for code, _ in outputs] == [0, 0, 1, 0]
    assert [text for _, text in outputs][::3] == ["3", "1"]
    assert '"1": 1' in outputs[1][1]


def _serve(later: Later, folder: Path) -> subprocess.Popen[bytes]:
    """Start a leader as a process."""
    file = folder / "later.yaml"
    file.write_text(later.text, encoding="utf-8")
    command = [sys.executable, "-m", "turnout", "scheduled", "run", str(file)]
    return subprocess.Popen(command, env={**os.environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _through_kills(server: NatsServer, folder: Path, kills: int, count: int, seconds: float) -> None:
    """Deliver messages while leaders and the server are killed in turns; each is stored once, and not early."""
    later = Later(server, leader=True)
    begin = time.time() + 4
    assert later.send([("a", begin + n * seconds / count, f"{n}") for n in range(count)]) == count
    leaders = [_serve(later, folder) for _ in range(2)]
    try:
        time.sleep(max(0.0, begin - time.time()))
        for number in range(kills):
            time.sleep(seconds / (kills + 1))
            if number % 2:
                server.restart(kill=True)
            else:
                victim = leaders.pop(0)
                victim.kill()
                victim.wait(10)
                leaders.append(_serve(later, folder))
        found = later.wait(count)
    finally:
        for process in leaders:
            process.terminate()
            process.wait(20)
    payloads = Counter(message.data for message in found)

    assert (len(payloads), max(payloads.values())) == (count, 1)
    assert all(message.time is not None and message.time.timestamp() >= due_of(message) for message in found)
    assert asyncio.run(pending(later.route)) == 0


def test_kills(server: NatsServer, tmp_path: Path) -> None:
    """Nothing is lost or stored twice over kills of leaders and of the server."""
    _through_kills(server, tmp_path, kills=2, count=400, seconds=4)


@pytest.mark.heavy
def test_ten_kills(server: NatsServer, tmp_path: Path) -> None:
    """Nothing is lost or stored twice over ten kills."""
    _through_kills(server, tmp_path, kills=10, count=5_000, seconds=60)


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.heavy)])
def test_schedules_over_kills_of_the_server(server: NatsServer, kills: int) -> None:
    """Nothing is lost of what the server publishes by itself, however often it is killed."""
    later = Later(server, leader=False)
    begin, count, seconds = time.time() + 1, 200 * kills, 3 * kills
    assert later.send([("a", begin + n * seconds / count, f"{n}") for n in range(count)]) == count
    for _ in range(kills):
        time.sleep(seconds / (kills + 1))
        server.restart(kill=True)

    assert len({message.data for message in later.wait(count)}) == count


def test_stream_config_of_the_delay_stream(server: NatsServer) -> None:
    """A run makes the delay stream with one message for each subject, and none that expires."""
    Later(server, leader=True)

    async def config() -> StreamConfig:
        async with connect(server.url) as js:
            return (await js.stream("WAITING")).cached_info.config

    found = asyncio.run(config())
    assert (found.max_msgs_per_subject, found.max_age, found.max_msgs) == (1, 0, -1)
