"""Connect's ``errors.*`` properties: what is read, and what is said to have no effect."""

from __future__ import annotations

import pytest

from turnout.transforms import Chain


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"errors.retry.timeout": "-1"}, ["errors.retry.timeout=-1"]),
        ({"errors.log.include.messages": "true"}, ["errors.log.include.messages=true"]),
        (
            {"errors.deadletterqueue.topic.replication.factor": "1"},
            ["errors.deadletterqueue.topic.replication.factor=1"],
        ),
        ({"errors.log.include.messages": "true", "errors.log.enable": "true"}, []),
        ({"errors.retry.timeout": "0", "errors.retry.delay.max.ms": "5"}, []),
        ({}, []),
    ],
)
def test_what_has_no_effect_is_told(given: dict[str, str], named: list[str]) -> None:
    """A property that is read and changes nothing is named with its value; one that works is not."""
    notes = Chain.from_config(given).errors.notes()

    assert [note.split(" ")[0] for note in notes] == named
    assert all("has no effect" in note for note in notes)
