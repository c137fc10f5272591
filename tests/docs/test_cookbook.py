"""The recipes of the cookbook, from their first file to the delivered message, on servers of their own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tools.recording import PAGE, SECONDS, TARGET

from tests.docs.terminal import Terminal, same
from tests.documentation import DOCS, blocks
from tests.integration.kafka_broker import KafkaBroker
from turnout.demo.kafka_broker import demo_registry
from turnout.embedded import NatsServer, free_port

DOES_NOT_END = ("nats-server ", "turnout serve ", "python receiver.py", "TURNOUT_SECRET_KEY_FILE=key turnout serve ")
OWN_PROCESS = {"many-streams", "webhooks-for-tenants"}
"""Recipes with a server process, which has a JVM of its own."""

HEAVY = OWN_PROCESS | {"avro-to-json", "change-a-route", "dead-letters", "mask-by-customer", "replay-a-day"}

RECIPES = [
    pytest.param(path.stem, marks=[pytest.mark.heavy] if path.stem in HEAVY else [])
    for path in sorted((DOCS / "cookbook").glob("*.md"))
    if path.stem != "index"
]
ORDERS = next(block.text for block in blocks("cookbook/index.md", "python"))


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nats_server: NatsServer) -> Iterator[Terminal]:
    """An empty folder, and the servers of this process."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("DB_", "TURNOUT_", "API_"))]:
        monkeypatch.delenv(name)
    addresses = {
        "127.0.0.1:4222": nats_server.url.removeprefix("nats://"),
        **{f"127.0.0.1:{port}": f"127.0.0.1:{free_port()}" for port in (8080, 8090, 9100)},
    }
    receiver = addresses["127.0.0.1:9100"].partition(":")[2]
    addresses['("127.0.0.1", 9100)'] = f'("127.0.0.1", {receiver})'
    monkeypatch.setenv("NATS_URL", nats_server.url)
    monkeypatch.setenv("TURNOUT_URL", f"http://{addresses['127.0.0.1:8090']}")
    terminal = Terminal(tmp_path, addresses)
    terminal.write("orders.py", ORDERS)
    yield terminal
    terminal.close()


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A broker and a registry: their addresses in pages, and where they are."""
    (tmp_path / "kafka").mkdir()
    with KafkaBroker(tmp_path / "kafka") as broker, demo_registry() as registry:
        yield {"127.0.0.1:9092": broker.servers, "127.0.0.1:8081": registry.url.removeprefix("http://")}


def follow(page: str, terminal: Terminal) -> Iterator[tuple[str, str, str]]:
    """Do what a page says, in its order; each command with the stated output, and the one that it had."""
    for block in blocks(page):
        if block.file_name is not None:
            terminal.write(block.file_name, block.text)
        for command, stated in block.commands if block.language == "console" else ():
            if command.startswith(DOES_NOT_END):
                terminal.leave_running(command, stated)
            else:
                yield command, stated, terminal.type(command)


@pytest.mark.spark
@pytest.mark.session
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_does_what_it_says(recipe: str, terminal: Terminal, request: pytest.FixtureRequest) -> None:
    """Each command prints what the page says."""
    if recipe not in OWN_PROCESS:
        request.getfixturevalue("spark")
    if recipe == "avro-to-json":
        terminal.addresses = {**terminal.addresses, **request.getfixturevalue("kafka")}
    for command, stated, printed in follow(f"cookbook/{recipe}.md", terminal):
        assert same(printed) == same(stated), command


@pytest.mark.spark
@pytest.mark.session
def test_starting_a_route_ends_with_a_delivered_message(terminal: Terminal, spark: object) -> None:
    """The page about ``turnout new`` runs the route that it has written."""
    terminal.type("python orders.py")
    for command, stated, printed in follow("start.md", terminal):
        assert same(printed) == same(stated), command


def test_the_recording_shows_what_the_recipe_prints() -> None:
    """Each line of the recording is one of the recipe, which the test above runs, or of a difference of its files."""
    svg = ElementTree.parse(TARGET).getroot()
    texts = [text for text in svg.iter("{http://www.w3.org/2000/svg}text") if text.get("class", "").startswith("s")]
    shown = ["".join(text.itertext()) for text in texts]
    page = same((DOCS / PAGE).read_text(encoding="utf-8"))
    edits = {line for line in shown if re.match(r"[<>] |\d+(,\d+)?[acd]\d+|---$|\$ diff ", line)}

    assert len(shown) > 60
    # A line that is too long for the picture ends with "…".
    assert [line for line in shown if line not in edits and same(line.removesuffix("…")) not in page] == []
    assert all(line[2:] in page for line in edits if line[0] in "<>")
    assert any(line.startswith("deliveries lost: 17") for line in shown)
    assert any("the leaf to blame" in line for line in shown)
    assert f"{SECONDS:g}s step-end infinite" in TARGET.read_text(encoding="utf-8")


def test_every_recipe_is_in_the_table_and_in_the_navigation() -> None:
    """All of them, of which there are ten at least."""
    names = {path.name for path in (DOCS / "cookbook").glob("*.md")} - {"index.md"}
    table = (DOCS / "cookbook" / "index.md").read_text(encoding="utf-8")

    assert len(names) >= 10
    assert [name for name in names if f"]({name})" not in table] == []
