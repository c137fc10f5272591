"""Matching of messages with all subscriptions, in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from threading import RLock
from typing import NamedTuple, cast

import numpy as np

from turnout.base.clocks import milliseconds_now
from turnout.base.multivalued import Metadata
from turnout.conditions import evaluate
from turnout.errors import StoreUnavailableError
from turnout.records.text import texts_of_all, texts_of_values
from turnout.subscriptions.index.build import enabled
from turnout.subscriptions.index.flat_messages import JsonMessages, metadata_of_json
from turnout.subscriptions.index.index import Index
from turnout.subscriptions.index.index_writer import BackgroundTask
from turnout.subscriptions.index.layers import IndexStats, Layer, SegmentView, UseCounts, stats_of
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.match_results import (
    NO_MATCHES,
    Answer,
    Answers,
    Match,
    MatchBatch,
    MatchList,
    MessageMatches,
    answer_of,
)
from turnout.subscriptions.model import Changes, Subscription
from turnout.subscriptions.past import Snapshot
from turnout.subscriptions.store import Store, within

_LOOSE = 16
"""At most this many new subscriptions are evaluated one by one, before they get a layer of the index."""

_MAX_SINGLE_EVALUATIONS = 1_000
"""Number of single evaluations of new subscriptions before they get a segment of their own."""

_RATIO = 4
"""A layer is merged with the next one when it is less than this many times as large."""

_MAX_FOREGROUND_MERGE = 256
"""This many subscriptions are merged while the caller waits; more than that in the background."""


class _MatcherSegment(NamedTuple):
    """Layer with its answers by subscription, computed on demand."""

    view: SegmentView
    answers: Answers

    @classmethod
    def of(cls, view: SegmentView) -> _MatcherSegment:
        answers = Answers(view.subscriptions)
        # The matcher is made now: the first message would wait for it.
        view.segment.matcher.expect(answers.ids)
        return cls(view, answers)

    def without(self, ids: Collection[str]) -> _MatcherSegment:
        view = self.view.without(ids)
        return self if view is self.view else self._replace(view=view)


class _MatcherState(NamedTuple):
    """State seen by one match: segments, new subscriptions that are in none yet, and the store's revision."""

    layers: tuple[_MatcherSegment, ...] = ()
    loose: tuple[tuple[Subscription, Answer], ...] = ()
    revision: int = 0


class Matcher:
    """An index of subscriptions that follows its store by revision.

    It is safe to use from several threads; a match sees a change as a whole or not at all.

    Args:
        subscriptions: initial subscriptions. Each needs an id; of several with the same one, the last counts.
        sample: metadata of typical messages: look-ups prefer values that are rare in it.
        revision: the store's revision that the subscriptions are of.

    >>> from turnout.conditions import parse
    >>> matcher = Matcher([Subscription(["orders.oulu"], parse("city:Oulu AND NOT status:done"), id="oulu")])
    >>> [match.subscription_id for match in matcher.match({"city": "Oulu"})]
    ['oulu']
    >>> matcher.add(Subscription(["large"], parse("total>500"), id="large"))
    >>> sorted(match.subscription_id for match in matcher.match({"city": "Oulu", "total": "900"}))
    ['large', 'oulu']
    >>> matcher.remove("oulu")
    >>> matcher.match({"city": "Oulu"})
    []
    """

    def __init__(
        self,
        subscriptions: Iterable[Subscription] = (),
        *,
        sample: Collection[Mapping[str, str]] = (),
        revision: int = 0,
    ) -> None:
        self._lock = RLock()
        self._costs = Costs(sample)
        self._patience = _MAX_SINGLE_EVALUATIONS
        self._index: tuple[tuple[_MatcherSegment, ...], Index] = ((), Index((), 0))
        self._merging: BackgroundTask[None] | None = None
        self._busy: tuple[_MatcherSegment, ...] = ()
        self._start(subscriptions, revision)

    @classmethod
    def from_store(cls, store: Store | Snapshot, *, sample: Collection[Mapping[str, str]] = ()) -> Matcher:
        """Return a matcher of everything in the store, at its present revision."""
        snapshot = store if isinstance(store, Snapshot) else store.snapshot()
        return cls(snapshot.subscriptions, sample=sample, revision=snapshot.revision)

    def _start(self, subscriptions: Iterable[Subscription], revision: int) -> None:
        last = {_identified(subscription).id: subscription for subscription in subscriptions}
        layers = (
            (_MatcherSegment.of(SegmentView.of(last.values(), self._costs)),) if any(enabled(last.values())) else ()
        )
        self._state = _MatcherState(layers, revision=revision)

    @property
    def revision(self) -> int:
        """The store's revision that the subscriptions are of."""
        return self._state.revision

    def __len__(self) -> int:
        state = self._state
        return sum(layer.view.left for layer in state.layers) + len(state.loose)

    def add(self, subscription: Subscription) -> None:
        """Take a subscription in; one of the same id makes way."""
        self._change((subscription.id,), (_identified(subscription),))

    def remove(self, id: str) -> None:
        """Forget a subscription; an unknown id is forgotten already."""
        self._change((id,), ())

    def apply(self, changes: Changes) -> None:
        """Follow what happened in the store since this matcher's revision."""
        with self._lock:
            if changes.reset:
                self._start(changes.created, changes.revision)
                return
            created = {_identified(subscription).id: subscription for subscription in changes.created}
            self._change({*changes.deleted_ids, *created}, tuple(created.values()), changes.revision)

    def refresh(self, store: Store) -> bool:
        """Catch up with the store; whether anything had changed."""
        changes = store.changes(self.revision)
        self.apply(changes)
        return bool(changes)

    def match(
        self, metadata: Mapping[str, object] | bytes, *, time: int | None = None, now: int | None = None
    ) -> MatchList:
        """Return every subscription whose condition is true of the message, each once, in no order.

        Those that are disabled, or have expired, match nothing.

        Values that are no texts are seen as on a route: numbers and booleans as their texts, None as absent. A list or
        a tuple is several values of its key: a leaf holds if it does for one of them.

        The matches become objects when they are read; `MatchList.ids` gives the ids alone.

        Args:
            metadata: metadata of the message, or an object of JSON with it: bytes take less time than their decoding.
            time: time of the message, in milliseconds since 1970; now if not given.
            now: the time by the clock, in milliseconds since 1970, if not that of this machine.

        Raises:
            RecordError: the bytes are no object of JSON.
        """
        return self._match(self._state, metadata, time, now)

    def match_at_revision(self, metadata: Mapping[str, object]) -> tuple[MatchList, int]:
        """Return the matches of a message as `match` does, and the store's revision at which they are its matches."""
        state = self._state
        return self._match(state, metadata, None, None), state.revision

    def _match(
        self, state: _MatcherState, metadata: Mapping[str, object] | bytes, time: int | None, now: int | None
    ) -> MatchList:
        layers, loose, _ = state
        texts = metadata if isinstance(metadata, bytes) else texts_of_values(metadata)
        if loose and isinstance(texts, bytes):
            texts = metadata_of_json(texts)
        parts: list[tuple[Answers, Sequence[int]]] = []
        found = self._index_of(layers).match_one(texts) if layers else ()
        for (view, answers), numbers in zip(layers, found, strict=True):
            if numbers and view.gone is not None:
                tombstones = view.gone
                numbers = [number for number in numbers if not tombstones[number]]
            if numbers and view.segment.expires:
                now = milliseconds_now() if now is None else now
                time = now if time is None else time
                candidates = np.array(numbers, np.int64)
                numbers = candidates[view.segment.current(candidates, time, now)].tolist()
            if numbers:
                parts.append((answers, numbers))
        loose_answers: Sequence[Answer] = ()
        if loose:
            now = milliseconds_now() if now is None else now
            loose_answers = self._matching(loose, cast("Metadata", texts), now if time is None else time, now)
        return MessageMatches(texts, parts, loose_answers) if parts or loose_answers else NO_MATCHES

    def _matching(
        self, loose: Sequence[tuple[Subscription, Answer]], texts: Metadata, time: int, now: int
    ) -> list[Answer]:
        """Return the answers of those of the new subscriptions that match, which get a layer when that was long."""
        self._patience -= len(loose)
        if self._patience < 0:
            self._settle()
        return [answer for one, answer in loose if not one.inactive(time, now) and evaluate(one.condition, texts)]

    def match_many(
        self,
        messages: Sequence[Mapping[str, object]] | Sequence[bytes],
        *,
        times: Sequence[int | None] | None = None,
        now: int | None = None,
    ) -> MatchBatch:
        """Match all messages in one call, as `match`; much faster for several hundred messages or more.

        The matches become objects when they are read; `MatchBatch.ids` gives the ids alone.

        >>> from turnout.conditions import kiwi
        >>> matcher = Matcher([Subscription(["d"], kiwi("k", "a*"), id="x")])
        >>> matcher.match_many([{"k": "abc"}, {"k": "b"}]).ids()
        [['x'], []]
        """
        is_json = set(map(type, messages)) == {bytes}
        texts: Sequence[Metadata] = JsonMessages(messages) if is_json else texts_of_all(messages)  # type: ignore[arg-type]
        layers, loose, _ = self._state
        now = milliseconds_now() if now is None else now
        matches = self._index_of(layers).match_messages(texts, times=times, now=now)
        loose_answers: dict[int, list[Answer]] = {}
        for subscription, answer in loose:
            for row, message in enumerate(texts):
                time = None if times is None else times[row]
                if subscription.inactive(now if time is None else time, now):
                    continue
                if evaluate(subscription.condition, message):
                    loose_answers.setdefault(row, []).append(answer)
        return MatchBatch(texts, matches, [layer.answers for layer in layers], loose_answers)

    def index(self) -> Index:
        """Return a separate index of everything that the matcher holds now."""
        with self._lock:
            self._settle()
            return self._index_of(self._state.layers)

    def _index_of(self, layers: tuple[_MatcherSegment, ...]) -> Index:
        indexed, index = self._index
        if indexed is not layers:
            index = Index([Layer(layer.view.segment, layer.view.gone) for layer in layers], 0)
            self._index = layers, index
        return index

    def stats(self, hottest: int = 10) -> IndexStats:
        """Return the statistics of the index; it walks all of it."""
        self._settle()
        return stats_of([layer.view for layer in self._state.layers], hottest)

    def _change(self, deleted: Collection[str], created: Sequence[Subscription], revision: int | None = None) -> None:
        """Drop the subscriptions with the ids *deleted* and add *created*, in one atomic change."""
        with self._lock:
            state = self._without(self._state, deleted)
            self._state = state._replace(
                loose=(*state.loose, *((subscription, answer_of(subscription)) for subscription in enabled(created))),
                revision=state.revision if revision is None else revision,
            )
            if len(self._state.loose) > _LOOSE:
                self._settle()

    @staticmethod
    def _without(state: _MatcherState, deleted: Collection[str]) -> _MatcherState:
        layers = tuple(layer.without(deleted) for layer in state.layers)
        return _MatcherState(
            tuple(layer for layer in layers if layer.view.left),
            tuple(entry for entry in state.loose if entry[0].id not in deleted),
            state.revision,
        )

    def _settle(self) -> None:
        """Move new subscriptions into a layer of their own, and merge layers if due."""
        with self._lock:
            self._patience = _MAX_SINGLE_EVALUATIONS
            layers, loose, revision = self._state
            if loose:
                layer = _MatcherSegment.of(
                    SegmentView.of((subscription for subscription, _ in loose), self._costs_beside(layers))
                )
                self._state = _MatcherState((*layers, layer), revision=revision)
            self._merge()

    def _costs_beside(self, layers: Sequence[_MatcherSegment]) -> Costs:
        return self._costs.with_background(UseCounts(layers[0].view.segment)) if layers else self._costs

    def _merge(self) -> None:
        """Merge layers from the smallest on, as long as the next is not much larger than all before it."""
        if self._merging is not None and self._merging.done:
            self._merging, self._busy = None, ()
        busy = {id(layer.view.segment) for layer in self._busy}
        layers = self._state.layers
        begun, size = len(layers), 0
        while begun and id(layers[begun - 1].view.segment) not in busy:
            living = layers[begun - 1].view.left
            if begun < len(layers) and living >= _RATIO * size:
                break
            begun, size = begun - 1, size + living
        parts = layers[begun:]
        if len(parts) < 2:
            return
        if size <= _MAX_FOREGROUND_MERGE:
            self._replace(parts)
        elif self._merging is None:
            self._busy = parts
            self._merging = BackgroundTask(lambda: self._replace(parts))

    def _replace(self, parts: tuple[_MatcherSegment, ...]) -> None:
        """Replace several layers by one; other layers and deletions may be added meanwhile."""
        living = [subscription for layer in parts for subscription in layer.view.living()]
        first = self._state.layers[:1]
        costs = self._costs if first and first[0].view.segment is parts[0].view.segment else self._costs_beside(first)
        merged = _MatcherSegment.of(SegmentView.of(living, costs))
        of_parts = {id(layer.view.segment) for layer in parts}
        with self._lock:
            layers = self._state.layers
            merging = [index for index, layer in enumerate(layers) if id(layer.view.segment) in of_parts]
            living_ids = {subscription.id for index in merging for subscription in layers[index].view.living()}
            merged = merged.without({subscription.id for subscription in living} - living_ids)
            kept_layers = [layer for layer in layers if id(layer.view.segment) not in of_parts]
            if merged.view.left:
                kept_layers.insert(merging[0], merged)
            self._state = self._state._replace(layers=tuple(kept_layers))


def _identified(subscription: Subscription) -> Subscription:
    if not subscription.id:
        raise ValueError("a subscription needs an id to be matched: store it first")
    return subscription


_CATCH_UP_SECONDS = 1.0
"""Seconds that a match waits for a slow store before it uses the index as it is."""

_OWN_CHANGE_SECONDS = 10.0
"""Seconds that a match waits for another thread that applies this process's changes."""

_AWAY_SECONDS = 1.0
"""Seconds before an unreachable store is queried again."""


class ChangeCount:
    """Number of changes that this process has made to a store, for all indexes of it.

    An index that read the count before it queried the store has seen all changes up to that count.
    """

    def __init__(self) -> None:
        self._noted = threading.Condition()
        self.count = 0

    def note(self) -> None:
        """Count a change that the store has made, or may have made."""
        with self._noted:
            self.count += 1
            self._noted.notify_all()

    def wait(self, seconds: float) -> None:
        """Wait for the next change, at most *seconds*."""
        with self._noted:
            self._noted.wait(seconds)


class LiveAnswer(NamedTuple):
    """Matches of one message, and the revision of the store at which they are the matches."""

    matches: list[Match]
    revision: int


class LiveMatcher:
    """A Matcher of everything in a store, brought up to date before it answers.

    A change of this process that was noted before a match begins is seen by this match, whatever other threads do
    meanwhile; what other processes change is seen after *max_age* seconds at the latest. While the store is away, or
    does not answer within a second, the index as it was answers; the revision of the answer tells.

    Args:
        store: store to follow.
        max_age: how long an answer may be behind the changes of others, in seconds.
        clock: seconds that only grow.
        changes: counter of this process's changes; one of its own if not given.
    """

    def __init__(
        self,
        store: Store,
        *,
        max_age: float = 0.1,
        clock: Callable[[], float] = time.monotonic,
        changes: ChangeCount | None = None,
    ) -> None:
        self._store = store
        self._max_age = max_age
        self._clock = clock
        self._changes = changes or ChangeCount()
        self._refreshing = threading.Lock()
        self._away_until = float("-inf")
        # Before each query of the store: a change that is noted during the query may not be in its answer.
        self._seen = self._changes.count
        self.matcher = Matcher.from_store(store)
        self._checked = clock()

    @property
    def store(self) -> Store:
        """The store that is followed."""
        return self._store

    @property
    def revision(self) -> int:
        """The revision that the index is at."""
        return self.matcher.revision

    def changed(self) -> None:
        """Note that this process has changed the store."""
        self._changes.note()

    def match(self, metadata: Mapping[str, object]) -> LiveAnswer:
        """Return every subscription that matches the message, and the revision of this answer; see `Matcher.match`."""
        self._keep_up()
        matches, revision = self.matcher.match_at_revision(metadata)
        return LiveAnswer(list(matches), revision)

    def index(self) -> Index:
        """Index of the store's subscriptions."""
        self._keep_up()
        return self.matcher.index()

    def __len__(self) -> int:
        """Return the number of subscriptions in the store."""
        self._keep_up()
        return len(self.matcher)

    def stats(self, hottest: int = 10) -> IndexStats:
        """Return the statistics of the index; it walks all of it."""
        self._keep_up()
        return self.matcher.stats(hottest)

    def subscription(self, id: str) -> Subscription:
        """Return the subscription of that id, from the store.

        Raises:
            SubscriptionNotFoundError: there is none.
            StoreUnavailableError: the store is away.
        """
        return self._store.read(id)

    def _keep_up(self) -> None:
        if self._clock() < self._away_until:
            return
        noted = self._changes.count
        if self._seen < noted or self._clock() - self._checked > self._max_age:
            self._catch_up(noted)

    def _catch_up(self, noted: int) -> None:
        """Query the store, unless another thread's query began after the first *noted* changes."""
        # What others have changed may be seen a little later; what this process has changed is waited for.
        if not self._refreshing.acquire(timeout=_OWN_CHANGE_SECONDS if self._seen < noted else 0):
            return
        try:
            if self._seen >= noted and self._clock() - self._checked <= self._max_age:
                return
            begun = self._changes.count
            try:
                with within(_CATCH_UP_SECONDS):
                    self.matcher.refresh(self._store)
            except StoreUnavailableError:
                self._away_until = self._clock() + _AWAY_SECONDS
            else:
                self._seen = begun
            self._checked = self._clock()
        finally:
            self._refreshing.release()

    def follow(self, since: int, *, going: Callable[[], bool], pause: float = 0.1) -> Iterator[Changes]:
        """Yield the changes after the revision *since* as they occur, while *going* returns True.

        Raises:
            StoreUnavailableError: the store is away; following again from the last revision loses nothing.
        """
        while going():
            changes = self._store.changes(since)
            if changes:
                yield changes
            since = changes.revision
            self._changes.wait(pause)
