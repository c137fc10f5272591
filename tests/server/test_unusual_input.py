"""Unusual ids, texts and numbers: every operation answers them with a status that its description names."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import settings
from starlette.testclient import TestClient

from tests.server.conftest import Bench, client_of, route_text
from turnout.conditions import parse
from turnout.console import add_console
from turnout.rpc.tokens import Sha256
from turnout.server.rest.app import build_app, guarded
from turnout.server.security import TokenFile
from turnout.subscriptions import Subscription

IDS = [
    "Größe",
    "a/b",
    "@acme/desk",
    "a b",
    "a\r\nSet-Cookie: x=y",
    "..a",
    "'\"<b>",
    "a?b#c",
    "\u202eabc",
    "x" * 500,
]
NUMBERS = [2**31, 2**63, 2**64, 10**40, -1, -(2**63) - 1, 10**4200, 1e308, float("inf"), float("nan"), True, "17", None]
TEXTS = ["\ud800", "a\udfffb", "\x00", "\u202e", "", "a" * 100_000, "${HOME}", "\N{PILE OF POO}"]
LEVELS = {"nobody": [], "read": ["read"], "write": ["read", "write"], "match": ["match"]}


@pytest.mark.parametrize("id_", [id_ for id_ in IDS if "\r" not in id_])
def test_any_id_is_stored_read_and_deleted_at_its_location(bench: Bench, id_: str) -> None:
    """The Location quotes the id as one segment, and the console's page is found under the same."""
    client = client_of(bench)
    body = {"id": id_, "destinations": ["d"], "condition_text": "a:b"}
    created = client.post("/v1/subscriptions", json=body)
    if created.status_code == 422:
        pytest.skip(f"the store's rules refuse the id {id_[:20]!r}: {created.json()['detail'][:80]}")
    location = created.headers["Location"]

    assert created.status_code == 201
    assert location == f"/v1/subscriptions/{quote(id_, safe='')}"
    assert client.get(location).json()["id"] == id_
    assert client.delete(location).status_code == 204
    assert client.get(location).status_code == 404


def test_a_line_break_in_an_id_is_no_header(bench: Bench) -> None:
    """It is quoted in the Location, or refused."""
    answer = client_of(bench).post(
        "/v1/subscriptions", json={"id": IDS[4], "destinations": ["d"], "condition_text": "a:b"}
    )

    assert answer.status_code in (201, 422)
    assert "set-cookie" not in answer.headers


def test_ids_of_tenants_have_pages(bench: Bench) -> None:
    """The whole store names a tenant's subscription with a slash: the list links to its page, which can delete it."""
    bench.store.create(Subscription(("d",), parse("a:b"), id="@acme/desk"))
    app = build_app(bench.parts)
    add_console(app)
    console = TestClient(app_with_gate(app), base_url="http://127.0.0.1:8090")

    assert 'href="/subscriptions/%40acme%2Fdesk"' in console.get("/subscriptions").text
    page = console.get("/subscriptions/%40acme%2Fdesk")
    assert page.status_code == 200
    assert 'action="/v1/subscriptions/%40acme%2Fdesk"' in page.text
    assert console.delete("/v1/subscriptions/%40acme%2Fdesk", headers={"Content-Type": "application/json"}).is_success


def app_with_gate(app: Any) -> Any:
    return guarded(app)


@pytest.mark.parametrize("name", ["turnout", ".hidden"])
def test_a_route_cannot_be_written_over_other_files(bench: Bench, name: str) -> None:
    """turnout.yaml configures the server; what begins with a dot is no route of the folder."""
    (bench.folder / "turnout.yaml").write_text("listen: 127.0.0.1:0\n")

    answer = client_of(bench).put(f"/v1/routes/{name}", json={"text": route_text(name)})

    assert answer.status_code in (409, 422)
    assert (bench.folder / "turnout.yaml").read_text() == "listen: 127.0.0.1:0\n"
    assert sorted(file.name for file in bench.folder.glob("*.y*ml")) == ["turnout.yaml"]


@pytest.mark.parametrize("body", [
    {"record": {"topic": "a", "partition": 2**31}},
    {"record": {"topic": "a", "offset": 2**63}},
    {"record": {"topic": "a", "timestamp": 10**30}},
    {"record": {"topic": "a", "offset": 10**4000}},
    {"record": {"topic": "a\ud800"}},
    {"record": {"topic": "a", "value": {"\udc00": 1}}},
    {"at": f"IN:{10**30}"},
])  # fmt: skip
def test_a_record_out_of_range_is_refused(bench: Bench, body: dict[str, Any]) -> None:
    """422 with a sentence, where Arrow or UTF-8 would fail."""
    bench.start("a")

    answer = client_of(bench).post(
        "/v1/routes/a/explain", content=json.dumps(body), headers={"Content-Type": "application/json"}
    )

    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


def test_places_of_kafka_are_checked(bench: Bench) -> None:
    """Offsets by partition, in 64 bits; anything else would fail when the route begins."""
    broker = 'format: kafka, servers: "127.0.0.1:1"'
    kafka = f"name: k\nsource: {{{broker}, topics: [t]}}\nsink: {{{broker}}}\n"
    bench.write("k", kafka)
    bench.routes.scan()
    bench.routes.pause("k", who="ann")
    client = client_of(bench)
    for to in ({"t": 1}, {"t": {"x": 1}}, {"t": {"0": 2**63}}, {"t": {"0": True}}, {"t": {str(2**31): 0}}):
        answer = client.put("/v1/routes/k/offsets", json={"to": to})
        assert answer.status_code in (409, 422), (to, answer.text)


OPERATIONS_WITH_STREAMS = {"/v1/events", "/v1/tap/{name}"}


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if path not in OPERATIONS_WITH_STREAMS:
                yield method, path, operation


def unusual(document: dict[str, Any], operation: dict[str, Any], path: str) -> Iterator[dict[str, Any]]:
    """Requests of one operation: unusual path segments, then queries, headers and bodies."""
    in_path = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"]
    for value in [*IDS, *map(str, NUMBERS), "a", "orders", "none"] if in_path else ["-"]:
        yield {"url": _filled(path, in_path, value)}
    url = _filled(path, in_path, "a")
    queries = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"]
    for name in queries:
        for query in [*map(str, NUMBERS), *IDS, "", "\ud800".encode("utf-8", "surrogatepass")]:
            yield {"url": url, "params": {name: query}}
    for name in ("If-Match", "Last-Event-Id", "Accept", "Origin", "X-Forwarded-For"):
        for text in ('"', "9" * 5000, "\xff", "W/", "*"):
            yield {"url": url, "headers": {name: text.encode("latin-1")}}
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if schema is not None:
        name = schema["schema"].get("$ref", "").rpartition("/")[2]
        for body in bodies(document["components"]["schemas"].get(name, {}).get("properties", {})):
            yield {"url": url, "content": body}


def bodies(properties: Collection[str]) -> Iterator[bytes]:
    """Requests' bodies with unusual values of each property, and texts that are no object."""
    values: list[Any] = [
        *NUMBERS[:6],
        *NUMBERS[7:],
        *TEXTS,
        [],
        {},
        [[]],
        {"a": {"b": 2**70}},
        ["\ud800"],
        {"\ud800": "x"},
    ]
    for name in properties:
        for value in values:
            yield json.dumps({name: value}).encode()
    yield b'{"to": 1' + b"0" * 5000 + b"}"
    yield b"[" * 20_000
    yield b'{"a":' * 20_000
    yield b"\xff\xfe"
    yield b"null"
    yield b""


def _filled(path: str, names: list[str], value: str) -> str:
    for name in names:
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


@pytest.mark.parametrize("level", LEVELS)
def test_no_request_is_a_mistake_of_the_server(bench: Bench, tmp_path: Path, level: str) -> None:
    """No 5xx, and no status that the description does not name, at any level of permission."""
    token = "ann.5d41402abc4b2a76b9719d911017c592"
    tokens = tmp_path / "tokens.yaml"
    known = token if LEVELS[level] else "another"
    rights = LEVELS[level] or ["read"]
    tokens.write_text(
        json.dumps([{"hash": f"sha256:{Sha256.of(known).digest.hex()}", "tenant": "*", "rights": rights}])
    )
    tokens.chmod(0o600)
    bench.start("a")
    app = TestClient(
        guarded(build_app(bench.parts), authenticator=TokenFile(tokens)),
        base_url="http://127.0.0.1:8090",
        raise_server_exceptions=False,
    )
    document = client_of(bench).get("/v1/openapi.json").json()
    # `make check` sends all, `make test` an eighth. Rights are checked before anything else: few requests show that for
    # those who lack them.
    step = max(1, (100 // settings().max_examples) ** 2 // 2) * (1 if level == "write" else 7)
    wrong = []
    for method, path, operation in operations(document):
        described = {int(status) for status in operation["responses"]}
        for request in islice(unusual(document, operation, path), 0, None, step):
            headers = {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/json",
                **request.pop("headers", {}),
            }
            answer = app.request(method, request.pop("url"), headers=headers, follow_redirects=False, **request)
            # Another operation, or none, may be under a path with an empty or unusual segment.
            allowed = described | {307, 404, 405}
            if "If-Match" in headers:
                # Nothing that has no entity tag is changed under a condition, and no text is taken for one.
                allowed |= {412, 422}
            if answer.status_code not in allowed or (answer.status_code >= 500 and answer.status_code not in described):
                wrong.append((method, path, str(request)[:100], answer.status_code, answer.text[:150]))

    assert wrong == []
