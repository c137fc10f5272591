"""Debezium's transforms: the vectors against its classes, and what vectors cannot say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.transforms.debezium_host import CONFIGS, DebeziumHost, made_vectors, read_vectors


@pytest.fixture(scope="module")
def debezium() -> Iterator[DebeziumHost]:
    """Debezium's classes in a JVM of their own."""
    with DebeziumHost() as host:
        yield host


@pytest.mark.kafka
@pytest.mark.parametrize("name", CONFIGS)
def test_the_vectors_are_debeziums_answers(debezium: DebeziumHost, name: str) -> None:
    """Field by field, with schemas and headers."""
    assert made_vectors(debezium, name) == read_vectors(name)
