"""A matcher that is changed while it is asked answers with what was true before or after the change."""

from __future__ import annotations

import threading

from turnout.conditions import all_of, kiwi
from turnout.subscriptions import Matcher, Subscription


def test_changes_while_matching():
    """Threads that match see a subscription that stays, always, and one that comes and goes, never half."""
    stays = Subscription(["d"], all_of(kiwi("a", "1"), kiwi("b", "1")), id="stays")
    goes = Subscription(["d"], all_of(kiwi("a", "1"), kiwi("b", "1*")), id="goes")
    matcher = Matcher([stays])
    seen, failures, stop = set(), [], threading.Event()

    def ask():
        try:
            while not stop.is_set():
                seen.add(tuple(sorted(match.subscription_id for match in matcher.match({"a": "1", "b": "1"}))))
        except Exception as failure:  # noqa: BLE001 - a thread's failure has to reach the test
            failures.append(failure)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(500):
        matcher.add(goes)
        matcher.remove("goes")
    stop.set()
    for thread in threads:
        thread.join()

    assert failures == []
    assert seen <= {("stays",), ("goes", "stays")}
    assert ("stays",) in seen
