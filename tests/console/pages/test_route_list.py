"""The page of all routes."""

from __future__ import annotations

import re
import time

from starlette.testclient import TestClient

from tests.server.conftest import Bench, route_text
from turnout.engine.counts import Counts
from turnout.errors import RunError
from turnout.server.routes.supervisor import Phase


def names(html: str) -> list[str]:
    return re.findall(r'id="route-([^"]+)"', html)


def test_routes_that_need_somebody_come_first(bench: Bench, console: TestClient) -> None:
    """With the reason; the others follow by name."""
    bench.start("alpha", "beta", "gamma")
    bench.write("delta", "name: delta\nsource: {format: natz}\n")
    for number in (1, 2, 3):
        bench.run_of("gamma", number).fail(RunError("no luck with nats://ann:secret@a"))
    bench.wait_phase("gamma", Phase.FAILED)
    bench.routes.scan()

    page = console.get("/")
    troubled = console.get("/?show=attention")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert names(page.text) == ["delta", "gamma", "alpha", "beta"]
    assert names(troubled.text) == ["delta", "gamma"]
    assert "no luck" in page.text
    assert "secret" not in page.text
    assert "Needs attention <b>2</b>" in page.text


def test_a_route_that_loses_every_record_needs_somebody(bench: Bench, console: TestClient) -> None:
    """It runs and fails at nothing; dead letters and undeliverable messages are different numbers on list and page."""
    bench.write("sealed", route_text("sealed", more="deadLetter: {topic: dead.letters}"))
    bench.start("lossy", "fine")
    lost = {"lossy": Counts(read=200, discarded=200), "sealed": Counts(read=9, dead_lettered=3, undeliverable=2)}
    for name, counts in lost.items():
        bench.state.add_counts(name, counts, time.time() - 60)
    bench.losses.check()

    troubled = console.get("/?show=attention").text
    listed, page = console.get("/").text, console.get("/routes/sealed").text

    assert names(troubled) == ["lossy"]
    assert "100% of its records failed and were discarded in the last 15 minutes" in troubled
    assert re.findall(r'data-name="(?:Dead-lettered|Undeliverable)">(?:<a[^>]*>)?(\d+)', listed) == [
        "200",
        "0",
        "0",
        "3",
        "2",
    ]
    assert re.findall(r"(?:Dead-lettered|Undeliverable), last hour</dt><dd>(?:<a[^>]*>)?(\d+)", page) == ["3", "2"]
    assert "Discarded, last hour</dt><dd>200" in console.get("/routes/lossy").text


def test_counts_of_the_last_minutes_are_rates_and_a_line(bench: Bench, console: TestClient) -> None:
    """Records read and messages sent; the line has a point for each minute of the hour."""
    bench.start("a")
    bench.run_of("a").deliver(6000, messages=12000)
    bench.recorder.flush()

    page = console.get("/").text

    (spark,) = re.findall(r'<svg class="spark".*?</svg>', page)
    assert [len(points.split()) for points in re.findall(r'points="([^"]+)"', spark)] == [60, 60]
    matched = re.search(r"now ([\d.]+)/s in and ([\d.]+)/s out", spark)
    assert matched is not None
    assert 6000 / 120 <= float(matched[1]) <= 6000 / 60 + 0.1
    assert abs(float(matched[2]) - 2 * float(matched[1])) < 1.1


def test_a_thousand_routes_are_paged_and_searched(bench: Bench, console: TestClient) -> None:
    """Fifty at a time, by name; a page behind the last one is the last one."""
    for number in range(120):
        (bench.folder / f"r{number:04}.yaml").write_text(f"name: r{number:04}\nsource: {{}}\n")
    bench.routes.scan()

    second = console.get("/?page=2").text
    last = console.get("/?page=99").text
    searched = console.get("/?q=R0007").text

    assert (names(second)[0], len(names(second))) == ("r0050", 50)
    assert (names(last)[-1], len(names(last))) == ("r0119", 20)
    assert names(searched) == ["r0007"]
    assert "Page 2 of 3" in second


def test_names_are_text_and_never_markup(bench: Bench, console: TestClient) -> None:
    """Texts of a file, a search or a failure cannot become markup."""
    bench.write("a", route_text("a", more="x: <script>alert(1)</script>"))
    bench.routes.scan()

    for path in ("/", "/?q=<script>alert(2)</script>", "/routes/a", "/routes/<script>alert(3)</script>"):
        page = console.get(path).text
        assert not re.search(r"<script>alert", page), path


def test_nothing_is_inline_and_nothing_is_from_elsewhere(bench: Bench, console: TestClient) -> None:
    """The policy allows only the server's own scripts and styles, and the pages need no others."""
    bench.start("a")
    for path in ("/", "/routes/a", "/sandbox", "/subscriptions", "/dead-letters", "/tap?route=a"):
        page = console.get(path)
        assert page.status_code == 200
        assert "'unsafe-inline'" not in page.headers["content-security-policy"]
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", page.text), path
        assert not re.search(r'(src|href|action)="(https?:)?//', page.text), path
        scripts = re.findall(r"<script[^>]*>", page.text)
        assert scripts[0] == '<script type="module" src="/static/console.js">'
        assert all(re.fullmatch(r'<script type="module" src="/static/\w+\.js">', script) for script in scripts)
    assert console.get("/static/console.js").headers["content-type"].startswith("text/javascript")


def test_routes_are_sorted_and_filtered(bench: Bench, console: TestClient) -> None:
    """By a column, again in the opposite order; by state; links keep the rest of the address."""
    bench.start("alpha", "beta", "gamma")
    for name, read in (("alpha", 5), ("beta", 50), ("gamma", 20)):
        bench.state.add_counts(name, Counts(read=read, dead_lettered=60 - read), time.time())
    bench.routes.pause("gamma", who="ann")
    bench.wait_phase("gamma", Phase.PAUSED)

    page = console.get("/?sort=in&q=a&show=all").text
    assert names(page) == ["beta", "gamma", "alpha"]
    assert names(console.get("/?sort=-in").text) == ["alpha", "gamma", "beta"]
    assert names(console.get("/?sort=-name").text) == ["gamma", "beta", "alpha"]
    assert names(console.get("/?sort=dead-lettered").text) == ["alpha", "gamma", "beta"]
    assert names(console.get("/?state=paused").text) == ["gamma"]
    assert 'aria-sort="descending"><a id="sort-in" href="?q=a&amp;sort=-in"' in page
    assert 'href="?q=a&amp;sort=name"' in page
    assert 'data-live="/fragments/routes?q=a&amp;sort=in&amp;page=1"' in page
    assert console.get("/?sort=secret").status_code == 422
    assert console.get("/?state=tired").status_code == 422
