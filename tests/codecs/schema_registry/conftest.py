from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.codecs.schema_registry.stand_in import StandIn, running_registry


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running
