"""What the tests of whole routes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.routes import Streams

from turnout.embedded import NatsServer


@pytest.fixture
def streams(nats_server: NatsServer) -> Iterator[Streams]:
    made = Streams(nats_server.url)
    made.create()
    yield made
    made.delete()
