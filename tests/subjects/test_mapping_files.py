"""Files with mappings: configurations of any name, JWTs of accounts, streams as the CLI and as Kubernetes have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.errors import ConfigError
from turnout.subjects import load_document, mappings_from_file, mappings_of_document
from turnout.subjects.errors import ConfigSyntaxError

pytest.importorskip("nkeys", reason='pip install "turnout[jetstream]"')
from tests.subjects.jwts import Key, claim, decorated, token

OPERATOR, ACCOUNT = Key("O"), Key("A")
MAPPINGS = {"orders.*": [{"subject": "eu.orders.$1"}], "foo": [{"subject": "bar", "weight": 100}]}
CLAIM = claim(ACCOUNT, OPERATOR, "SHOP", "account", mappings=MAPPINGS)
JWT = token(OPERATOR, CLAIM)
EXPECTED = {
    "orders.*": [{"destination": "eu.orders.$1", "weight": 100, "cluster": ""}],
    "foo": [{"destination": "bar", "weight": 100, "cluster": ""}],
}
STREAM = {
    "name": "ALL",
    "subjects": ["all.>"],
    "subject_transform": {"src": "all.*", "dest": "kept.$1"},
    "republish": {"src": ">", "dest": "live.>"},
    "sources": [{"name": "EU", "subject_transforms": [{"src": "orders.>", "dest": "eu.>"}]}, {"name": "US"}],
}
NACK = """apiVersion: jetstream.nats.io/v1beta2
kind: Consumer
metadata: {name: c}
spec: {streamName: ALL}
---
apiVersion: jetstream.nats.io/v1beta2
kind: Stream
metadata: {name: all}
spec:
  name: ALL
  subjects: ["all.>"]
  subjectTransform: {source: "all.*", dest: "kept.$1"}
  republish: {source: ">", destination: "live.>"}
  sources: [{name: EU, subjectTransforms: [{source: "orders.>", dest: "eu.>"}]}, {name: US}]
"""


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("name", ["SHOP.jwt", "shop", "shop.json"])
def test_the_jwt_of_an_account_gives_its_mappings(tmp_path: Path, name: str) -> None:
    """In a file of any name, with nsc's lines around it or without; the account may be named."""
    for text in (JWT, decorated(JWT), f"{JWT}\n"):
        file = write(tmp_path, name, text)
        assert mappings_from_file(file) == EXPECTED
        assert mappings_from_file(file, "SHOP") == mappings_from_file(file, ACCOUNT.public) == EXPECTED
    with pytest.raises(ConfigError, match="expected the account 'SHOP' of the JWT, found 'OTHER'"):
        mappings_from_file(file, "OTHER")


def test_other_jwts_are_named(tmp_path: Path) -> None:
    """One of a user, one of an operator, and one that is broken."""
    user = token(ACCOUNT, claim(Key("U"), ACCOUNT, "u", "user"))
    operator = token(OPERATOR, claim(OPERATOR, OPERATOR, "o", "operator"))
    for text, found in ((decorated(user, "USER"), "one of the type user"), (operator, "one of the type operator")):
        with pytest.raises(ConfigError, match=f"expected the JWT of an account, found {found}"):
            load_document(write(tmp_path, "a.creds", text))
    with pytest.raises(ConfigError, match="expected the JWT of an account, found 'eyJh"):
        load_document(write(tmp_path, "a.jwt", "eyJhbGciOiJub25lIn0.eyJhIjoxfQ.x".replace("eyJhIjoxfQ", "eyJhIjox")))


def test_accounts_of_a_configuration_may_be_jwts(tmp_path: Path) -> None:
    """By the name in the JWT; beside accounts with blocks."""
    accounts = "accounts { EU { mappings { a: b } } }"
    text = f"{accounts}\nresolver: MEMORY\nresolver_preload: {{ {ACCOUNT.public}: {JWT} }}\n"
    file = write(tmp_path, "resolver.yaml", text)

    assert mappings_from_file(file, "SHOP") == EXPECTED
    assert mappings_from_file(file, "EU") == {"a": "b"}
    with pytest.raises(ConfigError, match="these accounts have some: EU, SHOP"):
        mappings_from_file(file)
    with pytest.raises(ConfigError, match=r"resolver_preload\.A: expected the JWT of an account, found 'x'"):
        mappings_from_file(write(tmp_path, "bad.conf", "resolver_preload: {A: x}"), "A")


@pytest.mark.parametrize("name", ["nats.conf", "nats", "nats.yaml", "nats.yml", "nats.json", "nats.txt"])
def test_a_configuration_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Its own grammar is read where YAML is expected and it is none."""
    text = 'port: 4222\n# a comment\nmappings { "a.*": "b.$1"; c = d }\njetstream { store_dir = /data }\n'

    assert mappings_from_file(write(tmp_path, name, text)) == {"a.*": "b.$1", "c": "d"}


def test_what_is_neither_has_the_mistake_of_its_name(tmp_path: Path) -> None:
    """YAML's for .yaml, the server's otherwise."""
    with pytest.raises(ConfigSyntaxError, match=r"bad\.yaml"):
        load_document(write(tmp_path, "bad.yaml", "a: [\n"))
    with pytest.raises(ConfigSyntaxError, match=r"bad\.conf"):
        load_document(write(tmp_path, "bad.conf", "a: [\n"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("info.json", json.dumps({"config": STREAM, "created": "2026-01-01T00:00:00Z", "state": {"messages": 3}})),
        ("info", json.dumps({"config": STREAM, "state": {}}, indent=1)),
        ("config.json", json.dumps(STREAM)),
        ("stream.yaml", NACK),
        ("stream", NACK),
    ],
)
def test_a_stream_gives_the_transforms_of_a_part(tmp_path: Path, name: str, text: str) -> None:
    """As nats stream info --json prints it, and as NACK's resources have it."""
    document = load_document(write(tmp_path, name, text))
    parts: dict[str | None, Any] = {
        None: {"all.*": "kept.$1"},
        "subject_transform": {"all.*": "kept.$1"},
        "republish": {">": "live.>"},
        "EU": {"orders.>": "eu.>"},
    }

    assert {part: mappings_of_document(document, part) for part in parts} == parts
    with pytest.raises(ConfigError, match="no transforms of 'US'; it has some of subject_transform, EU, republish"):
        mappings_of_document(document, "US")


def test_a_stream_without_transforms_is_named(tmp_path: Path) -> None:
    """So are several streams in one file."""
    with pytest.raises(ConfigError, match="the stream 'S' has no subject transform"):
        mappings_from_file(write(tmp_path, "s.json", '{"config": {"name": "S", "subjects": ["a"]}}'))
    with pytest.raises(ConfigError, match="expected one Stream of NACK, found 2"):
        mappings_from_file(write(tmp_path, "n.yaml", NACK.replace("Consumer", "Stream")))


def test_a_name_that_yaml_reads_as_something_else(tmp_path) -> None:
    """The word no is false in YAML 1.1, and no subject."""
    with pytest.raises(ConfigSyntaxError, match="a name is text, found False: put it in quotes"):
        load_document(write(tmp_path, "mappings.yaml", "no:\n- destination: b\n"))
    # As a server reads it, it is that text.
    assert load_document(write(tmp_path, "plain.yaml", "no: b\n")) == {"no": "b"}
