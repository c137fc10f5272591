"""Lineage of a delivered message: its route, its record and its subscriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from turnout.engine.messages import RECORDS, Messages
from turnout.engine.origin import origins
from turnout.engine.reading import Consumed
from turnout.records import Headers
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
        route: whose sinks.
    """

    def __init__(self, route: Route) -> None:
        self._route = f"{route.name}@{route.digest}"
        self._sinks = np.array([bool(getattr(sink, "lineage", None)) for sink in route.sinks.values()], np.bool_)
        self.enabled = bool(self._sinks.any())

    def added(
        self, messages: Messages, rows: NDArray[np.int64], letters: int, consumed: Consumed, revision: int | None
    ) -> Messages:
        """Return the messages with their lineage headers.

        Args:
            messages: of a batch; the records that they carry are those of *rows*, and then those of the dead letters.
            rows: of the records that are delivered.
            letters: how many of the messages are dead letters.
            consumed: the batch as it was read.
            revision: of the subscriptions that it was matched with.
        """
        records = messages.records
        count = len(rows)
        marked = self._marked(records.column("headers").slice(0, count), rows, consumed, revision)
        place = RECORDS.get_field_index("headers")
        if self._sinks.all():
            headers = pa.concat_arrays([marked, records.column("headers").slice(count)])
            return replace(messages, records=records.set_column(place, RECORDS.field(place), headers))
        # Other sinks get the same records as they are.
        copies = records.slice(0, count).set_column(place, RECORDS.field(place), marked)
        concerned = self._sinks[messages.sinks]
        concerned[len(messages) - letters :] = False
        places = np.where(concerned, messages.rows + records.num_rows, messages.rows)
        return replace(messages, rows=places, records=pa.concat_batches([records, copies]))

    def _marked(self, headers: Any, rows: NDArray[np.int64], consumed: Consumed, revision: int | None) -> Any:
        marked = Headers.of_arrow(headers)
        everything = np.arange(len(rows))
        marked.append(everything, ROUTE, None, [self._route] * len(rows))
        if revision is not None:
            marked.append(everything, REVISION, None, [f"{revision}"] * len(rows))
        sources = pc.replace_substring_regex(origins(consumed.batch).take(pa.array(rows)), "[\r\n]", "?").to_pylist()
        known = [at for at, source in enumerate(sources) if source is not None]
        marked.append(everything[known], SOURCE, None, [sources[at] for at in known])
        return marked.to_arrow(everything)
