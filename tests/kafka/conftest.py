from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.integration.kafka_broker import KafkaBroker, started_broker

from turnout.kafka.options import KafkaOptions


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    with started_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="package")
def options(broker: KafkaBroker) -> KafkaOptions:
    return KafkaOptions.of(broker.servers)
