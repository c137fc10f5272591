"""Memory of segments is freed when they are no longer used, without waiting for the cyclic garbage collector."""

from __future__ import annotations

import gc
import weakref

from turnout.base.startup import paused_gc
from turnout.conditions import all_of, kiwi
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import IndexFolder
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.literal_choice import Costs
from turnout.subscriptions.index.segment import Segment


def _subscriptions() -> list[Subscription]:
    return [
        Subscription(["d"], all_of(kiwi("town", f"t{number}"), kiwi("note", f"*n{number}*")), id=str(number))
        for number in range(50)
    ]


def test_a_built_segment_has_no_reference_to_itself() -> None:
    """The arrays and texts of a large one are hundreds of megabytes."""
    with paused_gc():
        segment = weakref.ref(build(_subscriptions(), Costs(())))

        assert segment() is None


def test_a_folder_keeps_the_mapped_segment_alone(tmp_path) -> None:
    """The segment that was built is not needed once it is written and mapped."""
    store = open_store("memory://freed")
    store.create_many(_subscriptions())
    gc.collect()
    with paused_gc(), IndexFolder(tmp_path, store):
        alive = [thing for thing in gc.get_objects() if type(thing) is Segment and len(thing) == len(_subscriptions())]

        assert [segment.image.flags.owndata for segment in alive] == [False]
