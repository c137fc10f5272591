"""Arguments of commands on subscriptions: pairs, and JSON from the command line or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from turnout.errors import SubscriptionInvalidError


def split_pairs(written: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    """Return the names and values of ``name=value`` arguments.

    Raises:
        SubscriptionInvalidError: one is no pair.
    """
    pairs = []
    for pair in written or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise SubscriptionInvalidError(f"{option}: expected name=value, found {pair!r}")
        pairs.append((name, value))
    return pairs


def pairs_of(written: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the values of ``name=value`` arguments by name; see `split_pairs`."""
    return dict(split_pairs(written, option))


def json_of(written: str, option: str) -> object:
    """Return the value of a JSON argument; ``-`` is standard input.

    Raises:
        SubscriptionInvalidError: it is no JSON.
    """
    text = sys.stdin.read() if written == "-" else written
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise SubscriptionInvalidError(f"{option}: not JSON: {problem}") from problem
