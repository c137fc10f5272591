"""Drafts of routes from a nats-server's configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.routes.drafts.test_connector import left, part_of, read

from turnout.errors import ConfigError
from turnout.routes.drafts import draft_of_server, source_of
from turnout.subjects import MappingTable, mappings_from_file

SERVER = """
listen: "0.0.0.0:4333"
server_name: n1
jetstream { store_dir: /data, domain: hub }
cluster { name: west, port: 6222 }
leafnodes { remotes: [{url: "nats://hub:7422"}] }
accounts {
  ORDERS {
    users: [{user: orders, password: hunter2}]
    mappings { "orders.*": [{destination: "o.$1", weight: 80%}, {dest: "canary.$1", weight: 20}] }
  }
  APP {
    users: [{nkey: UABC}]
    imports: [{service: {account: ORDERS, subject: "$JS.API.>"}, to: "fromOrders.API.>"}]
    mappings { a: b }
  }
  NONE { jetstream: enabled }
}
"""


def server(folder: Path, text: str = SERVER) -> Path:
    file = folder / "nats-server.conf"
    file.write_text(text)
    return file


def test_a_server(tmp_path) -> None:
    """An account's mappings, with address, user, domain and cluster of the server."""
    file = server(tmp_path)

    draft = draft_of_server(file, "ORDERS")

    route = read(draft)
    assert route.mappings == MappingTable.from_config(mappings_from_file(file, "ORDERS"))
    assert (route.cluster, route.name) == ("west", "nats-server")
    assert draft.document["sink"] == {
        "format": "nats",
        "servers": "nats://127.0.0.1:4333",
        "user": "${NATS_USER:-orders}",
        "password": "${NATS_PASSWORD}",
        "domain": "${NATS_DOMAIN:-hub}",
    }
    assert "hunter2" not in draft.text("") + repr(draft)
    assert set(left(draft)) >= {"server_name", "leafnodes", "jetstream", "accounts", "accounts.ORDERS.mappings"}


def test_an_imported_jetstream(tmp_path) -> None:
    """An account that imports another one's JetStream reaches it under the prefix of the import (ADR-19)."""
    draft = draft_of_server(server(tmp_path), "APP", source=source_of("nats://h/S"))

    assert (part_of(draft, "sink")["apiPrefix"], draft.variables) == ("fromOrders.API", ("NATS_SEED",))
    assert draft.document["source"] == {"format": "nats", "servers": "nats://h", "stream": "S"}
    assert read(draft).mappings.apply("a") == "b"


@pytest.mark.parametrize(
    ("text", "account", "expected"),
    [
        (SERVER, None, "--account: expected one of ORDERS, APP: each of them has mappings"),
        (SERVER, "NONE", "the account 'NONE' of .* has no mappings"),
        (SERVER, "ORDER", 'did you mean "ORDERS"'),
        ("port: 4222", None, "has no mappings"),
    ],
)
def test_servers_that_no_route_is_made_of(tmp_path, text, account, expected) -> None:
    """Several accounts with mappings, and none."""
    with pytest.raises(ConfigError, match=expected):
        draft_of_server(server(tmp_path, text), account)


def test_a_server_without_accounts(tmp_path) -> None:
    """Mappings at the top of the file apply to all accounts; TLS is part of the address."""
    text = 'port: 5222\nauthorization { token: hunter2 }\ntls { cert_file: a }\nmappings { "a.*": "b.$1" }'

    draft = draft_of_server(server(tmp_path, text))

    assert draft.document["sink"] == {"format": "nats", "servers": "tls://127.0.0.1:5222", "token": "${NATS_TOKEN}"}
    assert read(draft).mappings.apply("a.x") == "b.x"


def test_a_server_with_an_operator(tmp_path) -> None:
    """Its users have credentials: a file that a variable names, and check takes the route before it is known."""
    file = server(tmp_path, 'operator: "op.jwt"\nresolver: MEMORY\nmappings { a: b }\n')

    draft = draft_of_server(file)

    assert part_of(draft, "sink")["credentials"] == "${NATS_CREDS}"
    assert draft.variables == draft.file_variables == ("NATS_CREDS",)
    assert draft.mistakes(draft.text("")) == ()


def test_a_name_that_no_default_can_hold(tmp_path) -> None:
    """The variable has to be set."""
    file = server(tmp_path, 'authorization { user: "a}b", password: p }\nmappings { a: b }\n')

    assert part_of(draft_of_server(file), "sink")["user"] == "${NATS_USER}"


def test_what_depends_on_the_servers_version(tmp_path) -> None:
    """An account's hash arrives resolved; a source that older servers match otherwise is told, and by `check` too."""
    text = 'accounts { SHOP { mappings { "foo.*": "x.{{account-hash()}}.$1", "*bar": y } } }'

    draft = draft_of_server(server(tmp_path, text), "SHOP")

    route = read(draft)
    assert route.mappings.apply("foo.1") == "x.UUssF3Ay.1"
    assert (route.mappings.apply("*bar"), route.mappings.apply("zbar")) == ("y", "zbar")
    told = "'*bar' has a token that only starts with *"
    assert [part.why.startswith(told) for part in draft.left if part.name == "accounts.SHOP.mappings"] == [False, True]
    assert [warning for warning in route.warnings if told in warning.problem] != []


EU = {"name": "EU", "subject_transforms": [{"src": "orders.>", "dest": "eu.>"}, {"src": "stock.*", "dest": "s.$1"}]}


@pytest.mark.parametrize(
    ("part", "expected", "lost"),
    [
        ({"sources": [EU]}, {"filterSubject": ["orders.>", "stock.*"]}, []),
        ({"sources": [{**EU, "opt_start_seq": 17, "external": {"api": "$JS.hub.API", "deliver": "d"}}]},
         {"filterSubject": ["orders.>", "stock.*"], "start": 17, "domain": "hub"}, []),
        ({"sources": [EU, {"name": "EU", "filter_subject": "orders.eu.>", "opt_start_seq": 5}, {"name": "US"}]},
         {"filterSubject": ["orders.>", "stock.*"]}, ["config.sources.EU"]),
        ({"sources": [EU, {"name": "EU"}]}, {}, []),
        ({"mirror": {"name": "EU", "filter_subject": "orders.>", "opt_start_time": "2026-01-01T00:00:00Z",
                     "external": {"api": "from.EU.API"}}},
         {"filterSubject": ["orders.>"], "start": "2026-01-01T00:00:00Z", "apiPrefix": "from.EU.API"}, []),
        ({"republish": {"src": "all.*", "dest": "live.$1", "headers_only": True}}, {"filterSubject": ["all.*"]},
         ["config.republish.headers_only"]),
        ({"republish": {"dest": "live.>"}}, {}, []),
        ({"subject_transform": {"src": "all.*", "dest": "kept.$1"}}, {}, []),
    ],
)  # fmt: skip
def test_what_a_part_of_a_stream_takes(tmp_path, part, expected, lost) -> None:
    """A route has the same messages as the server takes for it, and says what it cannot have."""
    file = tmp_path / "stream.json"
    file.write_text(json.dumps({"name": "ALL", "subjects": ["all.>"], **part}))

    draft = draft_of_server(file)

    stream = "EU" if {"sources", "mirror"} & part.keys() else "ALL"
    server = {"format": "nats", "servers": "${NATS_URL:-nats://127.0.0.1:4222}"}
    assert draft.document["source"] == {**server, "stream": stream, **expected}
    assert [one.name for one in draft.left if draft.word(one) == "lost"] == lost
    assert ("config.sources.US" in left(draft)) == ("US" in str(part))
    assert draft.mistakes(draft.text("")) == ()


def test_a_stream_that_is_read_elsewhere(tmp_path) -> None:
    """With an address the filters stay, and a topic of Kafka has none."""
    file = tmp_path / "stream.json"
    file.write_text(json.dumps({"name": "ALL", "sources": [EU]}))

    other = part_of(draft_of_server(file, source=source_of("nats://h/COPY")), "source")
    kafka = draft_of_server(file, source=source_of("kafka://h:9092/eu"))

    assert (other["stream"], other["filterSubject"]) == ("COPY", ["orders.>", "stock.*"])
    assert "filterSubject" not in part_of(kafka, "source")
    assert kafka.lossy


def test_other_resources_of_nack(tmp_path) -> None:
    """A Consumer beside the Stream is reported."""
    file = tmp_path / "stream.yaml"
    file.write_text(
        "apiVersion: jetstream.nats.io/v1beta2\nkind: Stream\nmetadata: {name: orders}\n"
        'spec: {name: ORDERS, subjects: ["orders.*"], subjectTransform: {source: "orders.*", dest: "o.$1"}}\n'
        "---\napiVersion: jetstream.nats.io/v1beta2\nkind: Consumer\nmetadata: {name: worker}\nspec: {}\n"
    )

    draft = draft_of_server(file)

    assert "stays the cluster's" in left(draft)["Consumer worker"]
    assert read(draft).mappings.apply("orders.1") == "o.1"
