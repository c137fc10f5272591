"""Messages of subscriptions that compute their bodies from the record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from turnout.engine import Program
from turnout.engine.explain import explain
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.history import Suite, run_cases
from turnout.history.masking import HIDDEN, masked_explanation
from turnout.routes import Route
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.literal_choice import Costs

pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')

TEXT = """
name: orders
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}
value: {format: json}
transforms: [{name: mask, type: MaskField$Value, fields: phone}]
subscriptions: {store: "memory://s", metadata: {city: value.city}}
unmatched: pass
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
errors: {tolerance: all}
deadLetter: {topic: dead}
"""
RECORDS = [
    SampleRecord.of({"topic": f"orders.{n}", "value": value, "headers": {"trace": f"t{n}"}})
    for n, value in enumerate(
        [{"city": "Oulu", "n": 1, "phone": "5"}, {"city": "Oulu", "phone": "5"}, {"city": "Turku", "n": 3}]
    )
]


def _run(*subscriptions: Subscription, text: str = TEXT) -> list[tuple[str, bytes | None, dict[str, str]]]:
    program = Program.of(Route.parse(text))
    messages = program.run(record_batch(RECORDS), Index.of(subscriptions)).messages
    headers = [
        {pair["key"]: pair["value"].decode() for pair in pairs or ()}
        for pairs in messages.column("headers").to_pylist()
    ]
    return list(zip(messages.topics.to_pylist(), messages.column("value").to_pylist(), headers, strict=True))


def _one(project: str, id_: str = "one", to: str = "out") -> Subscription:
    return Subscription([to], "city:Oulu", id=id_, project=project)


@pytest.mark.parametrize(
    ("project", "body"),
    [
        ("'order ' + topic + ' of ' + value.city", b"order orders.0 of Oulu"),
        ("{'n': value.n, 'trace': headers.trace}", b'{"n":1,"trace":"t0"}'),
        ("[value.n, 2]", b"[1,2]"),
        ("value.n * 2", b"2"),
        ("value.n > 0", b"true"),
        ("value.phone", b""),
        ("null", None),
        ("b'\\xff'", b"\xff"),
        ("value", b'{"city":"Oulu","n":1,"phone":""}'),
    ],
)
def test_forms_of_bodies(project: str, body: bytes | None) -> None:
    """A text as it is, bytes likewise, null as a tombstone, all else as JSON; of the record behind the transforms."""
    topic, value, headers = _run(_one(project))[0]
    assert (topic, value, headers["trace"]) == ("out", body, "t0")


def test_each_subscription_has_its_own() -> None:
    """Beside those that have the record's value, in the order of records, with several layers and destinations."""
    subscriptions = [
        Subscription(["a", "b"], "city:Oulu", id="1", project="topic"),
        Subscription(["c"], "city:Oulu", id="2"),
        Subscription(["d"], "city:Oulu OR city:Turku", id="3", project="topic"),
        Subscription(["e"], "city:Turku", id="4", project="'e'"),
    ]
    sent = {(topic, value) for topic, value, _ in _run(*subscriptions)}
    assert sent == {
        *((to, f"orders.{n}".encode()) for to in "abd" for n in (0, 1)),
        ("c", b'{"city":"Oulu","n":1,"phone":""}'),
        ("c", b'{"city":"Oulu","phone":""}'),
        ("d", b"orders.2"),
        ("e", b"e"),
    }


def test_layers_of_an_index() -> None:
    """Numbers of projections are each layer's own; a layer without any has no column for them."""
    parts = [[_one("'a'", "1"), _one("'b'", "2")], [Subscription(["c"], "city:Oulu", id="3")], [_one("'b'", "4")]]
    index = Index([Layer(build(part, Costs())) for part in parts], 1)
    numbers = np.array([3, 0, 2, 1], np.int64)
    found = {text: indices.tolist() for text, indices in index.projections(numbers)}
    assert (index.projects, found) == (True, {"'a'": [1], "'b'": [3, 0]})


@pytest.mark.parametrize("lineage", [False, True])
def test_errors_are_undeliverable_messages(lineage: bool) -> None:
    """Of that delivery alone, with the record's own value; a record without another message is a dead letter."""
    text = TEXT.replace('4222"}\nerrors', '4222", lineage: true}\nerrors') if lineage else TEXT
    sent = _run(_one("value.n"), _one("'x'", "two", "other"), text=text)
    assert [(topic, value) for topic, value, _ in sent] == [
        ("out", b"1"),
        ("other", b"x"),
        ("other", b"x"),
        ("orders.2", b'{"city":"Turku","n":3,"phone":null}'),
        ("dead", b'{"city": "Oulu", "phone": "5"}'),
    ]
    message = sent[-1][2]["__connect.errors.exception.message"]
    assert message.startswith("subscription 'one': destination 'out' has no message by its projection: ")
    assert ("Turnout-Route" in sent[0][2]) is lineage
    counts = Program.of(Route.parse(text)).run(record_batch(RECORDS), Index.of([_one("value.n")])).counts
    assert (counts.delivered, counts.dead_lettered, counts.messages, counts.undeliverable) == (2, 1, 2, 1)


def test_what_is_too_much_is_an_error() -> None:
    """The limits of any expression apply: its inputs are bounded before it is evaluated."""
    loops = "value.many.all(a, value.many.all(b, value.many.all(c, a + b + c > 0)))"
    record = SampleRecord.of({"topic": "t", "value": {"city": "Oulu", "many": list(range(2_000))}})
    result = Program.of(Route.parse(TEXT)).run(record_batch([record]), Index.of([_one(loops)]))
    assert (result.counts.dead_lettered, result.counts.messages) == (1, 0)


def test_without_a_projection_nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subscriptions without one cost nothing: their index has no column for it, and no expression is looked up."""
    monkeypatch.setattr(Index, "projections", None)
    index = Index.of([Subscription(["out"], "city:Oulu", id="one")])
    assert not index.projects
    assert [topic for topic, _, _ in _run(Subscription(["out"], "city:Oulu", id="one"))] == ["out", "out", "orders.2"]


def test_explained() -> None:
    """The message is shown as it is sent."""
    subscription = _one("{'city': value.city}")
    program = Program.of(Route.parse(TEXT))
    found = explain(program, record_batch(RECORDS[:1]), Index.of([subscription]), {"one": subscription})
    assert [json.loads(message.value or "") for message in found.messages] == [{"city": "Oulu"}]


def test_views_hide_what_is_computed() -> None:
    """If the route masks a field of some records only, the projected body of every record is hidden."""
    masked = "fields: phone, predicate: {type: TopicNameMatches, pattern: secret}"
    route = Route.parse(TEXT.replace("fields: phone", masked))
    subscriptions = [_one("{'p': value.phone}"), Subscription(["two"], "city:Oulu", id="two")]
    known = {subscription.id: subscription for subscription in subscriptions}
    found = explain(Program.of(route), record_batch(RECORDS[:1]), Index.of(subscriptions), known)
    assert [message.value for message in found.messages] == ['{"p":"5"}', '{"city": "Oulu", "n": 1, "phone": "5"}']
    shown = masked_explanation(found, route).messages
    assert (shown[0].value, '"5"' in (shown[1].value or "")) == (HIDDEN, False)


def test_bodies_in_tests_of_a_route() -> None:
    """A case expects the record's value once, and the body of each delivery that has one."""
    cases = """
subscriptions:
- {id: a, destinations: out, when: city:Oulu, project: "{'n': value.n}"}
- {id: b, destinations: whole, when: city:Oulu}
cases:
- name: both
  record: {topic: t, value: {city: Oulu, n: 1}}
  expect:
    value: {city: Oulu}
    deliveries: [{subscription: a, body: {n: 1}}, {subscription: b, body: {city: Oulu}}]
    exact: [deliveries]
- name: another
  record: {topic: t, value: {city: Oulu, n: 1}}
  expect: {deliveries: [{subscription: a, body: {n: 2}}]}
"""
    route = Route.parse(TEXT)
    suite = Suite.parse(cases, route, Path("orders.tests.yaml"))
    assert suite is not None
    report = run_cases(route, suite.cases)
    assert [[str(difference.path) for difference in result.differences] for result in report.results] == [
        [],
        ["deliveries.out.body.n"],
    ]
