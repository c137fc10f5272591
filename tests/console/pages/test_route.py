"""The page of one route."""

from __future__ import annotations

import re
import time
from pathlib import Path

from starlette.testclient import TestClient

from tests.console.scene import ORDERS, orders_text
from tests.server.conftest import Bench, route_text
from turnout.console.charts import RecentTraffic, difference, steps_of
from turnout.embedded import NatsServer
from turnout.engine.counts import Counts, Flow
from turnout.history.diff.report import report_lines
from turnout.routes import Route
from turnout.server.routes.state import MinutePace
from turnout.server.routes.supervisor import Phase
from turnout.server.serving import RouteServer


def test_the_picture_has_each_step_and_what_leaves_it() -> None:
    """Counts are those of the stages; failures at the sink branch off before it, the others continue."""
    route = Route.parse(orders_text("nats://127.0.0.1:1", "memory://"))
    taken = {
        "source": 100, "key": 100, "value": 98, "no-tests": 97, "town": 86, "amount": 86, "mapping": 83, "match": 78,
        "sink": 58, "deadLetter": 8,
    }  # fmt: skip
    failed = {"key": 2, "value": 1, "no-tests": 1, "amount": 3, "sink": 1}
    total = Counts(
        read=100, filtered=10, lost_by_weight=5, unmatched=20, delivered=57, dead_lettered=8,
        flow=Flow(taken, failed),
    )  # fmt: skip
    steps = steps_of(route, RecentTraffic(total, total, 60.0, [], []))

    assert [(step.name, step.onward, round(step.rate * 60)) for step in steps] == [
        ("source", 100, 100),
        ("decode", 97, 97),
        ("no-tests", 86, 86),
        ("town", 86, 86),
        ("amount", 83, 83),
        ("mapping", 78, 78),
        ("match", 57, 57),
        ("sink", 0, 0),
    ]
    leaving = [(step.name, branch.kind, branch.name, branch.count) for step in steps for branch in step.branches]
    assert leaving == [
        ("decode", "failed", "dead letters", 3),
        ("no-tests", "filtered", "filtered", 10),
        ("no-tests", "failed", "dead letters", 1),
        ("amount", "failed", "dead letters", 3),
        ("mapping", "lost", "lost by weight", 5),
        ("match", "unmatched", "unmatched", 20),
        ("match", "failed", "not sent", 1),
    ]
    assert total.read - sum(count for *_, count in leaving) == total.delivered


def test_a_stage_that_was_added_has_counted_nothing_before() -> None:
    """For a time with another version of the route the picture shows the known counts."""
    route = Route.parse(orders_text("nats://127.0.0.1:1", "memory://"))
    total = Counts(read=10, delivered=10, flow=Flow({"source": 10, "key": 10, "value": 10, "sink": 10}))

    steps = steps_of(route, RecentTraffic(total, Counts(), 60.0, [], []))

    assert [step.onward for step in steps] == [10, 0, 0, 0, 0, 0, 10, 0]
    assert all(branch.count >= 0 for step in steps for branch in step.branches)


def test_the_page_shows_flow_plots_file_and_what_can_be_done(shown: TestClient) -> None:
    """Widths follow the counts; forms go to the REST interface."""
    page = shown.get("/routes/orders").text

    widths = [float(height) for height in re.findall(r'class="trunk"[^>]*height="([\d.]+)"', page)]
    assert widths == sorted(widths, reverse=True)
    assert widths[0] > widths[-1] > 0
    charts = dict(
        re.findall(r"<figure [^>]*><figcaption>([\w, 0-9-]*?) <.*?</figcaption>(.*?)</figure>", page, re.DOTALL)
    )
    assert len(charts) == 7
    assert all('data-value="' in drawn for drawn in charts.values())
    slowest = re.findall(r"([\w-]+) [\d.,]+ (?:µs|ms|s|min) last", charts["Time of each stage for 1,000 records"])
    assert {"town", "map", "match", "sink"} & {*slowest}
    assert '<th scope="col" class="n">p99</th>' in charts["From publishing to acknowledged"]
    assert list(re.findall(r'action="/v1/routes/orders/(\w+)"', page)) == [
        "pause", "resume", "restart", "offsets"
    ]  # fmt: skip
    assert "no-tests" in page


def test_each_tab_is_an_address_of_its_own(shown: TestClient) -> None:
    """Those of parts that the route has; each names itself as the current one."""
    tabs = dict(re.findall(r'<a id="tab-(\w+)" href="([^"]+)"', shown.get("/routes/orders").text))

    assert [*tabs] == ["overview", "records", "letters", "subscriptions", "file", "revisions"]
    for tab, address in tabs.items():
        assert f'<a id="tab-{tab}" href="{address}" aria-current="page">' in shown.get(address).text
    assert "Orders of all shops" in shown.get(tabs["file"]).text
    assert [*re.findall(r'<a id="tab-(\w+)"', shown.get("/routes/archive").text)] == [
        "overview", "records", "file", "revisions"
    ]  # fmt: skip


def test_the_last_records_are_told_with_their_outcome(shown: TestClient) -> None:
    """The newest first, each with its messages; what was dropped on the way has no value to show."""
    page = shown.get("/routes/orders/records").text
    rows = re.findall(r'<tr><th scope="row"><a href="[^"]+">(ORDERS:\d+)</a></th>(.*?)</tr>', page)

    assert [position for position, _ in rows] == [f"ORDERS:{number}" for number in range(ORDERS, ORDERS - 25, -1)]
    outcomes = {position: re.findall(r'class="outcome ([\w-]+)"', cells)[0] for position, cells in rows}
    assert outcomes["ORDERS:399"] == "delivered"
    dead = next(cells for position, cells in rows if outcomes[position] == "dead_lettered")
    assert "<code>dead.orders</code>" in dead
    assert '<code class="clamp">–</code>' in dead
    assert shown.get("/routes/stock/records").status_code == 409


def test_a_source_that_is_away_is_told_on_the_tab_of_records(bench: Bench, console: TestClient) -> None:
    """The page has its form all the same."""
    bench.start("a")
    page = console.get("/routes/a/records")

    assert page.status_code == 200
    assert 'class="problem"' in page.text
    assert 'data-tap="/v1/tap/a"' in page.text


def test_charts_without_a_value_are_named_and_not_drawn(bench: Bench, console: TestClient) -> None:
    """A route that has done nothing has no chart; one with records has no chart of errors."""
    bench.start("a")
    nothing = console.get("/routes/a").text
    bench.state.add_counts("a", Counts(read=60, messages=60), int(time.time()) // 60 * 60 - 120)
    some = console.get("/routes/a").text

    assert "<figure" not in nothing
    assert "Nothing in this time, or 0 throughout: Records in, messages out; Errors;" in nothing
    assert re.findall(r"<figcaption>([\w, ]+?) <", some) == ["Records in, messages out"]
    assert "0 throughout: Errors;" in some


def test_mistakes_stand_beside_their_lines(shown: TestClient) -> None:
    """Each at the line of the file that it is about; the overview and the list begin with the line."""
    overview = shown.get("/routes/stock").text
    assert re.findall(r'<a href="/routes/stock/file#line-(\d)">Line \d</a>: (\S+):', overview) == [
        ("4", "unmatchd"), ("5", "trigger.latency")
    ]  # fmt: skip
    assert overview.index("Line 4") < overview.index('class="facts"')
    assert "<strong>line 4: unmatchd: unknown name" in shown.get("/").text
    page = shown.get("/routes/stock/file").text
    assert 'id="line-4"' in page
    rows = re.findall(
        r'<tr id="line-\d" class="wrong"><td class="number">(\d+)</td><td><code>(.*?)</code>(.*?)</td>', page
    )

    assert [(number, text.partition(":")[0]) for number, text, _ in rows] == [("4", "unmatchd"), ("5", "trigger")]
    assert "did you mean" in rows[0][2]


def test_revisions_are_told_with_their_difference(bench: Bench, console: TestClient) -> None:
    """Added and removed lines between a version and the one before it."""
    bench.start("a")
    bench.write("a", route_text("a", more="value: {format: json}"))
    bench.routes.scan()

    page = console.get("/routes/a/revisions").text

    assert '<span class="added">+value: {format: json}</span>' in page
    assert len(re.findall(r'<details id="revision-', page)) == 2
    assert [line.kind for line in difference("a\n", "b\n")] == ["place", "removed", "added"]


def test_a_reset_tells_what_it_reads_again(shown: TestClient) -> None:
    """It also shows the skipped sequences, by the stream's own limits; an invalid position is reported first."""
    ask = lambda to: shown.get("/fragments/routes/orders/replay", params={"to": to})  # noqa: E731

    assert "<strong>360 sequences are read again</strong>" in ask("earliest").text
    assert "<strong>61 sequences are read again</strong> (300 to 360)" in ask("300").text
    assert "40 sequences are passed over" in ask("latest").text
    assert ask("361").text.count("nothing is read again and nothing is passed over") == 1
    assert ask("yesterday").status_code == 422


def test_pace_is_kept_minute_by_minute(bench: Bench) -> None:
    """Micro-batches are added up, and of what a route was behind the most is kept."""
    first = int(time.time()) // 60 * 60
    second = first + 60
    bench.state.add_pace("a", MinutePace(first, 2, 1.0, 10, None))
    bench.state.add_pace("a", MinutePace(first, 1, 0.5, 5, 2.5))
    bench.state.add_pace("a", MinutePace(second, 1, 0.5))

    assert bench.state.pace("a") == [MinutePace(first, 3, 1.5, 10, 2.5), MinutePace(second, 1, 0.5)]
    assert bench.state.pace("a", since=first + 40) == [MinutePace(second, 1, 0.5)]


def test_a_lag_that_a_look_finds_is_kept(bench: Bench) -> None:
    """With the time of the micro-batches of the same minute."""
    from turnout.runtime.preflight import Lag

    bench.start("a")
    bench.recorder.lagged("a", Lag({"IN": 7, "ON": 3}, 4.0))
    bench.run_of("a").deliver(10)
    bench.recorder.flush()

    rows = bench.state.pace("a")

    assert (sum(row.batches for row in rows), max(row.lag_records or 0 for row in rows)) == (1, 10)


def test_a_change_that_waits_is_shown_with_its_meaning_and_a_button(bench: Bench, console: TestClient) -> None:
    """Each change with its verdict, the difference, and a form that confirms this very version."""
    bench.start("a")
    bench.write("a", route_text("a", stream="B"))
    bench.routes.scan()
    page = console.get("/routes/a").text
    section = page[page.index("The file waits to be confirmed") : page.index('id="control"')]

    assert "<code>source.stream</code>" in section
    assert "needs a new checkpoint" in section
    assert f'value="{bench.routes.entry("a").file.digest}"' in section
    assert 'action="/v1/routes/a/confirm"' in section
    assert section.split('class="removed"')[1].split("</span>")[0].endswith("stream: IN}")
    assert console.get("/fragments/routes/a/pending").text.strip() in page
    bench.start("b")
    assert console.get("/fragments/routes/b/pending").text.strip() == ""


def test_a_text_is_checked_before_it_is_saved(bench: Bench, console: TestClient) -> None:
    """Mistakes with their lines; safe changes are saved, others are reported, and the check writes nothing."""
    bench.start("a")
    digest = bench.routes.entry("a").file.digest
    check = lambda text: console.post("/fragments/routes/a/check", json={"text": text, "digest": digest}).text  # noqa: E731

    wrong = check(route_text("a", more="unmatchd: drop"))
    safe = check(route_text("a", more="errors: {tolerance: all}"))
    unsafe = check(route_text("a", stream="B"))
    other = check(route_text("b"))

    assert 'data-line="4"' in wrong
    assert "<form" not in wrong
    assert "It continues from its checkpoint" in safe
    assert '<span class="fine">the checkpoint stays valid</span>' in safe
    assert f'action="/v1/routes/a" data-if-match="{digest}"' in safe
    assert 'action="/v1/routes/a?confirm=new-checkpoint"' in unsafe
    assert "expected &#39;a&#39;" in other
    assert bench.routes.entry("a").file.digest == digest


def test_a_change_that_uncovers_a_mask_is_named_first(bench: Bench, console: TestClient) -> None:
    """In red, before the words about the checkpoint, and the button says so."""
    mask = "value: {format: json}\ntransforms: [{type: MaskField$Value, fields: card}]"
    bench.write("a", route_text("a", more=mask))
    bench.routes.scan()
    bench.wait_phase("a", Phase.RUNNING)
    form = {"text": route_text("a", more=mask.replace("card", "crad")), "digest": bench.routes.entry("a").file.digest}

    page = console.post("/fragments/routes/a/check", json=form).text

    assert '<strong class="bad">It uncovers masked content:</strong> value.card was masked' in page
    assert page.index("It uncovers masked content") < page.index("It continues from its checkpoint")
    assert '<button class="danger">Save, and uncover masked content</button>' in page


def test_the_beginning_of_a_new_checkpoint_is_told(shown: TestClient, server: RouteServer) -> None:
    """It shows the start of its source, and the number of messages from there."""
    text = server.routes.entry("archive").file.text.replace("stream: ORDERS", "stream: DEAD, start: latest")
    form = {"text": text, "digest": ""}

    answer = shown.post("/fragments/routes/archive/check", json=form).text
    everything = shown.post(
        "/fragments/routes/archive/check", json={**form, "text": text.replace(", start: latest", ", start: earliest")}
    )

    assert "archive would begin <code>DEAD</code>" in answer
    assert "read <strong>0 sequences</strong>" in answer
    assert "at <b>1</b>, and read <strong>14 sequences</strong>" in everything.text


def test_what_a_state_does_not_allow_cannot_be_pressed(shown: TestClient) -> None:
    """The reason is shown: neither a running, a paused nor an unusable route allows everything."""

    def refused(name: str) -> dict[str, str]:
        html = shown.get(f"/routes/{name}").text
        return dict(re.findall(r'<button id="([a-z-]+)"[^>]* disabled title="([^"]+)"', html))

    assert refused("orders") == {
        "resume": "The route is not paused.",
        "reset-button": "Offsets are reset while it is paused.",
    }
    assert refused("returns") == {"pause": "It is paused, by ann.", "restart": "The route is paused: resume it."}
    assert set(refused("stock")) == {"pause", "resume", "restart", "reset-button"}
    assert shown.get("/fragments/routes/returns/control").text.strip() in shown.get("/routes/returns").text
    assert shown.get("/fragments/routes/returns/reset").text.strip() in shown.get("/routes/returns").text


def test_a_route_that_never_ran_says_so(shown: TestClient) -> None:
    """Its mistakes are listed, and no earlier version is running."""
    page = shown.get("/routes/stock/file").text

    assert "no version of it could be used yet" in page
    assert "the previous version continues" not in page


def test_a_route_that_never_ran_leads_nowhere_where_it_would_be_refused(shown: TestClient) -> None:
    """Neither to the sandbox nor to the tap; the mistakes are shown in sentences."""
    page = shown.get("/routes/stock").text
    events = page.partition('<ul class="events">')[2].partition("</ul>")[0]

    assert not re.findall(r'href="/(?:sandbox|tap|dead-letters)[?/][^"]*stock', page)
    assert "did you mean &#34;unmatched&#34;?" in events
    assert "[&#39;" not in events


def test_an_address_that_is_none_is_a_page_for_people(shown: TestClient) -> None:
    """API clients get the same error as before."""
    browser = shown.get("/rutes", headers={"Accept": "text/html,application/xhtml+xml"})
    program = shown.get("/rutes", headers={"Accept": "application/json"})

    assert (browser.status_code, program.status_code) == (404, 404)
    assert "There is nothing at /rutes." in browser.text
    assert '<a href="/subscriptions"' in browser.text
    assert program.headers["content-type"] == "application/problem+json"
    for path in ("/v1/nothing", "/v1/routes/stock/dead-letters/AAA", "/connectors/stock/tasks/null/status"):
        answer = shown.get(path, headers={"Accept": "text/html"})
        assert (answer.status_code, "json" in answer.headers["content-type"]) == (404, True)


def test_charts_keep_the_period_of_the_address(bench: Bench, console: TestClient) -> None:
    """All have one; links to other lengths keep its end, and what was done outside of it is not counted."""
    bench.start("a")
    noon = int(time.time()) // 3600 * 3600 - 86_400
    for at, read in ((noon - 60, 600), (noon - 2 * 3600, 7), (noon + 60, 9)):
        bench.state.add_counts("a", Counts(read=read, messages=read // 2, dead_lettered=60), at)
        bench.state.add_pace("a", MinutePace(at, 1, 0.5, 10, 2.5))
    page = console.get(f"/routes/a?range=1h&until={noon}").text

    assert "600 read" in page
    assert ">10.0/s</td>" in page
    assert "dead-lettered 1.0/s last" in page
    assert f'href="?range=6h&amp;until={noon}"' in page
    assert f'href="?range=1h&amp;until={noon - 3600}"' in page
    assert f'data-live="/fragments/routes/a/pictures?range=1h&amp;until={noon}"' in page
    assert "607 read" in console.get(f"/routes/a?range=6h&until={noon}").text
    assert "The server keeps counts for" in console.get("/routes/a?range=30d").text
    assert console.get("/routes/a?range=1y").status_code == 422
    assert console.get("/routes/a?until=now").status_code == 422


def test_a_change_is_judged_on_history(shown: TestClient) -> None:
    """The text's lines that differ, and what it does otherwise with the last records; values are escaped."""
    before = shown.get("/v1/routes/orders").json()
    text = before["text"].replace("city:town", "city:<i>place</i>")
    form = {"text": text, "digest": before["digest"]}
    checked = shown.post("/fragments/routes/orders/check", json=form).text
    effect = lambda text, **more: shown.post(  # noqa: E731
        "/fragments/routes/orders/effect", json={"text": text, "count": 200, **more}
    )

    assert '<span class="removed">-  - {name: town' in checked
    assert "data-at-once" in checked
    assert "of the last 200 records would come out differently" in effect(text).text
    assert "deliveries are lost" in effect(text).text
    assert "&lt;i&gt;place" in effect(text).text
    assert "<i>" not in effect(text).text
    assert "<strong>0 of the last 200 records" in effect(before["text"]).text
    slip = before["text"].replace("city:town", "ctiy:town")
    assert "<code>value.ctiy</code>" in effect(slip).text
    assert '<strong class="bad">0 of ' in effect(slip).text
    assert effect(text.replace("stream: ORDERS", "stream: DEAD")).status_code == 409
    assert effect(text, count=1_000_000).status_code == 422
    assert effect("name: [").status_code == 422


def test_values_in_an_effect_are_for_those_who_may_see_them(tmp_path: Path, nats_server: NatsServer) -> None:
    """Without the right to see masked fields there are counts, but no examples."""
    from turnout.console.previews import effect_of
    from turnout.nats.wire import Connection, ConnectionOptions, Publisher, create_stream, delete_stream
    from turnout.server.sandbox import Matchers

    text = f'name: a\nsource: {{format: nats, servers: "{nats_server.url}", stream: EFFECT}}\nvalue: {{format: json}}\n'
    mask = 'transforms:\n  - {name: m, type: "MaskField$Value", fields: "card"}\n'
    tail = f'sink: {{format: nats, servers: "{nats_server.url}"}}\n'
    old, new = Route.parse(text + tail), Route.parse(text + mask + tail)
    with Connection.open(ConnectionOptions.from_mapping({"servers": nats_server.url})) as connection:
        create_stream(connection, {"name": "EFFECT", "subjects": ["effect.*"], "storage": "memory"})
        publisher = Publisher(connection)
        publisher.publish("effect.1", b'{"card": "4711"}', [])
        publisher.flush()
        reports = [effect_of(old, new, 10, Matchers(), masked=masked)[0] for masked in (True, False)]
        delete_stream(connection, "EFFECT")

    assert [report.differences.values for report in reports] == [1, 1]
    assert ["4711" in "\n".join(report_lines(report)) for report in reports] == [False, True]
