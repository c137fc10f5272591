"""Filtering of received messages by the rules of a consumer's filters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from turnout.subjects.index import SourceIndex
from turnout.subjects.pattern import matches
from turnout.subjects.tokens import FULL, PARTIAL


class SubjectFilter:
    """Test of subjects against *filters*, with the server's rules for consumers; results are cached."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = tuple(filters)
        # To a mapping's source a token like *x is a wildcard, to a consumer's filter it is text.
        plain = all(
            token in (PARTIAL, FULL) or token[:1] != PARTIAL for filter_ in filters for token in filter_.split(".")
        )
        self._index = SourceIndex.build(filters) if plain else None
        self._known: dict[str, bool] = {}

    def of(self, batch: Any) -> Any:
        """Return the rows of a `turnout.nats.wire.records.SCHEMA` record batch whose topic matches, in order."""
        topics = batch.column("topic").dictionary_encode()
        passing = np.fromiter((self.passes(topic) for topic in topics.dictionary.to_pylist()), dtype=np.bool_)
        if passing.all():
            return batch
        return batch.filter(pa.array(passing[topics.indices.to_numpy()]))

    def passes(self, subject: str) -> bool:
        """Return True if one of the filters matches *subject*."""
        known = self._known.get(subject)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            known = self._known[subject] = self._matches(subject)
        return known

    def _matches(self, subject: str) -> bool:
        if self._index is None:
            return any(matches(filter_, subject) for filter_ in self._filters)
        tokens = subject.split(".")
        # A subject with an empty token, which only a stream's own transform makes, is matched by no filter.
        return "" not in tokens and self._index.first(subject, tokens) is not None


_KEPT = 100_000
"""This many subjects are remembered; a stream where each message has its own would fill the memory."""
