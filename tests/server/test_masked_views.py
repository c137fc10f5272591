"""Every view of a record, to a token that sees what routes mask and to one that does not."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.console.conftest import console_of
from tests.server.conftest import Bench, bench, wait_for
from tests.server.fakes import FakeRunner
from turnout.console import add_console
from turnout.embedded import NatsServer
from turnout.engine import Program
from turnout.errors import RunError
from turnout.nats.wire import Connection, Publisher, create_stream, delete_stream
from turnout.rpc.caller import USUAL_RIGHTS, Caller, Right
from turnout.rpc.tokens import entry_of, new_token
from turnout.runtime.endpoints import adapter_of
from turnout.server.config import RestartsPart, ServerConfig
from turnout.server.rest.app import build_app
from turnout.server.routes.supervisor import Phase
from turnout.server.security import TokenFile
from turnout.server.serving import RouteServer

__all__ = ["bench"]

SECRET = "4929000011112222"

ROUTE = """name: cards
source: {{format: nats, servers: "{url}", stream: CARDS}}
value: {{format: json}}
transforms:
  - {{name: copy, type: HeaderFrom$Value, fields: pan, headers: Pan, operation: copy}}
  - {{name: rename, type: ReplaceField$Value, renames: "pan:card"}}
  - {{name: number, type: Cast$Value, spec: "card:int8", predicate: {{type: HasHeaderKey, name: Small}}}}
  - {{name: hide, type: MaskField$Value, fields: card}}
subscriptions: {{store: "{store}", metadata: {{pan: value.pan, n: value.n}}}}
sink: {{format: nats, servers: "{url}"}}
deadLetter: {{topic: cardsdead.all}}
errors: {{tolerance: all}}
unmatched: deadLetter
"""

VIEWS: Mapping[str, Mapping[str, Any]] = {
    "GET /v1/routes/{name}/dead-letters": {},
    "GET /v1/routes/{name}/dead-letters/groups": {},
    "GET /v1/routes/{name}/dead-letters/{sequence:number}": {"sequence": 1},
    "POST /v1/routes/{name}/dead-letters/redrive": {"json": {"dry_run": True}},
    "POST /v1/routes/{name}/explain": {"json": {"at": "CARDS:1"}},
    "GET /v1/tap/{name}": {"params": {"stage": "source", "start": 1, "rate": 50}},
    "GET /dead-letters/{name}": {},
    "GET /dead-letters/{name}/{sequence:number}": {"sequence": 1},
    "POST /fragments/dead-letters/{name}/redrive": {"json": {"dry_run": True}},
    "GET /routes/{name}/records": {},
    "GET /sandbox": {"params": {"route": "cards", "at": "CARDS:1"}},
    "POST /fragments/sandbox": {"json": {"route": "cards", "at": "CARDS:1"}},
    "POST /fragments/trial": {"json": {"route": "cards", "condition_text": "Pan:*", "count": 10}},
}
"""Every request whose answer may hold content of a record, and how to ask it."""

STATUS = (
    "GET /",
    "GET /fragments/routes",
    "GET /fragments/routes/{name}/state",
    "GET /routes/{name}",
    "GET /routes/{name}/file",
    "GET /v1/events",
    "GET /v1/routes",
    "GET /v1/routes/{name}",
    "GET /v1/routes/{name}/status",
    "GET /connectors/{name}/status",
    "GET /connectors/{name}/tasks/{task:number}/status",
)
"""Every request whose answer says why a route failed, which may quote a record."""

DELIVERIES = {"GET /v1/feeds/{id:id}", "POST /v1/feeds/{id:id}", "WEBSOCKET /v1/feeds/{id:id}"}
"""Messages of a subscription's destinations, for callers that may read the subscription."""

RESPONSES = {
    "GET /webhooks/{name}",
    "GET /v1/routes/{name}/webhooks",
    "GET /v1/routes/{name}/webhooks/dead-letters",
}
"""Responses of endpoints, which may quote a message: see tests/console/pages/test_webhooks.py."""

JUDGED = {"POST /fragments/routes/{name}/effect"}
"""Examples of records that a changed route treats otherwise."""

WITHOUT_CONTENT = """
GET /connector-plugins
PUT /connector-plugins/{kind}/config/validate
GET /connectors
GET /connectors/{name}
GET /connectors/{name}/config
PUT /connectors/{name}/pause
POST /connectors/{name}/restart
PUT /connectors/{name}/resume
GET /connectors/{name}/tasks
POST /connectors/{name}/tasks/{task:number}/restart
GET /dead-letters
GET /fragments/condition
POST /fragments/condition/extended
POST /fragments/index
POST /fragments/new-route/check
POST /fragments/new-route/names
GET /fragments/route-schema
POST /fragments/routes/{name}/check
GET /fragments/routes/{name}/control
GET /fragments/routes/{name}/pending
GET /fragments/routes/{name}/pictures
GET /fragments/routes/{name}/replay
GET /fragments/routes/{name}/reset
POST /fragments/webhooks/{name}/enable
POST /fragments/webhooks/{name}/redrive
GET /live
GET /metrics
GET /new-route
GET /new-subscription
GET /ready
GET /sign-in
POST /sign-in
POST /sign-out
GET /routes/{name}/revisions
GET /routes/{name}/subscriptions
GET /subscriptions
GET /subscriptions/{id:id}
GET /tap
GET /webhooks
GET /v1/docs
GET /v1/docs.css
GET /v1/openapi.json
POST /v1/in/{name}
GET /v1/leader
POST /v1/leader/hand-over
POST /v1/routes/validate
DELETE /v1/routes/{name}
PUT /v1/routes/{name}
POST /v1/routes/{name}/confirm
GET /v1/routes/{name}/history
GET /v1/routes/{name}/offsets
PUT /v1/routes/{name}/offsets
POST /v1/routes/{name}/pause
POST /v1/routes/{name}/restart
POST /v1/routes/{name}/resume
GET /v1/routes/{name}/revisions
POST /v1/routes/{name}/webhooks/enable
POST /v1/routes/{name}/webhooks/redrive
POST /v1/subjects/map
GET /v1/subscriptions
POST /v1/subscriptions
POST /v1/subscriptions/conditions/validate
POST /v1/subscriptions/create-many
POST /v1/subscriptions/delete-many
POST /v1/subscriptions/edit-many
POST /v1/subscriptions/import
POST /v1/subscriptions/match
POST /v1/subscriptions/replace
DELETE /v1/subscriptions/{id:subscription}
GET /v1/subscriptions/{id:subscription}
GET /v1/subscriptions/{id:path}/history
PUT /v1/subscriptions/{id:subscription}
PATCH /v1/subscriptions/{id:subscription}
"""
"""Requests whose answers hold nothing of a record but what the request has brought."""


def test_every_request_is_known_to_hold_content_or_not(bench: Bench) -> None:
    """A new request fails here until it is classified; requests with record contents are tested below."""
    app = build_app(bench.parts)
    add_console(app, TokenFile(tokens_of(bench.folder)[0]))
    routers = [included.original_router for included in app.routes if hasattr(included, "original_router")]
    known = {
        f"{method} {route.path}"
        for router in routers
        for route in router.routes
        for method in getattr(route, "methods", ["WEBSOCKET"])
    }

    assert known == {*VIEWS, *STATUS, *DELIVERIES, *RESPONSES, *JUDGED, *WITHOUT_CONTENT.strip().splitlines()}


def tokens_of(folder: Path) -> tuple[Path, dict[str, str]]:
    """A file of tokens, and these: one that sees masked fields, and one that has every other right."""
    tokens, entries = {}, ""
    for name, rights in (("seer", tuple(Right)), ("reader", USUAL_RIGHTS)):
        tokens[name], accepted = new_token()
        entries += entry_of(accepted, "*", rights, ())
    file = folder / "tokens.yaml"
    file.write_text(entries)
    return file, tokens


@dataclass
class Scene:
    """A server with a route that masks a field, and dead letters of it."""

    server: RouteServer
    runner: FakeRunner
    tokens: Mapping[str, str]

    def ask(self, who: str, request: str, *, sequence: int = 1, **options: Any) -> httpx2.Response:
        """The answer to a request; of events, those that a tap of the three records has."""
        method, _, path = request.partition(" ")
        path = path.replace("{sequence:number}", str(sequence)).replace("{task:number}", "0")
        path = path.format(name="cards", sequence=sequence)
        headers = {"Authorization": f"Bearer {self.tokens[who]}"}
        with (
            httpx2.Client(base_url=self.server.url, timeout=60, headers=headers) as client,
            client.stream(method, path, **options) as answer,
        ):
            if "text/event-stream" in answer.headers["content-type"]:
                answer._content = _events(answer)
            else:
                answer.read()
            return answer


def _events(answer: httpx2.Response) -> bytes:
    lines: list[str] = []
    for line in answer.iter_lines():
        lines.append(line)
        if sum(line.startswith("data: ") for line in lines) == 3:
            break
    return "\n".join(lines).encode()


@pytest.fixture(scope="module")
def scene(nats_server: NatsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("masked")
    file, tokens = tokens_of(folder)
    routes = folder / "routes"
    routes.mkdir()
    store = f"sqlite:///{folder}/subscriptions.db"
    (routes / "cards.yaml").write_text(ROUTE.format(url=nats_server.url, store=store))
    config: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "store": store,
        "grpc": {"listen": "127.0.0.1:0"},
        "interval": "50ms",
    }
    config |= {"restarts": {"max": 0}, "tokens": file}
    runner = FakeRunner()
    with (
        _streams(nats_server.url),
        RouteServer(
            ServerConfig.model_validate(config), [routes], runner_of=lambda *_: runner, pages=add_console
        ) as server,
    ):
        wait_for(lambda: runner.runs["cards"])
        _set_aside(server)
        yield Scene(server, runner, tokens)


@contextmanager
def _streams(url: str) -> Iterator[None]:
    with Connection.open(url) as connection, Publisher(connection) as publisher:
        for name, subjects in (("CARDS", "cards.*"), ("CARDSDEAD", "cardsdead.*")):
            create_stream(connection, {"name": name, "subjects": [subjects], "storage": "memory"})
        record = json.dumps({"pan": SECRET, "n": 1}).encode()
        for value, headers in ((record, ()), (record, (("Small", "1"),)), (record[:-4], ())):
            publisher.publish("cards.1", value, headers)
        publisher.flush()
        try:
            yield
        finally:
            for name in ("CARDS", "CARDSDEAD"):
                delete_stream(connection, name)


def _set_aside(server: RouteServer) -> None:
    """Publish the results of a run: the first record is unmatched, the others fail."""
    assert server.parts.subscriptions is not None
    route = server.routes.entry("cards").version.route  # type: ignore[union-attr]
    index = server.parts.subscriptions.live(Caller()).index()
    with Connection.open(route.source.options()["servers"]) as connection, Publisher(connection) as publisher:
        for batch in adapter_of(route.source).last_records(10):
            messages = Program.of(route).run(batch, index).messages
            parts = (messages.column(name).to_pylist() for name in ("value", "headers"))
            for topic, id_, value, headers in zip(
                messages.topics.to_pylist(), messages.ids.to_pylist(), *parts, strict=True
            ):
                pairs = [(header["key"], header["value"] or b"") for header in headers or ()]
                publisher.publish(topic, value or b"", pairs, id_)


@pytest.mark.parametrize("request_line", sorted(VIEWS))
def test_a_view_shows_what_a_route_masks_to_those_alone_who_may_see_it(scene: Scene, request_line: str) -> None:
    """The field under its old name, its copy in a header, bytes that are no JSON, and reasons that quote it."""
    options = VIEWS[request_line]
    seen = scene.ask("seer", request_line, **options)
    masked = scene.ask("reader", request_line, **options)

    assert seen.status_code == 200
    assert SECRET in seen.text
    assert masked.status_code in (200, 422)
    assert SECRET not in masked.text


@pytest.mark.parametrize("sequence", [1, 2, 3])
def test_each_dead_letter_is_masked_on_its_page_in_rest_and_in_the_sandbox(scene: Scene, sequence: int) -> None:
    """For every reason of failure, and in all of its headers."""
    rest, page = ("GET /v1/routes/{name}/dead-letters/{sequence:number}", "GET /dead-letters/{name}/{sequence:number}")
    sandbox = {"params": {"route": "cards", "letter": sequence}}
    for request, options in ((rest, {}), (page, {}), ("GET /sandbox", sandbox)):
        seen, masked = (scene.ask(who, request, sequence=sequence, **options) for who in ("seer", "reader"))
        assert (seen.status_code, masked.status_code) == (200, 200)
        assert SECRET in seen.text
        assert SECRET not in masked.text
        assert SECRET[:-3] not in masked.text
    record = scene.ask("reader", rest, sequence=sequence).json()["record"]
    assert record["topic"] == "cards.1"
    assert "***" in record["value"]


def test_no_condition_asks_for_what_is_hidden(scene: Scene) -> None:
    """Which records meet it would tell what they hold; the same of texts in reasons."""
    tap: dict[str, Any] = {"params": {"stage": "source", "where": "pan:4*", "start": 1}}
    letters = "GET /v1/routes/{name}/dead-letters"
    found = {who: scene.ask(who, letters, params={"reason": SECRET}).json()["items"] for who in scene.tokens}

    assert scene.ask("reader", "GET /v1/tap/{name}", **tap).status_code == 422
    assert (len(found["seer"]), len(found["reader"])) == (1, 0)
    form = {"route": "cards", "condition_text": "Pan:4*", "count": 10}
    assert scene.ask("reader", "POST /fragments/trial", json=form).status_code == 422


def test_a_record_of_the_request_is_explained_in_clear(scene: Scene) -> None:
    """The response contains only data that the caller sent."""
    given: dict[str, Any] = {"json": {"record": {"topic": "cards.1", "value": {"pan": SECRET}}}}

    assert SECRET in scene.ask("reader", "POST /v1/routes/{name}/explain", **given).text


def test_why_a_route_failed_does_not_quote_a_record(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in its status, which events and pages repeat; the log has all of it."""
    stage = f"TRANSFORMATION: org.apache.kafka.connect.transforms.Cast$Value: number: Value ({SECRET}) is out of range"
    bench.runner.broken["cards"] = RunError(f"topic cards.1, offset 2: {stage}")
    bench.policy = RestartsPart(max=0)
    bench.close()
    bench.open()
    bench.write("cards", ROUTE.format(url="nats://127.0.0.1:1", store="memory://"))
    bench.routes.scan()
    bench.wait_phase("cards", Phase.FAILED)
    client = console_of(bench)

    assert bench.routes.entry("cards").status.reason == "topic cards.1, offset 2: TRANSFORMATION: ***"
    for request in STATUS:
        method, _, path = request.replace("{task:number}", "0").format(name="cards").partition(" ")
        if path != "/v1/events":
            answer = client.request(method, path)
            assert answer.status_code == 200, path
            assert SECRET not in answer.text, path
    assert not any(SECRET in json.dumps(event.detail) for event in bench.state.recent_events("cards", 100))
    assert SECRET in caplog.text


def test_examples_of_a_change_are_for_those_who_may_see_them(scene: Scene) -> None:
    """Reasons of new failures quote values only for callers with the right; others have the counts."""
    text = scene.ask("seer", "GET /v1/routes/{name}").json()["text"]
    failing = text.replace(", predicate: {type: HasHeaderKey, name: Small}", "")
    (request,) = JUDGED
    answers = {who: scene.ask(who, request, json={"text": failing, "count": 10}) for who in ("seer", "reader")}

    assert [answer.status_code for answer in answers.values()] == [200, 200]
    assert SECRET in answers["seer"].text
    assert SECRET not in answers["reader"].text
    assert "would come out differently" in answers["reader"].text
