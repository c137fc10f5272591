"""Name of the person or program that changes subscriptions, for the stores' audit log."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Actor(threading.local):
    """Actor of the call on this thread; see `turnout.subscriptions.deadline` for why it is of the thread."""

    name: str = ""


_actor = _Actor()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Record *name* with all changes of stores inside of the block.

    >>> with acting_as("token depot"):
    ...     current_actor()
    ...
    'token depot'
    >>> current_actor()
    ''
    """
    before, _actor.name = _actor.name, name
    try:
        yield
    finally:
        _actor.name = before


def current_actor() -> str:
    """Return the actor of this thread; "" where none is known."""
    return _actor.name
