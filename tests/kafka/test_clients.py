"""Clients of Kafka with options that they do not know."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError
from turnout.kafka.clients import ErrorWatch, consumer_of, producer_of
from turnout.kafka.options import KafkaOptions


def test_a_property_that_the_client_does_not_know() -> None:
    """An unknown property is a mistake of the options; values are not repeated."""
    for make in (consumer_of, producer_of):
        with pytest.raises(ConfigError, match=r'No such configuration property: "no\.such"') as refused:
            make(KafkaOptions.of("a:1", client={"no.such": "hidden"}), ErrorWatch())

        assert "hidden" not in str(refused.value)
