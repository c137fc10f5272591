"""Conditional requests (RFC 9110, section 13) and HEAD, on every resource with an entity tag."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text
from turnout.console import add_console
from turnout.errors import ConfigError
from turnout.server.errors import StaleError
from turnout.server.preconditions import Preconditions
from turnout.server.rest.app import build_app, guarded

_FORM = {"id": "a", "destinations": ["d"], "condition_text": "k:v"}


@pytest.mark.parametrize(
    ("match", "none_match", "tag", "holds"),
    [
        ('"5"', None, "5", True),
        ('"5"', None, "6", False),
        ('"5"', None, None, False),
        ('"4" , "5",', None, "5", True),
        ('W/"5"', None, "5", False),
        ('W/"5", "5"', None, "5", True),
        ("*", None, "5", True),
        ("*", None, None, False),
        (None, "*", "5", False),
        (None, "*", None, True),
        (None, 'W/"5"', "5", False),
        (None, '"4"', "5", True),
        (None, '"4"', None, True),
        ('"5"', '"5"', "5", False),
        ('"a,b"', None, "a,b", True),
        (None, None, None, True),
    ],
)
def test_conditions(match, none_match, tag, holds):
    """If-Match compares strongly and If-None-Match weakly; `*` is any version that exists."""
    conditions = Preconditions.parse(match, none_match)
    if holds:
        conditions.check(tag)
    else:
        with pytest.raises(StaleError):
            conditions.check(tag)


@pytest.mark.parametrize("value", ["5", "", '"5', '5"', '"5" "6"', 'w/"5"', '"a\x00"', "*, *"])
def test_values_of_no_allowed_form(value):
    """What is neither `*` nor a list of entity tags is a mistake that names the header."""
    with pytest.raises(ConfigError, match="If-Match: expected \\* or entity tags in quotes"):
        Preconditions.parse(value)


def test_subscriptions(client: TestClient) -> None:
    """A change whose condition is false is 412 and changes nothing; a read is 304, or 412."""
    path = "/v1/subscriptions/a"
    tag = client.post("/v1/subscriptions", json=_FORM).headers["etag"]
    new = {key: value for key, value in _FORM.items() if key != "id"}
    assert client.put(path, json=new, headers={"If-None-Match": "*"}).status_code == 412
    assert client.patch(path, json={"destinations": ["e"]}, headers={"If-None-Match": f"W/{tag}"}).status_code == 412
    assert client.delete(path, headers={"If-Match": '"0"'}).status_code == 412
    assert client.delete(path, headers={"If-Match": f"W/{tag}"}).status_code == 412
    assert client.get(path).headers["etag"] == tag

    second = client.put(path, json=new, headers={"If-Match": f'"0", {tag}'}).headers["etag"]
    assert second != tag
    unchanged = client.get(path, headers={"If-None-Match": f'"0", W/{second}'})
    assert (unchanged.status_code, unchanged.content, unchanged.headers["etag"]) == (304, b"", second)
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200
    assert client.get(path, headers={"If-Match": tag}).status_code == 412
    refused = client.delete(path, headers={"If-Match": tag})
    expected = f"If-Match: expected the version {tag}, found {second}"
    assert (refused.status_code, refused.json()["detail"]) == (412, expected)
    assert client.delete(path, headers=[("If-Match", '"0"'), ("If-Match", second)]).status_code == 204
    assert client.put(path, json=new, headers={"If-Match": "*"}).status_code == 412
    assert client.get(path).status_code == 404
    assert client.put(path, json=new, headers={"If-None-Match": "*"}).status_code == 201
    assert client.put(path, json=new, headers={"If-None-Match": "*"}).status_code == 412


def test_routes(client: TestClient) -> None:
    """A route is created by If-None-Match `*` once, and changed or removed only in the version that was read."""
    path = "/v1/routes/a"
    created = client.put(path, json={"text": route_text("a")}, headers={"If-None-Match": "*"})
    assert created.status_code == 201
    tag = created.headers["etag"]
    again = client.put(path, json={"text": route_text("a")}, headers={"If-None-Match": "*"})
    assert again.status_code == 412
    assert client.delete(path, headers={"If-Match": '"other"'}).status_code == 412
    assert client.delete(path, headers={"If-None-Match": tag}).status_code == 412
    assert client.delete(path, headers={"If-Match": f'"other", {tag}'}).status_code == 204
    assert client.put(path, json={"text": route_text("a")}, headers={"If-Match": "*"}).status_code == 412


def test_a_state_that_changes_is_read_again(bench: Bench, client: TestClient) -> None:
    """A route whose state is another one than the known one is no 304; its file can be changed all the same."""
    bench.start("a")
    run = bench.run_of("a")
    path = "/v1/routes/a"
    known = client.get(path).headers["etag"]
    assert client.get(path, headers={"If-None-Match": known}).status_code == 304
    run.deliver(5)
    changed = client.get(path, headers={"If-None-Match": known})
    assert (changed.status_code, changed.json()["counts"]["read"]) == (200, 5)
    assert client.get(path, headers={"If-Match": known}).status_code == 412
    assert client.delete(path, headers={"If-None-Match": known}).status_code == 412
    text = route_text("a", more="mappings: {x: y}")
    assert client.put(path, json={"text": text}, headers={"If-Match": known}).status_code == 200
    assert client.put(path, json={"text": text}, headers={"If-Match": known}).status_code == 412


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"If-Match": '"other"', "If-None-Match": "{tag}"}, 412),
        ({"If-Match": '"other"', "Range": "bytes=0-3"}, 412),
        ({"If-Match": "{tag}", "Range": "bytes=0-3"}, 206),
        ({"If-None-Match": "{tag}", "Range": "bytes=0-3"}, 304),
        ({"If-None-Match": '"other"', "If-Modified-Since": "{modified}"}, 200),
        ({"If-Modified-Since": "{modified}"}, 304),
        ({"If-Unmodified-Since": "{modified}"}, 200),
        ({"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:00 GMT"}, 412),
        ({"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:00 GMT", "If-Match": "*"}, 200),
        ({"If-Unmodified-Since": "Thu, 01 Jan 1970 00:00:00 GMT", "If-None-Match": "{tag}"}, 412),
        ({"If-Unmodified-Since": "yesterday"}, 200),
        ({"If-Range": '"other"', "Range": "bytes=0-3"}, 200),
    ],
)
def test_files_of_the_console(bench: Bench, headers: dict[str, str], status: int) -> None:
    """Files have a tag and a time of modification, and parts; every condition is evaluated, in the order of the RFC."""
    app = build_app(bench.parts)
    entrance = add_console(app)
    client = TestClient(guarded(app, entrance=entrance))
    known = client.get("/static/console.css").headers
    filled = {name: value.format(tag=known["etag"], modified=known["last-modified"]) for name, value in headers.items()}
    for method in ("GET", "HEAD"):
        answer = client.request(method, "/static/console.css", headers=filled)
        assert answer.status_code == status
        assert status != 304 or not {"content-length", "content-range"} & set(answer.headers)


def test_what_exists_is_not_changed_where_nothing_may(client: TestClient) -> None:
    """An If-None-Match `*` is false of everything that can be read, also where no tag is compared."""
    refused = client.post("/v1/subscriptions", json=_FORM, headers={"If-None-Match": "*"})
    assert (refused.status_code, "exists" in refused.json()["detail"]) == (412, True)
    assert client.get("/v1/subscriptions").json()["items"] == []
    assert client.post("/v1/subscriptions", json=_FORM, headers={"If-None-Match": '"5"'}).status_code == 201
    matched = client.post("/v1/subscriptions/match", json={"message": {}}, headers={"If-None-Match": "*"})
    assert matched.status_code == 200


def test_conditions_are_described(bench: Bench) -> None:
    """Every read with a tag has 304 and 412 in the description, and every change 412."""
    paths = build_app(bench.parts).openapi()["paths"]
    tagged = {path for path, of in paths.items() if "304" in of.get("get", {}).get("responses", ())}
    assert tagged == {"/v1/routes/{name}", "/v1/subscriptions/{id}"}
    for path, operations in paths.items():
        for method, operation in operations.items():
            assert "412" in operation["responses"] or (method == "get" and path not in tagged), (method, path)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/subscriptions/delete-many", {"ids": ["a"]}),
        ("POST", "/v1/subscriptions/create-many", {"subscriptions": [{**_FORM, "id": "b"}]}),
        ("POST", "/v1/routes/a/pause", {}),
    ],
)
def test_changes_without_a_tag(client: TestClient, method: str, path: str, body: object) -> None:
    """An If-Match where no tag is compared is refused, not ignored."""
    client.post("/v1/subscriptions", json=_FORM)
    answer = client.request(method, path, json=body, headers={"If-Match": '"5"'})
    assert answer.status_code == 412
    assert "has no entity tag to compare" in answer.json()["detail"]
    assert [one["id"] for one in client.get("/v1/subscriptions").json()["items"]] == ["a"]


@pytest.mark.parametrize(
    "path", ["/live", "/ready", "/metrics", "/v1/subscriptions", "/v1/subscriptions/a", "/v1/routes"]
)
def test_head(client: TestClient, path: str) -> None:
    """HEAD has the status and the headers of GET, and no content."""
    client.post("/v1/subscriptions", json=_FORM)
    got, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert client.head("/v1/subscriptions/none").status_code == 404
