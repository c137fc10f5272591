"""Exact index of all subscriptions: flat arrays that several processes can map.

The names are loaded when they are first used: a route without subscriptions needs no index.
"""

from typing import TYPE_CHECKING

from turnout.base.startup import names_at_first_use

if TYPE_CHECKING:
    from turnout.subscriptions.index.arrays import IndexFileError
    from turnout.subscriptions.index.flat_messages import Column
    from turnout.subscriptions.index.index import Index
    from turnout.subscriptions.index.index_writer import IndexFolder
    from turnout.subscriptions.index.layers import Deliveries, Matches

__all__ = ["Column", "Deliveries", "Index", "IndexFileError", "IndexFolder", "Matches"]

__getattr__ = names_at_first_use(
    __name__,
    {
        "Column": "turnout.subscriptions.index.flat_messages",
        "Deliveries": "turnout.subscriptions.index.layers",
        "Index": "turnout.subscriptions.index.index",
        "IndexFileError": "turnout.subscriptions.index.arrays",
        "IndexFolder": "turnout.subscriptions.index.index_writer",
        "Matches": "turnout.subscriptions.index.layers",
    },
)
