"""``turnout new``: a route to begin with, its tests, and servers to try it on."""

from __future__ import annotations

import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import printable_lines
from turnout.cli.exits import FAILED
from turnout.cli.import_ import write_new
from turnout.errors import TurnoutError
from turnout.secrets import masked_url

if TYPE_CHECKING:
    from turnout.history import Report
    from turnout.routes.drafts import SampledStream, Starter

_FROM = "nats://127.0.0.1:4222/ORDERS"
_SECONDS = 5.0


def new(
    name: Annotated[str | None, typer.Argument(help="Name of the route.")] = None,
    named: Annotated[str | None, typer.Option("--name", help="The same as an option.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="ADDRESS", help=f"Source of the records: {_FROM}.")
    ] = None,
    to: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where messages go.")] = None,
    sink_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Format of the values that the sink gets, if not that of the source."),
    ] = None,
    folder: Annotated[Path, typer.Option(metavar="DIR", help="Where the files go.")] = Path(),
    sample: Annotated[int, typer.Option(min=0, help="Number of records of a stream or topic to sample.")] = 100,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: accept all proposals.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Ask nothing, and print JSON.")] = False,
) -> None:
    """Write NAME.yaml with a word to each part, NAME.test.yaml and compose.yaml.

    Of a stream of NATS, and of topics of Kafka, the latest records show the format of the values. With --sink-format
    the sink gets another one; Avro, JSON Schema and Protobuf get a schema with the types of these records.

    turnout new orders --from nats://127.0.0.1:4222/ORDERS --to nats://127.0.0.1:4222 --yes
    """
    answers = _Answers(silent=yes or as_json)
    starter = replace(answers.starter(name or named, source, to, sample), sink_format=sink_format)
    schema = starter.schema_file()
    files = {
        folder / f"{starter.name}.yaml": starter.route(),
        folder / f"{starter.name}.test.yaml": starter.tests(),
        **({} if schema is None else {folder / schema[0]: schema[1]}),
    }
    compose = folder / "compose.yaml"
    if force or not compose.exists():
        files[compose] = starter.compose()
    else:
        answers.note(f"{compose} exists already and is unchanged: it does not run {starter.name} yet")
    write_new(files, force=force)
    report = _tried(folder / f"{starter.name}.yaml", starter)
    passed = len(report.results) - len(report.failed)
    if as_json:
        summary = {"files": [str(file) for file in files], "notes": answers.notes, "tests": passed}
        typer.echo(json.dumps(summary, indent=1))
    else:
        typer.echo("\n".join([*map(str, files), f"{passed} of {len(report.results)} tests pass"]))
    if report.failed:
        raise typer.Exit(FAILED)


class _Answers:
    """Answers of the author and of the servers.

    Attributes:
        notes: sources that could not be read, for people.
    """

    def __init__(self, *, silent: bool) -> None:
        self.silent = silent
        self.notes: list[str] = []

    def starter(self, name: str | None, source: str | None, to: str | None, sample: int) -> Starter:
        """Return all input for the new files: the name, the endpoints, and samples of the streams.

        Raises:
            ConfigError: an address is none.
        """
        from turnout.routes.drafts import SampledStream, Starter, route_name, sink_of, source_of

        reading = source_of(self._answer(source, "Where records come from", _FROM))
        sampled = self._sample(reading, sample) if reading["format"] in ("nats", "kafka") else SampledStream()
        proposal = reading["servers"] if reading["format"] == "nats" else "nats://127.0.0.1:4222"
        writing = sink_of(self._answer(to, "Where messages go", proposal))
        sink_subjects = self._sample(writing, 0).subjects if "stream" in writing else ()
        proposed = str(reading.get("stream", "route")).lower()
        called = route_name(self._answer(name, "What the route is called", proposed))
        return Starter(called, reading, writing, sampled, sink_subjects)

    def note(self, text: str) -> None:
        """Add a note, not a mistake."""
        self.notes.append(text)
        typer.echo(printable_lines([f"note: {text}"]), err=True)

    def _answer(self, value: str | None, question: str, proposed: str) -> str:
        if value is not None or self.silent:
            return proposed if value is None else value
        shown = masked_url(proposed) == proposed
        return str(typer.prompt(question, default=proposed, show_default=shown, err=True))

    def _sample(self, end: dict[str, object], sample: int) -> SampledStream:
        from turnout.routes.drafts import SampledMessage, SampledStream
        from turnout.routes.endpoints import KafkaSource, NatsSource
        from turnout.runtime.endpoints import adapter_of

        model = KafkaSource if end["format"] == "kafka" else NatsSource
        source = model.model_validate(end)
        names = end["stream"] if end["format"] == "nats" else end["topics"]
        subjects: tuple[str, ...] = ()
        try:
            with closing(adapter_of(source).probe(_SECONDS)) as probe:
                probe.reach()
                streams = probe.streams()
                batches = [one for name in streams for one in probe.latest(name, sample)[0]] if sample else []
                subjects = tuple(subject for name in streams for subject in probe.subjects(name))
        except TurnoutError as failure:
            what = "the stream" if end["format"] == "nats" else "the topic"
            self.note(f"{what} {names} was not read: {failure}")
            return SampledStream()
        rows = [row for batch in batches for row in batch.select(["topic", "value"]).to_pylist()]
        return SampledStream(
            subjects, tuple(SampledMessage(row["topic"], row["value"]) for row in rows if row["value"])
        )


def _tried(route_file: Path, starter: Starter) -> Report:
    """Run the tests of the new route like ``turnout test``, with its variables set to the given servers."""
    from turnout.history import load_suites, run_cases
    from turnout.routes import Route

    servers = {"NATS_URL": str(starter.source.get("servers")), "SINK_URL": str(starter.sink.get("servers"))}
    route = Route.load(route_file, {**servers, **os.environ})
    return run_cases(route, [case for suite in load_suites(route_file, route) for case in suite.cases])
