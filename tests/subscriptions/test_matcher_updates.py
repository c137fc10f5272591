"""Updates seen by a matcher that is asked at the same time."""

from __future__ import annotations

import threading

from turnout.conditions import kiwi
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.stores.memory import MemoryStore


def test_each_message_matches_one_version():
    """Messages that are matched while a subscription is updated match one version each, alone and many at once."""
    store = MemoryStore([Subscription(["0"], kiwi("k", "a*"), id="x")])
    matcher, stop = Matcher.from_store(store), threading.Event()
    seen: list[list[tuple[str, ...]]] = []

    def ask() -> None:
        while not stop.is_set():
            seen.append([match.destinations for match in matcher.match({"k": "ab"})])
            seen.extend([one.destinations for one in own] for own in matcher.match_many([{"k": "ab"}] * 3))

    asking = [threading.Thread(target=ask) for _ in range(2)]
    for thread in asking:
        thread.start()
    for number in range(1, 200):
        store.update("x", Subscription([f"{number}"], kiwi("k", ("a*", "*b", "*")[number % 3])))
        matcher.refresh(store)
    stop.set()
    for thread in asking:
        thread.join()

    assert {len(versions) for versions in seen} == {1}
    assert [match.destinations for match in matcher.match({"k": "ab"})] == [("199",)]
