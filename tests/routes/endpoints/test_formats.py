"""Endpoint formats of other packages, found by their entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PLUGIN = '''
from typing import Literal

from turnout.routes.endpoints.base import EndpointFormat, Sink, Source


class PigeonSource(Source):
    """A loft of pigeons."""

    format: Literal["pigeon"]
    loft: str


class PigeonSink(Sink):
    """A loft that takes pigeons."""

    format: Literal["pigeon"]
    loft: str

    def topic_problem(self, topic):
        return "is too long for a pigeon" if len(topic) > 5 else None


FORMAT = EndpointFormat(
    "pigeons",
    ("pigeon",),
    PigeonSource,
    PigeonSink,
    "pigeon_adapter:PigeonAdapter",
    "pigeon_spark:PigeonEndpoint",
    "pigeon_queue:opened_loft",
)
'''

_ADAPTER = """
from dataclasses import dataclass

from turnout.runtime.endpoints import EndpointAdapter, EndpointProbe


@dataclass
class PigeonLetters:
    stream: str
    topic: str


class PigeonProbe(EndpointProbe):
    def __init__(self, endpoint):
        self.endpoint = endpoint

    def reach(self):
        return f"{self.endpoint.loft} is open"


class PigeonAdapter(EndpointAdapter):
    label = "a loft"

    def probe(self, seconds):
        return PigeonProbe(self.endpoint)

    def letters(self, topic):
        return PigeonLetters(self.endpoint.loft, topic)

    def make_delivery_streams(self, webhooks):
        print(f"a place for {webhooks.stream}")
"""

_QUEUE = """
from contextlib import asynccontextmanager


@asynccontextmanager
async def opened_loft(sink, webhooks):
    yield f"the deliveries of {webhooks.stream} in the {sink.loft}"
"""

_USE = """
import asyncio, json
from turnout import Route
from turnout.cli.check import probe
from turnout.delivery.dispatcher import opened_queue
from turnout.engine.deliveries import Addresses
from turnout.errors import RouteError
from turnout.history.dead_letters import LetterBox
from turnout.routes.json_schema import route_schema
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight
from turnout.server.routes.compatibility import compatibility

text = "name: r\\nsource: {format: pigeon, loft: roof}\\nsink: {format: pigeon, loft: attic}\\n"
route = preflight(Route.parse(text, {}))
print(route.summary())
print(*probe(route, 0), sep="\\n")
print(Addresses(route).of("a.long.topic").problem)
keeping = text + "deadLetter: {topic: dead}\\nwebhooks: {stream: D, subject: d}\\nsubscriptions: {store: 'memory://'}\\n"
print(LetterBox.of(Route.parse(keeping, {})).letters)
print(Addresses(Route.parse(keeping, {})).of("dead").problem)
async def queue():
    async with opened_queue(Route.parse(keeping, {})) as opened:
        return opened
print(asyncio.run(queue()))
other = Route.parse(text.replace("source: {format: pigeon, loft: roof}", "source: {format: json, path: x}"), {})
print([change.reason for change in compatibility(route, other) if change.change == "source.format"])
print("loft" in json.dumps(route_schema()))
try:
    Route.parse(text.replace("loft: roof", "lofd: roof"), {})
except RouteError as error:
    print(error.mistakes[0].path, error.mistakes[1].problem)
"""


def test_a_format_of_another_package(tmp_path: Path) -> None:
    """Models, adapters, an entry point: routes, schema, `check`, changes, dead letters and webhooks know the format."""
    (tmp_path / "pigeons.py").write_text(_PLUGIN, encoding="utf-8")
    (tmp_path / "pigeon_adapter.py").write_text(_ADAPTER, encoding="utf-8")
    (tmp_path / "pigeon_queue.py").write_text(_QUEUE, encoding="utf-8")
    metadata = tmp_path / "pigeons-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeons\nVersion: 1\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("[turnout.endpoints]\npigeon = pigeons:FORMAT\n", encoding="utf-8")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", _USE]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "pigeon → 0 transforms → 0 mappings → no subscriptions → pigeon",
        "ok      source: roof is open",
        "ok      sink: attic is open",
        "is too long for a pigeon",
        "PigeonLetters(stream='attic', topic='dead')",
        "is not allowed: the route's dead letters go there, and nothing else",
        "a place for D",
        "the deliveries of D in the attic",
        "['a place in a loft means nothing to json files']",
        "True",
        'source.loft unknown name; did you mean "loft"? (known here: format, loft)',
    ]
