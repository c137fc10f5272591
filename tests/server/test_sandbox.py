"""Pages and choices of dead letters, of one stream and of several partitions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.conftest import wait_for
from turnout.base.clocks import Microseconds
from turnout.engine.sample_records import SampleRecord
from turnout.errors import StoreUnavailableError
from turnout.history.dead_letters import DeadLetter
from turnout.routes import Route
from turnout.server.errors import ConflictError
from turnout.server.sandbox import Matchers, chosen, page_of
from turnout.subscriptions import Store, open_store
from turnout.subscriptions.matcher import LiveMatcher
from turnout.subscriptions.store import within


def letter(partition: int, sequence: int) -> DeadLetter:
    return DeadLetter(f"dead:{partition}", sequence, "", Microseconds(0), SampleRecord("a"), True, None, None, None)


PLACES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), unique=True, max_size=20)


@given(PLACES, st.integers(1, 5))
def test_pages(places: list[tuple[int, int]], limit: int) -> None:
    """Each letter is on one page, those of higher sequences first, whatever partitions they are of."""
    letters = [letter(*place) for place in places]
    found: list[DeadLetter] = []
    cursor: int | None = None
    while True:
        page, cursor = page_of(letters, cursor, limit)
        found += page
        if cursor is None:
            break

    assert sorted((one.stream, one.sequence) for one in found) == sorted((f"dead:{p}", n) for p, n in places)
    assert [one.sequence for one in found] == sorted((one.sequence for one in found), reverse=True)


def test_choices() -> None:
    """A sequence that two partitions have needs a stream; others do not."""
    letters = [letter(0, 1), letter(1, 1), letter(1, 2)]

    assert chosen(letters, [2], None) == [letters[2]]
    assert chosen(letters, [1, 2], "dead:1") == letters[1:]
    assert chosen(letters, None, "dead:0") == letters[:1]
    assert chosen(letters, None, None) == letters
    with pytest.raises(ConflictError, match="dead:0, dead:1; name one as stream"):
        chosen(letters, [1], None)


ROUTE = """name: a
source: {{format: nats, servers: "nats://h:1", stream: S}}
subscriptions: {{store: "memory://{store}"}}
sink: {{format: nats, servers: "nats://h:1"}}
"""


def route(store: str) -> Route:
    return Route.parse(ROUTE.format(store=store), {})


class SlowStores:
    """Opens stores; those named slow only once they may."""

    def __init__(self) -> None:
        self.may_open = threading.Event()
        self.failure: Exception | None = None
        self.opened: list[str] = []
        self.closed: list[str] = []

    def open(self, url: str) -> Store:
        self.opened.append(url)
        if "slow" in url:
            assert self.may_open.wait(30)
            if self.failure is not None:
                raise self.failure
        store = open_store(url)
        store.close = lambda: self.closed.append(url)  # type: ignore[method-assign]
        return store


def opening(pool: ThreadPoolExecutor, matchers: Matchers, stores: SlowStores, count: int) -> list[Callable[[], object]]:
    """Start this many calls for the slow store; the first of them opens it."""
    calls = [pool.submit(matchers.of, route("slow")) for _ in range(count)]
    wait_for(lambda: stores.opened)
    return [call.result for call in calls]


def test_a_slow_store_keeps_no_call_for_another_waiting() -> None:
    """It is opened once for all callers; a caller with a deadline waits no longer than that."""
    stores = SlowStores()
    with Matchers(stores.open) as matchers, ThreadPoolExecutor(4) as pool:
        results = opening(pool, matchers, stores, 4)
        other = matchers.of(route("other"))
        slow = route("slow")
        # On a busy machine the deadline has passed before the wait begins.
        with pytest.raises(StoreUnavailableError, match=r"still being read|before the caller's deadline"), within(0.2):
            matchers.of(slow)
        stores.may_open.set()
        matched = {result() for result in results}

        assert len(matched) == 1
        assert other not in matched
        assert matchers.of(route("slow")) in matched
    assert stores.opened == ["memory://slow", "memory://other"]
    assert sorted(stores.closed) == ["memory://other", "memory://slow"]


def test_all_who_wait_for_a_store_that_fails_are_told() -> None:
    """They do not wait one after the other; the next call tries again."""
    stores = SlowStores()
    stores.failure = StoreUnavailableError("away")
    with Matchers(stores.open) as matchers, ThreadPoolExecutor(4) as pool:
        results = opening(pool, matchers, stores, 4)
        stores.may_open.set()
        for result in results:
            with pytest.raises(StoreUnavailableError, match="away"):
                result()
        attempts, stores.failure = len(stores.opened), None

        assert matchers.of(route("slow")) is not None
    assert len(stores.opened) == attempts + 1


def test_a_store_that_makes_way_while_it_is_opened_is_closed() -> None:
    """It is closed once it is open; the waiting caller still gets its result."""
    stores = SlowStores()
    with Matchers(stores.open) as matchers, ThreadPoolExecutor(1) as pool:
        (result,) = opening(pool, matchers, stores, 1)
        for number in range(4):
            matchers.of(route(f"other{number}"))
        stores.may_open.set()

        assert result() is not None
        assert stores.closed == ["memory://slow"]


def test_the_servers_own_store_is_known_whatever_its_timeout() -> None:
    """A route names the store without the limit that the command line has given it."""
    stores = SlowStores()
    live = LiveMatcher(open_store("memory://own"))
    with Matchers(stores.open) as matchers:
        matchers.know("memory://own?timeout=3", live)

        assert matchers.of(route("own")) is live
    assert stores.opened == []
