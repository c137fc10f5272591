"""Exact index of all subscriptions: flat arrays that several processes can map."""

from turnout.subscriptions.index.dictionary import Column
from turnout.subscriptions.index.folder import IndexFolder
from turnout.subscriptions.index.index import Index
from turnout.subscriptions.index.layers import Deliveries, Matches
from turnout.subscriptions.index.layout import IndexFileError

__all__ = ["Column", "Deliveries", "Index", "IndexFileError", "IndexFolder", "Matches"]
