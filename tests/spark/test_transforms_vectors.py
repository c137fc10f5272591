"""Every Connect vector through the compiled chains; `python -m tests.vectors connect FILE…` prints the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.vectors.connect import run_vectors

from turnout.transforms.parity import PARITY

FILES = sorted((Path(__file__).parents[1] / "vectors" / "connect").glob("*.json"))
MOST_UNSUPPORTED = 0.10


@pytest.fixture(scope="module")
def counted() -> Counter[str]:
    return Counter()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_vectors(spark: SparkSession, file: Path, counted: Counter[str]) -> None:
    """What Kafka's own classes answered is what the chain answers, or a reviewed reason says why not."""
    outcomes = run_vectors(spark, json.loads(file.read_text(encoding="utf-8")))

    counted.update(outcome.status for outcome in outcomes)
    assert [f"{o.name}: {o.reason}" for o in outcomes if o.status == "failed"] == []
    assert all(outcome.reason in PARITY for outcome in outcomes if outcome.status == "unsupported")


def test_few_are_unsupported(counted: Counter[str]) -> None:
    """Fewer than one in ten, of all that ran."""
    assert counted.total() > 0
    assert counted["unsupported"] < MOST_UNSUPPORTED * counted.total()


def test_generated_code_agrees(spark: SparkSession) -> None:
    """The vectors run interpreted; a sample runs through Spark's code generation, as routes do."""
    vectors = [vector for file in FILES for vector in json.loads(file.read_text(encoding="utf-8"))[::25]]

    outcomes = run_vectors(spark, vectors, codegen=True)

    assert [f"{o.name}: {o.reason}" for o in outcomes if o.status == "failed"] == []
