"""Redrive of dead letters through the current route, with the message ids of the first delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

import pyarrow as pa

from turnout.engine import Messages, Program
from turnout.engine.outcome import Outcome
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.engine.trace import Trace
from turnout.errors import ConfigError, Mistake, SubscriptionNotFoundError
from turnout.history.dead_letters import DeadLetter
from turnout.history.letter_box import LetterBox
from turnout.history.letter_marks import mark
from turnout.history.sending import Sinks
from turnout.records.listed import STREAM_ID, TOPIC_ID
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.runtime.endpoints import adapter_of
from turnout.runtime.preflight import preflight, with_stored_topics
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.store_url import existing
from turnout.untrusted import JsonObject

DELIVERED: Final = "delivered"
FAILED: Final = "failed"
UNVERIFIED: Final = "unverified"

_BATCH_LETTERS = 1_000
"""This many letters are redriven, and noted, together."""


@dataclass(frozen=True, slots=True)
class Redriven:
    """Result for one dead letter.

    Attributes:
        letter: the letter.
        outcome: ``delivered``, ``failed`` again, or another result of the current route: ``filtered``,
            ``unmatched`` (its subscription was deleted, or matches it no longer) or ``lost_by_weight``. One that others
            than the route may have written is ``unverified``, unless these are included. Only ``delivered`` is done.
        reason: why it failed this time.
        messages: number of messages sent for it; in a dry run, to send.
    """

    letter: DeadLetter
    outcome: str
    reason: str | None = None
    messages: int = 0


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """Result of a redrive.

    Attributes:
        route: its name.
        dry_run: nothing was delivered, and nothing noted.
        results: a result for each letter, in their order.
        stored: how many messages were new to their streams.
        duplicates: how many were known there, by their ids.
        notes: in a dry run, the servers that did not report their streams, a sentence each.
    """

    route: str
    dry_run: bool
    results: tuple[Redriven, ...] = field(repr=False)
    stored: int = 0
    duplicates: int = 0
    notes: tuple[str, ...] = ()

    @property
    def outcomes(self) -> Counter[str]:
        """Number of letters by result."""
        return Counter(result.outcome for result in self.results)

    def groups(self) -> list[tuple[str | None, str | None, Counter[str]]]:
        """Return stage, first reason, and counts by outcome for each group of letters, the largest first."""
        outcomes: dict[tuple[str | None, str | None], Counter[str]] = {}
        for result in self.results:
            outcomes.setdefault((result.letter.stage, result.letter.reason), Counter())[result.outcome] += 1
        return [(*key, outcomes[key]) for key in sorted(outcomes, key=lambda key: -outcomes[key].total())]

    def as_dict(self) -> JsonObject:
        """Return the report as ``--json`` prints it."""
        return {
            "route": self.route,
            "dryRun": self.dry_run,
            "letters": len(self.results),
            "outcomes": dict(self.outcomes),
            "stored": self.stored,
            "duplicates": self.duplicates,
            "notes": list(self.notes),
            "groups": [
                {"stage": stage, "reason": reason, "outcomes": dict(outcomes)}
                for stage, reason, outcomes in self.groups()
            ],
            "failures": [
                {"sequence": result.letter.sequence, "tries": result.letter.tries + 1, "reason": result.reason}
                for result in self.results
                if result.outcome == FAILED
            ],
        }


def redrive(
    route: Route,
    letters: Iterable[DeadLetter],
    *,
    dry_run: bool = False,
    delete: bool = False,
    unverified: bool = False,
    subscriptions: Sequence[Subscription] | None = None,
    index: Index | None = None,
) -> RedriveReport:
    """Put dead letters through the route as it is now, without Spark, and deliver what passes.

    Each record has its own position again, from its letter, so that its messages have the ids that they would
    have had: a second redrive stores nothing twice within the duplicate window of the sink's stream. Kafka has none: a
    redrive that is killed before its note delivers again. The letter of a single delivery is sent to its subscription
    alone: to its destination if the subscription still has it, else to those
    that it has instead. A letter that fails again keeps its first reason.

    Args:
        route: the route; the sinks that letters go to now are NATS or Kafka.
        letters: of `turnout.history.dead_letters.read`.
        dry_run: deliver and note nothing, only report the outcomes.
        delete: delete letters that are delivered in place of noting that they are, see `turnout.history.letter_marks`.
        unverified: also redrive letters that lack the seal of the route's secret: what they hold, under ids of their
            own, as the position that they name is only a claim and may be another record's.
        subscriptions: subscriptions to match with; those of the route's store if not given.
        index: existing index of the subscriptions, so that a store of millions need not be read.

    Raises:
        ConfigError: *delete* is set, and the letters are in Kafka.
        TurnoutError: servers or the store cannot be reached, or refuse what has to be done; what was delivered by then
            is delivered, and a second redrive does no harm.
    """
    ordered = list(letters)
    if not ordered:
        return RedriveReport(route.name, dry_run, ())
    if index is None:
        index = _index(route, ordered, subscriptions)
    route = preflight(route)
    # A redrive gets refusals from the servers.
    route, notes = with_stored_topics(route) if dry_run else (route, ())
    work = _Redrive(route, index, dry_run=dry_run, delete=delete, unverified=unverified)
    for letters_part in _parts(ordered):
        work.add(letters_part)
    return RedriveReport(route.name, dry_run, tuple(work.results), work.stored, work.duplicates, notes)


def _parts(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    remaining = iter(letters)
    while batch := list(islice(remaining, _BATCH_LETTERS)):
        yield batch


def _index(route: Route, letters: Sequence[DeadLetter], subscriptions: Sequence[Subscription] | None) -> Index | None:
    """Return the index to match the letters with; only the named subscriptions if every letter names one."""
    if route.subscriptions is None:
        return None
    if subscriptions is not None:
        return Index.of(subscriptions)
    store = open_store(existing(route.subscriptions.store))
    try:
        if all(letter.subscription is not None for letter in letters):
            ids = dict.fromkeys(letter.subscription for letter in letters if letter.subscription is not None)
            return Index.of([subscription for id_ in ids if (subscription := _subscription_of(store, id_)) is not None])
        return Index.of(store.snapshot())
    finally:
        store.close()


def _subscription_of(store: Store, id_: str) -> Subscription | None:
    try:
        return store.read(id_)
    except SubscriptionNotFoundError:
        return None


class _Redrive:
    """Letters of a redrive, processed in groups."""

    def __init__(self, route: Route, index: Index | None, *, dry_run: bool, delete: bool, unverified: bool) -> None:
        self._route = route
        self._program = Program.of(route)
        self._index = index
        self._box = LetterBox.of(route)
        if delete and (problem := self._box.letters.deletion_problem) is not None:
            raise ConfigError([Mistake("--delete", problem)])
        self._sinks = Sinks(route)
        self._dry_run = dry_run
        self._delete = delete
        self._unverified = unverified
        self.results: list[Redriven] = []
        self.stored = 0
        self.duplicates = 0

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Redrive some letters, and record the results."""
        records = self._records(letters)
        trace = self._program.trace(_batch(self._route, records), self._index)
        actions = [
            self._action(trace, row, letter, is_whole=letter.whole or (letter.verified and record is not letter.record))
            for row, (letter, record) in enumerate(zip(letters, records, strict=True))
        ]
        if not self._dry_run:
            actions = self._sent(trace.messages, actions)
        pairs = zip(letters, actions, strict=True)
        results = [Redriven(letter, action.outcome, action.reason, len(action.indices)) for letter, action in pairs]
        self.results += results
        if not self._dry_run:
            delivered, failed = (
                [result.letter for result in results if result.outcome == outcome] for outcome in (DELIVERED, FAILED)
            )
            mark(self._route, self._box, delivered, failed, delete=self._delete)

    def _records(self, letters: Sequence[DeadLetter]) -> list[SampleRecord]:
        """Return the record of each letter."""
        verified = [letter.record for letter in letters if letter.verified]
        found = iter(adapter_of(self._route.source).originals(verified) if verified else ())
        return [next(found) if letter.verified else _claimed(letter) for letter in letters]

    def _action(self, trace: Trace, row: int, letter: DeadLetter, *, is_whole: bool) -> _Action:
        if not letter.verified and not self._unverified:
            return _Action(UNVERIFIED, (), "the letter lacks the seal of the route's secret")
        return _action(trace, row, letter) if is_whole else _INCOMPLETE

    def _sent(self, messages: Messages, actions: Sequence[_Action]) -> list[_Action]:
        """Send the messages; those that a server refuses have failed."""
        indices = [index for action in actions for index in action.indices]
        if not indices:
            return list(actions)
        sent = self._sinks.send(messages, indices)
        self.stored += sent.published.stored
        self.duplicates += sent.published.duplicates
        return [_unless_refused(action, sent.refused) for action in actions]


@dataclass(frozen=True, slots=True)
class _Action:
    """Action for one letter: the indices of the messages to send, or the reason why none is sent."""

    outcome: str
    indices: tuple[int, ...] = ()
    reason: str | None = None


_INCOMPLETE = _Action(FAILED, (), "the letter lacks a part of the record, which was deleted from its stream")


def _claimed(letter: DeadLetter) -> SampleRecord:
    """Return the record of an unverified letter: its contents at the letter's own position, which is no record's."""
    return replace(letter.record, stream=letter.stream, identity="", partition=-1, offset=letter.sequence)


def _unless_refused(action: _Action, refused: dict[int, str]) -> _Action:
    reasons = [refused[index] for index in action.indices if index in refused]
    return _Action(FAILED, (), reasons[0]) if reasons else action


def _batch(route: Route, records: Sequence[SampleRecord]) -> ArrowBatch:
    """Return the records as a source brings them."""
    batch = record_batch([replace(record, stream=None) for record in records])
    if route.source.streams:
        batch = batch.append_column("stream", pa.array([record.stream for record in records], pa.string()))
        labels = [f"{one.stream}.{one.identity}" if one.stream and one.identity else None for one in records]
        return batch.append_column(STREAM_ID, pa.array(labels, pa.string()))
    if any(record.identity for record in records):
        return batch.append_column(TOPIC_ID, pa.array([one.identity or None for one in records], pa.string()))
    return batch


def _action(trace: Trace, row: int, letter: DeadLetter) -> _Action:
    outcome = trace.outcome(row)
    failure = trace.failures.get(row)
    if outcome in (Outcome.DEAD_LETTERED, Outcome.DISCARDED, Outcome.STOPPED):
        if failure is None:
            # Only an unmatched record is dead-lettered without a reason.
            return _Action(Outcome.UNMATCHED.label)
        return _Action(FAILED, (), failure.message)
    if outcome is not Outcome.DELIVERED:
        return _Action(outcome.label)
    indices = trace.messages_of(row).tolist()
    if letter.destination is None:
        # An undeliverable message becomes a letter of its own, as in a run.
        return _Action(DELIVERED, tuple(indices))
    return _of_delivery(trace, indices, letter, None if failure is None else failure.message)


def _of_delivery(trace: Trace, indices: Sequence[int], letter: DeadLetter, reason: str | None) -> _Action:
    """Return the action for a letter that is a single delivery: send to its subscription only."""
    own_indices = [index for index in indices if trace.subscriptions[index].as_py() == letter.subscription]
    good = [index for index in own_indices if not trace.is_letter(index)]
    same = [index for index in good if trace.destinations[index].as_py() == letter.destination]
    if same:
        return _Action(DELIVERED, tuple(same))
    if len(own_indices) > len(good):
        return _Action(FAILED, (), reason)
    return _Action(DELIVERED, tuple(good)) if good else _Action(Outcome.UNMATCHED.label)
