"""Redrive of dead letters through the present route, with the outcome of each as a row."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from turnout.epoch import EPOCH
from turnout.history import dead_letters
from turnout.history.redrive import Redriven, RedriveReport
from turnout.history.redrive import redrive as redriven
from turnout.nats.wire.positions import Place
from turnout.routes import Route

_COLUMNS: Final = (
    "stream string, sequence bigint, stored timestamp, stage string, first_reason string, topic string,"
    " source_stream string, offset bigint, subscription string, destination string, tries int, outcome string,"
    " reason string, messages int"
)


class RedriveResult:
    """Result of a redrive, or of its dry run.

    Args:
        report: the sums.
        spark: makes the frame.
    """

    def __init__(self, report: RedriveReport, spark: SparkSession) -> None:
        self.report = report
        self._spark = spark

    @cached_property
    def letters(self) -> DataFrame:
        """Row for each letter: its position (``stream``, ``sequence``), record, ``outcome`` and ``reason``."""
        return self._spark.createDataFrame([_row(result) for result in self.report.results], _COLUMNS)


def redrive(
    route: Route,
    spark: SparkSession,
    letters: DataFrame | None = None,
    *,
    start: Place = "earliest",
    end: Place = "latest",
    stage: str | None = None,
    reason: str | None = None,
    dry_run: bool = False,
    delete: bool = False,
    unverified: bool = False,
) -> RedriveResult:
    """Deliver dead letters that the route can process by now; the driver reads and sends them.

    Args:
        route: whose letters, and through what they go.
        spark: makes the frame.
        letters: only those whose ``sequence`` is in this frame, such as some rows of a dry run's `letters`.
        start: the first place in the stream of the letters: a sequence or a time.
        end: the place after the last one.
        stage: only those that failed in this stage.
        reason: only those with this text in their reason.
        dry_run: deliver nothing and note nothing, and say what would pass.
        delete: delete letters that are delivered in place of noting that they are.
        unverified: also redrive letters that lack the seal of the route's secret.

    Raises:
        TurnoutError: as `turnout.history.dead_letters.read` and `turnout.history.redrive.redrive`.
    """
    chosen = None if letters is None else {row["sequence"] for row in letters.select("sequence").collect()}
    read = dead_letters.read(route, start=start, end=end, stage=stage, reason=reason)
    some = [letter for letter in read if chosen is None or letter.sequence in chosen]
    return RedriveResult(redriven(route, some, dry_run=dry_run, delete=delete, unverified=unverified), spark)


def _row(result: Redriven) -> tuple[Any, ...]:
    letter, record = result.letter, result.letter.record
    lies = (letter.stream, letter.sequence, EPOCH + timedelta(microseconds=letter.stored))
    why = (letter.stage, letter.reason)
    of_record = (record.topic, record.stream, record.offset)
    return (*lies, *why, *of_record, letter.subscription, letter.destination, letter.tries,
            result.outcome, result.reason, result.messages)  # fmt: skip
