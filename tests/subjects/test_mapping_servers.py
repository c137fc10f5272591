"""Mappings of JWTs and of streams, beside a server that has them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.subjects.jwts import Key, claim, decorated, token

from turnout.embedded import NatsServer
from turnout.nats.protocol import Credentials
from turnout.nats.wire.connection import Connection
from turnout.subjects import MappingTable, mappings_from_file

pytestmark = pytest.mark.jetstream
SUBJECTS = ("orders.1", "orders.2.x", "foo", "other", "a.b.c")
MAPPINGS = {
    "orders.*": [{"subject": "eu.orders.$1"}],
    "foo": [{"subject": "bar"}],
    "a.*.c": [{"subject": "{{wildcard(1)}}.c", "weight": 100}],
}


def received(connection: Connection, pattern: str, count: int, *subjects: str) -> list[str]:
    """The subjects under which messages arrive that are published under others."""
    connection.subscribe(pattern)
    connection.ping()
    for subject in subjects:
        connection.publish(subject, b"")
    found: list[str] = []
    for message in connection.messages(time.monotonic() + 20):
        found.append(message.subject)
        if len(found) == count:
            break
    return found


def test_an_accounts_jwt_maps_as_the_server_does(tmp_path: Path) -> None:
    """Of an operator's server, which is given the account by resolver_preload."""
    operator, account, system, user = Key("O"), Key("A"), Key("A"), Key("U")
    limits = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
    about = {"mappings": MAPPINGS, "limits": {**limits, "wildcards": True}}
    own = token(operator, claim(account, operator, "SHOP", "account", **about))
    others = token(operator, claim(system, operator, "SYS", "account", limits=limits))
    its = claim(operator, operator, "O", "operator", system_account=system.public)
    config = (
        f"operator: {token(operator, its)}\nresolver: MEMORY\n"
        f"resolver_preload: {{ {account.public}: {own}, {system.public}: {others} }}\n"
    )
    (tmp_path / "server.conf").write_text(config)
    (tmp_path / "account.jwt").write_text(decorated(own))
    user_jwt = decorated(token(account, claim(user, account, "u", "user", subs=-1, data=-1, payload=-1)), "USER")
    seed = f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"

    with (
        NatsServer(config=config, jetstream=False) as server,
        Connection.open(server.url, credentials=Credentials.from_file(user_jwt + seed)) as connection,
    ):
        theirs = received(connection, ">", len(SUBJECTS), *SUBJECTS)

    for file, name in (("account.jwt", None), ("server.conf", "SHOP")):
        table = MappingTable.from_config(mappings_from_file(tmp_path / file, name))
        assert [table.apply(subject) for subject in SUBJECTS] == theirs


def test_a_stream_stores_and_republishes_as_its_information_says(nats_server: NatsServer, tmp_path: Path) -> None:
    """Of what the server answers about the stream, which is what nats stream info --json prints."""
    config = {
        "name": "MAPPED",
        "subjects": ["in.>"],
        "subject_transform": {"src": "in.*.*", "dest": "kept.$2.$1"},
        "republish": {"src": "kept.>", "dest": "live.>"},
    }
    given = ("in.a.b", "in.a", "in.c.d")
    with Connection.open(nats_server.url) as connection:
        connection.api("STREAM.CREATE.MAPPED", config)
        live = received(connection, "live.>", 2, *given)
        (tmp_path / "info.json").write_text(json.dumps(connection.api("STREAM.INFO.MAPPED")))
        found = [connection.api("STREAM.MSG.GET.MAPPED", {"seq": sequence}) for sequence in (1, 2, 3)]
        subjects = [one["message"]["subject"] for one in found]

    table = MappingTable.from_config(mappings_from_file(tmp_path / "info.json"))
    republished = MappingTable.from_config(mappings_from_file(tmp_path / "info.json", "republish"))

    assert [table.apply(subject) for subject in given] == subjects
    assert [republished.apply(subject) for subject in subjects if subject.startswith("kept.")] == live
