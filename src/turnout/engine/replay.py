"""Replay settings of a program: the records selected, and the ids of their messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from turnout import subscriptions
from turnout.base.multivalued import ANY_KEY, metadata_key
from turnout.base.startup import pc
from turnout.base.terminal import did_you_mean, nearest
from turnout.conditions import Condition
from turnout.engine.messages import Messages
from turnout.engine.metadata import Metadata
from turnout.errors import ConfigError, Mistake
from turnout.records import Batch, Headers, Positions
from turnout.records.field_paths import ADDRESS, listed_path
from turnout.records.types import RowIds
from turnout.subscriptions import index

REPLAY: Final = "Turnout-Replay"
"""The header of a message that a replay sends: the replay's id."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Replay of a route's history.

    Attributes:
        id: its name, which is part of its messages' ids and is in a header of each.
        where: condition on records when they are matched; None for all.
        as_first: whether its messages have the ids of a run, as they were not delivered before.
    """

    id: str
    where: Condition | None = None
    as_first: bool = False

    def with_replay_ids(self, messages: Messages) -> Messages:
        """Return the messages with this replay's ids and header.

        Their ids are those of a run with the replay's behind them: a second replay of the same id stores nothing
        twice within the stream's duplicate window, and a run's deliveries do not suppress those of a replay.
        """
        ids = messages.ids
        if not self.as_first:
            ids = pc.binary_join_element_wise(ids, pa.scalar(self.id, pa.string()), ":")
        records = messages.records
        at = records.schema.get_field_index("headers")
        headers = Headers.of_arrow(records.column(at))
        all_rows = np.arange(records.num_rows)
        headers.append(all_rows, REPLAY, None, [self.id] * records.num_rows)
        records = records.set_column(at, records.schema.field(at), headers.to_arrow(all_rows))
        return Messages(messages.topics, ids, messages.sinks, messages.rows, records)


def split_names(keys: Iterable[str], metadata: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the names of a condition that are no header's: mistyped ones; and those that can only be a header's.

    >>> split_names(["town", "twon", "value.town", "Priority"], {"town": "value.town"})
    (['twon', 'value.town'], ['Priority'])
    """
    unlisted = [
        name
        for name in dict.fromkeys(metadata_key(key) for key in keys if key and key != ANY_KEY)
        if name not in metadata and name not in ADDRESS and listed_path(metadata, name) is None
    ]
    known = [*metadata, *ADDRESS]
    wrong = [name for name in unlisted if name.startswith(("value.", "key.")) or nearest(name, known, 0.8)]
    return wrong, [name for name in unlisted if name not in wrong]


def name_mistakes(names: Iterable[str], metadata: Mapping[str, str], problem: str) -> ConfigError:
    """Return the error about names in a condition, with the names that were meant."""
    known = [*metadata, *sorted(ADDRESS)]
    mistakes = [
        Mistake(
            "where", f"{name!r} {problem}{did_you_mean(name.rpartition('.')[2], known)}; there are {', '.join(known)}"
        )
        for name in names
    ]
    return ConfigError(mistakes, what="bad condition")


class Where:
    """Selects records by a condition over the metadata that subscriptions use.

    Args:
        condition: the condition.
        metadata: name → path, as a route's subscriptions have it.

    Attributes:
        headers: names that can only be those of headers.

    Raises:
        ConfigError: the condition has a name that is not listed, and was meant as another one or as a path.
    """

    def __init__(self, condition: Condition, metadata: Mapping[str, str]) -> None:
        self._paths = metadata
        self._metadata = Metadata(metadata)
        self._index = index.Index.of([subscriptions.Subscription(["chosen"], condition, id="where")])
        wrong, self.headers = split_names(self._index.keys, metadata)
        if wrong:
            raise name_mistakes(wrong, metadata, "is not listed under metadata")
        self._unseen = set(self.headers)
        self._found = self._searched = False

    def chosen(self, records: Batch, rows: Positions) -> RowIds:
        """Return the rows, of the given living records, for which the condition is true, in their order."""
        columns = self._metadata.columns(records, rows, self._index.keys)
        matches = self._index.match(columns, len(rows))
        self._searched = self._searched or len(rows) > 0
        self._found = self._found or len(matches.rows) > 0
        if self._unseen and not self._found:
            for key, column in columns.items():
                if any(value is not None for value in column.values):
                    self._unseen.discard(metadata_key(key))
        return np.asarray(rows, np.int64)[matches.rows]

    def unseen(self) -> list[str]:
        """Return the names that no record had so far, of a search that has found nothing."""
        return sorted(self._unseen) if self._searched and not self._found else []

    def check_seen(self) -> None:
        """Check, behind the last record, that a search that found nothing was for names that records have.

        Raises:
            ConfigError: a name is not listed, and no record had a header of that name.
        """
        if unseen := self.unseen():
            problem = "is not listed under metadata, and no record has a header of that name"
            raise name_mistakes(unseen, self._paths, problem)
