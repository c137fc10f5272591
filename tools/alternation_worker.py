"""One side of `tools.alternation`: measures cases with the turnout of the working directory, on request.

Requests are lines of standard input: ``open FILE`` loads a pickled case, ``round N`` prints the processor seconds of
its N-th part. It imports only what both sides of a comparison have, and only from the working directory.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BATCH = 5_000
"""Records that a chain gets at a time, as in a task."""


def chain(case: dict[str, Any]) -> Callable[[int], float]:
    """Return the round of a chain of transforms: JSON in, JSON out."""
    import pyarrow as pa
    from benchmarks._chain import BatchChain

    batches = BatchChain(case["value"], case["transforms"])

    def measure(part: int) -> float:
        with pa.ipc.open_file(case["files"][part]) as file:
            given = file.read_all().combine_chunks().to_batches(max_chunksize=BATCH)
        return _seconds(lambda: [batches.run(batch) for batch in given])

    return measure


def condition(tree: tuple[Any, ...]) -> Any:
    """Return the condition of the name of its class and its arguments."""
    from turnout import conditions

    kind, *arguments = tree
    children = [tuple(map(condition, item)) if isinstance(item, tuple) else item for item in arguments]
    return getattr(conditions, kind)(*children)


class _Matchers:
    """Matcher and index of the last set of subscriptions: several cases share them."""

    def __init__(self) -> None:
        self.file = ""

    def read(self, file: str) -> None:
        from turnout.subscriptions import Matcher, Subscription
        from turnout.subscriptions.index import Index

        if self.file == file:
            return
        written, self.messages = pickle.loads(Path(file).read_bytes())
        subscriptions = [Subscription(to, condition(tree), id=id_) for id_, to, tree in written]
        sample = self.messages[:1_000]
        self.matcher = Matcher(subscriptions, sample=sample)
        self.index = Index.of(subscriptions, sample=sample)
        self.file = file


_matchers = _Matchers()


def match(case: dict[str, Any]) -> Callable[[int], float]:
    """Return the round of a way to match."""
    from turnout.subscriptions.index import Column

    _matchers.read(case["file"])
    matcher, index, messages = _matchers.matcher, _matchers.index, _matchers.messages
    batch, size = case["batch"], case["size"]

    def ids(part: Sequence[dict[str, str]]) -> object:
        return matcher.match_many(part).ids()

    def objects(part: Sequence[dict[str, str]]) -> object:
        return list(map(list, matcher.match_many(part)))

    def columns(part: Sequence[dict[str, str]]) -> object:
        return index.match({key: Column([one.get(key) for one in part]) for key in index.keys}, len(part))

    def single(part: Sequence[dict[str, str]]) -> object:
        return matcher.match(part[0])

    run = {"ids": ids, "objects": objects, "columns": columns, "one by one": single}[case["mode"]]

    def measure(part: int) -> float:
        begin = case["begin"] + part * size
        parts = [messages[at : at + batch] for at in range(begin, begin + size, batch)]
        return _seconds(lambda: list(map(run, parts)))

    return measure


def _seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.freeze()
    gc.disable()
    begun = time.process_time()
    work()
    taken = time.process_time() - begun
    gc.enable()
    gc.unfreeze()
    return taken


def main() -> None:
    """Answer requests until standard input ends."""
    import turnout

    own = Path(turnout.__file__ or "").resolve()
    if not own.is_relative_to(Path.cwd().resolve()):
        sys.exit(f"expected turnout of {Path.cwd()}, found {own}: set PYTHONPATH")
    measure: Callable[[int], float] = float
    for line in sys.stdin:
        request, _, argument = line.strip().partition(" ")
        if request == "open":
            case = pickle.loads(Path(argument).read_bytes())
            measure = {"chain": chain, "match": match}[case["kind"]](case)
            print("ready", flush=True)
        else:
            print(measure(int(argument)), flush=True)


if __name__ == "__main__":
    main()
