from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.kafka_broker import KafkaBroker

from turnout.errors import TurnoutError
from turnout.kafka.options import KafkaOptions


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker; the tests are skipped where Maven, or what it should fetch, is not there."""
    try:
        broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    except TurnoutError as missing:
        pytest.skip(f"no Kafka broker: {missing}")
    with broker as started:
        yield started


@pytest.fixture(scope="package")
def options(broker: KafkaBroker) -> KafkaOptions:
    return KafkaOptions.of(broker.servers)
