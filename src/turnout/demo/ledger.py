"""Independent counts of the server's content, for comparison with the counts of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from turnout.engine.counts import Counts
from turnout.nats.wire import Connection, PullReader, Range, stream_info

_TOP = 10


@dataclass(frozen=True, slots=True)
class Ledger:
    """Content of the server after a run.

    Attributes:
        source: messages of the stream FLIGHTS.
        messages: messages of the stream DELIVERIES.
        delivered: different source records among these, told apart by their message ids.
        dead: messages of the stream DEAD.
        destinations: the subjects with the most deliveries, and how many each has.
    """

    source: int
    messages: int
    delivered: int
    dead: int
    destinations: tuple[tuple[str, int], ...]

    def disagreements(self, counts: Counts) -> Iterator[str]:
        """Yield the differences between the run's counts and the server's, as sentences."""
        pairs = (
            ("records read", counts.read, "messages in FLIGHTS", self.source),
            ("messages sent", counts.messages, "messages in DELIVERIES", self.messages),
            ("records delivered", counts.delivered, "records seen in DELIVERIES", self.delivered),
            ("records dead-lettered", counts.dead_lettered, "messages in DEAD", self.dead),
        )
        for ours, our_number, theirs, their_number in pairs:
            if our_number != their_number:
                yield f"{ours}: {our_number:,}, but {theirs}: {their_number:,}"


def read_ledger(connection: Connection) -> Ledger:
    """Count the content of the server; the message id of every delivery is read."""
    states = {name: stream_info(connection, name)["state"] for name in ("FLIGHTS", "DELIVERIES", "DEAD")}
    records: set[bytes] = set()
    topics: Counter[str] = Counter()
    everything = Range("DELIVERIES", 1, states["DELIVERIES"]["last_seq"] + 1)
    for batch in PullReader(connection, everything).batches():
        # An id is <stream>:<sequence>:<hash>; the first two parts name the record.
        records.update(key.rpartition(b":")[0] for key in batch.column("key").to_pylist())
        topics.update(batch.column("topic").to_pylist())
    return Ledger(
        source=states["FLIGHTS"]["messages"],
        messages=states["DELIVERIES"]["messages"],
        delivered=len(records),
        dead=states["DEAD"]["messages"],
        destinations=tuple(topics.most_common(_TOP)),
    )
