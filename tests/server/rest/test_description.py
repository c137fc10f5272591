"""The interface compared with its own description by Schemathesis: a real server gets unusual requests."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.scene import scene
from tests.server.conftest import Bench, client_of, route_text
from turnout.embedded import NatsServer
from turnout.errors import TurnoutError
from turnout.rpc.caller import Caller
from turnout.rpc.tokens import Sha256
from turnout.server.rest.app import build_app
from turnout.server.serving import RouteServer
from turnout.subscriptions import Subscription

pytestmark = pytest.mark.minutes

CONFIG = Path(__file__).with_name("schemathesis.toml")
HOOKS = Path(__file__).with_name("schemathesis_hooks.py")
TOKEN = "ann.5d41402abc4b2a76b9719d911017c592"

RIGHTS = {
    "nobody": None,
    "tenant": ["read", "write", "match"],
    "read": ["read"],
    "match": ["match"],
    "write": ["read", "write", "match"],
    "unmasked": ["read", "write", "match", "unmasked"],
}
"""Levels of permission; no unknown token is sent, and the tenant's token is for one tenant's subscriptions."""

WITHOUT_EFFECT = {
    "POST /v1/routes/validate",
    "POST /v1/routes/{name}/explain",
    "POST /v1/subjects/map",
    "POST /v1/subscriptions/match",
    "POST /v1/subscriptions/conditions/validate",
    "PUT /connector-plugins/{kind}/config/validate",
}
"""Operations that only answer, although they have a body."""

_WEBHOOKS = "/v1/routes/{name}/webhooks"
NEVER_DONE = {
    "POST /v1/routes/{name}/confirm", "GET /v1/feeds/{id}", "POST /v1/feeds/{id}",
    f"GET {_WEBHOOKS}", f"GET {_WEBHOOKS}/dead-letters", f"POST {_WEBHOOKS}/redrive", f"POST {_WEBHOOKS}/enable",
    "GET /v1/leader", "POST /v1/leader/hand-over", "POST /v1/in/{name}",
}  # fmt: skip
"""No route of the scene waits to be confirmed, stores feeds or has webhooks; its server has no standby and no input.

test_control.py, test_feeds.py, test_standby.py, test_inputs.py and tests/console/pages/test_webhooks.py do that.
"""

_MAX_MISSED = 3
"""Operations that change something and may fail every time, as a route is just paused or removed."""

needs_schemathesis = pytest.mark.skipif(
    importlib.util.find_spec("schemathesis") is None, reason='no Schemathesis: pip install "turnout[dev]"'
)

Answers = dict[str, set[int]]
"""Statuses by operation."""


@contextmanager
def restored(server: RouteServer) -> Iterator[None]:
    """Create routes, subscriptions and pauses again shortly after a request has removed them."""
    files = {entry.file.path: entry.file.text for entry in server.routes.entries()}
    assert server.parts.subscriptions is not None
    service = server.parts.subscriptions.service(Caller())
    subscriptions: list[Subscription] = list(service.search_by_metadata({}, limit=100).items)
    ended = threading.Event()

    def restore() -> None:
        while not ended.wait(0.2):
            for path, text in files.items():
                if not path.exists():
                    path.write_text(text, encoding="utf-8")
            for subscription in subscriptions:
                _quietly(service.create, subscription)
            for entry in server.routes.entries():
                if entry.name == "returns":
                    _quietly(server.routes.pause, entry.name, who="ann")
                elif server.parts.state.paused(entry.name):
                    _quietly(server.routes.resume, entry.name)

    thread = threading.Thread(target=restore, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def _quietly(work: Any, *arguments: Any, **named: Any) -> None:
    try:
        work(*arguments, **named)
    except TurnoutError:
        # It is there already, or is just being removed.
        return


def attacked(nats_url: str, folder: Path, level: str, examples: int, phases: str) -> Answers:
    """Run Schemathesis with a token of that level; it finds nothing. Returns what was answered."""
    tokens, calls, schema = folder / "tokens.yaml", folder / "calls.txt", folder / "openapi.json"
    tokens.touch(0o600)
    known = {"rights": RIGHTS[level] or [], "hash": f"sha256:{Sha256.of(TOKEN).digest.hex()}"}
    known["tenant"] = "acme" if level == "tenant" else "*"
    other = {"rights": ["read"], "hash": f"sha256:{Sha256.of('other').digest.hex()}", "tenant": "*"}
    tokens.write_text(json.dumps([other] if RIGHTS[level] is None else [known]), encoding="utf-8")
    # Who may not do something hears 403 for what is well formed.
    refused = () if level in ("write", "unmasked") else ("positive_data_acceptance",)
    # The hooks that add headers put back the one that this check leaves out; ignored_auth does the same.
    excluded = ("missing_required_header", *refused)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG), "run"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--no-color", "--warnings", "off"),
        *("--phases", phases, "--max-examples", str(examples), "--exclude-checks", ",".join(excluded)),
        *("--generation-deterministic", "--no-shrink"),
    ]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": str(HOOKS), "TURNOUT_OPENAPI_CALLS": str(calls)}
    with scene(nats_url, folder, tokens=tokens) as server, restored(server):
        schema.write_text(json.dumps(build_app(server.parts).openapi()), encoding="utf-8")
        finished = subprocess.run(
            [*command, "--url", server.url, str(schema)],
            cwd=folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    assert finished.returncode == 0, finished.stdout[-20_000:] + finished.stderr
    assert "No issues found" in finished.stdout
    answers: Answers = defaultdict(set)
    for line in calls.read_text(encoding="utf-8").splitlines():
        status, _, operation = line.partition(" ")
        answers[operation].add(int(status))
    return answers


def check_answers(level: str, answers: Answers) -> None:
    """Each operation succeeded at least once with permission, and never without."""
    done = {operation for operation, statuses in answers.items() if any(status < 300 for status in statuses)}
    probes = {"GET /live", "GET /ready"}
    if level == "nobody":
        assert done <= probes
    elif level == "tenant":
        paths = {operation.split()[1] for operation in done - probes}
        assert all(path.startswith(("/v1/subscriptions", "/connector-plugins")) for path in paths), paths
    elif level == "match":
        assert done <= {*probes, "POST /v1/subscriptions/match"}
    elif level == "read":
        assert {one for one in done if not one.startswith("GET ")} <= WITHOUT_EFFECT
    else:
        missed = answers.keys() - done - NEVER_DONE
        assert not any(operation.startswith("GET ") for operation in missed), missed
        # What can be changed depends on what other requests have changed a moment before.
        assert len(missed) <= _MAX_MISSED, missed


@pytest.mark.heavy
@needs_schemathesis
@pytest.mark.parametrize("level", RIGHTS)
def test_schemathesis_finds_nothing(nats_server: NatsServer, tmp_path: Path, level: str) -> None:
    """No 5xx, no status or body that is not described, no method that is not; at every level of permission.

    In `make test` test_unusual_input.py sends what is odd, and `test_who_may_not_is_refused` asks every operation.
    """
    thorough = level == "write"
    phases = "examples,coverage,fuzzing" if thorough else "examples,fuzzing"
    answers = attacked(nats_server.url, tmp_path, level, 20 if thorough else 10, phases)

    check_answers(level, answers)


def test_every_error_is_described(client: TestClient) -> None:
    """Each operation says what it refuses and in which form; Connect's in Connect's."""
    document: dict[str, Any] = client.get("/v1/openapi.json").json()
    operations = {
        (method, path): operation for path, item in document["paths"].items() for method, operation in item.items()
    }
    for (method, path), operation in operations.items():
        statuses = {int(status) for status in operation["responses"]}
        if path not in ("/live", "/ready"):
            assert {401, 403, 421} <= statuses, (method, path)
            assert operation["security"] == [{"token": []}]
        if method != "get":
            assert {413, 415} <= statuses, (method, path)
        for status in statuses - {503}:
            if status >= 400:
                assert "application/problem+json" in operation["responses"][str(status)]["content"], (path, status)

    assert document["openapi"].startswith("3.1")
    assert ("post", "/v1/routes/{name}/confirm") in operations
    assert "application/json" in operations["get", "/connectors/{name}"]["responses"]["404"]["content"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


OPERATIONS = """
acknowledge_feed change_subscription confirm_route create_subscription create_subscriptions delete_route
delete_subscription delete_subscriptions edit_subscriptions enable_webhook_endpoint explain_record follow_events
group_dead_letters hand_over_leadership import_subscriptions list_connector_plugins list_connector_tasks
list_connectors list_dead_letters list_route_revisions list_routes list_webhook_endpoints list_webhook_letters
map_subjects match_message pause_connector pause_route put_route put_subscription read_connector
read_connector_config read_connector_status read_connector_task read_dead_letter read_feed read_leader read_liveness
read_metrics read_offsets read_readiness read_route read_route_history read_route_status read_subscription
read_subscription_history redrive_dead_letters redrive_webhook_letters replace_subscriptions reset_offsets
restart_connector restart_connector_task restart_route resume_connector resume_route search_subscriptions store_input
tap_route validate_condition validate_connector_config validate_route
"""
"""Names of operations, which are methods of generated clients: a change of one breaks programs."""


def operations_of(client: TestClient) -> dict[tuple[str, str], dict[str, Any]]:
    paths = client.get("/v1/openapi.json").json()["paths"]
    return {(method, path): operation for path, item in paths.items() for method, operation in item.items()}


def test_operations_have_names_that_stay(client: TestClient) -> None:
    """Each name is there once; a new one is added to the list."""
    names = [operation["operationId"] for operation in operations_of(client).values()]

    assert sorted(names) == sorted(OPERATIONS.split())


def schemas_in(part: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of the description that may be a schema, with its path."""
    if isinstance(part, dict):
        yield path, part
        for name, below in part.items():
            if name not in ("example", "examples", "default"):
                yield from schemas_in(below, f"{path}/{name}")
    elif isinstance(part, list):
        for index, below in enumerate(part):
            yield from schemas_in(below, f"{path}/{index}")


def test_schemas_are_what_generators_read(client: TestClient) -> None:
    """Numbers have a format, and a choice is one of a whole schema and null, or of texts and numbers."""
    document = client.get("/v1/openapi.json").json()
    numbers = choices = 0
    for path, schema in [*schemas_in(document["paths"]), *schemas_in(document["components"])]:
        kinds = schema.get("type")
        kinds = {kinds} if isinstance(kinds, str) else set(kinds) if isinstance(kinds, list) else set()
        # Lists of more types have no counterpart in most languages.
        assert len(kinds - {"null"}) <= 1, path
        if kinds & {"integer", "number"}:
            numbers += 1
            assert schema["format"] in ("int32", "int64", "double"), path
            assert schema["format"] != "int32" or schema["maximum"] < 1 << 31, path
        assert "oneOf" not in schema, path
        assert not isinstance(schema.get("title"), str), path
        if isinstance(choice := schema.get("anyOf"), list):
            choices += 1
            of_a_schema = [*choice[0]] == ["$ref"] and choice[1:] == [{"type": "null"}]
            assert of_a_schema or {one["type"] for one in choice} <= {"integer", "string", "null"}, path
            assert "properties" not in schema, path
    assert numbers > 80
    assert choices > 10


def test_parameters_are_absent_and_not_null(client: TestClient) -> None:
    for place, operation in operations_of(client).items():
        for parameter in operation.get("parameters", ()):
            assert "null" not in json.dumps(parameter), (place, parameter["name"])


def test_headers_are_described(client: TestClient) -> None:
    """Tags where a version is answered, what If-Match compares, where new things are, and when to try again."""
    operations = operations_of(client)
    for (method, path), operation in operations.items():
        headers = {status: {*response.get("headers", ())} for status, response in operation["responses"].items()}
        parameters = {parameter["name"] for parameter in operation.get("parameters", ())}
        tagged = path in ("/v1/routes/{name}", "/v1/subscriptions/{id}")
        assert ({"If-Match", "If-None-Match"} <= parameters) == tagged, (method, path)
        for status in {"200", "201"} & headers.keys():
            creates = status == "201" and (tagged or path == "/v1/subscriptions")
            assert ("ETag" in headers[status]) == (tagged or creates), (method, path)
            assert ("Location" in headers[status]) == creates, (method, path)
        assert all("Retry-After" in headers[status] for status in {"429", "503"} & headers.keys())
        assert "WWW-Authenticate" in headers.get("401", {"WWW-Authenticate"})


def test_described_headers_are_sent(client: TestClient) -> None:
    new = {"id": "a b", "destinations": ["d"], "condition_text": 'a:"b:c"'}
    created = client.post("/v1/subscriptions", json=new)
    changed = client.patch(created.headers["Location"], json={"enabled": False})
    route = client.put("/v1/routes/a", json={"text": route_text("a")})

    assert created.status_code == route.status_code == 201
    assert created.headers["ETag"] != changed.headers["ETag"]
    assert client.get(created.headers["Location"]).headers["ETag"] == changed.headers["ETag"]
    assert route.headers["Location"] == "/v1/routes/a"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/routes/a", "DELETE, GET, PUT"),
        ("GET", "/v1/routes/a/dead-letters/redrive", "POST"),
        ("OPTIONS", "/v1/subscriptions", "GET, POST"),
        ("DELETE", "/connectors", "GET"),
    ],
)
def test_a_method_that_is_not_there_is_refused_with_those_that_are(
    client: TestClient, method: str, path: str, allowed: str
) -> None:
    """405 with Allow, which names the methods of all that answers under the path."""
    answer = client.request(method, path, headers={"Authorization": "Bearer x"})

    assert answer.status_code == 405
    assert answer.headers["Allow"] == allowed


def test_who_asks_comes_before_what_is_sent(bench: Bench, tmp_path: Path) -> None:
    """A caller without a token gets 401 for every request; 415 is for authorised callers."""
    from turnout.server.security import TokenFile

    tokens = tmp_path / "tokens.txt"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    guarded = client_of(bench, authenticator=TokenFile(tokens))

    assert guarded.post("/v1/routes/a/pause").status_code == 401
    assert client_of(bench).post("/v1/routes/a/pause").status_code == 415


@pytest.mark.parametrize(("level", "status"), [("nobody", 401), ("read", 403), ("match", 403)])
def test_who_may_not_is_refused(bench: Bench, tmp_path: Path, level: str, status: int) -> None:
    """Each operation that changes something refuses unauthorised callers before it reads the body."""
    from turnout.server.security import TokenFile

    tokens = tmp_path / "tokens.yaml"
    tokens.touch(0o600)
    known = TOKEN if RIGHTS[level] else "other"
    entry = {"rights": RIGHTS[level] or ["read"], "hash": f"sha256:{Sha256.of(known).digest.hex()}", "tenant": "*"}
    tokens.write_text(json.dumps([entry]), encoding="utf-8")
    bench.start("a")
    guarded = client_of(bench, authenticator=TokenFile(tokens))
    paths: dict[str, dict[str, Any]] = build_app(bench.parts).openapi()["paths"]
    operations = [f"{method.upper()} {path}" for path, item in paths.items() for method in item if method != "get"]
    # An input has tokens of its own, and a feed is acknowledged by those who read it.
    others = {"POST /v1/in/{name}", *(["POST /v1/feeds/{id}"] if level == "read" else [])}
    changes = [one for one in operations if one not in WITHOUT_EFFECT | others]

    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    answers = {}
    for operation in changes:
        method, path = operation.split()
        url = re.sub(r"\{\w+\}", "a", path.replace("{task}", "0"))
        answers[operation] = guarded.request(method, url, headers=headers, content=b"{}").status_code

    assert len(answers) > 10
    assert answers == dict.fromkeys(changes, status)


def test_a_form_that_connect_cannot_read_is_refused_in_its_form(client: TestClient) -> None:
    """error_code and message, as Connect's tools expect them."""
    answer = client.get("/connectors?expand=everything")

    assert answer.status_code == 422
    assert answer.json()["error_code"] == 422


def test_the_description_is_openapi_3_1_and_has_a_page_of_its_own(client: TestClient) -> None:
    """Every path is on the page, which loads nothing from elsewhere."""
    document = client.get("/v1/openapi.json").json()
    page = client.get("/v1/docs").text

    assert document["openapi"].startswith("3.1")
    assert {"/v1/routes/{name}/offsets", "/v1/subscriptions/match", "/connectors/{name}/status"} <= set(
        document["paths"]
    )
    assert all(path in page for path in document["paths"])
    assert client.get("/v1/docs.css").headers["content-type"].startswith("text/css")
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    assert all(operation.get("summary") for operation in operations)
