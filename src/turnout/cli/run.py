"""``turnout run ROUTE`` and ``turnout check ROUTE``."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.cli.exits import DONE, FAILED, WRONG_REQUEST
from turnout.cli.progress import console, run_display, run_summary
from turnout.errors import MissingExtraError, RouteError

if TYPE_CHECKING:
    from turnout.spark.running.progress import Progress, RunResult

__all__ = ["register", "result_json", "stop_on_signals"]

RouteFile = Annotated[Path, typer.Argument(help="The route's YAML file.", dir_okay=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


def register(app: typer.Typer) -> None:
    """Add the commands."""

    @app.command("run")
    def run(
        route: RouteFile,
        once: Annotated[bool, typer.Option(help="Do all there is, then stop.")] = False,
        master: Annotated[str, typer.Option(help="Spark's master.")] = "local[*]",
        checkpoint: Annotated[str | None, typer.Option(help="The folder of the run's progress.")] = None,
        spark_log: Annotated[Path | None, typer.Option(help="Where Spark's own messages go.")] = None,
        as_json: AsJson = False,
        json_lines: Annotated[
            bool, typer.Option("--json-lines", help="Print a line of JSON for each micro-batch, and one at the end.")
        ] = False,
    ) -> None:
        """Run a route against its servers; go on where its checkpoint stands."""
        form = "lines" if json_lines else "json" if as_json else "text"
        _run(route, once=once, master=master, checkpoint=checkpoint, spark_log=spark_log, form=form)

    @app.command("check")
    def check(route: RouteFile, as_json: AsJson = False) -> None:
        """Read a route and say everything that is wrong with it, without running it."""
        raise typer.Exit(_check(route, as_json=as_json))


def _check(file: Path, *, as_json: bool) -> int:
    from turnout.routes import Route

    try:
        route = Route.load(file)
    except RouteError as wrong:
        if as_json:
            mistakes = [{"path": m.path, "problem": m.problem, "line": m.line} for m in wrong.mistakes]
            typer.echo(json.dumps({"route": str(file), "valid": False, "mistakes": mistakes}, indent=1))
        else:
            typer.echo(str(wrong), err=True)
        return WRONG_REQUEST
    notes = (*route.notes, *route.errors.notes())
    if as_json:
        fine = {"route": str(file), "valid": True, "name": route.name, "mistakes": [], "notes": notes}
        typer.echo(json.dumps(fine, indent=1))
    else:
        typer.echo(f"{file}: route {route.name} is fine: {route.summary()}")
        for note in notes:
            typer.echo(f"note: {note}")
    return DONE


def _run(file: Path, *, once: bool, master: str, checkpoint: str | None, spark_log: Path | None, form: str) -> None:
    from turnout.routes import Route

    loaded = Route.load(file)
    try:
        from turnout.records.without_pandas import spare_pandas
        from turnout.spark.ends import look_ahead
        from turnout.spark.running.job import checkpoint_of
        from turnout.spark.running.job import run as run_route
        from turnout.spark.session.build import route_session
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] not in ("pyspark", "pyarrow", "numpy"):
            raise
        raise MissingExtraError("spark", missing.name or "pyspark") from missing

    spare_pandas()
    screen = console(quiet=form != "text")
    # Before Spark is started: a server that is away should not take ten seconds to be noticed.
    look_ahead(loaded)
    log = spark_log or Path(checkpoint_of(loaded)).parent / "spark.log" if "://" not in str(checkpoint) else spark_log
    with (
        stop_on_signals() as stop,
        route_session(loaded, master=master, log=log) as spark,
        run_display(screen, loaded.name) as display,
    ):
        progressed = _print_progress if form == "lines" else display
        result = run_route(loaded, spark, once=once, checkpoint=checkpoint, stop=stop, on_progress=progressed)
    if form != "text":
        typer.echo(json.dumps(result_json(result), indent=1 if form == "json" else None))
    screen.print(run_summary(loaded.name, result))
    if not result.counts.conserved:
        screen.print(f"records are missing: {result.counts.read:,} read, {result.counts.accounted:,} accounted for")
        raise typer.Exit(FAILED)


def _print_progress(progress: Progress) -> None:
    """A line for a micro-batch; counts are those since the run began."""
    line = {
        "batch": progress.batch,
        "counts": progress.counts.as_dict(),
        "seconds": round(progress.seconds, 3),
        "batch_seconds": round(progress.batch_seconds, 3),
        "revision": progress.revision,
    }
    typer.echo(json.dumps(line))


def result_json(result: RunResult) -> dict[str, Any]:
    """The result as ``--json`` prints it."""
    return {
        "counts": result.counts.as_dict(),
        "conserved": result.counts.conserved,
        "records_per_second": round(result.records_per_second, 1),
        "seconds": round(result.seconds, 3),
        "batches": result.batches,
        "stopped": result.stopped,
    }


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, so that the work ends at a place from which it can go on.

    A second signal does what it always did: a person who presses Ctrl-C twice does not want to wait.
    """
    stop = threading.Event()
    usual: dict[int, Any] = {}

    def request(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, usual[number])

    for wanted in (signal.SIGINT, signal.SIGTERM):
        usual[wanted] = signal.signal(wanted, request)
    try:
        yield stop
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)
