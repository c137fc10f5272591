"""``turnout demo``: a year of flights through the switch."""

from __future__ import annotations

import json
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from turnout.base.files import lasting_folder
from turnout.cli.exits import FAILED, stop_on_signals
from turnout.cli.options import AsJson, Master
from turnout.cli.run import console, loading, result_json, run_display, run_summary
from turnout.errors import MissingExtraError

if TYPE_CHECKING:
    from rich.console import Console

    from turnout.demo.lake_year import LakeDemo
    from turnout.demo.webhooks import WebhookDemo
    from turnout.demo.year import Demo, DemoResult
    from turnout.records.types import Fields

_DEMO_FOLDER = Path(".turnout") / "demo"


def demo(
    limit: Annotated[int | None, typer.Option(min=1, help="Use only the first N flights.")] = None,
    subscriptions: Annotated[int, typer.Option(min=0, help="How many to draw from the data.")] = 10_000,
    keep: Annotated[bool, typer.Option(help=f"Keep the server's store and the rest in {_DEMO_FOLDER}.")] = False,
    master: Master = "local[*]",
    console: Annotated[
        bool, typer.Option("--console", help="Show the run in a console, and serve it until Ctrl-C.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Publish 2,000 a second, and print how long each takes to be delivered.")
    ] = False,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="From Avro records in Kafka into Kafka, exactly once; needs Maven."),
    ] = False,
    lake: Annotated[
        bool,
        typer.Option("--lake", help="From a Delta table to JetStream, matches into another, asked by SQL."),
    ] = False,
    seconds: Annotated[int | None, typer.Option(min=1, help="With --live: publish for so long.")] = None,
    webhooks: Annotated[
        bool, typer.Option("--webhooks", help="Post to a local endpoint that fails one request in ten.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run the main job on real servers and real data: 336,776 flights past 10,000 subscriptions."""
    if seconds is not None and not live:
        raise typer.BadParameter("it needs --live", param_hint="--seconds")
    chosen = [name for name, is_chosen in (
        ("webhooks", webhooks), ("console", console), ("live", live), ("lake", lake), ("kafka", kafka)
    ) if is_chosen]  # fmt: skip
    if len(chosen) > 1:
        raise typer.BadParameter(f"it excludes --{chosen[0]}", param_hint=f"--{chosen[1]}")
    shown = "".join(chosen)
    try:
        if kafka:
            is_complete = _kafka(limit, subscriptions, keep=keep, master=master, as_json=as_json)
        else:
            is_complete = _demo(
                limit, subscriptions, keep=keep, master=master, as_json=as_json, shown=shown, seconds=seconds
            )
    except ModuleNotFoundError as missing:
        raise MissingExtraError(
            "lake" if missing.name == "deltalake" else "demo", missing.name or "pyspark"
        ) from missing
    if not is_complete:
        raise typer.Exit(FAILED)


def _demo(
    limit: int | None,
    subscriptions: int,
    *,
    keep: bool,
    master: str,
    as_json: bool,
    shown: str,
    seconds: int | None = None,
) -> bool:
    """Run the demo; return False if records are missing, or deliveries."""
    from turnout.base.startup import block_pandas_import
    from turnout.demo.year import Demo
    from turnout.embedded import find_nats_server
    from turnout.runtime.java import find_java

    block_pandas_import()
    screen = console(quiet=as_json)
    screen.print(f"{find_java()}", soft_wrap=True)
    screen.print(f"nats-server: {find_nats_server()}", soft_wrap=True)
    work = _DEMO_FOLDER if keep else lasting_folder("demo") / "work"
    kind: type[Demo] = Demo
    if shown == "webhooks":
        from turnout.demo.webhooks import WebhookDemo

        kind = WebhookDemo
    if shown == "lake":
        from turnout.demo.lake_year import LakeDemo

        kind = LakeDemo
    with stop_on_signals() as stop, kind(work, limit=limit, generated=subscriptions, keep=keep) as demo:
        screen.print(f"serving at {demo.server.url}, JetStream store in {work}", soft_wrap=True)
        if shown != "live":
            with loading(screen, "publishing flights", demo.total) as advance:
                demo.publish(advance, stop)
        demo.subscribe()
        screen.print(f"{demo.subscriptions:,} subscriptions stored; starting Spark ({master})")
        if shown == "live":
            return _run_live(demo, seconds, master, stop, screen, as_json=as_json).conserved
        if shown == "console":
            return _run_and_show(demo, master, stop, screen, as_json=as_json).conserved
        with run_display(screen, "flights") as display:
            result = demo.run(master=master, stop=stop, on_progress=display)
        if shown == "webhooks":
            return _deliver(cast("WebhookDemo", demo), result, stop, screen, as_json=as_json)
        if shown == "lake":
            return _ask(cast("LakeDemo", demo), result, screen, as_json=as_json)
    _print_result(screen, result, as_json=as_json)
    return result.conserved


def _deliver(demo: WebhookDemo, result: DemoResult, stop: threading.Event, screen: Console, *, as_json: bool) -> bool:
    """Deliver the messages stored by the run, and compare them with those of the endpoint."""
    screen.print(f"delivering {result.ledger.messages:,} messages; the endpoint fails one request in ten")
    hooks = demo.deliver(stop)
    _print_result(screen, result, as_json=as_json, more={"webhooks": hooks.as_dict()})
    received, counts = hooks.receiver, hooks.counts
    screen.print(
        f"{received.requests:,} requests, {received.refused:,} of them refused and {counts.delivered:,} taken: "
        f"{len(received.ids):,} of {len(hooks.expected):,} messages",
        soft_wrap=True,
    )
    screen.print(f"read as feeds: {len(hooks.feeds):,} messages")
    if result.conserved and hooks.is_complete and hooks.has_same_feeds:
        screen.print("every match received, signatures verified, the same messages in feeds")
        return True
    if not hooks.has_same_feeds:
        other = len(dict(hooks.expected.items() ^ hooks.feeds.items()))
        screen.print(f"FEEDS DIFFER: {other:,} messages", style="bold red", soft_wrap=True)
    if not hooks.is_complete:
        screen.print(
            f"MESSAGES ARE MISSING: {len(hooks.expected.keys() - received.ids):,} not received, "
            f"{received.unverified:,} requests with a wrong signature",
            style="bold red",
            soft_wrap=True,
        )
    return False


def _ask(demo: LakeDemo, result: DemoResult, screen: Console, *, as_json: bool) -> bool:
    """Ask the table of matches by SQL."""
    from turnout.demo.lake_year import QUESTION

    answer = demo.ask(QUESTION)
    _print_result(screen, result, as_json=as_json, more={"matches": result.ledger.matches, "answer": answer})
    screen.print(f"{result.ledger.matches:,} rows in the table of matches; asked by SQL: {QUESTION}", soft_wrap=True)
    for row in answer:
        screen.print("  ".join(f"{name} {value}" for name, value in row.items()))
    return result.conserved


def _kafka(limit: int | None, subscriptions: int, *, keep: bool, master: str, as_json: bool) -> bool:
    """Run the demo on a broker and a registry of its own."""
    from turnout.base.startup import block_pandas_import
    from turnout.demo.kafka_year import KafkaDemo
    from turnout.runtime.java import find_java

    block_pandas_import()
    screen = console(quiet=as_json)
    screen.print(f"{find_java()}", soft_wrap=True)
    work = _DEMO_FOLDER if keep else lasting_folder("demo") / "work"
    with stop_on_signals() as stop, KafkaDemo(work, limit=limit, generated=subscriptions, keep=keep) as demo:
        screen.print(f"broker at {demo.broker.servers}, schema registry at {demo.registry.url}", soft_wrap=True)
        with loading(screen, "publishing flights", demo.total) as advance:
            demo.publish(advance, stop)
        demo.subscribe()
        screen.print(f"{demo.subscriptions:,} subscriptions stored; starting Spark ({master})")
        with run_display(screen, "flights-kafka") as display:
            result = demo.run(master=master, stop=stop, on_progress=display)
    _print_result(screen, result, as_json=as_json)
    return result.conserved


def _run_and_show(demo: Demo, master: str, stop: threading.Event, screen: Console, *, as_json: bool) -> DemoResult:
    """Run the route in a server, then serve its console until *stop* is set."""
    from turnout.demo.console import showing, with_values
    from turnout.demo.year import route_file

    text = with_values(route_file().read_text(encoding="utf-8"), demo.variables)
    store = demo.variables["SUBSCRIPTIONS"]
    with ExitStack() as resources:
        display = resources.enter_context(run_display(screen, "flights"))
        server = resources.enter_context(showing(text, store, demo.work, master=master, on_progress=display))
        result = demo.checked(server.result(stop))
        display.close()
        _print_result(screen, result, as_json=as_json)
        typer.echo(f"the console shows it at {server.url} until Ctrl-C", err=as_json)
        server.serve(stop)
    return result


def _run_live(
    demo: Demo, seconds: int | None, master: str, stop: threading.Event, screen: Console, *, as_json: bool
) -> DemoResult:
    """Publish at a steady rate through the route, and print percentiles while it runs."""
    from turnout.demo.year import RATE, LiveDemo

    live = LiveDemo(demo, seconds)

    def ready() -> None:
        screen.print(f"ready: {live.count:,} flights follow, {RATE:,} a second")

    def show(report: Fields) -> None:
        # Redrawn in place on a terminal.
        screen.print(_percentiles(report), end="\r" if screen.is_terminal else "\n", soft_wrap=True)

    result = live.run(master=master, stop=stop, on_ready=ready, on_second=show)
    ages = result.ages
    _print_result(screen, result.demo, as_json=as_json, more={"rate": RATE, "latency": ages})
    screen.print(_percentiles({"all": ages}), soft_wrap=True)
    return result.demo


def _percentiles(report: Fields) -> str:
    """Return the ages of messages as a line.

    >>> age = {"count": 1200, "p50_ms": 3.21, "p99_ms": 9.5, "max_ms": 12.0}
    >>> _percentiles({"all": age})
    '1,200 delivered: p50 3.2, p99 9.5, max 12.0 ms'
    >>> _percentiles({"all": age, "last": {"count": 0}})
    '1,200 delivered: p50 3.2, p99 9.5, max 12.0 ms; in the last second none'
    """
    texts = {
        name: ", ".join(f"{key.removesuffix('_ms')} {ages[key]:.1f}" for key in ("p50_ms", "p99_ms", "max_ms")) + " ms"
        if ages["count"]
        else "none"
        for name, ages in report.items()
    }
    last = f"; in the last second {texts['last']}" if "last" in texts else ""
    return f"{report['all']['count']:,} delivered: {texts['all']}{last}"


def _print_result(screen: Console, result: DemoResult, *, as_json: bool, more: Fields | None = None) -> None:
    _show(screen, result)
    if as_json:
        typer.echo(json.dumps({**_json(result), **(more or {})}, indent=1))


def _show(screen: Console, result: DemoResult) -> None:
    rows = [(f"→ {subject}", f"{count:,}") for subject, count in result.ledger.destinations]
    screen.print(run_summary("flights", result.run, rows=rows))
    if result.conserved:
        counts = result.run.counts
        screen.print(
            f"nothing lost: {counts.read:,} read = {counts.delivered:,} delivered + {counts.filtered:,} filtered + "
            f"{counts.unmatched:,} unmatched + {counts.dead_lettered:,} dead-lettered + "
            f"{counts.lost_by_weight:,} lost by weight, and the server's own counts agree",
            soft_wrap=True,
        )
        return
    screen.print("RECORDS ARE MISSING OR DOUBLED", style="bold red")
    if not result.run.counts.conserved:
        screen.print(f"{result.run.counts.read:,} read, {result.run.counts.accounted:,} accounted for")
    for sentence in result.disagreements:
        screen.print(sentence)


def _json(result: DemoResult) -> dict[str, object]:
    ledger = result.ledger
    return {
        **result_json(result.run),
        "conserved": result.conserved,
        "disagreements": list(result.disagreements),
        "server": {
            "FLIGHTS": ledger.source,
            "DELIVERIES": ledger.messages,
            "DELIVERIES_records": ledger.delivered,
            "DEAD": ledger.dead,
        },
        "top_destinations": dict(ledger.destinations),
        "published": result.published,
        "published_per_second": round(result.published / result.publish_seconds, 1) if result.publish_seconds else 0.0,
        "subscriptions": result.subscriptions,
        "work": str(result.work) if result.work else None,
    }
