"""The examples of docs/jetstream.md do what the page says, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.documentation import Block, blocks

from turnout.embedded import NatsServer

ADDRESS = "nats://127.0.0.1:4222"
EXAMPLES = blocks("jetstream.md", "python")
_names: dict[str, Any] = {}


@pytest.fixture(scope="module")
def empty_server() -> Iterator[NatsServer]:
    with NatsServer() as server:
        yield server


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_example(example: Block, empty_server: NatsServer) -> None:
    """Each block goes on where the one before it ended, and prints what stands behind its prints."""
    assert ADDRESS in example.text
    printed = example.run(_names, lambda text: text.replace(ADDRESS, empty_server.url))

    assert printed == example.told
    assert printed


def test_there_are_examples() -> None:
    """A page whose examples are not found would pass every test."""
    assert len(EXAMPLES) >= 3
