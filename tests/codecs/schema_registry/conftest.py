from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.codecs.schema_registry.stand_in import StandIn, running_registry
from tests.codecs.schema_registry.tested_registry import KINDS, TestedRegistry, opened_registry


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running


@pytest.fixture(params=KINDS)
def each_registry(request: pytest.FixtureRequest) -> Iterator[TestedRegistry]:
    """Each stand-in, and the server that ``TURNOUT_REGISTRY_URL`` names."""
    with opened_registry(request.param) as registry:
        yield registry
