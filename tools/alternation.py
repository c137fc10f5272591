"""Compare the speed of this checkout with that of another one: ``python -m tools.alternation ../before``.

Both get the same records in turns, so that other work on the machine disturbs both alike, and no record twice. A line
has the median of *this over the other* in processor time, its quartiles, and the time per record of both: above 1 this
checkout is slower. ``--bench NAME`` runs a benchmark of both suites instead, in turns, and compares the cases that have
the same name and size.

Both checkouts run in this environment, and must have its packages.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median, quantiles
from typing import Any

ROOT = Path(__file__).parents[1]
_WORKER = Path(__file__).with_name("alternation_worker.py")
_RECORDS = 10_000
_MESSAGES = 2_000
_SINGLE_MESSAGES = 1_000
_SAMPLE = 1_000
_MODES = (("ids", 2_000), ("ids", 20), ("objects", 2_000), ("columns", 2_000), ("one by one", 1))


@dataclass(frozen=True)
class Comparison:
    """A case that both checkouts have run.

    Attributes:
        case: its name.
        ratios: time of this checkout over that of the other, for each round.
        own_us: median time of a record here, in µs.
        other_us: the same of the other checkout.
    """

    case: str
    ratios: tuple[float, ...]
    own_us: float
    other_us: float

    def line(self) -> str:
        """Return the comparison as a line of the table."""
        low, middle, high = quantiles(self.ratios, n=4) if len(self.ratios) > 1 else self.ratios * 3
        return f"{middle:6.3f}  {low:6.3f} {high:6.3f}  {self.own_us:10.2f} {self.other_us:10.2f}  {self.case}"


class Worker:
    """Process that measures with one checkout."""

    def __init__(self, checkout: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_WORKER)],
            cwd=checkout,
            env=_environment(checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, request: str) -> str:
        """Return the answer to a request.

        Raises:
            ChildProcessError: the worker has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise ChildProcessError(f"the worker of {self._process.args!r} ended at the request {request!r}")
        return answer

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _environment(checkout: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{checkout / 'src'}{os.pathsep}{checkout}"}


def compared(case: dict[str, Any], workers: tuple[Worker, Worker], folder: Path, rounds: int) -> Comparison:
    """Run a case in both workers, in turns. The first round is not counted: it fills caches."""
    file = folder / "case.pickle"
    file.write_bytes(pickle.dumps(case))
    for worker in workers:
        worker.ask(f"open {file}")
    taken: list[tuple[float, float]] = []
    for part in range(rounds + 1):
        order = (0, 1) if part % 2 else (1, 0)
        seconds = {side: float(workers[side].ask(f"round {part}")) for side in order}
        taken.append((seconds[0], seconds[1]))
    own, other = zip(*taken[1:], strict=True)
    ratios = tuple(mine / its for mine, its in taken[1:])
    size = case["size"] / 1e6
    return Comparison(case["name"], ratios, median(own) / size, median(other) / size)


def chain_cases(folder: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the chains of `benchmarks.transforms`, all over the same flights."""
    import pyarrow as pa
    from benchmarks._flights import batches, route, supply
    from benchmarks.transforms import ALONE, FORMATS, SIX, WITHOUT_SCHEMA_FAILS

    flights, files = supply(), []
    for part in range(rounds + 1):
        (batch,) = batches(flights.take(_RECORDS), _RECORDS)
        files.append(str(folder / f"flights.{part}.arrow"))
        with pa.OSFile(files[-1], "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
    for form, value in FORMATS.items():
        alone = {name: [one] for name, one in ALONE.items() if form == "typed" or name not in WITHOUT_SCHEMA_FAILS}
        chains = {"no transforms": [], **alone, "six with predicates": SIX, "the route's six": route()["transforms"]}
        for name, transforms in chains.items():
            yield {
                "kind": "chain",
                "name": f"transforms: {form}: {name}",
                "value": value,
                "transforms": transforms,
                "files": files,
                "size": _RECORDS,
            }


def match_cases(folder: Path, rounds: int, wanted: str) -> Iterator[dict[str, Any]]:
    """Yield each workload of `benchmarks.match` in every way to match, if one of these has *wanted* in its name.

    Each way gets messages of its own.
    """
    from benchmarks.harness import Options
    from benchmarks.match import workloads

    for workload in workloads(Options()):
        name = f"match: {workload.name} {workload.size:,}"
        names = [f"{name}: {mode}{f' by {batch:,}' if batch > 1 else ''}" for mode, batch in _MODES]
        if not any(wanted in one for one in names):
            continue
        written = [
            (one.id, tuple(one.destinations), _tree(one.condition)) for one in workload.subscriptions(workload.size)
        ]
        count = _SAMPLE + len(_MODES) * (rounds + 1) * _MESSAGES
        file = folder / f"{workload.name}.{workload.size}.pickle"
        file.write_bytes(pickle.dumps((written, list(islice(workload.messages(workload.size), count)))))
        for at, (mode, batch) in enumerate(_MODES):
            yield {
                "kind": "match",
                "name": names[at],
                "file": str(file),
                "mode": mode,
                "batch": batch,
                "begin": _SAMPLE + at * (rounds + 1) * _MESSAGES,
                "size": _SINGLE_MESSAGES if batch == 1 else _MESSAGES,
            }
        file.unlink()


def _tree(condition: Any) -> tuple[Any, ...]:
    """Return a condition as the name of its class and its arguments, which every version reads."""
    kind = type(condition).__name__
    match kind:
        case "Kiwi":
            one = condition
            return kind, one.key, one.pattern, one.partial, one.ignore_case, one.negated
        case "Compare":
            return kind, condition.key, str(condition.op.value), condition.number, condition.negated
        case "Group":
            return kind, condition.logic.value, tuple(map(_tree, condition.children)), condition.negated
    raise TypeError(f"expected a pattern, a comparison or a group, found {kind}")


def bench(name: str, checkouts: tuple[Path, Path], rounds: int, options: list[str]) -> Iterator[Comparison]:
    """Run a benchmark of both suites in turns, and yield the cases of the same name and size."""
    speeds: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for part in range(rounds):
        for side in (0, 1) if part % 2 else (1, 0):
            command = [sys.executable, "-m", "turnout", "bench", name, "--json", *options]
            checkout = checkouts[side]
            run = subprocess.run(
                command, cwd=checkout, env=_environment(checkout), capture_output=True, text=True, check=False
            )
            if run.returncode:
                sys.exit(f"{' '.join(command)} in {checkout} ended with {run.returncode}: {run.stderr[-500:]}")
            for row in _rows(json.loads(run.stdout)):
                if speed := row.get("rows_per_second"):
                    speeds[side].setdefault(f"{name}: {row['case']} {row['size']:,}", []).append(speed)
    for case, own in speeds[0].items():
        if (other := speeds[1].get(case)) and len(other) == len(own):
            ratios = tuple(its / mine for mine, its in zip(own, other, strict=True))
            yield Comparison(case, ratios, 1e6 / median(own), 1e6 / median(other))


def _rows(document: Any) -> list[dict[str, Any]]:
    """Return the results in what a suite has printed, with or without a header."""
    rows: list[dict[str, Any]] = document["results"] if isinstance(document, dict) else document
    return rows


def main() -> None:
    """Print the comparisons, the slower ones marked by their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, help="the other checkout")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--rounds", type=int, default=12, help="rounds that are counted (12)")
    parser.add_argument("--bench", action="append", default=[], help="a benchmark of the suites; may be repeated")
    parser.add_argument("--option", action="append", default=[], help="option of the benchmark: --option=--size=1000")
    given = parser.parse_args()
    checkouts = ROOT, given.other.resolve()
    print(" ratio     low   high     here µs   other µs  case", flush=True)
    for name in given.bench:
        for comparison in bench(name, checkouts, given.rounds, given.option):
            if given.case in comparison.case:
                print(comparison.line(), flush=True)
    if given.bench:
        return
    workers = Worker(checkouts[0]), Worker(checkouts[1])
    with tempfile.TemporaryDirectory(prefix="turnout-alternation-") as name:
        folder = Path(name)
        for case in chain(chain_cases(folder, given.rounds), match_cases(folder, given.rounds, given.case)):
            if given.case in case["name"]:
                print(compared(case, workers, folder, given.rounds).line(), flush=True)
    for worker in workers:
        worker.close()


if __name__ == "__main__":
    main()
