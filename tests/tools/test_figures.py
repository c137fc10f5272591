"""Figures of the pages come from the newest results file that has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import figures


def row(case: str, size: int, cpu: float, **more: object) -> dict[str, object]:
    found = {"cpu_us": {"value": cpu, "unit": "µs"}}
    return {"case": case, "status": "measured", "size": size, "rows_per_second": 1e6 / cpu, "figures": found, **more}


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    old = [row("a: one", 10, 9.0), row("b: one", 10, 8.0)]
    new = [row("a: one", 10, 4.0), row("a: one", 100, 5.0), {"case": "b: one", "status": "failed", "reason": "x"}]
    for day, cases in (("2026-01-01", old), ("2026-02-01", new)):
        run = {"at": f"{day}T00:00:00Z", "commit": "c", "load_before": 0.1, "load_after": 0.2, "options": {}}
        content = {"machine": {"cpu": "P", "cores": 2}, "benchmarks": {"match": {**run, "cases": cases}}}
        (tmp_path / f"{day}-m.json").write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setattr(figures, "RESULTS", tmp_path)
    for cached in (figures._files, figures.rows):
        cached.cache_clear()
    yield
    for cached in (figures._files, figures.rows):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        ("match; a: one; cpu_us", "5.0"),
        ("match; a: one; rows_per_second; k", "200"),
        ("match; b: one; cpu_us", "8.0"),
        ("match; c: one; cpu_us", "–"),
        ("other; a: one; cpu_us", "–"),
    ],
)
def test_figure(mark: str, text: str) -> None:
    """The newest of the largest size, an older one where the newest file has none, and a dash for nothing."""
    page = f"takes <!-- figure: {mark} -->?<!-- /figure --> in all"

    assert figures.with_figures(page) == f"takes <!-- figure: {mark} -->{text}<!-- /figure --> in all"


def test_source() -> None:
    """Each file with cases that no newer one has is named."""
    page = figures.with_figures("<!-- source: match --><!-- /source -->")

    newest, older = "2026-02-01, 2 cores of P", "1 other cases: 2026-01-01, 2 cores of P"
    load = "commit c, load 0.1 before and 0.2 after"
    assert page == f"<!-- source: match -->{newest}, {load}; {older}, {load}<!-- /source -->"


def test_writing_twice_changes_nothing() -> None:
    """Pages are written from themselves."""
    page = (
        "<!-- pivot: match; one.cpu_us --><!-- /pivot --> <!-- plot: t; match; a: one; size; cpu_us --><!-- /plot -->"
    )
    once = figures.with_figures(page)

    assert "| a | 100 | 5.0 |" in once
    assert 'x-axis "size" ["10", "100"]\n' in once
    assert "line [4, 5]" in once
    assert figures.with_figures(once) == once
