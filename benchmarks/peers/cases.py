"""turnout beside other programs for the same work: event-ruler, rsigma, Kafka Connect's transforms, Bento, nats.go.

Each is built from its public packages; the cases of one that cannot be built are skipped, with the reason. Answers are
compared before speed, and both sides get the same records.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.harness import Case, Options
from benchmarks.peers import chains, flows, relay, rules, sigma


def cases(options: Options) -> Iterator[Case]:
    """Every case of every peer."""
    for peer in (chains, rules, sigma, flows, relay):
        yield from peer.cases(options)
