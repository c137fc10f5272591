"""The pages about tests and explanations: their files, sessions and programs, run as they stand."""

from __future__ import annotations

import re
import shlex

import pyarrow as pa
import pytest

from tests.documentation import blocks
from turnout.conditions import parse
from turnout.engine import Program
from turnout.nats.wire import Connection, create_stream, delete_stream, stored_message
from turnout.routes import Route
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index

SECONDS = re.compile(r"in \d+\.\d\d s")


PAGES = [
    "testing.md",
    "explain.md",
    "from-connect.md",
    "from-nats-mappings.md",
    "from-redpanda-connect.md",
    "from-vector.md",
]


def files(page: str) -> dict[str, str]:
    """The files that a page shows: a block names its own in its first line."""
    named = {block.file_name: block.text for block in blocks(page) if block.file_name is not None}
    lines = "".join(block.text for block in blocks(page, "jsonl"))
    return {**named, "subscriptions.jsonl": lines} if lines else named


def commands(page: str) -> list[tuple[str, str]]:
    """Return the commands of a session, with the stated output."""
    return [command for block in blocks(page, "console") for command in block.commands]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_tells_what_happens(page, turnout, tmp_path) -> None:
    """Each command prints what the page says, and each program too."""
    for name, text in files(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    for command, expected in commands(page):
        words, _, standard_input = command.partition(" <<< ")
        _, out, err = turnout(*shlex.split(words)[1:], stdin="".join(shlex.split(standard_input)))
        assert SECONDS.sub("in … s", err + out) == SECONDS.sub("in … s", expected)
    for block in blocks(page, "python"):
        assert block.run({}) == block.told


TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")
DIGEST = re.compile(r"digest [0-9a-f]{32}")


def test_the_page_about_lineage(turnout, tmp_path, nats_server) -> None:
    """The route of the page delivers a record, and the walk back is the one that is shown."""
    page = "lineage.md"
    text = files(page)["airport.yaml"].replace("nats://127.0.0.1:4222", nats_server.url)
    (tmp_path / "airport.yaml").write_text(text, encoding="utf-8")
    with open_store("sqlite:///subscriptions.db") as store, Connection.open(nats_server.url) as connection:
        store.create(Subscription(("desk.oul",), parse("origin:OUL"), id="desk"))
        create_stream(connection, {"name": "FLIGHTS", "subjects": ["flights.>"], "storage": "memory"})
        create_stream(connection, {"name": "DELIVERED", "subjects": ["desk.>"], "storage": "memory"})
        connection.request("flights.1", b'{"origin": "OUL"}')
        record = stored_message(connection, "FLIGHTS", 1).append_column("stream", pa.array(["FLIGHTS"]))
        messages = Program.of(Route.load("airport.yaml")).run(record, Index.of(store)).messages
        ((value, pairs, id_),) = zip(
            *(messages.column(name).to_pylist() for name in ("value", "headers")), messages.ids.to_pylist(), strict=True
        )
        headers = {pair["key"]: pair["value"].decode() for pair in pairs}
        connection.request("desk.oul", value, {"Nats-Msg-Id": id_, **headers})
        store.delete("desk")

    ((command, expected),) = commands(page)
    _, out, err = turnout(*shlex.split(command)[1:])
    for name in ("FLIGHTS", "DELIVERED"):
        with Connection.open(nats_server.url) as connection:
            delete_stream(connection, name)

    assert err == ""
    assert TIMES.sub("…", DIGEST.sub("…", out)) == TIMES.sub("…", DIGEST.sub("…", expected))
