"""``turnout run ROUTE``."""

from __future__ import annotations

import json
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.exits import FAILED, INTERRUPTED
from turnout.cli.lag_watch import lag_watch
from turnout.cli.options import AsJson, RouteFile, SparkLog
from turnout.cli.progress import console, run_summary
from turnout.cli.run_display import run_display
from turnout.cli.signals import stop_on_signals
from turnout.cli.spark_extra import needs_spark
from turnout.cli.stores import StoreTimeout, check_store, loaded_route
from turnout.terminal import printable

if TYPE_CHECKING:
    from turnout.routes import Route
    from turnout.runtime.progress import Progress, RunResult


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("run")
    def run(
        route: RouteFile,
        once: Annotated[bool, typer.Option(help="Process everything that is available, then stop.")] = False,
        master: Annotated[str, typer.Option(help="Spark's master, or sc://HOST:PORT for Spark Connect.")] = "local[*]",
        checkpoint: Annotated[str | None, typer.Option(help="The folder of the run's progress.")] = None,
        spark_log: SparkLog = None,
        timeout: StoreTimeout = None,
        as_json: AsJson = False,
        json_lines: Annotated[
            bool, typer.Option("--json-lines", help="Print a line of JSON for each micro-batch, and one at the end.")
        ] = False,
    ) -> None:
        """Run a route against its servers, continuing from its checkpoint."""
        form = "lines" if json_lines else "json" if as_json else "text"
        _run(
            loaded_route(route, timeout),
            once=once,
            master=master,
            checkpoint=checkpoint,
            spark_log=spark_log,
            form=form,
        )


def _run(loaded: Route, *, once: bool, master: str, checkpoint: str | None, spark_log: Path | None, form: str) -> None:
    with needs_spark():
        from turnout.loops.compiled import cache_is_filled, compile_loops
        from turnout.runtime.preflight import preflight
        from turnout.runtime.progress import StartupStep
        from turnout.spark.running.job import run as run_route
        from turnout.spark.session.build import route_session
        from turnout.spark.session.connect import is_connect
        from turnout.startup import block_pandas_import

    if not is_connect(master):
        block_pandas_import()
    _log_to_standard_error()
    for warning in loaded.warnings:
        typer.echo(printable(f"warning: {warning}"), err=True)
    screen = console(quiet=form != "text")
    # A Spark Connect server has its own, and its checkpoint is not on this machine.
    local_checkpoint = None if is_connect(master) else checkpoint_here(loaded, checkpoint)
    log = spark_log or (None if is_connect(master) else log_beside(loaded, checkpoint))
    with (
        # A run that ends by itself has no lag to keep.
        lag_watch(
            loaded, local_checkpoint if form == "text" and not (once or loaded.trigger.available_now) else None
        ) as lag,
        run_display(screen, loaded.name, lag) as display,
    ):
        display.waits_for(StartupStep.SERVERS)
        # Before Spark is started: a server that is away should not take ten seconds to be noticed.
        check_store(loaded)
        preflight(loaded)
        if not cache_is_filled() and not is_connect(master):
            # Workers load what is compiled here; without it each of them would compile before its first record.
            display.waits_for(StartupStep.LOOPS)
            compile_loops()
        display.waits_for(StartupStep.SESSION)
        ready = None if once else partial(typer.echo, f"route {loaded.name} is ready", err=True)
        with stop_on_signals() as stop, route_session(loaded, master=master, log=log) as spark:
            result = run_route(
                loaded,
                spark,
                once=once,
                checkpoint=checkpoint,
                stop=stop,
                on_progress=_print_progress if form == "lines" else display,
                on_step=display.waits_for,
                on_ready=ready,
            )
    if form != "text":
        typer.echo(json.dumps(result_json(result), indent=1 if form == "json" else None))
    screen.print(run_summary(loaded.name, result))
    if not result.counts.conserved:
        screen.print(f"records are missing: {result.counts.read:,} read, {result.counts.accounted:,} accounted for")
        raise typer.Exit(FAILED)
    if result.stopped and (once or loaded.trigger.available_now):
        raise typer.Exit(INTERRUPTED)


def _log_to_standard_error() -> None:
    """Log warnings on standard error, except for py4j's, which duplicate raised errors."""
    from turnout.server.logs import TextLines

    handler = logging.StreamHandler()
    handler.setFormatter(TextLines())
    handler.addFilter(lambda record: "py4j" not in record.pathname)
    handler.setLevel(logging.WARNING)
    if not logging.root.handlers:
        logging.root.addHandler(handler)


def checkpoint_here(route: Route, checkpoint: str | None) -> Path | None:
    """Return the folder of the run's checkpoint; None if it is not on this machine."""
    from turnout.runtime.checkpoint import checkpoint_of, local_folder

    return local_folder(str(checkpoint or checkpoint_of(route)))


def log_beside(route: Route, checkpoint: str | None) -> Path | None:
    """Return the path for Spark's log, next to the checkpoint; None if the checkpoint is not on this machine."""
    folder = checkpoint_here(route, checkpoint)
    return folder.parent / "spark.log" if folder else None


def _print_progress(progress: Progress) -> None:
    """Print a micro-batch as a line of JSON; the counts are totals since the run began."""
    line = {
        "batch": progress.batch,
        "counts": progress.counts.as_dict(),
        **progress.counts.flow.as_dict(),
        "seconds": round(progress.seconds, 3),
        "batch_seconds": round(progress.batch_seconds, 3),
        "revision": progress.revision,
    }
    typer.echo(json.dumps(line))


def result_json(result: RunResult) -> dict[str, object]:
    """Return the result as ``--json`` prints it."""
    return {
        "counts": result.counts.as_dict(),
        **result.counts.flow.as_dict(),
        "conserved": result.counts.conserved,
        "records_per_second": round(result.records_per_second, 1),
        "seconds": round(result.seconds, 3),
        "batches": result.batches,
        "stopped": result.stopped,
    }
