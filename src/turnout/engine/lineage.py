"""Lineage of a delivered message: its route, its record and its subscriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.deferred import pc
from turnout.engine.message_ids import origins
from turnout.engine.messages import RECORDS, Messages
from turnout.engine.reading import Consumed
from turnout.records import Headers
from turnout.records.types import ArrowArray, RowIds
from turnout.routes import Route

ROUTE: Final = "Turnout-Route"
"""``name@digest``: the route's name, and the digest of its file."""

REVISION: Final = "Turnout-Revision"
"""The revision of the subscriptions; missing where the route has none."""

SOURCE: Final = "Turnout-Source"
"""``stream:sequence``, or ``topic:partition:offset``."""


class LineageHeaders:
    """Adds the headers to the messages for sinks with ``lineage: true``; dead letters have their own.

    Args:
        route: route with the sinks.
    """

    def __init__(self, route: Route) -> None:
        self._route = f"{route.name}@{route.digest}"
        self._sinks = np.array([bool(getattr(sink, "lineage", None)) for sink in route.sinks.values()], np.bool_)
        self.enabled = bool(self._sinks.any())

    def added(self, messages: Messages, rows: RowIds, consumed: Consumed, revision: int | None) -> Messages:
        """Return the messages with their lineage headers.

        Args:
            messages: that are delivered; the records that they carry are those of *rows*.
            rows: rows of the records that are delivered.
            consumed: the batch as it was read.
            revision: revision of the subscriptions that it was matched with.
        """
        records = messages.records
        headers = RECORDS.get_field_index("headers")
        marked = self._with_lineage(records.column(headers), rows, consumed, revision)
        copies = records.set_column(headers, RECORDS.field(headers), marked)
        if self._sinks.all():
            return replace(messages, records=copies)
        # Other sinks get the same records as they are.
        indices = np.where(self._sinks[messages.sinks], messages.rows + records.num_rows, messages.rows)
        return replace(messages, rows=indices, records=pa.concat_batches([records, copies]))

    def _with_lineage(self, headers: ArrowArray, rows: RowIds, consumed: Consumed, revision: int | None) -> ArrowArray:
        marked = Headers.of_arrow(headers)
        all_rows = np.arange(len(rows))
        marked.append(all_rows, ROUTE, None, [self._route] * len(rows))
        if revision is not None:
            marked.append(all_rows, REVISION, None, [f"{revision}"] * len(rows))
        sources = pc.replace_substring_regex(origins(consumed.batch).take(pa.array(rows)), "[\r\n]", "?").to_pylist()
        with_source = [number for number, source in enumerate(sources) if source is not None]
        marked.append(all_rows[with_source], SOURCE, None, [sources[number] for number in with_source])
        return marked.to_arrow(all_rows)
