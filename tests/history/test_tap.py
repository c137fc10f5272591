"""Records on their way: what is seen of them, where, and how the stream does not notice."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from turnout.conditions import parse
from turnout.errors import ConditionError, ConfigError
from turnout.history import tap
from turnout.history.masking import HIDDEN, hidden_by_stage
from turnout.history.replay import StreamRange
from turnout.history.tap import Tapped, check_names, stages_of, taps
from turnout.nats.protocol.positions import StreamIdentity
from turnout.nats.wire import Connection, Publisher, create_consumer, create_stream, delete_stream, stream_info
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store

ROUTE = """
name: tapped
source: {{format: nats, servers: "{url}", stream: {stream}}}
value: {{format: json}}
transforms:
  - {{name: old, type: Filter, predicate: {{type: HasHeaderKey, name: Old}}}}
  - {{name: copy, type: HeaderFrom$Value, fields: pan, headers: Pan, operation: copy}}
  - {{name: rename, type: ReplaceField$Value, renames: "pan:card"}}
  - {{name: hide, type: MaskField$Value, fields: card, predicate: {{type: TopicNameMatches, pattern: ".*a"}}}}
mappings:
  "{stream}.*": "out.{{{{wildcard(1)}}}}"
  "{stream}.lost.a": [{{destination: "{stream}.lost.a", weight: 0}}]
subscriptions: {{store: "sqlite:///{folder}/subscriptions.db", metadata: {{n: value.n}}}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: dead}}
errors: {{tolerance: all}}
"""


@dataclass
class Scene:
    """A stream with a route over it."""

    url: str
    stream: str
    folder: Any

    @property
    def route(self) -> Route:
        return Route.parse(ROUTE.format(url=self.url, stream=self.stream, folder=self.folder), {})

    def publish(self, *values: Any, rest: str = "a", headers: tuple[tuple[str, str], ...] = ()) -> None:
        with Connection.open(self.url) as connection, Publisher(connection) as publisher:
            for value in values:
                payload = value if isinstance(value, bytes) else json.dumps(value).encode()
                publisher.publish(f"{self.stream}.{rest}", payload, headers)

    def range(self, stage: str, **options: Any) -> list[Tapped]:
        return list(taps(self.route, stage, **{"start": "earliest", "end": "latest", **options}))

    def info(self) -> dict[str, Any]:
        with Connection.open(self.url) as connection:
            return stream_info(connection, self.stream)


@pytest.fixture
def scene(nats_server, tmp_path) -> Iterator[Scene]:
    scene = Scene(nats_server.url, f"TAP{uuid.uuid4().hex[:8]}", tmp_path)
    with Connection.open(scene.url) as connection:
        config = {"name": scene.stream, "subjects": [f"{scene.stream}.>"], "storage": "memory", "allow_direct": True}
        create_stream(connection, config)
    with open_store(f"sqlite:///{tmp_path}/subscriptions.db") as store:
        store.create(Subscription(["far.odd"], parse("n:1 OR n:3"), id="odd"))
    yield scene
    with Connection.open(scene.url) as connection:
        delete_stream(connection, scene.stream)


def test_before_and_after_a_transform(scene) -> None:
    """Changed and dropped records are shown; records that an earlier stage dropped are not."""
    scene.publish({"n": 1, "pan": "4929"}, {"n": 2})
    scene.publish({"n": 3}, headers=(("Old", "1"),))

    rename = scene.range("rename", unmasked=True)

    assert [(tapped.sequence, tapped.outcome) for tapped in rename] == [(1, "changed"), (2, "unchanged")]
    assert rename[0].before["value"] == {"n": 1, "pan": "4929"}
    assert rename[0].after is not None
    assert rename[0].after["value"] == {"n": 1, "card": "4929"}
    assert [(tapped.sequence, tapped.outcome, tapped.after is None) for tapped in scene.range("old")] == [
        (1, "unchanged", False), (2, "unchanged", False), (3, "filtered", True),
    ]  # fmt: skip


def test_what_is_masked_later_is_hidden_before(scene) -> None:
    """Under the names that it has by then, in the header that it is copied to, in what cannot be read and in reasons;
    behind a mask with a predicate too, as not every record is masked there."""
    scene.publish({"n": 1, "deep": {"pan": "4929"}, "pan": "4929"}, b'{"pan": "4929"')
    scene.publish({"pan": "4929"}, rest="b")

    for stage in stages_of(scene.route):
        for tapped in scene.range(stage):
            tapped.before["value"] = _without_deep(tapped.before["value"])
            if tapped.after is not None:
                tapped.after["value"] = _without_deep(tapped.after["value"])
            assert "4929" not in json.dumps(tapped.as_dict()), stage
    first, broken, _ = scene.range("source")
    assert first.before["value"] == {"n": 1, "deep": {"pan": HIDDEN}, "pan": HIDDEN}
    assert broken.before["value"].startswith(f"{HIDDEN} (14 bytes, fingerprint ")
    assert broken.reason == f"VALUE_CONVERTER: {HIDDEN}"
    hide, other = scene.range("hide")
    assert (hide.outcome, hide.before["value"]["card"], hide.after and hide.after["value"]["card"]) == (
        "changed", HIDDEN, HIDDEN,
    )  # fmt: skip
    assert (other.outcome, other.after and other.after["value"]["card"]) == ("unchanged", HIDDEN)
    assert "4929" in json.dumps([tapped.as_dict() for tapped in scene.range("source", unmasked=True)])


def _without_deep(value: Any) -> Any:
    """A field of the same name deeper down, which the route does not mask, is hidden as long as the mask is to come."""
    return {name: item for name, item in value.items() if name != "deep"} if isinstance(value, dict) else value


@pytest.mark.parametrize(
    ("stages", "hidden"),
    [
        ("ExtractField$Value, field: payload", {"value": {"payload": {"card": HIDDEN}}}),
        ("HoistField$Value, field: card", {"value": HIDDEN}),
        ('Flatten$Value, delimiter: "_"', {"value": {"payload": {"card": HIDDEN}}}),
        ("ValueToKey, fields: card", {"value": {"payload": {"card": HIDDEN}}}),
    ],
)
def test_a_masked_field_is_followed_back(stages, hidden) -> None:
    """Through what wraps, extracts, flattens and copies it."""
    from turnout.records import Record

    fields = "payload_card" if "Flatten" in stages else "card"
    text = f"""
name: r
source: {{format: nats, servers: "nats://127.0.0.1", stream: S}}
value: {{format: json}}
transforms:
  - {{name: one, type: {stages}}}
  - {{name: mask, type: MaskField$Value, fields: {fields}}}
sink: {{format: nats, servers: "nats://127.0.0.1"}}
"""
    chain = Route.parse(text, {}).chain

    assert hidden_by_stage(chain)[0].masked(Record("t", {"payload": {"card": "4929"}}))["value"] == hidden["value"]
    # The copy in the key is not masked by the route.
    assert bool(hidden_by_stage(chain)[2]) == ("ValueToKey" in stages)


def test_mapped_and_delivered(scene) -> None:
    """Topics before and behind the mappings; how each record ends, and the messages that go out for it."""
    scene.publish({"n": 1}, {"n": 2}, b"{")
    scene.publish({"n": 3}, rest="lost.a")

    mapped = scene.range("mapped")
    assert [(tapped.before["topic"], tapped.after and tapped.after["topic"], tapped.outcome) for tapped in mapped] == [
        (f"{scene.stream}.a", "out.a", "changed"),
        (f"{scene.stream}.a", "out.a", "changed"),
        (f"{scene.stream}.lost.a", None, "lost_by_weight"),
    ]
    delivered = scene.range("delivered")
    assert [tapped.outcome for tapped in delivered] == ["delivered", "unmatched", "dead_lettered", "lost_by_weight"]
    assert [(message.topic, message.subscription, message.dead_letter) for message in delivered[0].messages] == [
        ("far.odd", "odd", False)
    ]
    label = StreamIdentity.of(scene.info()["created"]).label(scene.stream)
    assert delivered[0].messages[0].id.startswith(f"{label}:1:")
    assert [message.dead_letter for message in delivered[2].messages] == [True]


def test_a_condition_and_a_limit(scene) -> None:
    """A condition sees the record as it is at that place; a range is read no further than the limit."""
    scene.publish(*({"n": n} for n in range(20)), b"{")

    assert [tapped.sequence for tapped in scene.range("source", where=f"n>=5 AND topic:{scene.stream}.a", limit=3)] == [
        6,
        7,
        8,
    ]
    assert [tapped.sequence for tapped in scene.range("mapped", where="topic:out.a AND n<2")] == [1, 2]
    assert [tapped.sequence for tapped in scene.range("delivered", where="n:3")] == [4]
    assert scene.range("rename", where=f"topic:{scene.stream}.b") == []
    assert [tapped.sequence for tapped in scene.range("old", start=4, end=6)] == [4, 5]


def test_names_that_no_record_has(scene, monkeypatch) -> None:
    """A tap without end says so behind the first records, once; for ranges, as replays have them, it is an error."""
    monkeypatch.setattr(tap, "_UNSEEN_RECORDS", 5)
    scene.publish(*({"n": n} for n in range(5)), headers=(("Seen", "no"),))
    stop = threading.Event()
    warnings: list[str] = []

    def warn(problem: str) -> None:
        warnings.append(problem)
        stop.set()

    assert list(taps(scene.route, "mapped", where="Never:1", start="earliest", stop=stop, warn=warn)) == []

    assert warnings == ["'Never' is not listed under metadata, and no header of the first 5 records has it"]
    ranges = [StreamRange(scene.stream, 1, 6, 5)]
    check_names(scene.route, parse("Seen:1"), ranges)
    with pytest.raises(ConfigError, match="'Never' is not listed under metadata, and no record has a header"):
        check_names(scene.route, parse("Never:1 OR Seen:1"), ranges)


def test_live_records_as_they_come(scene) -> None:
    """Earlier records are not shown; new ones are, until the tap is stopped."""
    scene.publish({"n": 1})
    stop = threading.Event()
    live = taps(scene.route, "source", stop=stop)
    shown: list[Tapped] = []
    begun = threading.Event()

    def publish() -> None:
        # The tap has begun when it waits for a message, by a consumer of its own.
        while not begun.wait(0.05):
            if scene.info()["state"]["consumer_count"]:
                begun.set()
        scene.publish({"n": 2}, {"n": 3})

    publisher = threading.Thread(target=publish)
    publisher.start()
    for tapped in live:
        shown.append(tapped)
        if len(shown) == 2:
            stop.set()
    publisher.join()

    assert [one.before["value"]["n"] for one in shown] == [2, 3]


@contextmanager
def flooded(scene: Scene) -> Iterator[None]:
    """Publish records faster than the tap reads them."""
    done = threading.Event()

    def publish() -> None:
        while not done.is_set():
            scene.publish(*({"n": n} for n in range(200)))

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        yield
    finally:
        done.set()
        publisher.join()


def test_a_fast_stream_is_sampled(scene) -> None:
    """Live records beyond the rate are passed over, and the newest are shown."""
    live = taps(scene.route, "source", rate=20, limit=21)
    with flooded(scene):
        sequences = [shown.sequence for shown in live]

    assert len(sequences) == 21
    assert sequences == sorted(sequences)
    assert sequences[-1] - sequences[0] > 21


def test_a_stream_that_is_made_anew_meanwhile(scene, caplog: pytest.LogCaptureFixture) -> None:
    """A live tap goes on with its first message, after a warning with both creation times."""
    before = scene.info()["created"]
    scene.publish(*({"n": n} for n in range(5)))
    stop = threading.Event()
    live = taps(scene.route, "source", start="earliest", stop=stop)
    former = [next(live).before["value"]["n"] for _ in range(5)]
    with Connection.open(scene.url) as connection:
        delete_stream(connection, scene.stream)
        create_stream(connection, {"name": scene.stream, "subjects": [f"{scene.stream}.>"], "storage": "memory"})
    scene.publish({"n": 10}, {"n": 11})

    present = [next(live).before["value"]["n"] for _ in range(2)]
    stop.set()

    assert (former, present) == ([0, 1, 2, 3, 4], [10, 11])
    (warning,) = caplog.messages
    assert before in warning
    assert scene.info()["created"] in warning


def test_waiting_for_a_rare_record_takes_no_core(scene, monkeypatch) -> None:
    """A fast stream is looked at twice a second, not as fast as can be, while nothing is shown of it."""
    looks, waits = [], []
    of_part, missed = tap._of_part, tap._Pace.missed
    monkeypatch.setattr(tap, "_of_part", lambda *given: looks.append(given) or of_part(*given))
    monkeypatch.setattr(tap._Pace, "missed", lambda pace: waits.append(pace) or missed(pace))
    stop = threading.Event()
    live = taps(scene.route, "source", where="topic:nowhere", rate=20, stop=stop)
    begun = time.monotonic()
    with flooded(scene):
        threading.Timer(1.6, stop.set).start()
        shown = list(live)
        seconds = time.monotonic() - begun

    assert shown == []
    assert len(waits) == len(looks) > 0
    # Each but the last, which is ended, is as long as it should be, however busy the machine.
    assert len(waits) <= seconds / tap._LOOK_SECONDS + 1


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_streams_that_keep_messages_for_their_consumers(scene, retention, nats_server) -> None:
    """They are read without any consumer, and nothing is acknowledged: the run's own still has everything to get."""
    name = f"{scene.stream}{retention[0]}"
    with Connection.open(scene.url) as connection:
        config = {"name": name, "subjects": [f"{name}.*"], "retention": retention, "allow_direct": True}
        create_stream(connection, {**config, "storage": "memory"})
        create_consumer(connection, name, {"name": "run", "durable_name": "run", "ack_policy": "explicit"})
    other = Scene(scene.url, name, scene.folder)
    other.publish({"n": 1}, {"n": 2})

    assert [tapped.before["value"]["n"] for tapped in other.range("source")] == [1, 2]

    with Connection.open(scene.url) as connection:
        state = stream_info(connection, name)["state"]
        waiting = connection.api(f"CONSUMER.INFO.{name}.run")["num_pending"]
        delete_stream(connection, name)
    assert (state["messages"], state["consumer_count"], waiting) == (2, 1, 2)


def test_nothing_is_left_behind(scene) -> None:
    """No consumer stays when a range has been looked at, and the stream holds what it held."""
    scene.publish({"n": 1})

    scene.range("delivered")

    state = scene.info()["state"]
    assert (state["messages"], state["consumer_count"]) == (1, 0)


def test_what_cannot_be_tapped(scene) -> None:
    """An unknown stage, with what was perhaps meant; a condition that cannot be read; a source without history."""
    with pytest.raises(ConfigError, match="there is no stage 'renam'; did you mean \"rename\""):
        taps(scene.route, "renam")
    with pytest.raises(ConditionError):
        taps(scene.route, "source", where="n:")
    text = ROUTE.format(url=scene.url, stream=scene.stream, folder=scene.folder)
    lines = [line if not line.startswith("source") else "source: {format: json, path: x}" for line in text.splitlines()]
    with pytest.raises(ConfigError, match="expected format nats"):
        taps(Route.parse("\n".join(lines), {}), "source")
