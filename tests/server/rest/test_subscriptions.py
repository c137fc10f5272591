"""Subscriptions over REST: made, found, matched and deleted."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.contracts.linearizable import check_linearizable
from tests.server.conftest import Bench, client_of
from turnout.subscriptions.credentials import new_secret
from turnout.subscriptions.lines import subscription_from_json, subscription_to_json
from turnout.subscriptions.sealing import SECRET_KEY, new_key


def test_subscriptions_are_made_found_matched_and_deleted(client: TestClient) -> None:
    """Conditions are accepted and returned as JSON and as text."""
    by_text = client.post(
        "/v1/subscriptions",
        json={
            "destinations": ["d"],
            "condition_text": "subject:orders* AND NOT location:Oulu",
            "metadata": {"of": "ann"},
        },
    )
    by_json = client.post(
        "/v1/subscriptions",
        json={
            "id": "mine",
            "destinations": ["e"],
            "condition": {"kiwiCondition": {"key": "subject", "pattern": "orders*"}},
        },
    ).json()
    document = by_text.json()
    match = lambda **message: client.post("/v1/subscriptions/match", json={"message": message}).json()  # noqa: E731

    assert by_text.headers["location"] == f"/v1/subscriptions/{document['id']}"
    assert document["condition_text"] == "subject:orders* AND NOT location:Oulu"
    assert by_json["condition_text"] == "subject:orders*"
    assert client.get("/v1/subscriptions/mine").json() == by_json
    assert [one["subscription_id"] for one in match(subject="orders 1", location="Oulu")["matches"]] == ["mine"]
    assert {one["subscription_id"] for one in match(subject="orders 1")["matches"]} == {"mine", document["id"]}

    def search(**query: str | int) -> list[str]:
        return [item["id"] for item in client.get("/v1/subscriptions", params=query).json()["items"]]

    assert search(metadata="of=ann") == [document["id"]]
    assert set(search(key="subject", pattern="orders*")) == {"mine", document["id"]}
    assert len(search(limit=1)) == 1
    assert client.delete("/v1/subscriptions/mine").status_code == 204
    assert client.get("/v1/subscriptions/mine").status_code == 404
    assert {one["subscription_id"] for one in match(subject="orders 1")["matches"]} == {document["id"]}


def test_a_match_beside_changes_sees_what_was_stored_before_it(client: TestClient) -> None:
    """A request that begins after a change has been answered sees it, whatever other requests do meanwhile."""

    def create(id_: str) -> None:
        form = {"id": id_, "destinations": ["d"], "condition_text": "subject:orders"}
        assert client.post("/v1/subscriptions", json=form).status_code == 201

    def delete(id_: str) -> None:
        assert client.delete(f"/v1/subscriptions/{id_}").status_code == 204

    def match() -> tuple[set[str], int]:
        answer = client.post("/v1/subscriptions/match", json={"message": {"subject": "orders"}}).json()
        return {one["subscription_id"] for one in answer["matches"]}, answer["revision"]

    check_linearizable(create, delete, match, rounds=6)


@pytest.mark.parametrize(
    "body",
    [
        {"destinations": ["d"]},
        {"destinations": ["d"], "condition_text": "subject:"},
        {"destinations": [], "condition_text": "a:b"},
        {"destinations": ["d"], "condition_text": "a:b", "condition": {}},
        {"destinations": ["d"], "condition": {"kiwi": {}}},
        {"destinations": "d", "condition_text": "a:b"},
        {"destinations": ["d"], "condition_text": "a:b", "unknown": 1},
    ],
)
def test_a_subscription_that_breaks_a_rule_is_refused(client: TestClient, body: dict[str, Any]) -> None:
    """With the rule."""
    refused = client.post("/v1/subscriptions", json=body)

    assert refused.status_code == 422
    assert refused.json()["detail"]
    assert client.get("/v1/subscriptions").json()["total"] == 0


def test_a_condition_is_read_for_whoever_writes_one(client: TestClient) -> None:
    """In both forms, or with the place of the mistake."""
    ask = lambda **body: client.post("/v1/subscriptions/conditions/validate", json=body).json()  # noqa: E731

    right, wrong = ask(condition_text="a:b OR c~d"), ask(condition_text="a:b OR")

    assert right["valid"]
    assert ask(condition=right["condition"])["condition_text"] == "a:b OR c~d"
    assert (wrong["valid"], wrong["position"]) == (False, 6)


def test_a_server_without_a_store_says_so(bench: Bench) -> None:
    """The error names the setting."""
    from dataclasses import replace

    bench.parts = replace(bench.parts, subscriptions=None)

    refused = client_of(bench).get("/v1/subscriptions")

    assert (refused.status_code, "turnout.yaml" in refused.json()["detail"]) == (404, True)


def test_a_subscription_is_replaced_and_changed_in_place(client: TestClient) -> None:
    """Its id is kept, its ETag changes, and an update based on an older version is refused with both revisions."""
    client.post("/v1/subscriptions", json={"id": "a", "destinations": ["d"], "condition_text": "k:1"})
    read = client.get("/v1/subscriptions/a")
    put = client.put(
        "/v1/subscriptions/a",
        json={"destinations": ["e"], "condition_text": "k:2", "metadata": {"n": "x"}},
        headers={"If-Match": read.headers["etag"]},
    )
    stale = client.patch("/v1/subscriptions/a", json={"destinations": ["f"]}, headers={"If-Match": '"1"'})
    patched = client.patch("/v1/subscriptions/a", json={"destinations": ["f"]})

    assert (read.headers["etag"], put.headers["etag"], patched.headers["etag"]) == ('"1"', '"2"', '"3"')
    assert (put.status_code, put.json()["condition_text"], put.json()["destinations"]) == (200, "k:2", ["e"])
    assert stale.status_code == 412
    assert stale.json()["detail"] == 'If-Match: expected the version "1", found "2"'
    assert (patched.json()["condition_text"], patched.json()["destinations"]) == ("k:2", ["f"])
    assert patched.json()["metadata"] == {"n": "x"}
    match = client.post("/v1/subscriptions/match", json={"message": {"k": "2"}}).json()
    assert [one["destinations"] for one in match["matches"]] == [["f"]]


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("nobody", {"destinations": ["f"]}, {}, 404),
        ("a", {"destinations": ["f g"]}, {}, 422),
        ("a", {"destinations": ["f"]}, {"If-Match": "soon"}, 422),
        ("a", {"condition_text": "k:1", "condition": {}}, {}, 422),
    ],
)
def test_a_change_that_cannot_be_made(
    client: TestClient, path: str, body: dict[str, Any], headers: dict[str, str], status: int
) -> None:
    """Is refused, and the subscription stays as it is."""
    client.post("/v1/subscriptions", json={"id": "a", "destinations": ["d"], "condition_text": "k:1"})

    assert client.patch(f"/v1/subscriptions/{path}", json=body, headers=headers).status_code == status
    assert client.get("/v1/subscriptions/a").json()["revision"] == 1


def test_the_history_of_a_subscription(client: TestClient) -> None:
    """It has each change, its actor, and both versions, also for a deleted subscription."""
    client.post("/v1/subscriptions", json={"id": "a", "destinations": ["d"], "condition_text": "k:1"})
    client.patch("/v1/subscriptions/a", json={"condition_text": "k:2"})
    client.delete("/v1/subscriptions/a")
    entries = client.get("/v1/subscriptions/a/history").json()["entries"]

    def text(version: dict[str, Any] | None) -> object:
        return version and version["condition_text"]

    assert [(one["action"], one["actor"], text(one["before"]), text(one["after"])) for one in entries] == [
        ("created", "anonymous", None, "k:1"),
        ("updated", "anonymous", "k:1", "k:2"),
        ("deleted", "anonymous", "k:2", None),
    ]
    assert client.get("/v1/subscriptions/nobody/history").status_code == 404


def test_the_body_of_grpc_and_of_the_command_line(client: TestClient) -> None:
    """The format of ``export`` and of gRPC's Create is accepted unchanged; responses contain it too."""
    condition = {"kiwiCondition": {"key": "city", "pattern": "Oulu"}}
    body = {"id": "oulu", "metadata": {}, "route": {"destinations": ["deliver.oulu"], "condition": condition}}

    created = client.post("/v1/subscriptions", json=body)

    assert created.status_code == 201
    assert subscription_to_json(subscription_from_json(body))["route"].keys() == created.json()["route"].keys()
    assert created.json()["route"]["destinations"] == ["deliver.oulu"]
    assert created.json()["condition_text"] == "city:Oulu"


@pytest.mark.parametrize(
    "wrong",
    [
        {"route": {"destinations": ["d"]}},
        {"route": {"condition": {"kiwiCondition": {"key": "a", "pattern": "b"}}}},
        {"condition_text": "a:b"},
        {"destinations": ["d"], "condition_text": "a:b", "route": {"destinations": ["d"], "condition": {}}},
        {"destinations": ["d"], "route": {"destinations": ["d"], "condition": {}}},
    ],
)
def test_destinations_and_condition_are_given_once(client: TestClient, wrong: dict[str, Any]) -> None:
    """In the route or beside it, and never half in each."""
    assert client.post("/v1/subscriptions", json=wrong).status_code == 422


def test_numbers_of_a_message_are_seen_as_on_a_route(client: TestClient) -> None:
    """They are read as their texts, null as absent; objects are not metadata."""
    for name, condition in {"n": "total>100", "t": "paid:true", "x": "paid:true AND NOT gone:away"}.items():
        form = {"id": name, "destinations": ["d"], "condition_text": condition}
        assert client.post("/v1/subscriptions", json=form).status_code == 201

    answer = client.post("/v1/subscriptions/match", json={"message": {"total": 120, "paid": True, "gone": None}})

    assert [match["subscription_id"] for match in answer.json()["matches"]] == ["n", "t", "x"]
    assert client.post("/v1/subscriptions/match", json={"message": {"total": {}}}).status_code == 422


def test_a_search_has_no_total(client: TestClient) -> None:
    """The total is of all subscriptions: beside the results of a search it said nothing about them."""
    for name in ("a", "b"):
        form = {"destinations": ["d"], "condition_text": f"k:{name}", "metadata": {"n": name}}
        assert client.post("/v1/subscriptions", json=form).status_code == 201

    queries = ("", "?metadata=n=a", "?key=k&pattern=a")

    assert [client.get(f"/v1/subscriptions{query}").json()["total"] for query in queries] == [2, None, None]


def test_settings_of_a_subscription(client: TestClient) -> None:
    """A disabled or expired subscription matches nothing; null takes an expiry back, and what is not given stays."""
    form = {"id": "a", "destinations": ["d"], "condition_text": "k:1", "enabled": False, "delivery": {"ordered": True}}
    created = client.post("/v1/subscriptions", json=form).json()
    patch = lambda **change: client.patch("/v1/subscriptions/a", json=change)  # noqa: E731
    match = lambda: len(client.post("/v1/subscriptions/match", json={"message": {"k": "1"}}).json()["matches"])  # noqa: E731

    assert (created["enabled"], created["expires"], created["delivery"]) == (False, None, {"ordered": True})
    assert match() == 0
    assert patch(enabled=True).json()["delivery"] == {"ordered": True}
    assert match() == 1
    expired = patch(expires={"at": "2020-01-01T00:00:00Z", "by": "wall"}).json()
    assert expired["expires"] == {"at": "2020-01-01T00:00:00Z", "by": "wall"}
    assert match() == 0
    assert patch(expires=None).json()["expires"] is None
    assert match() == 1
    # Seconds since 1970 are no time, neither as a number nor as a text.
    for at in ("soon", 0, 20260101, 1.5, True, "0", "1700000000", "9999-12-31T23:59:59-12:00"):
        assert patch(expires={"at": at}).status_code == 422
    assert "delivery.timeout" in patch(delivery={"timeout": -1}).json()["detail"]
    assert (created["from"], created["pause"]) == ("latest", {"keep": False})
    changed = patch(**{"from": "earliest", "pause": {"keep": True}}).json()
    assert (changed["from"], changed["pause"]) == ("earliest", {"keep": True})
    assert patch(enabled=False).json()["from"] == "earliest"
    assert patch(**{"from": 0}).json()["detail"].startswith("from: expected latest, earliest, ")


def test_projection_of_a_subscription(client: TestClient) -> None:
    """It is returned, can be replaced and removed, and is compiled before it is stored."""
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    form = {"id": "a", "destinations": ["d"], "condition_text": "k:1", "project": "{'n': value.n}"}
    change = lambda **parts: client.patch("/v1/subscriptions/a", json=parts)  # noqa: E731

    assert client.post("/v1/subscriptions", json=form).json()["project"] == "{'n': value.n}"
    assert change(enabled=False).json()["project"] == "{'n': value.n}"
    assert change(project="topic").json()["project"] == "topic"
    wrong = change(project="value.")
    assert (wrong.status_code, "project: not an expression of CEL" in wrong.json()["detail"]) == (422, True)
    assert change(project="").json()["project"] == ""


def test_import(client: TestClient) -> None:
    """JSON lines are stored as one change, whole or not at all; the line of a mistake is named."""
    route: dict[str, object] = {"destinations": ["d"]}
    usual = [{"kiwiCondition": {"key": "a", "pattern": str(n)}} for n in range(300)]
    lines = [json.dumps({"id": f"s{n}", "route": {**route, "condition": one}}) for n, one in enumerate(usual)]
    route["condition"] = {"existsCondition": {"key": "a"}}
    unusual = json.dumps({"id": "t", "enabled": False, "route": route})
    kind = {"Content-Type": "application/x-ndjson"}
    post = partial(client.post, "/v1/subscriptions/import", headers=kind)
    wrong = post(content="\n".join([*lines, "", lines[0].replace('"d"', '"a..b"')]))
    stored = post(content="\n".join([*lines, unusual, ""]))
    again = post(content=lines[7])
    bytes_ = post(content=lines[8].replace("s8", "u8").encode() + b'\n{"id":"\xff"}\n')
    other = client.post("/v1/subscriptions/import", headers={"Content-Type": "text/plain"}, content=lines[0])

    assert (wrong.status_code, "line 302: route.destinations[0]" in wrong.text) == (422, True)
    assert (stored.status_code, stored.json()["ids"]) == (201, [*(f"s{n}" for n in range(300)), "t"])
    assert (again.status_code, other.status_code) == (409, 415)
    assert (bytes_.status_code, "line 2: " in bytes_.text) == (422, True)
    matched = client.post("/v1/subscriptions/match", json={"message": {"a": "299"}}).json()
    assert ([one["subscription_id"] for one in matched["matches"]], matched["revision"]) == (["s299"], 1)
    assert client.get("/v1/subscriptions/t").json()["enabled"] is False


def test_many_at_once(client: TestClient) -> None:
    """A bulk is one change, whole or not at all, and matching sees it at once."""
    bodies = [{"id": f"s{n}", "destinations": ["d"], "condition_text": f"a:{n}"} for n in range(300)]
    created = client.post("/v1/subscriptions/create-many", json={"subscriptions": bodies})
    again = client.post("/v1/subscriptions/create-many", json={"subscriptions": [{**bodies[0], "id": "n"}, bodies[1]]})
    wrong = client.post("/v1/subscriptions/create-many", json={"subscriptions": [bodies[0], {"destinations": []}]})
    missing = client.post("/v1/subscriptions/delete-many", json={"ids": ["s1", "nobody"]})
    deleted = client.post("/v1/subscriptions/delete-many", json={"ids": [*(f"s{n}" for n in range(299)), "s0"]})
    found = client.get("/v1/subscriptions").json()

    assert (created.status_code, created.json()["ids"]) == (201, [body["id"] for body in bodies])
    assert (again.status_code, wrong.status_code, missing.status_code) == (409, 422, 404)
    assert "nobody" in missing.text
    assert (deleted.status_code, deleted.json()) == (200, {"deleted": 299})
    assert [(one["id"], one["revision"]) for one in found["items"]] == [("s299", 1)]
    matched = client.post("/v1/subscriptions/match", json={"message": {"a": "299"}}).json()
    assert [one["subscription_id"] for one in matched["matches"]] == ["s299"]
    assert client.get("/v1/subscriptions/s5/history").json()["entries"][-1]["revision"] == matched["revision"] == 2


def test_secrets_are_never_shown(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Responses have markers; a marker that comes back keeps its secret, and one that is left out drops it."""
    monkeypatch.setenv(SECRET_KEY, new_key())
    first, second = new_secret(), new_secret()
    form = {"id": "a", "destinations": ["https://h.example/in"], "condition_text": "k:1"}
    made = client.post("/v1/subscriptions", json={**form, "delivery": {"secrets": [first]}})
    (marker,) = made.json()["delivery"]["secrets"]
    both = client.patch("/v1/subscriptions/a", json={"delivery": {"secrets": [second, marker]}})
    put = client.put("/v1/subscriptions/a", json={**form, "delivery": both.json()["delivery"]})
    unknown = client.put("/v1/subscriptions/a", json={**form, "delivery": {"secrets": ["hidden:0123abcd"]}})
    history = client.get("/v1/subscriptions/a/history")
    listed = client.get("/v1/subscriptions")
    one = client.patch("/v1/subscriptions/a", json={"delivery": {"secrets": [marker]}})

    assert (made.status_code, put.status_code, one.json()["delivery"]) == (201, 200, {"secrets": [marker]})
    assert both.json()["delivery"]["secrets"][1:] == [marker]
    assert put.json()["delivery"] == both.json()["delivery"]
    assert unknown.status_code == 422
    assert "delivery.secrets[0]: hidden:0123abcd stands for no stored secret" in unknown.json()["detail"]
    for response in (made, both, put, history, listed, one):
        assert "hidden:" in response.text
        assert not any(word in response.text for word in (first, second, "whsec_", "sealed:"))


@pytest.mark.parametrize("delivery", [{"secrets": "S"}, {"secrets": ["S!"]}, {"secrets": [["S"]]}, "S", ["S"]])
def test_errors_repeat_no_secret(client: TestClient, delivery: Any) -> None:
    """A secret at a wrong place of a request is not in the response."""
    secret = new_secret()
    body = {"destinations": ["d"], "condition_text": "k:1", "delivery": delivery}
    refused = client.post("/v1/subscriptions", json=json.loads(json.dumps(body).replace("S", secret)))

    assert refused.status_code == 422
    assert secret not in refused.text


def test_secrets_need_a_key(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key the variable is named, and nothing is stored."""
    monkeypatch.delenv(SECRET_KEY, raising=False)
    body = {"destinations": ["d"], "condition_text": "k:1", "delivery": {"secrets": [new_secret()]}}
    refused = client.post("/v1/subscriptions", json=body)

    assert refused.status_code == 422
    assert "delivery.secrets[0]: TURNOUT_SECRET_KEY: it is not set" in refused.json()["detail"]
    assert client.get("/v1/subscriptions").json()["items"] == []


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/v1/subscriptions?meta=owner=ann", 'meta: no parameter of this path has this name; did you mean "metadata"?'),
        ("/v1/subscriptions?limit=1&limit=2", "limit: occurs twice in the query, and takes one value"),
        ("/v1/subscriptions/a?revison=1", "revison: no parameter of this path has this name (there are: none)"),
        ("/v1/routes?x=1", "x: no parameter of this path has this name"),
        ("/connectors?expnd=info", 'did you mean "expand"?'),
        ("/live?verbose=1", "verbose: no parameter"),
    ],
)
def test_unknown_parameters_of_a_query(client: TestClient, path: str, problem: str) -> None:
    """A misspelt condition of a search is refused, and does not return everything."""
    answer = client.get(path)
    assert answer.status_code == 400
    assert problem in answer.text.replace('\\"', '"')


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [
        (
            "POST",
            "/v1/subscriptions",
            '{"destinations": ["a"], "destinations": ["b"], "condition_text": "k:1"}',
            "dest",
        ),
        ("PUT", "/v1/subscriptions/t", '{"destinations": ["a"], "metadata": {"o": "1", "o": "2"}}', "o"),
        ("POST", "/v1/subscriptions/create-many", '{"subscriptions": [{"id": "a", "id": "b"}]}', "id"),
        ("POST", "/v1/subscriptions/delete-many", f'{{"ids": ["a"], "ids": ["a"{20_000 * ",1"}]}}', "ids"),
        ("POST", "/v1/subscriptions/match", '{"a": 1, "a": 2}', "a"),
        ("PUT", "/connector-plugins/x/config/validate", '{"name": "1", "name": "2"}', "name"),
        ("POST", "/v1/feeds/oulu", '{"reader": "a", "reader": "b", "cursor": 1}', "reader"),
    ],
)
def test_keys_that_occur_twice_in_a_body(client: TestClient, method: str, path: str, body: str, key: str) -> None:
    """One of the values would count without a word; the answer names the key."""
    answer = client.request(method, path, content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 400
    assert f"the key '{key}" in answer.text
    assert "occurs twice in one object" in answer.text


@pytest.mark.parametrize(
    ("key", "pattern", "warning"),
    [
        ("-city", "Oulu", "'-' is part of the key; a negation is written NOT"),
        ("price", ">10", "'>10' is compared as a text: write price>10"),
        ("city", "'Oulu'", "single quotes belong to the text"),
        ("_exists_", "city", "write city exists, or an existsCondition"),
        ("-a\nb", "ä", "-a\\nb: '-' is part of the key"),
        ("city", "Oulu", ""),
    ],
)
def test_leftovers_of_other_query_languages(client: TestClient, key: str, pattern: str, warning: str) -> None:
    """JSON has no quotes that would say they are meant: they are stored, and the answer has a warning."""
    body = {"destinations": ["d"], "condition": {"kiwiCondition": {"key": key, "pattern": pattern}}}
    created = client.post("/v1/subscriptions", json={**body, "id": "t"})
    replaced = client.put("/v1/subscriptions/t", json=body)
    patched = client.patch("/v1/subscriptions/t", json={"condition": body["condition"]})
    line = {"id": "l", "route": body}
    imported = client.post(
        "/v1/subscriptions/import", content=json.dumps(line), headers={"Content-Type": "application/x-ndjson"}
    )
    several = [{**body, "id": "m1"}, {"destinations": ["d"], "condition_text": "a:b"}, {**body, "id": "m2"}]
    bulk = client.post("/v1/subscriptions/create-many", json={"subscriptions": several})

    assert bulk.headers.get("Warning", "").endswith(', in: m1, m2"') == bool(warning)
    for answer in (created, replaced, patched, imported, bulk):
        assert answer.status_code in (200, 201), answer.text
        assert warning in answer.headers.get("Warning", "")
        assert ("Warning" in answer.headers) == bool(warning)


def test_parameters_with_several_values(client: TestClient) -> None:
    """Those that are lists may be repeated."""
    assert client.get("/v1/subscriptions?metadata=a=b&metadata=c=d&limit=5").status_code == 200
    assert client.get("/connectors?expand=info&expand=status").status_code == 200


@pytest.mark.parametrize("id_", ["a\nb", "x/history", "conditions/validate"])
def test_ids_that_could_not_be_read(client: TestClient, id_: str) -> None:
    """They are refused when they are created."""
    answer = client.post("/v1/subscriptions", json={"id": id_, "destinations": ["d"], "condition_text": "a:b"})
    assert (answer.status_code, answer.json()["detail"][:3]) == (422, "id:")


_CONDITION = {"condition_text": "city:Oulu"}


def test_a_put_stores_what_is_not_there(client: TestClient) -> None:
    """The answer is 201 with the address; the conditions are about what is there."""
    path = "/v1/subscriptions/team%2Fone"
    form = {"destinations": ["d"], **_CONDITION}
    assert client.put(path, json=form, headers={"If-Match": '"1"'}).status_code == 412
    created = client.put(path, json=form)
    replaced = client.put(path, json={**form, "destinations": ["e"]}, headers={"If-Match": created.headers["etag"]})

    assert (created.status_code, created.headers["location"], created.json()["id"]) == (201, path, "team/one")
    assert (replaced.status_code, "location" in replaced.headers) == (200, False)
    assert client.put(path, json={**form, "id": "other"}).status_code == 422
    assert client.put("/v1/subscriptions/a/history", json=form).status_code in (404, 405)


def _lines(*subscriptions: tuple[str, str]) -> bytes:
    return b"\n".join(
        json.dumps(
            {
                "id": id_,
                "route": {"destinations": [to], "condition": {"kiwiCondition": {"key": "city", "pattern": "Oulu"}}},
            }
        ).encode()
        for id_, to in subscriptions
    )


def test_a_set_is_replaced(client: TestClient) -> None:
    """Added, changed and removed, as one change; a dry run changes nothing; what others own stays."""
    client.post("/v1/subscriptions", json={"id": "mine", "destinations": ["d"], **_CONDITION})

    def put(lines: bytes, **query: Any) -> Any:
        return client.post(
            "/v1/subscriptions/replace",
            params={"set": "week", **query},
            content=lines,
            headers={"Content-Type": "application/x-ndjson"},
        )

    assert put(_lines(("a", "x"), ("b", "x"), ("c", "x"))).json()["added"] == ["a", "b", "c"]
    new = _lines(("a", "x"), ("b", "y"), ("d", "x"))
    trial, done = put(new, prune=True, dry_run=True).json(), put(new, prune=True).json()

    assert done == {
        "revision": 3,
        "added": ["d"],
        "changed": [{"id": "b", "fields": ["destinations"]}],
        "removed": ["c"],
        "adopted": [],
        "unchanged": 1,
        "kept": 1,
        "effect": None,
    }
    assert trial == {**done, "revision": 2}
    assert client.get("/v1/subscriptions/a").json()["revision"] == 2
    assert client.get("/v1/subscriptions/a").json()["metadata"] == {"import-set": "week"}
    assert "would remove all" in put(b"", prune=True).json()["detail"]
    assert put(_lines(("mine", "x"))).json()["adopted"] == ["mine"]
    assert put(_lines(("a", "x")), set="other").status_code == 422
    assert put(new, route="none", dry_run=True).status_code == 404
    assert put(new, route="none").status_code == 422
    assert put(b"", prune_all=True).json()["removed"] == ["a", "b", "d", "mine"]


def test_searches_and_edits(client: TestClient) -> None:
    """The parameters of a search are those of the command line; an edit takes them in its body."""
    for id_, text, to in (("a", "city:Oulu AND n>5", "x.oulu"), ("b", "city:Turku", "y"), ("c", "n>7", "x.c")):
        form = {"id": id_, "destinations": [to], "condition_text": text, "metadata": {"owner": f"{id_}Depot"}}
        assert client.post("/v1/subscriptions", json=form).status_code == 201

    def search(**query: Any) -> str:
        return "".join(item["id"] for item in client.get("/v1/subscriptions", params=query).json()["items"])

    def edit(**body: Any) -> Any:
        return client.post("/v1/subscriptions/edit-many", json=body)

    paused = edit(search={"kind": "compare"}, enabled=False, keep=True).json()
    assert paused == {"ids": ["a", "c"], "found": 2, "revision": 4}
    assert client.get("/v1/subscriptions/a").json()["pause"] == {"keep": True}
    assert [search(key="n"), search(enabled=False), search(leaf="n > 7"), search(destination="x.*")] == [
        "ac",
        "ac",
        "c",
        "ac",
    ]
    assert [search(text="BDEPOT"), search(key="city", enabled=True, metadata="owner=bDepot")] == ["b", "b"]
    assert (
        edit(search={}, everything=True, metadata={"team": "x"}, without=["owner"], dry_run=True).json()["found"] == 3
    )
    assert edit(search={"text": "adepot"}, metadata={"team": "x"}, without=["owner"]).json()["ids"] == ["a"]
    assert client.get("/v1/subscriptions/a").json()["metadata"] == {"team": "x"}
    for wrong in (
        {"search": {}, "enabled": True},
        {"search": {"key": "n"}},
        {"search": {"pattern": "x"}, "enabled": True},
    ):
        assert edit(**wrong).status_code == 422
    assert client.get("/v1/subscriptions", params={"pattern": "x"}).status_code == 422
