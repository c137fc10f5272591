"""turnout beside the programs that others use for the same work: Kafka Connect's transforms, event-ruler, Bento.

Each is built from its public packages, and left out with a reason on standard error where it cannot be built. Answers
are compared before speed.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.harness import Options, Result
from benchmarks.peers.programs import MissingPeerError

_PEERS = {"chains": "Kafka Connect's transforms", "rules": "event-ruler", "flows": "Bento"}


def run(options: Options) -> list[Result]:
    """Every case that was asked for, of every peer that can be had."""
    results: list[Result] = []
    for module, name in _PEERS.items():
        try:
            results += importlib.import_module(f"benchmarks.peers.{module}").run(options)
        except MissingPeerError as missing:
            sys.stderr.write(f"bench peers: {name} left out: {missing}\n")
    return results
