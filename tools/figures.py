"""Figures of the documentation, which come from the results files of ``turnout bench … --save``.

A page has marks, between which `with_figures` writes what the newest file says that measured the case:

- ``<!-- figure: BENCHMARK; CASE; FIGURE -->…<!-- /figure -->``, one figure; with ``; k`` thousands of it.
- ``<!-- table: BENCHMARK; FIGURE, … -->…<!-- /table -->``, a row for each case, or for those of ``; PATTERN``.
- ``<!-- pivot: BENCHMARK; KIND.FIGURE, … -->…<!-- /pivot -->``, a row for all cases ``NAME: KIND`` of a name.
- ``<!-- scale: RATE -->…<!-- /scale -->``, the extrapolation of `tools.scale_out` to so many records a second.
- ``<!-- plot: TITLE; BENCHMARK; CASE, …; X; Y -->…<!-- /plot -->``, a line for each pattern of cases
  and each figure of ``Y, …``.

What was not measured is a dash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"

_MARK = re.compile(r"(<!-- (figure|table|pivot|plot|scale|source): (.*?) -->).*?(<!-- /\2 -->)", re.DOTALL)
_NOT_MEASURED = "–"
_UNITS = {"us": "µs", "mb": "MB", "percent": "%", "seconds": "s"}

Row = dict[str, Any]


def with_figures(page: str) -> str:
    """Return a page with the figures of the results files."""
    return _MARK.sub(lambda mark: mark[1] + _MADE[mark[2]](*_parts(mark[3])) + mark[4], page)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";")]


@cache
def _files() -> tuple[dict[str, Any], ...]:
    """The results files, the newest first."""
    paths = sorted(RESULTS.glob("*.json"), reverse=True)
    return tuple(json.loads(path.read_text(encoding="utf-8")) | {"name": path.name} for path in paths)


@cache
def rows(benchmark: str) -> tuple[Row, ...]:
    """Return the measured cases of a benchmark, each from the newest file that has it; sizes of a case are rows."""
    found = [row for *_, own in _runs(benchmark) for row in own]
    return tuple({(row["case"], row["size"]): row for row in found}.values())


def _runs(benchmark: str) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[Row]]]:
    """Yield each file, the newest first, its run of a benchmark, and the measured cases that no newer file has."""
    known: set[str] = set()
    for file in _files():
        run = file["benchmarks"].get(benchmark, {})
        measured = [row for row in run.get("cases", ()) if row["status"] == "measured"]
        own = [row for row in measured if row["case"] not in known]
        if own:
            yield file, run, own
        known |= {row["case"] for row in own}


def value_of(row: Row, name: str) -> Any:
    """Return a field or a figure of a row, None where it has none."""
    return row[name] if name in row else row.get("figures", {}).get(name, {}).get("value")


def written(value: Any) -> str:
    """Return a value as it stands in a page, with at least two digits that count.

    >>> [written(value) for value in (12345.6, 99.96, 4.5678, 0.01234, "new", None)]
    ['12,346', '100', '4.6', '0.012', 'new', '–']
    """
    if value is None:
        return _NOT_MEASURED
    if isinstance(value, str):
        return value
    if isinstance(value, int) or abs(value) >= 99.95 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 0.95 else f"{value:.2g}"


def _figure(benchmark: str, case: str, name: str, scale: str = "") -> str:
    of_case = [row for row in rows(benchmark) if row["case"] == case]
    value = value_of(max(of_case, key=lambda row: row["size"]), name) if of_case else None
    return written(value / 1_000 if scale == "k" and value is not None else value)


def _table(benchmark: str, names: str, cases: str = ".*") -> str:
    columns = [name.strip() for name in names.split(",")]
    chosen = [row for row in rows(benchmark) if re.fullmatch(cases, row["case"])]
    lines = [[row["case"], *(written(value_of(row, name)) for name in columns)] for row in chosen]
    return _lines(["case", *map(_heading, columns)], lines)


def _pivot(benchmark: str, names: str) -> str:
    columns = [tuple(name.strip().rpartition(".")[::2]) for name in names.split(",")]
    groups: dict[tuple[str, int], dict[str, Row]] = {}
    for row in rows(benchmark):
        name, _, kind = row["case"].rpartition(": ")
        groups.setdefault((name, row["size"]), {})[kind] = row
    kinds = {kind for kind, _ in columns}
    lines = [
        [name, written(size), *(written(value_of(own.get(kind, {}), figure)) for kind, figure in columns)]
        for (name, size), own in groups.items()
        if own.keys() & kinds
    ]
    return _lines(["", "size", *(f"{kind}, {_heading(figure)}" for kind, figure in columns)], lines)


def _plot(title: str, benchmark: str, cases: str, x: str, y: str) -> str:
    """A chart that GitHub and the site draw."""
    figures = [name.strip() for name in y.split(",")]
    series = [
        sorted(
            (value_of(row, x), value_of(row, name))
            for row in rows(benchmark)
            if re.fullmatch(case.strip(), row["case"]) and value_of(row, x) is not None
        )
        for case in cases.split(",")
        for name in figures
    ]
    # A line needs two points.
    labels = ", ".join(f'"{written(at)}"' for at, _ in max(series, key=len))
    lines = [f"    line [{', '.join(f'{value:.4g}' for _, value in points)}]" for points in series if len(points) > 1]
    chart = [
        f'    title "{title}"',
        f'    x-axis "{x}" [{labels}]',
        f'    y-axis "{", ".join(map(_heading, figures))}"',
        *lines,
    ]
    return "\n\n```mermaid\nxychart-beta\n" + "\n".join(chart) + "\n```\n\n" if lines else "\n"


def _scale(rate: str) -> str:
    from tools.scale_out import page_part

    return page_part(float(rate))


def _source(benchmark: str) -> str:
    """The machine and the moment of each file with cases of a benchmark that no newer file has."""
    sources: list[str] = []
    for file, run, own in _runs(benchmark):
        machine = file["machine"]
        others = f"{len({row['case'] for row in own})} other cases: " if sources else ""
        given = f", {json.dumps(run['options'])}" if run["options"] else ""
        sources.append(
            f"{others}{run['at'][:10]}, {machine['cores']} cores of {machine['cpu']}, commit {run['commit']}, load "
            f"{run['load_before']} before and {run['load_after']} after{given}"
        )
    return "; ".join(sources) or _NOT_MEASURED


def _heading(name: str) -> str:
    """A figure's name with its unit.

    >>> [_heading(name) for name in ("its_cpu_us", "rows_per_second", "threads")]
    ['its cpu µs', 'rows/s', 'threads']
    """
    words = name.removesuffix("_per_second").split("_")
    words[-1] = _UNITS.get(words[-1], words[-1])
    return " ".join(words) + ("/s" if name.endswith("_per_second") else "")


def _lines(heading: list[str], lines: Iterable[list[str]]) -> str:
    rule = ["---", *("--:" for _ in heading[1:])]
    return "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in (heading, rule, *lines)) + "\n\n"


_MADE: dict[str, Callable[..., str]] = {
    "figure": _figure, "table": _table, "pivot": _pivot, "plot": _plot, "scale": _scale, "source": _source,
}  # fmt: skip
