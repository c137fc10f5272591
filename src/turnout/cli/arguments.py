"""Arguments of commands on subscriptions: pairs, leaves, and JSON from the command line or standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnout.errors import SubscriptionInvalidError

if TYPE_CHECKING:
    from turnout.conditions import Condition


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


def leaves_of(has: list[str] | None, has_word: list[str] | None, has_not: list[str] | None) -> list[Condition]:
    """Return the leaves that ``--has``, ``--has-word`` and ``--has-not`` name."""
    from turnout.conditions import kiwi, not_

    conditions: list[Condition] = [kiwi(*pair) for pair in split_pairs(has, "--has")]
    conditions += [kiwi(*pair, partial=True) for pair in split_pairs(has_word, "--has-word")]
    conditions += [not_(kiwi(*pair)) for pair in split_pairs(has_not, "--has-not")]
    return conditions


def coupled(leaves: list[Condition], logic: str) -> Condition:
    """Couple leaves by ``--logic``: and, or, xor."""
    from turnout.conditions import all_of, any_of, one_of

    if len(leaves) == 1:
        return leaves[0]
    return {"and": all_of, "or": any_of, "xor": one_of}[logic](*leaves)
