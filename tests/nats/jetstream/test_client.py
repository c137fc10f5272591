"""The border to nats-py: no exception of nats-py is unknown to it, and what crosses is one of ours."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil

import nats.errors
import pytest

import nats
from turnout.errors import ConnectionLostError, StreamError, TurnoutError
from turnout.nats.jetstream import _client
from turnout.nats.jetstream._client import translate, translated
from turnout.nats.jetstream.errors import NoRespondersError, PermissionDeniedError, RequestTimeoutError


def library_errors() -> list[type[Exception]]:
    """Every exception class of nats-py's core and of its JetStream, which it imports itself.

    Not of its services: `nats.micro` raises those only in a service's own handlers.
    """
    kinds: set[type[Exception]] = set()
    for module in pkgutil.walk_packages(nats.__path__, "nats."):
        if module.name.startswith("nats.micro"):
            continue
        for value in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(value) and issubclass(value, Exception) and value.__module__.startswith("nats"):
                kinds.add(value)
    return sorted(kinds, key=lambda kind: (kind.__module__, kind.__name__))


LIBRARY = library_errors()
CORE = [kind for kind in LIBRARY if not kind.__module__.startswith("nats.js")]


def make(kind: type[Exception]) -> Exception:
    """An instance, whatever its constructor asks for."""
    error = kind.__new__(kind)
    for name in ("subject", "reply", "sid", "sub", "key", "message", "_msg", "description"):
        setattr(error, name, "x")
    for name in ("code", "err_code", "consumer_sequence", "last_consumer_sequence", "stream_resume_sequence"):
        setattr(error, name, 1)
    return error


def test_the_walk_finds_them() -> None:
    """The walk sees the library: a rename would make it prove nothing."""
    assert len(CORE) > 40
    assert nats.errors.TimeoutError in CORE


@pytest.mark.parametrize("kind", LIBRARY, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_exception_is_translated(kind: type[Exception]) -> None:
    """Each becomes an error of turnout's tree, with the original as its cause."""
    failure = make(kind)
    with pytest.raises(TurnoutError) as caught, translated():
        raise failure

    assert caught.value.__cause__ is failure


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_none_falls_through_to_the_base(kind: type[Exception]) -> None:
    """Each class of the core has a row of its own, or an ancestor's; only the base and its deprecated twin have its."""
    base_only = {"Error", "NatsError"}
    rows = [one for one in kind.__mro__ if one in _client._TABLE]

    assert rows
    assert rows[0] is not nats.errors.Error or kind.__name__ in base_only


@pytest.mark.parametrize(
    ("failure", "kind", "builtin"),
    [
        (nats.errors.TimeoutError(), RequestTimeoutError, TimeoutError),
        (TimeoutError(), RequestTimeoutError, TimeoutError),
        (ConnectionRefusedError("no"), ConnectionLostError, ConnectionError),
        (nats.errors.NoServersError(), ConnectionLostError, ConnectionError),
        (nats.errors.NoRespondersError(), NoRespondersError, StreamError),
        (nats.errors.Error('nats: permissions violation for publish to "a.b"'), PermissionDeniedError, PermissionError),
        (nats.errors.Error("nats: maximum connections exceeded"), ConnectionLostError, ConnectionError),
    ],
)
def test_what_becomes_of_them(failure: Exception, kind: type[Exception], builtin: type[Exception]) -> None:
    """The builtin that a caller expects is there too."""
    known = translate(failure)

    assert isinstance(known, kind)
    assert isinstance(known, builtin)


@pytest.mark.parametrize("foreign", [KeyError("x"), asyncio.CancelledError()])
def test_others_pass(foreign: BaseException) -> None:
    """Exceptions that are not the connection's are passed on unchanged, above all a cancellation."""
    with pytest.raises(type(foreign)), translated():
        raise foreign
