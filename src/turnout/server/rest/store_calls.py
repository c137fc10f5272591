"""Endpoints that wait for a store or for a route's servers, on threads of their own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import ParamSpec, TypeVar

from turnout.server.rest.dependencies import Parts, Subscriptions
from turnout.subscriptions.store_threads import BoundedPool, StoreThreads

P = ParamSpec("P")
T = TypeVar("T")


async def in_pool(pool: BoundedPool, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run *work* on a thread of the pool, and return its result.

    Raises:
        StoreUnavailableError: too many calls wait already.
    """
    pool.check()
    result: T = await asyncio.wrap_future(pool.submit(partial(work, *args, **named)))
    return result


def reads_store(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that reads the store."""
    return _on_pool(endpoint, lambda threads: threads.reads)


def writes_store(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that changes the store."""
    return _on_pool(endpoint, lambda threads: threads.writes)


def matches_store(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that matches with an index of a store."""
    return _on_pool(endpoint, lambda threads: threads.matches)


def asks_servers(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that queries the servers of a route."""
    return _on_pool(endpoint, lambda threads: threads.servers)


def redrives(endpoint: Callable[..., T]) -> Callable[..., Awaitable[T]]:
    """Decorate an endpoint that redrives dead letters."""
    return _on_pool(endpoint, lambda threads: threads.redrives)


def _on_pool(endpoint: Callable[..., T], pool_of: Callable[[StoreThreads], BoundedPool]) -> Callable[..., Awaitable[T]]:
    @wraps(endpoint)
    async def answered(**arguments: object) -> T:
        threads = next(part.threads for part in arguments.values() if isinstance(part, Parts | Subscriptions))
        return await in_pool(pool_of(threads), partial(endpoint, **arguments))

    # The framework reads the parameters' types, which the endpoint's module knows.
    answered.__signature__ = inspect.signature(endpoint, eval_str=True)  # type: ignore[attr-defined]
    return answered
