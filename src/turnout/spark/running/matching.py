"""Subscriptions of one run: preparation before the first micro-batch, and access for sources and tasks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from turnout.engine import Program
from turnout.engine.subject_filters import SubjectFilters
from turnout.errors import StreamError
from turnout.routes import Route
from turnout.runtime.backfill import BackfillLedger
from turnout.runtime.driver import IndexServer
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.revisions import Revisions
from turnout.runtime.task_index import IndexLocation
from turnout.spark.session.jvm import is_connect, own_address
from turnout.subscriptions import Snapshot

_WORTH_LEARNING = 1000
"""Minimum number of subscriptions for which sampling records before the first micro-batch pays for itself."""

_SAMPLE_RECORDS = 2000
_FORBIDDEN = 403

_log = logging.getLogger(__name__)


class RunMatching:
    """Subscriptions of a run; closed at its end.

    Args:
        route: a route with subscriptions.
        spark: decides whether tasks run on other hosts.
        folder: for the index of this run.
        lasting: whether its latest revisions stay for the next run.
        pinned: subscriptions to match with instead of the store's.
        ledger: ledger of missed ranges; None without backfill.

    Raises:
        TurnoutError: the store cannot be read, or another run has the folder.
    """

    def __init__(
        self,
        route: Route,
        spark: SparkSession,
        folder: Path,
        *,
        lasting: bool = False,
        pinned: Snapshot | None = None,
        ledger: BackfillLedger | None = None,
    ) -> None:
        assert route.subscriptions is not None
        self._route = route
        self._resources = ExitStack()
        source = route.source
        self.pushes_down = source.pushes_down and route.unmatched == "drop"
        filters = SubjectFilters(route, source.filters) if self.pushes_down else None
        self.revisions = Revisions(
            route.subscriptions.store, folder, lasting=lasting, pinned=pinned, filters=filters, ledger=ledger
        )
        self._resources.callback(self.revisions.close)
        server = self._resources.enter_context(IndexServer(self.revisions, driver_address(spark)))
        self.url = server.url
        self.index_location = IndexLocation.at(self.revisions.folder, server.url)

    @property
    def options(self) -> dict[str, str]:
        """Return the source options that matching adds."""
        return {"revisionsUrl": self.url, **({"pushDown": "true"} if self.pushes_down else {})}

    def close(self) -> None:
        """Close the store and the index."""
        self._resources.close()

    def learn(self) -> None:
        """Choose the index's anchors by their rarity in a sample of the stream's records.

        Each is taken at a place of its own, since neighbours are alike: a day's records say nothing of another day's,
        and what never occurs in the sample passes for rare. Only speed depends on them. Nothing is learnt from an empty
        stream, or from a source that is not NATS, or one whose messages this user may read by a consumer only.
        """
        if len(self.revisions) < _WORTH_LEARNING:
            return
        try:
            batches = list(adapter_of(self._route.source).sample(_SAMPLE_RECORDS))
        except StreamError as failure:
            if failure.code != _FORBIDDEN:
                raise
            _log.info("route %s: subscriptions are indexed without a sample: %s", self._route.name, failure)
            return
        chain = self._route.chain
        program = Program.of(replace(self._route, chain=replace(chain, errors=replace(chain.errors, tolerance="all"))))

        def metadata(keys: Sequence[str]) -> list[dict[str, str]]:
            return [match for batch in batches for match in program.sample(batch, keys)]

        self.revisions.learn(metadata)


def driver_address(spark: SparkSession) -> str:
    """Return the address of this process, the driver or a Spark Connect client, for other processes of the run."""
    if is_connect(spark):
        return own_address(spark)
    return str(spark.conf.get("spark.driver.host", None) or "127.0.0.1")
