"""``turnout demo``: a year of flights through the switch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.exits import FAILED
from turnout.cli.progress import console, loading, run_display, run_summary
from turnout.cli.run import result_json
from turnout.cli.signals import stop_on_signals
from turnout.errors import MissingExtraError
from turnout.scratch import lasting_folder

if TYPE_CHECKING:
    from turnout.demo.year import DemoResult

__all__ = ["register"]

_KEPT = Path(".turnout") / "demo"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("demo")
    def demo(
        limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many flights only.")] = None,
        subscriptions: Annotated[int, typer.Option(min=0, help="How many to draw from the data.")] = 10_000,
        keep: Annotated[bool, typer.Option(help=f"Keep the server's store and the rest in {_KEPT}.")] = False,
        master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    ) -> None:
        """Run the main job on real servers and real data: 336,776 flights past 10,000 subscriptions."""
        try:
            result = _demo(limit, subscriptions, keep=keep, master=master, quiet=as_json)
        except ModuleNotFoundError as missing:
            raise MissingExtraError("demo", missing.name or "pyspark") from missing
        if as_json:
            typer.echo(json.dumps(_json(result), indent=1))
        if not result.conserved:
            raise typer.Exit(FAILED)


def _demo(limit: int | None, subscriptions: int, *, keep: bool, master: str, quiet: bool) -> DemoResult:
    from turnout.demo.year import Demo
    from turnout.embedded import find_nats_server
    from turnout.records.without_pandas import spare_pandas
    from turnout.spark.session.java import find_java

    spare_pandas()
    screen = console(quiet=quiet)
    screen.print(f"{find_java()}", soft_wrap=True)
    screen.print(f"nats-server: {find_nats_server()}", soft_wrap=True)
    work = _KEPT if keep else lasting_folder("demo") / "work"
    with stop_on_signals() as stop, Demo(work, limit=limit, generated=subscriptions, keep=keep) as demo:
        screen.print(f"serving at {demo.server.url}, JetStream store in {work}", soft_wrap=True)
        with loading(screen, "publishing flights", demo.total) as advance:
            demo.publish(advance, stop)
        demo.subscribe()
        screen.print(f"{demo.subscriptions:,} subscriptions stored; starting Spark ({master})")
        with run_display(screen, "flights") as display:
            result = demo.run(master=master, stop=stop, on_progress=display)
    _show(screen, result)
    return result


def _show(screen: Any, result: DemoResult) -> None:
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


def _json(result: DemoResult) -> dict[str, Any]:
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
