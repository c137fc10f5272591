"""Subscriptions: their conditions and destinations, their stores, and the matching of messages."""

from turnout.subscriptions.index.match_result import Match
from turnout.subscriptions.index.statistics import IndexStats
from turnout.subscriptions.matcher import Matcher
from turnout.subscriptions.matches import MatchBatch, MatchList
from turnout.subscriptions.model import Changes, ConditionMatch, Page, Subscription, new_id
from turnout.subscriptions.snapshot import Snapshot
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
