"""Message that is being matched, with its cached results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

SingleTexts: TypeAlias = Mapping[str, str]
Literals: TypeAlias = tuple[int, ...] | frozenset[int]


class Message:
    """Message with its cached results.

    Attributes:
        metadata: metadata of the message.
        literals: literals of the message, by fact; below 0 the tests that are true, by the inverse of their group.
        numbers: that its values are, by key; NaN for a value that is no number, and without a value.
        passed: results of tests, by key and test.
    """

    __slots__ = ("literals", "metadata", "numbers", "passed")

    def __init__(self, metadata: SingleTexts) -> None:
        self.metadata = metadata
        self.literals: dict[int, Literals] = {}
        self.numbers: dict[int, float] = {}
        self.passed: dict[tuple[int, int], bool] = {}
