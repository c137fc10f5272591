"""Shared fixtures for tests of whole routes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.kafka_broker import KafkaBroker, started_broker
from tests.integration.routes import Streams

from turnout.embedded import NatsServer


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[Streams]:
    streams = Streams(nats_server.url)
    streams.create()
    yield streams
    streams.delete()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """One for all modules that have none of their own, each with topics of its own."""
    with started_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A file system of its own, mounted with the options that it is called with, and again."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(options: str) -> Path:
        nonlocal mounted
        again = "remount," if mounted else ""
        command = ["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a file system cannot be mounted here: {done.stderr.strip()}")
        mounted = True
        return place

    yield mount
    if mounted:
        # Workers that live on have files of the index there mapped.
        subprocess.run(["umount", "--lazy", str(place)], check=True)
