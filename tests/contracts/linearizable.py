"""Contract of matching beside changes: an answer contains what was stored before it was asked for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lifetime:
    """Times of a subscription's changes, in seconds: when each call was made, and when it returned."""

    create_returned: float = float("inf")
    delete_called: float = float("inf")
    delete_returned: float = float("inf")


@dataclass(slots=True)
class _Answer:
    called: float
    returned: float
    ids: frozenset[str]
    revision: int


@dataclass(slots=True)
class _History:
    lifetimes: dict[str, _Lifetime] = field(default_factory=dict)
    answers: list[_Answer] = field(default_factory=list)


def check_linearizable(
    create: Callable[[str], object],
    delete: Callable[[str], object],
    match: Callable[[], tuple[set[str], int]],
    *,
    rounds: int = 12,
    writers: int = 3,
    readers: int = 6,
) -> None:
    """Change and match in several threads at once, and check each answer against the order of the calls.

    Args:
        create: stores a subscription with this id that matches the message of *match*.
        delete: deletes it.
        match: the ids that match, and the revision of the answer.
        rounds: of each writer: create, 8 matches at once, delete, 8 matches at once.
        writers: threads that change.
        readers: threads that only match.
    """
    history, going = _History(), threading.Event()

    def ask() -> None:
        called = time.monotonic()
        ids, revision = match()
        history.answers.append(_Answer(called, time.monotonic(), frozenset(ids), revision))

    def write(writer: int) -> None:
        with ThreadPoolExecutor(8) as pool:
            for number in range(rounds):
                id_ = f"{writer}-{number}"
                lifetime = history.lifetimes[id_] = _Lifetime()
                create(id_)
                lifetime.create_returned = time.monotonic()
                for asked in [pool.submit(ask) for _ in range(8)]:
                    asked.result(60)
                lifetime.delete_called = time.monotonic()
                delete(id_)
                lifetime.delete_returned = time.monotonic()
                for asked in [pool.submit(ask) for _ in range(8)]:
                    asked.result(60)

    def read(seed: int) -> None:
        pauses = random.Random(seed)
        while not going.is_set():
            ask()
            going.wait(pauses.random() / 200)

    with ThreadPoolExecutor(writers + readers) as pool:
        reading = [pool.submit(read, seed) for seed in range(readers)]
        try:
            for written in [pool.submit(write, writer) for writer in range(writers)]:
                written.result(120)
        finally:
            going.set()
        for task in reading:
            task.result(60)

    assert [problem for answer in history.answers for problem in _problems(answer, history.lifetimes)] == []
    at_revision: dict[int, frozenset[str]] = {}
    for answer in history.answers:
        assert at_revision.setdefault(answer.revision, answer.ids) == answer.ids, f"revision {answer.revision}"


def _problems(answer: _Answer, lifetimes: dict[str, _Lifetime]) -> list[str]:
    missing = [
        f"{id_} was stored before the call and is missing"
        for id_, lifetime in lifetimes.items()
        if lifetime.create_returned < answer.called
        and answer.returned < lifetime.delete_called
        and id_ not in answer.ids
    ]
    deleted = [
        f"{id_} was deleted before the call and matches"
        for id_ in answer.ids
        if lifetimes[id_].delete_returned < answer.called
    ]
    return missing + deleted
