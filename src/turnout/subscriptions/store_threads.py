"""Threads for calls that wait for a store or a server, so that a slow one keeps nothing else waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from turnout.errors import StoreUnavailableError
from turnout.subscriptions.deadline import within

STORE_SECONDS: Final = 10.0
"""Seconds that a call waits for the store in total: for a thread, for locks and for a server."""

WAITING: Final = 128
"""Maximum number of calls waiting for a thread of one kind; more are refused at once."""


class BoundedPool(ThreadPoolExecutor):
    """A few threads, and a bounded number of calls that wait for one of them.

    Args:
        name: name of the threads.
        threads: how many calls run at once.
        waiting: how many wait.
        seconds: deadline of each call, counted from its submission; see `turnout.subscriptions.deadline`.
        busy: said to callers that are refused.

    Attributes:
        calls: how many run and wait now.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        waiting: int = WAITING,
        seconds: float = STORE_SECONDS,
        busy: str = "the store is slow",
    ) -> None:
        super().__init__(threads, thread_name_prefix=f"turnout-{name}")
        self._busy = busy
        self._max_calls = threads + waiting
        self._seconds = seconds
        self._counting = threading.Lock()
        self.calls = 0

    @property
    def full(self) -> bool:
        """True if as many calls run and wait as allowed."""
        return self.calls >= self._max_calls

    def check(self) -> None:
        """Refuse a call while too many are waiting.

        Raises:
            StoreUnavailableError: names how many.
        """
        if self.full:
            raise StoreUnavailableError(f"{self._busy}, and {self._max_calls} calls wait already: try again later")

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See ``concurrent.futures.Executor``; the call's deadline begins now. A full pool accepts it."""
        self._count(1)
        try:
            future = super().submit(self._run, time.monotonic(), fn, args, kwargs)
        except BaseException:
            self._count(-1)
            raise
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _run(self, since: float, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with within(self._seconds, since=since):
            return fn(*args, **kwargs)

    def _count(self, more: int) -> None:
        with self._counting:
            self.calls += more


@dataclass(frozen=True, slots=True)
class StoreThreads:
    """Threads of one server's blocking calls, by purpose. ``close`` lets them end.

    Attributes:
        reads: for what reads the store.
        writes: for what changes it.
        matches: for what matches with an index: it reads the store at most once, and mostly not at all.
        servers: for calls to a route's servers: its dead letters, the ends of its streams, its latest records.
        redrives: for redrives, which wait for a route's servers and for its store.
    """

    reads: BoundedPool = field(default_factory=lambda: BoundedPool("store-read", 8))
    writes: BoundedPool = field(default_factory=lambda: BoundedPool("store-write", 8))
    matches: BoundedPool = field(default_factory=lambda: BoundedPool("store-match", 8))
    servers: BoundedPool = field(default_factory=lambda: BoundedPool("servers", 8, busy="servers of routes are slow"))
    redrives: BoundedPool = field(
        default_factory=lambda: BoundedPool("redrive", 4, waiting=16, busy="redrives are under way")
    )

    def close(self) -> None:
        """Drop the calls that have not begun; running calls are completed."""
        for pool in (self.reads, self.writes, self.matches, self.servers, self.redrives):
            pool.shutdown(wait=False, cancel_futures=True)
