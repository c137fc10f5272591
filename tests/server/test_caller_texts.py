"""Route texts from callers: which variables and files of the server's machine they may name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server.conftest import Bench, client_of, route_text
from turnout.rpc.caller import Caller, Right
from turnout.server.security import Principal

CALLERS = {
    "read": Principal("reader", Caller(rights=frozenset({Right.READ}))),
    "write": Principal("writer", Caller(rights=frozenset({Right.READ, Right.WRITE}))),
}


class Tokens:
    """Rights as tokens."""

    def principal(self, token: str | None) -> Principal | None:
        return CALLERS.get(token or "")


def headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that lets callers name ALLOWED, with a secret in its environment and another beside its folder."""
    monkeypatch.setenv("NATS_PW", "hunter2")
    monkeypatch.setenv("ALLOWED", "eu")
    (tmp_path / "secret").write_text("hunter3\nmappings { a: hunter3 }\n")
    bench = Bench(tmp_path / "routes", variables=("ALLOWED",))
    (bench.folder / "chain.properties").write_text("transforms=\n")
    yield bench
    bench.close()


HOSTILE = (
    "cluster: ${NATS_PW}",
    "cluster: ${NATS_PW:-x}",
    "cluster: ${NOT_SET_ANYWHERE}",
    "cluster: ${file:/etc/passwd}",
    "cluster: ${file:chain.properties}",
    "spark: {a: '${env:NATS_PW}'}",
    "spark: {a: '${spark.hadoop.key}'}",
    "spark: {a: file:/etc/passwd}",
    "transforms: /etc/passwd",
    "transforms: ../secret",
    "value: {format: protobuf, schema: /etc/passwd}",
    "key: {format: protobuf, schema: ../secret}",
    "mappings: ../secret",
    "mappings: {file: ../secret, account: x}",
    "mappings: {file: ../secret}",
    "mappings: {flie: /etc/passwd}",
    "mappings: good.yaml",
    "transforms: link",
    "checkpoint: /var/elsewhere",
    "checkpoint: file:/var/elsewhere",
    "subscriptions: {store: 'sqlite:////etc/passwd'}",
    "subscriptions: {store: 'grpc://a:1?ca=/etc/passwd'}",
    "sinks: {a: {format: nats, servers: a, credentials: /etc/passwd}}",
    "sinks: {a: {format: csv, path: /etc}}",
    "sinks: {a: {format: csv, path: '{/etc,/var}'}}",
    "sinks: {a: {format: csv, path: out, options: {paths: '[\"/etc\"]'}}}",
    "sinks: {a: {format: kafka, servers: 'a:1', options: {kafka.ssl.truststore.location: /etc/passwd}}}",
    "sinks: {a: {format: kafka, servers: 'a:1', options: {kafka.config.providers: env}}}",
)


def answers(client: TestClient, token: str, text: str) -> dict[str, Any]:
    """Return the responses of all requests that take a route's text."""
    body = {"text": text}
    return {
        "validate": client.post("/v1/routes/validate", json=body, headers=headers(token)),
        "put": client.put("/v1/routes/new", json=body, headers=headers(token)),
    }


@pytest.mark.parametrize("more", HOSTILE)
def test_no_caller_reads_the_environment_or_files(opened: Bench, more: str) -> None:
    """The answer is a mistake that quotes neither, for a reader and for a writer; nothing is written."""
    (opened.folder / "link").symlink_to(opened.folder.parent / "secret")
    client = client_of(opened, authenticator=Tokens())
    text = route_text("new", more=more)
    if more.startswith("sinks"):
        text = text.replace("\nsink:", "\n#")

    for token in CALLERS:
        said = answers(client, token, text)
        assert said["validate"].json()["valid"] is False
        assert said["put"].status_code == (422 if token == "write" else 403)
        for answer in said.values():
            assert "hunter" not in answer.text
            assert "root:" not in answer.text
    assert not (opened.folder / "new.yaml").exists()


def test_a_writer_names_allowed_variables_and_files_of_the_folder(opened: Bench) -> None:
    """A reader may name none; a caller without a token is refused."""
    client = client_of(opened, authenticator=Tokens())
    text = route_text("new", more="cluster: ${ALLOWED}\ncheckpoint: kept")

    assert answers(client, "read", text)["validate"].json()["valid"] is False
    assert answers(client, "read", route_text("new"))["validate"].json()["valid"] is True
    assert {answer.status_code for answer in answers(client, "", text).values()} == {401}
    said = answers(client, "write", text)
    assert (said["validate"].json()["valid"], said["put"].status_code) == (True, 201)
    assert opened.run_of("new").route.cluster == "eu"


def test_without_tokens_everybody_is_a_writer_with_the_same_limits(opened: Bench) -> None:
    """A server on loopback without tokens keeps its environment to itself as well."""
    client = client_of(opened)

    assert client.put("/v1/routes/new", json={"text": route_text("new", more="cluster: ${NATS_PW}")}).status_code == 422
    assert client.put("/v1/routes/new", json={"text": route_text("new", more="cluster: ${ALLOWED}")}).status_code == 201


def test_a_written_text_stays_a_callers_when_the_server_starts_again(opened: Bench) -> None:
    """A variable that is no longer allowed is not replaced; after an operator's edit the text is the operator's."""
    client = client_of(opened)
    client.put("/v1/routes/new", json={"text": route_text("new", more="cluster: ${ALLOWED}")})
    opened.run_of("new")
    opened.close()
    opened.variables = ()
    opened.open()
    opened.routes.scan()
    assert "--route-variables" in opened.routes.entry("new").mistakes[0].problem

    opened.write("new", route_text("new", more="cluster: ${ALLOWED} # mine"))
    opened.routes.scan()
    assert opened.run_of("new", 2).route.cluster == "eu"


def test_an_operators_file_names_what_it_wants_and_a_put_of_the_same_text_too(opened: Bench) -> None:
    """A console that writes what it has read changes nothing; another text is the caller's."""
    text = route_text("own", more="cluster: ${NATS_PW}")
    opened.write("own", text)
    opened.routes.scan()
    client = client_of(opened)

    assert opened.run_of("own").route.cluster == "hunter2"
    assert client.put("/v1/routes/own", json={"text": text}).status_code == 200
    changed = client.put("/v1/routes/own", json={"text": text + "# more\n"})
    assert (changed.status_code, "hunter" in changed.text) == (422, False)
    opened.close()
    opened.open()
    opened.routes.scan()
    assert opened.routes.entry("own").mistakes == ()


def test_explain_takes_no_text_of_a_route(opened: Bench) -> None:
    """It explains with the version that runs."""
    opened.start("good")
    form = {"record": {"topic": "a", "value": "x"}, "text": route_text("good", more="cluster: ${NATS_PW}")}

    answer = client_of(opened).post("/v1/routes/good/explain", json=form)

    assert answer.status_code == 422
    assert "hunter" not in answer.text


def test_no_route_is_written_over_the_servers_own_configuration(opened: Bench) -> None:
    """A server would not start again with it."""
    answer = client_of(opened).put("/v1/routes/turnout", json={"text": route_text("turnout")})

    assert answer.status_code == 409
    assert not (opened.folder / "turnout.yaml").exists()


def test_a_reader_cannot_guess_secrets_by_the_changes(opened: Bench) -> None:
    """Whether a password is the running route's shows in the changes for callers that may write, and for no others."""
    client = client_of(opened, authenticator=Tokens())
    text = route_text("new").replace("stream: IN", "stream: IN, user: u, password: right")
    opened.write("new", text)
    opened.routes.scan()
    opened.run_of("new")

    def changes(token: str, password: str, stream: str = "IN") -> list[str]:
        guess = text.replace("right", password).replace("IN", stream)
        return [change["change"] for change in answers(client, token, guess)["validate"].json()["changes"]]

    assert changes("read", "right") == changes("read", "wrong") == []
    assert changes("read", "wrong", "OTHER") == ["source.stream"]
    assert changes("write", "wrong") == ["source.password"]
