"""``turnout explain ROUTE``: the path of one record from its bytes to its messages, with the reasons."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.options import AsJson, RouteFile
from turnout.cli.stores import StoreTimeout, loaded_route
from turnout.cli.subscriptions_as_of import AsOf
from turnout.errors import ConfigError, Mistake
from turnout.gc_tools import paused_gc
from turnout.terminal import json_text, printable_lines

if TYPE_CHECKING:
    from turnout.engine.explain import RecordExplanation
    from turnout.routes import Route


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("explain")
    def explain(
        route: RouteFile,
        record: Annotated[
            str | None,
            typer.Option(metavar="PLACE", help="A record: STREAM:SEQ, or TOPIC:PARTITION:OFFSET of Kafka."),
        ] = None,
        file: Annotated[
            Path | None, typer.Option(help="A JSON file with the record's topic, value …", dir_okay=False)
        ] = None,
        stdin: Annotated[bool, typer.Option("--stdin", help="Read that JSON from standard input.")] = False,
        subscription: Annotated[
            str | None, typer.Option(metavar="ID", help="Say why this one does not get the record.")
        ] = None,
        as_of: AsOf = "now",
        timeout: StoreTimeout = None,
        as_json: AsJson = False,
    ) -> None:
        """Show one record's way through a route: stages, mapping, subscriptions, deliveries."""
        if (record is not None) + (file is not None) + stdin != 1:
            raise ConfigError([Mistake("record", "give one of --record PLACE, --file FILE and --stdin")])
        # The collector would traverse the objects of all modules that this imports several times.
        with paused_gc():
            explanation = _explanation(loaded_route(route, timeout), record, file, subscription, as_of)
        typer.echo(_rendered(explanation, as_json=as_json))


def _explanation(
    route: Route, record: str | None, file: Path | None, subscription: str | None, as_of: str
) -> RecordExplanation:
    """Return the way of a record: a stored one, or one that is written in a file or on standard input."""
    from turnout.startup import block_pandas_import

    block_pandas_import()
    from turnout.cli.subscriptions_as_of import subscriptions_of
    from turnout.engine import Program
    from turnout.engine.explain import explain
    from turnout.runtime.preflight import preflight_of_reachable
    from turnout.subscriptions import index as subscription_index

    batch = _stored(route, record) if record is not None else _written_record(route, file)
    subscriptions = list(subscriptions_of(route, as_of))
    index = subscription_index.Index.of(subscriptions) if route.subscriptions is not None else None
    by_id = {subscription.id: subscription for subscription in subscriptions}
    route, notes = preflight_of_reachable(route)
    return explain(Program.of(route), batch, index, by_id, asked=subscription, notes=notes)


def _rendered(explanation: RecordExplanation, *, as_json: bool) -> str:
    from turnout.cli.explanation_text import explanation_lines

    if as_json:
        return json_text(explanation.as_dict(), indent=1)
    return printable_lines(explanation_lines(explanation))


def _written_record(route: Route, file: Path | None) -> object:
    """Return the record in a file or on standard input, as a batch."""
    from turnout.engine.sample_records import SampleRecord, record_batch

    text = sys.stdin.read() if file is None else file.read_text(encoding="utf-8")
    name = "standard input" if file is None else str(file)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([Mistake(name, f"is not JSON: {error}")], what="bad record") from None
    if not isinstance(document, dict):
        raise ConfigError([Mistake(name, "expected a JSON object with topic, value …")], what="bad record")
    return record_batch([SampleRecord.of(document, stream=route.source.only_stream, route=route)])


def _stored(route: Route, position: str) -> object:
    """Return a message of the route's source, as a run reads it."""
    from turnout.runtime.endpoints import adapter_of

    if not route.source.keeps_history:
        raise ConfigError([Mistake("--record", f"the route's source is {route.source.format}: give --file")])
    try:
        stream, sequence = route.source.message(position)
    except ValueError as wrong:
        raise ConfigError([Mistake("--record", str(wrong))]) from None
    return adapter_of(route.source).record_at(stream, sequence)
