from __future__ import annotations

import pytest

from turnout.codecs.schema_registry import subject_of
from turnout.errors import RecordError


def test_subjects_of_keys() -> None:
    assert subject_of("topic", "flights", None, key=True) == "flights-key"


@pytest.mark.parametrize(("strategy", "topic", "name"), [("topic", None, "R"), ("record", "t", None)])
def test_missing_names(strategy: str, topic: str | None, name: str | None) -> None:
    with pytest.raises(RecordError, match="needs"):
        subject_of(strategy, topic, name)
