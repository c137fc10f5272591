"""Redrive of dead letters through the current route, with the message ids of the first delivery."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from turnout.base.untrusted import JsonObject
from turnout.engine import Messages, Program
from turnout.engine.counts import Outcome
from turnout.engine.messages import VALUE_DIGEST
from turnout.engine.reading import UNREAD
from turnout.engine.sample_records import Header, SampleRecord, record_batch
from turnout.engine.trace import Trace
from turnout.errors import ConfigError, Mistake, StreamError, SubscriptionNotFoundError
from turnout.history.dead_letters import CONNECTOR, REDRIVEN, TRIES, DeadLetter, LetterBox, masked_letter
from turnout.history.masking import Hidden
from turnout.records.batch import STREAM_ID, TOPIC_ID
from turnout.records.published import Published
from turnout.records.types import ArrowBatch
from turnout.routes import Route
from turnout.runtime.endpoints import NewLetter, adapter_of
from turnout.runtime.preflight import preflight, with_stored_topics
from turnout.subscriptions import Store, Subscription, open_store
from turnout.subscriptions.index import Index
from turnout.subscriptions.store_url import existing

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


def masked_report(report: RedriveReport, hidden: Hidden) -> RedriveReport:
    """Return the report of a redrive with its letters and their failures masked."""
    results = tuple(
        replace(
            result,
            letter=masked_letter(result.letter, hidden),
            reason=None if result.reason is None else hidden.failure(result.reason),
        )
        for result in report.results
    )
    return replace(report, results=results)


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
        delete: delete letters that are delivered in place of noting that they are, see `turnout.history.redrive`.
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
    with closing(open_store(existing(route.subscriptions.store))) as store:
        if all(letter.subscription is not None for letter in letters):
            ids = dict.fromkeys(letter.subscription for letter in letters if letter.subscription is not None)
            return Index.of([subscription for id_ in ids if (subscription := _subscription_of(store, id_)) is not None])
        return Index.of(store.snapshot())


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
        return [_unless_another(letter, next(found)) if letter.verified else _claimed(letter) for letter in letters]

    def _action(self, trace: Trace, row: int, letter: DeadLetter, *, is_whole: bool) -> _Action:
        if letter.stage == UNREAD:
            return _UNREAD
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


_UNREAD = _Action(FAILED, (), "its source could not read it, so that it is no record: mend it there, to be read again")
_INCOMPLETE = _Action(FAILED, (), "the letter lacks a part of the record, which its stream or topic no longer has")


def _unless_another(letter: DeadLetter, found: SampleRecord) -> SampleRecord:
    """Return the record at a letter's position; the letter's own if that one has another value.

    A server that was restored to older data, and has grown since, gives positions to other records.
    """
    digest = next((value for name, value in letter.raw if name == VALUE_DIGEST), None)
    if digest is not None:
        is_same = hashlib.sha256(found.value or b"").hexdigest().encode() == digest.lower()
    else:
        # A letter that lacks its value, and was written before there was a digest, is believed.
        is_same = (found.value or b"") == (letter.record.value or b"") or not (letter.whole or letter.record.value)
    return found if is_same else letter.record


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


class SendResult:
    """Result of sending messages: the numbers of stored and duplicate ones, and the refused ones with their reasons."""

    def __init__(self) -> None:
        self.published = Published()
        self.refused: dict[int, str] = {}


class Sinks:
    """Sinks of a route that this process can publish to; a connection to each is opened for each call.

    Args:
        route: the route.
    """

    def __init__(self, route: Route) -> None:
        self._sinks = [(name, adapter_of(sink)) for name, sink in route.sinks.items()]

    def send(self, messages: Messages, indices: Sequence[int]) -> SendResult:
        """Publish the messages at *indices*, and wait until each is stored or refused.

        Raises:
            ConfigError: only Spark can write to the sink of one of them, or an option of a sink is wrong.
            StreamError: a server takes no messages at all.
            ConnectionLostError: a server does not come back in time.
        """
        sent = SendResult()
        chosen = np.array(sorted(indices), np.int64)
        for sink in np.unique(messages.sinks[chosen]).tolist():
            rows = chosen[messages.sinks[chosen] == sink]
            name, adapter = self._sinks[sink]
            sent.published += adapter.send(messages.take(rows), partial(_refuse, sent, rows.tolist()), name)
        return sent


def _refuse(sent: SendResult, indices: Sequence[int], at: int, reason: StreamError) -> None:
    sent.refused[indices[at]] = str(reason)


_OF_TRIES = re.compile(rf":{TRIES}:\d+(:\d+)?$", re.ASCII)
"""Suffix that a rewritten letter has after its first id."""


def mark(
    route: Route, box: LetterBox, delivered: Sequence[DeadLetter], failed: Sequence[DeadLetter], *, delete: bool
) -> None:
    """Mark letters as delivered, or as failed again.

    Without *delete* one message with the header ``Turnout-Redriven`` is added on the letters' topic: its body names the
    sequences of those that are done, and how often the others have been tried. With it, letters that are done are
    deleted from their stream, and one that failed again is written anew with ``Turnout-Redrive-Tries`` before it is
    deleted: its first reason, and everything else of it, is kept. The route's secret, if it has one, seals what is
    written.

    Raises:
        StreamError: the server refuses to delete, or to store a note.
        ConnectionLostError: the server does not come back in time.
    """
    if not delivered and not failed:
        return
    if not delete:
        for stream in dict.fromkeys(letter.stream for letter in (*delivered, *failed)):
            _note(
                route,
                box,
                stream,
                *([one for one in letters if one.stream == stream] for letters in (delivered, failed)),
            )
        return
    done = [(letter.stream, letter.sequence) for letter in (*delivered, *failed)]
    box.letters.exchange([_rewritten(box, letter) for letter in failed], done)


def _note(
    route: Route, box: LetterBox, stream: str, delivered: Sequence[DeadLetter], failed: Sequence[DeadLetter]
) -> None:
    body = {
        "delivered": [letter.sequence for letter in delivered],
        "failed": {str(letter.sequence): letter.tries + 1 for letter in failed},
        # A copy of the note says nothing of letters that have these sequences in another stream, or later.
        "stream": stream,
        "until": max(letter.stored for letter in (*delivered, *failed)),
    }
    headers: list[Header] = [
        (REDRIVEN, str(len(delivered) + len(failed)).encode()),
        # Distinguishes a route's letters, and their notes, from those of others on the topic.
        (CONNECTOR, route.name.encode()),
    ]
    box.letters.add(box.letter(headers, json.dumps(body).encode()), stream)


def _rewritten(box: LetterBox, letter: DeadLetter) -> NewLetter:
    """Return a letter with one more try."""
    tries = letter.tries + 1
    first = _OF_TRIES.sub("", letter.message_id) or f"{letter.stream}:{letter.sequence}"
    headers = [*letter.raw, (TRIES, str(tries).encode())]
    # With the sequence no other letter gets this id, whatever ids others publish with: a copy that the server takes for
    # one that it has would be lost, as the letter is deleted after it.
    id_ = f"{first}:{TRIES}:{tries}:{letter.sequence}"
    return box.letter(headers, letter.record.value or b"", id_, sealed=letter.verified)
