"""``turnout tail SUBJECT``: the messages of a stream, stored and new, as text or JSON lines."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.jetstream_options import JetStreamAccess, follow, with_access
from turnout.durations import parse_duration
from turnout.errors import ConfigError, Mistake
from turnout.terminal import json_text, printable_lines
from turnout.untrusted import decimal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from turnout.nats.jetstream import ConsumerConfig, Message, OrderedSubscription

_FORMS = "all, new, last, last-per-subject, a sequence, an age like 10m, or a time like 2026-01-31T12:00:00Z"


def start(text: str, now: datetime) -> ConsumerConfig:
    """Return the configuration of a consumer with the start that *text* describes.

    Raises:
        ConfigError: it says nothing that can be understood.
    """
    from turnout.nats.jetstream import ConsumerConfig, DeliverPolicy

    words = {
        "all": DeliverPolicy.ALL,
        "new": DeliverPolicy.NEW,
        "last": DeliverPolicy.LAST,
        "last-per-subject": DeliverPolicy.LAST_PER_SUBJECT,
    }
    if text in words:
        return ConsumerConfig(deliver_policy=words[text])
    sequence = decimal(text)
    if sequence is not None:
        return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=max(1, sequence))
    age = parse_duration(text)
    try:
        moment = datetime.fromisoformat(text) if age is None else now - timedelta(seconds=age)
    except (ValueError, OverflowError):
        raise ConfigError([Mistake("--from", f"{text!r} is not {_FORMS}")]) from None
    return ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=moment.astimezone(UTC))


def json_line(message: Message) -> str:
    """Return a message as a JSON object; a payload that is not UTF-8 is given in base64."""
    fields: dict[str, object] = {
        "subject": message.subject,
        "sequence": message.sequence,
        "timestamp": message.timestamp.isoformat(),
        "headers": message.headers,
    }
    try:
        fields["data"] = message.data.decode()
    except UnicodeDecodeError:
        fields["data_base64"] = base64.b64encode(message.data).decode()
    return json_text(fields)


def pretty(message: Message) -> str:
    """Return a message as text, without characters that control a terminal; line breaks of the payload stay."""
    head = f"[{message.sequence}] {message.timestamp:%Y-%m-%d %H:%M:%S.%f} {message.subject}"
    lines = [head, *(f"  {name}: {value}" for name, values in message.headers.items() for value in values)]
    body = message.data.decode("utf-8", "backslashreplace")
    if body:
        lines += body.split("\n")
    return printable_lines(lines)


def tail(
    subject: Annotated[str, typer.Argument(help="What to follow; wildcards are allowed.")],
    stream: Annotated[str, typer.Option(help="The stream, if the subject is not to find it.")] = "",
    from_: Annotated[str, typer.Option("--from", help=f"Where to begin: {_FORMS}.")] = "new",
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this many.")] = None,
    wait: Annotated[float | None, typer.Option(help="End after this many seconds without a message.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line for each message.")] = False,
    *,
    access: JetStreamAccess,
) -> None:
    """Follow a stream with an ordered consumer: every message once, in order, over faults too."""
    config = start(from_, datetime.now(UTC))
    show = json_line if as_json else pretty

    async def follow_stream() -> None:
        async with access.open() as js, await js.ordered(subject, stream=stream, config=config) as messages:
            async for message in _limited(messages, count, wait):
                typer.echo(show(message))

    follow(follow_stream(), has_end=count is not None or wait is not None)


async def _limited(messages: OrderedSubscription, count: int | None, wait: float | None) -> AsyncIterator[Message]:
    """Yield up to *count* messages, until no message arrives within *wait* seconds."""
    from turnout.nats.jetstream.errors import RequestTimeoutError

    count_shown = 0
    while count is None or count_shown < count:
        try:
            yield await messages.next(wait)
        except RequestTimeoutError:
            return
        count_shown += 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("tail")(with_access(tail))
