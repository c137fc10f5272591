"""Every Connect vector through the chains; `python -m tests.vectors connect FILE…` prints the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.vectors.connect import outcome

from turnout.transforms.registry import TRANSFORMS

FILES = sorted((Path(__file__).parents[1] / "vectors" / "connect").glob("*.json"))
ALL = 2245


def vectors() -> list[Any]:
    return [
        pytest.param(vector, id=f"{file.stem}: {vector['name']}")
        for file in FILES
        for vector in json.loads(file.read_text(encoding="utf-8"))
    ]


VECTORS = vectors()


@pytest.mark.parametrize("vector", VECTORS)
def test_kafkas_answer_is_the_chains(vector: dict[str, Any]) -> None:
    """The chain returns the results of Kafka's own classes, for a single record and for one among others."""
    actual = outcome(vector)

    assert (actual.status, actual.reason) == ("passed", "")


def test_none_is_left_out() -> None:
    """All vectors that there are have run."""
    assert len(VECTORS) == ALL


def test_the_topic_changes_where_a_transform_does_not_say_that_it_keeps_it() -> None:
    """Filters at the server rely on `keeps_topic`; each of the others changes the topic of some vector."""
    changing = {
        kind
        for file in FILES
        for vector in json.loads(file.read_text(encoding="utf-8"))
        for kind in [TRANSFORMS.get(file.stem)]
        if kind
        and vector["record"]
        and vector["expect"].get("topic", vector["record"]["topic"]) != vector["record"]["topic"]
    }

    assert changing == {kind for kind in TRANSFORMS.values() if kind.keeps_topic is not True}
