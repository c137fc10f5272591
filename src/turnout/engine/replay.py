"""Replay settings of a program: the records selected, and the ids of their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from turnout import subscriptions
from turnout.conditions import Condition
from turnout.deferred import pc
from turnout.engine.messages import Messages
from turnout.engine.metadata import Metadata
from turnout.records import Batch, Headers, Positions
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


class Where:
    """Selects records by a condition over the metadata that subscriptions use.

    Args:
        condition: the condition.
        metadata: name → path, as a route's subscriptions have it.
    """

    def __init__(self, condition: Condition, metadata: Mapping[str, str]) -> None:
        self._metadata = Metadata(metadata)
        self._index = index.Index.of([subscriptions.Subscription(["chosen"], condition, id="where")])

    def chosen(self, records: Batch, rows: Positions) -> RowIds:
        """Return the rows, of the given living records, for which the condition is true, in their order."""
        columns = self._metadata.columns(records, rows, self._index.keys)
        matches = self._index.match(columns, len(rows))
        return np.asarray(rows, np.int64)[matches.rows]
