"""``turnout explain ROUTE``: the path of one record from its bytes to its messages, with the reasons."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.startup import paused_gc
from turnout.base.terminal import did_you_mean, json_text
from turnout.cli.exits import BAD, DOUBTFUL, GOOD, echo_lines
from turnout.cli.options import AsJson, AsOf, RouteFile, StoreTimeout, loaded_route
from turnout.errors import ConfigError, Mistake, SubscriptionNotFoundError

if TYPE_CHECKING:
    from turnout.engine.explain import (
        ChangeEvent,
        LeafReport,
        RecordExplanation,
        RequestedSubscription,
        SentMessage,
        Subscriber,
    )
    from turnout.engine.trace import Mapped, StageReport
    from turnout.routes import Route


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
    if as_json:
        typer.echo(json_text(explanation.as_dict(), indent=1))
    else:
        echo_lines(explanation_lines(explanation), _COLOURS)


_COLOURS = {
    r"^outcome  (failed|dead).*|^dead\b|^    - .*": BAD,
    r"^outcome  delivered\b|^sent\b|^wanted\b|^    \+ .*": GOOD,
    r"^outcome  .*|^    ~ |^note\b|^asked   .* does not want it": DOUBTFUL,
}


def _explanation(
    route: Route, record: str | None, file: Path | None, subscription: str | None, as_of: str
) -> RecordExplanation:
    """Return the way of a record: a stored one, or one that is written in a file or on standard input."""
    from turnout.base.startup import block_pandas_import

    block_pandas_import()
    from turnout.cli.options import subscriptions_of
    from turnout.engine import Program
    from turnout.engine.explain import explain
    from turnout.runtime.preflight import preflight_of_reachable
    from turnout.subscriptions import index as subscription_index

    batch = _stored(route, record) if record is not None else _written_record(route, file)
    subscriptions = list(subscriptions_of(route, as_of))
    index = subscription_index.Index.of(subscriptions) if route.subscriptions is not None else None
    by_id = {subscription.id: subscription for subscription in subscriptions}
    if subscription is not None and subscription not in by_id:
        raise SubscriptionNotFoundError(subscription, did_you_mean(subscription, by_id))
    route, notes = preflight_of_reachable(route)
    return explain(Program.of(route), batch, index, by_id, asked=subscription, notes=notes)


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


_SHOWN_LINES = 20
"""Maximum number of matching subscriptions shown, and of messages."""


def explanation_lines(explanation: RecordExplanation) -> Iterator[str]:
    """Yield the whole explanation as text lines."""
    record = explanation.record
    yield f"record  {record['topic']}, partition {record['partition']}, offset {record['offset']}"
    if explanation.change is not None:
        yield from _change(explanation.change)
    for report in explanation.stages:
        yield from _stage(report)
    if explanation.mapped is not None:
        yield from _mapping(explanation.mapped)
    yield from _shortened(
        [list(_subscriber_lines(subscriber)) for subscriber in explanation.wanted], "subscriptions want it"
    )
    if explanation.asked is not None:
        yield from _answer_lines(explanation.asked)
    yield f"outcome  {explanation.outcome.replace('_', ' ')}"
    if explanation.failure is not None:
        failure = explanation.failure
        yield f"    {failure.stage}: {failure.class_name}: {failure.message}"
    yield from _shortened([list(_message(message)) for message in explanation.messages], "messages")
    yield from (f"note    {note}" for note in explanation.notes)


def _shortened(blocks: list[list[str]], heading: str) -> Iterator[str]:
    for block in blocks[:_SHOWN_LINES]:
        yield from block
    if len(blocks) > _SHOWN_LINES:
        yield f"…       {len(blocks):,} {heading}; --json has all of them"


def _change(change: ChangeEvent) -> Iterator[str]:
    yield f"change  {change.action} of {change.table or 'a table without a name'}"
    yield f"    {change.origin}"
    if change.remark:
        yield f"    {change.remark}"
    if change.before is not None or change.after is not None:
        yield from change_lines("row", change.before or {}, change.after or {})


def _stage(report: StageReport) -> Iterator[str]:
    yield f"stage   {report.name} ({report.transform}): {report.outcome}"
    for answer in report.answers:
        saw = ", ".join(f"{key} = {value!r}" for key, value in answer.saw.items())
        turned = ", negated" if answer.negate else ""
        yield f"    {answer.predicate} is {str(answer.holds).lower()}{turned}; it saw {saw or 'nothing'}"
    if report.error:
        yield f"    {report.error}"
    for name, value in report.after.items():
        before = report.before.get(name)
        if before != value:
            yield from change_lines(name, before, value)


def change_lines(name: str, before: object, after: object) -> Iterator[str]:
    """Yield the differences of one part of a record, a line for each field."""
    if isinstance(before, dict) and isinstance(after, dict):
        for field in dict.fromkeys((*before, *after)):
            if field not in after:
                yield f"    - {name}.{field}: {_readable(before[field])}"
            elif field not in before:
                yield f"    + {name}.{field}: {_readable(after[field])}"
            elif before[field] != after[field]:
                yield f"    ~ {name}.{field}: {_readable(before[field])} → {_readable(after[field])}"
        return
    yield f"    ~ {name}: {_readable(before)} → {_readable(after)}"


def _mapping(mapped: Mapped) -> Iterator[str]:
    if mapped.source is None:
        yield f"mapping none matches {mapped.topic}"
        return
    where = f" for the cluster {mapped.group}" if mapped.group else ""
    yield f"mapping {mapped.source}{where}: {mapped.topic} → {mapped.mapped or 'lost by weight'}"
    chosen = "lost" if mapped.destination is None else mapped.destination
    if mapped.drawn:
        yield f"    {chosen}, {mapped.share} % of the records; this one's draw is {mapped.draw:.4f}"


def _subscriber_lines(subscriber: Subscriber) -> Iterator[str]:
    yield f"wanted  {subscriber.subscription} → {', '.join(subscriber.destinations)}"
    yield from map(_leaf, subscriber.leaves)


def _leaf(leaf: LeafReport) -> str:
    return f"    {leaf.test}; {leaf.key} is {'missing' if leaf.value is None else repr(leaf.value)}"


def _answer_lines(answer: RequestedSubscription) -> Iterator[str]:
    name = answer.subscription
    if answer.wants is None:
        yield f"asked   {name}: the record did not reach the matching"
        return
    if answer.wants:
        yield f"asked   {name} wants it"
        return
    yield f"asked   {name} does not want it: {answer.inactive or answer.condition}"
    if answer.blame == ():
        return
    if answer.blame is None:
        yield "    no change of its leaves makes the condition true"
        return
    label = "the leaves to blame" if len(answer.blame) > 1 else "the leaf to blame"
    yield f"    {label}{'' if answer.exact else ', though there may be a smaller set'}:"
    yield from (f"    {_leaf(leaf)}" for leaf in answer.blame)


def _message(message: SentMessage) -> Iterator[str]:
    kind = "dead    " if message.dead_letter else "sent    "
    sink = f" in {message.sink}" if message.sink else ""
    subscription_text = f" for {message.subscription}" if message.subscription else ""
    yield f"{kind}{message.topic}{sink}{subscription_text}, id {message.id or 'none'}"
    if message.url is not None:
        yield f"    posted to {message.url}"
    if message.projected:
        yield f"    projected: {'null' if message.value is None else message.value}"
    if message.dead_letter:
        yield from (f"    {name}: {value}" for name, value in message.headers)


def _readable(value: object) -> str:
    return json_text(value)
