"""``turnout bench NAME…``: run benchmarks."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from turnout.base.files import bundled
from turnout.base.untrusted import JsonObject
from turnout.cli.exits import FAILED
from turnout.errors import ConfigError, MissingExtraError, Mistake

_ALL = "all"
_BUDGET_SECONDS = 700
_COLUMNS = ("case", "size", "records", "batch", "threads", "rows_per_second", "baseline", "ratio")


def bench(
    names: Annotated[list[str], typer.Argument(help="Which ones; 'list' names them, 'all' runs all.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    size: Annotated[int | None, typer.Option(help="Records or items; the benchmark's own if not given.")] = None,
    quick: Annotated[bool, typer.Option(help="A small run, to see that it works.")] = False,
    case: Annotated[list[str] | None, typer.Option(help="Only cases whose name contains this.")] = None,
    rules: Annotated[
        Path | None, typer.Option(help="match: a folder of Sigma's rules to measure with.", exists=True)
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(min=0.05, help="nats, kafka: how long to measure each latency; seconds if not given."),
    ] = None,
    save: Annotated[bool, typer.Option(help="Write benchmarks/results/DATE-MACHINE.json.")] = False,
    budget: Annotated[
        int | None, typer.Option(help=f"Seconds for all of it; {_BUDGET_SECONDS} for 'all' if not given.")
    ] = None,
) -> None:
    """Measure turnout on this machine, and a baseline in the same minutes."""
    root = bundled("benchmarks").parent
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    harness = _imported("harness")
    known = harness.names()
    if names == ["list"]:
        typer.echo(json.dumps(known) if as_json else "\n".join(known))
        return
    if budget is None and _ALL in names:
        budget = _BUDGET_SECONDS
    options = harness.Options(size=size, quick=quick, cases=tuple(case or ()), rules=rules, minutes=minutes)
    run = _Run(_chosen(names, known), options, as_json=as_json, save=save, budget=budget)
    if not run.measured():
        raise typer.Exit(FAILED)


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as missing:
        raise MissingExtraError("all", missing.name or "a module") from missing


def _chosen(names: Iterable[str], known: list[str]) -> list[str]:
    """Return the benchmarks to run, in the order of their importance where it is all."""
    wrong = [name for name in names if name not in (*known, _ALL)]
    if wrong:
        raise ConfigError([Mistake("bench", f"no benchmark is named {wrong[0]!r}; there are {', '.join(known)}")])
    if _ALL in names:
        shares = _imported("_runner").SHARES
        return sorted(known, key=list(shares).index)
    return list(dict.fromkeys(names))


@dataclass(frozen=True)
class _Run:
    """Benchmarks to run one after the other."""

    names: list[str]
    options: object
    as_json: bool
    save: bool
    budget: int | None

    def measured(self) -> bool:
        """Run, print and save; return whether nothing failed."""
        runner, results = _imported("_runner"), _imported("_results")
        file = results.ResultsFile.of_today() if self.save else None
        every: list[JsonObject] = []
        begun, due = time.monotonic(), 0.0
        for name in self.names:
            # Time that one does not need is the next one's.
            due += self._share(name, runner.SHARES)
            remaining = None if self.budget is None else begun + due - time.monotonic()
            rows = runner.rows(name, self.options, remaining)
            found = [self._reported(name, row) for row in (file.recorded(name, self.options, rows) if file else rows)]
            every += [{"benchmark": name, **_flat(row)} for row in found]
            if not self.as_json:
                _print(name, found)
        if self.as_json:
            answer = {"benchmark": ",".join(self.names), "machine": results.machine() | {"at": results.now()}}
            sys.stdout.write(json.dumps({**answer, "results": every}, indent=1) + "\n")
        if file:
            typer.echo(f"saved {file.path}", err=True)
        return all(row["status"] != "failed" for row in every)

    def _share(self, name: str, shares: dict[str, int]) -> float:
        total = sum(shares[other] for other in self.names)
        return (self.budget or 0) * (shares[name] / total if total else 1 / len(self.names))

    def _reported(self, name: str, row: JsonObject) -> JsonObject:
        """Print each result immediately: the whole takes minutes."""
        what = (
            f"{row['rows_per_second']:,.0f}/s" if row["status"] == "measured" else f"{row['status']}: {row['reason']}"
        )
        typer.echo(f"{name}: {row['case']}: {what}", err=True)
        return row


def _flat(row: JsonObject) -> JsonObject:
    figures = {name: figure["value"] for name, figure in row.get("figures", {}).items()}
    return {**{name: value for name, value in row.items() if name != "figures"}, **figures}


def _print(name: str, rows: list[JsonObject]) -> None:
    from rich.console import Console
    from rich.table import Table

    flat = [_flat(row) for row in rows if row["status"] == "measured"]
    extras = dict.fromkeys(figure for row in rows for figure in row.get("figures", {}))
    table = Table(title=f"turnout bench {name}")
    for heading in (*_COLUMNS, *extras):
        left_aligned = heading in ("case", "baseline", "records")
        table.add_column(heading, justify="left" if left_aligned else "right", no_wrap=heading == "case")
    for row in flat:
        table.add_row(*(_cell(row.get(heading)) for heading in (*_COLUMNS, *extras)))
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    return "" if value is None else str(value)
