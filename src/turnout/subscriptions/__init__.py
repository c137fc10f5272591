"""Subscriptions: their conditions and destinations, their stores, and the matching of messages.

The names are loaded when they are first used: a route file needs the addresses of stores, and no index.
"""

from typing import TYPE_CHECKING

from turnout.base.startup import names_at_first_use

if TYPE_CHECKING:
    from turnout.subscriptions.index.layers import IndexStats
    from turnout.subscriptions.match_results import Match, MatchBatch, MatchList
    from turnout.subscriptions.matcher import Matcher
    from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription, new_id
    from turnout.subscriptions.past import Snapshot
    from turnout.subscriptions.store import MAX_LIMIT, Store, StoreBase, open_store

__all__ = [
    "MAX_LIMIT",
    "Changes",
    "ConditionMatch",
    "IndexStats",
    "Match",
    "MatchBatch",
    "MatchList",
    "Matcher",
    "Page",
    "Snapshot",
    "Store",
    "StoreBase",
    "Subscription",
    "new_id",
    "open_store",
]

__getattr__ = names_at_first_use(
    __name__,
    {
        "MAX_LIMIT": "turnout.subscriptions.store",
        "Changes": "turnout.subscriptions.model",
        "ConditionMatch": "turnout.subscriptions.model",
        "IndexStats": "turnout.subscriptions.index.layers",
        "Match": "turnout.subscriptions.match_results",
        "MatchBatch": "turnout.subscriptions.match_results",
        "MatchList": "turnout.subscriptions.match_results",
        "Matcher": "turnout.subscriptions.matcher",
        "Page": "turnout.subscriptions.model",
        "Snapshot": "turnout.subscriptions.past",
        "Store": "turnout.subscriptions.store",
        "StoreBase": "turnout.subscriptions.store",
        "Subscription": "turnout.subscriptions.model",
        "new_id": "turnout.subscriptions.model",
        "open_store": "turnout.subscriptions.store",
    },
)
