"""Fixtures of tests of history."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.history.scene import Scene
from turnout.conditions import parse
from turnout.nats.wire import Connection, create_stream, delete_stream
from turnout.subscriptions import Subscription


@pytest.fixture
def scene(nats_server, tmp_path) -> Iterator[Scene]:
    scene = Scene(nats_server.url, uuid.uuid4().hex[:10], tmp_path)
    streams = {"IN": f"in-{scene.name}.>", "OUT": f"out-{scene.name}.>", "DEAD": f"dead-{scene.name}"}
    with Connection.open(scene.url) as connection:
        for stream, subject in streams.items():
            create_stream(connection, {"name": f"{stream}_{scene.name}", "subjects": [subject], "storage": "memory"})
    with scene.store() as store:
        store.create(Subscription([f"out-{scene.name}.small"], parse("n<100"), id="small"))
    yield scene
    with Connection.open(scene.url) as connection:
        for stream in streams:
            delete_stream(connection, f"{stream}_{scene.name}")
