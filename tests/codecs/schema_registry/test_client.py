from __future__ import annotations

import gzip
import json
import socket
import ssl
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import cast

import pytest
from tests.certificates import make_certificates
from tests.codecs.schema_registry.karapace_stand_in import KarapaceStandIn
from tests.codecs.schema_registry.stand_in import StandIn, running_registry
from tests.http_servers import server_of

from turnout.codecs.schema_registry import (
    IncompatibleSchemaError,
    RegistryOptions,
    RegistryUnavailableError,
    SchemaRegistry,
    SchemaText,
    UnknownSchemaError,
    answered,
    registry_of,
)


def record(*names: str) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": name, "type": "long"} for name in names]})


def client(registry: StandIn, **options: object) -> SchemaRegistry:
    made = SchemaRegistry(RegistryOptions.read({"url": registry.url, "retries": 0, "timeout": 5, **options}))
    registry.clients.append(made)
    return made


def test_a_renewed_certificate_is_shown_to_the_registry(tmp_path: Path) -> None:
    """Without a new client: the next request shows what is in the files then; a half of a file is not used."""
    make_certificates(tmp_path)
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            peer = cast("ssl.SSLSocket", self.connection).getpeercert() or {}
            seen.append("stranger" if "stranger" in str(peer["subject"]) else "client")
            body = json.dumps({"schema": record("a")}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    def put(name: str) -> None:
        for kind in ("pem", "key"):
            (tmp_path / f"own.{kind}").write_text((tmp_path / f"{name}.{kind}").read_text())

    both = ((tmp_path / f"{authority}.pem").read_text() for authority in ("ca", "other"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata="".join(both))
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    put("client")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        files = {"ca": "ca.pem", "certificate": "own.pem", "key": "own.key"}
        tls = {name: str(tmp_path / file) for name, file in files.items()}
        url = f"https://localhost:{server.server_port}"
        registry = SchemaRegistry(RegistryOptions.read({"url": url, "retries": 0, "timeout": 5, "tls": tls}))
        registry.by_id(1)
        (tmp_path / "own.pem").write_text("half a")
        ids = count(2)
        registry.by_id(next(ids))
        put("stranger")
        while seen[-1] == "client":
            registry.by_id(next(ids))
        registry.close()
        server.shutdown()
        thread.join()

    assert set(seen[:-1]) == {"client"}
    assert seen[-1] == "stranger"


@pytest.mark.parametrize("behaviour", ["drip", "drip-head", "endless", "endless-chunks", "long"])
def test_a_registry_that_does_not_end(behaviour: str) -> None:
    """It fails within its timeout and within a size; what is cached, and other schemas, are found meanwhile."""
    known = json.dumps({"schema": record("a")}).encode()
    answers = iter([known])
    with server_of(lambda: next(answers, behaviour)) as server:
        schemas = SchemaRegistry(RegistryOptions.read({"url": server.url, "retries": 0, "timeout": 3}))
        assert schemas.by_id(1).text == record("a")
        failures: list[Exception] = []

        def ask() -> None:
            try:
                schemas.by_id(2)
            except RegistryUnavailableError as failure:
                failures.append(failure)

        asking = [threading.Thread(target=ask) for _ in range(5)]
        for thread in asking:
            thread.start()
        assert server.asked.wait(10)
        assert schemas.by_id(1).text == record("a")
        assert all(thread.is_alive() for thread in asking) or not behaviour.startswith("drip")
        for thread in asking:
            thread.join(30)
        schemas.close()

    assert len(failures) == 5
    # One of five callers has asked, and all have its answer.
    assert len(server.requests) == 2
    assert server.sent < 64 << 20


def test_a_schema_that_is_packed() -> None:
    """An answer in an encoding that was not asked for is refused before it is unpacked."""
    packed = gzip.compress(b" " * (1 << 24))
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    with server_of(lambda: head + packed) as server:
        schemas = SchemaRegistry(RegistryOptions.read({"url": server.url, "retries": 0, "timeout": 5}))
        with pytest.raises(RegistryUnavailableError, match="encoded as 'gzip'"):
            schemas.by_id(1)


def test_fetches_a_schema_once(registry: StandIn) -> None:
    number = registry.add("flights-value", record("a"))
    schemas = client(registry)
    found = [schemas.by_id(number) for _ in range(1000)]
    assert found[0] == SchemaText("AVRO", record("a"), (), number)
    assert len(set(map(id, found))) == 1
    assert registry.requests == [f"GET /schemas/ids/{number}"]


def test_asks_once_for_an_unknown_id(registry: StandIn) -> None:
    schemas = client(registry)
    for _ in range(100):
        with pytest.raises(UnknownSchemaError, match="does not know the schema with the id 77: Schema 77 not found"):
            schemas.by_id(77)
    assert registry.requests == ["GET /schemas/ids/77", "GET /_health"]


def test_random_ids_cost_a_bounded_number_of_requests(registry: StandIn) -> None:
    """A producer of random ids makes no route wait for a request per record; what is cached is still found."""
    known = registry.add("flights-value", record("a"))
    schemas = client(registry)
    schemas.by_id(known)
    for number in range(1000, 1300):
        with pytest.raises(UnknownSchemaError):
            schemas.by_id(number)

    registry.requests.remove("GET /_health")
    assert len(registry.requests) == 1 + 100
    assert schemas.by_id(known).id == known
    with pytest.raises(
        UnknownSchemaError,
        match="the schema with the id 1299 was not requested from the schema registry: it did not know 100",
    ):
        schemas.by_id(1299)


def test_latest_version_of_a_subject(registry: StandIn) -> None:
    registry.add("s", record("a"))
    second = registry.add("s", record("a", "b"))
    found = client(registry).latest("s")
    assert (found.id, found.version, found.text) == (second, 2, record("a", "b"))
    with pytest.raises(UnknownSchemaError, match="the subject 'none'"):
        client(registry).latest("none")


def test_references_in_the_order_that_they_need(registry: StandIn) -> None:
    registry.add("city", '"string"')
    registry.add("place", record("p"), references=(("City", "city", 1),))
    number = registry.add("trip", record("t"), references=(("Place", "place", 1), ("City", "city", 1)))
    assert client(registry).by_id(number).references == (("City", '"string"'), ("Place", record("p")))


def test_registers_once_and_looks_up(registry: StandIn) -> None:
    schemas = client(registry)
    schema = SchemaText("AVRO", record("a"))
    with pytest.raises(UnknownSchemaError, match="this schema under the subject 's'"):
        schemas.lookup("s", schema)
    number = schemas.register("s", schema).id
    assert [schemas.register("s", schema).id for _ in range(10)] == [number] * 10
    assert client(registry).lookup("s", schema).id == number
    assert sum(request.startswith("POST /subjects/s/versions") for request in registry.requests) == 1


def test_incompatible_schema_in_plain_words(registry: StandIn) -> None:
    registry.add("s", record("a"))
    with pytest.raises(
        IncompatibleSchemaError, match=r"not compatible with the versions .* 's'.*'b'.* no default value"
    ):
        client(registry).register("s", SchemaText("AVRO", record("a", "b")))


def test_basic_and_bearer_authentication(registry: StandIn) -> None:
    number = registry.add("s", record("a"))
    registry.credentials = "Basic " + b64encode(b"ann:se:cret").decode()
    assert client(registry, auth={"user": "ann", "password": "se:cret"}).by_id(number).id == number
    registry.credentials = "Bearer t0ken"
    assert client(registry, auth={"token": "t0ken"}).by_id(number).id == number
    with pytest.raises(RegistryUnavailableError, match="refuses the credentials") as failure:
        client(registry, auth={"token": "wr0ng"}).by_id(number)
    assert "wr0ng" not in str(failure.value)


def test_credentials_refused_without_an_error_code() -> None:
    """As Karapace does."""
    with running_registry(KarapaceStandIn(credentials="Bearer t0ken")) as registry:
        schemas = client(registry, auth={"token": "wr0ng"})
        with pytest.raises(RegistryUnavailableError, match="refuses the credentials: Unauthorized"):
            schemas.by_id(1)


def test_a_registry_without_the_request(registry: StandIn) -> None:
    """A URL below which there is no registry, or GUIDs of a registry without them: the message gives both causes."""
    about = r"cannot be asked for the schema with the %s: it answered 404 without an error code; .* its URL is wrong"
    guid = "00000000-0000-0000-0000-000000000001"
    with running_registry(KarapaceStandIn()) as without:
        schemas = client(without)
        with pytest.raises(UnknownSchemaError, match=about % f"GUID {guid}"):
            schemas.by_guid(guid)
        elsewhere = client(without, url=without.url + "/elsewhere")
        with pytest.raises(UnknownSchemaError, match=about % "id 1"):
            elsewhere.by_id(1)
    with pytest.raises(UnknownSchemaError, match=f"does not know the schema with the GUID {guid}"):
        client(registry).by_guid(guid)


def test_a_karapace_that_still_reads_its_schemas() -> None:
    """Known schemas are unknown to it until then: the client waits, and does not keep that answer."""
    karapace = KarapaceStandIn()
    with running_registry(karapace) as registry:
        number = registry.add("s", record("a"))
        karapace.unread = 2
        options = RegistryOptions.read({"url": registry.url, "retries": 0, "wait": 30})
        schemas = client(registry)

        with pytest.raises(RegistryUnavailableError, match=f"{registry.url} has not read its schemas yet"):
            schemas.by_id(number)
        schemas.close()

        assert answered(options, lambda: schemas.by_id(number)).id == number


def test_a_karapace_that_has_just_read_its_schemas() -> None:
    """It may be ready when it is asked, after it knew nothing: it is asked for the schema again."""
    with running_registry(KarapaceStandIn(unread=1)) as registry:
        number = registry.add("s", record("a"))

        assert client(registry).by_id(number).id == number
        assert registry.requests == [f"GET /schemas/ids/{number}", "GET /_health", f"GET /schemas/ids/{number}"]


@pytest.mark.parametrize(
    "answer", [(404, "Not Found"), (503, {"error_code": 503}), (200, {}), (200, {"status": "up"}), (200, b"<html>")]
)
def test_an_unknown_schema_of_a_registry_without_readiness(answer: tuple[int, object]) -> None:
    """What another registry answers to the request for its health changes nothing."""

    class Other(StandIn):
        def handle(self, method: str, target: str, body: bytes, authorization: str | None) -> tuple[int, object]:
            return answer if target == "/_health" else super().handle(method, target, body, authorization)

    with running_registry(Other()) as registry:
        schemas = client(registry)
        for number in (77, 78):
            with pytest.raises(UnknownSchemaError, match=f"does not know the schema with the id {number}"):
                schemas.by_id(number)


def test_next_url_where_one_does_not_answer(registry: StandIn) -> None:
    number = registry.add("s", record("a"))
    assert client(registry, url=[_closed_port(), registry.url]).by_id(number).id == number


def test_registry_that_is_down(registry: StandIn) -> None:
    number = registry.add("s", record("a"))
    registry.failing = 503
    schemas = client(registry)
    with pytest.raises(RegistryUnavailableError, match="fails: Error in the backend"):
        schemas.by_id(number)
    with pytest.raises(RegistryUnavailableError, match="does not answer"):
        client(registry, url=_closed_port()).by_id(1)


def test_retries_until_the_registry_answers(registry: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    number = registry.add("s", record("a"))
    registry.failing = 503

    def wait(_seconds: float) -> None:
        if threading.current_thread() is threading.main_thread():  # others of this process sleep, too
            registry.failing = None

    monkeypatch.setattr("time.sleep", wait)
    assert client(registry, retries=2).by_id(number).id == number
    assert len(registry.requests) == 2


def test_one_registry_in_a_process() -> None:
    options = {"url": "http://127.0.0.1:1", "auth": {"token": "x"}}
    assert registry_of(RegistryOptions.read(options)) is registry_of(RegistryOptions.read(options))


def _closed_port() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"
