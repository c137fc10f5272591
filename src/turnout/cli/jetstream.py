"""``turnout tail``, ``kv`` and ``ack-format``: commands on a JetStream, and the options of its connection.

No option takes a secret: all users of a machine can read its command lines. Passwords, tokens and
seeds come from the environment or from files.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import inspect
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.base.clocks import parse_duration, parse_time
from turnout.base.options import camel_case
from turnout.base.terminal import json_text, printable, printable_lines, printable_on_terminal
from turnout.base.untrusted import decimal
from turnout.cli.options import AsJson
from turnout.errors import ConfigError, Mistake
from turnout.nats.protocol.options import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from turnout.nats.jetstream import ConsumerConfig, JetStream, Message, OrderedSubscription
    from turnout.nats.jetstream.kv import Entry, KeyValue

SECRETS: Mapping[str, str] = {
    "TURNOUT_NATS_PASSWORD": "password",
    "TURNOUT_NATS_TOKEN": "token",
    "TURNOUT_NATS_NKEY_SEED": "nkeySeed",
}
"""Environment variables that hold secrets, and the corresponding options."""

_FLAGS = {"servers": "--server", "apiPrefix": "--prefix", **{option: variable for variable, option in SECRETS.items()}}
"""Options that are not given by a flag of the same name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamAccess:
    """Connection options that the JetStream commands share, as `with_access` offers them."""

    servers: Annotated[str, typer.Option("--server", "-s", envvar="NATS_URL", help="Where the server is.")] = (
        "nats://127.0.0.1:4222"
    )
    api_prefix: Annotated[
        str | None, typer.Option("--prefix", help="API prefix of another account's JetStream (ADR-19).")
    ] = None
    domain: Annotated[str | None, typer.Option(help="Domain of the JetStream, behind a leaf node.")] = None
    inbox_prefix: Annotated[
        str, typer.Option(help="Prefix of reply subjects; an account import needs an exported one.")
    ] = "_INBOX"
    credentials: Annotated[
        Path | None, typer.Option("--credentials", envvar="NATS_CREDS", help="Credentials file (.creds).")
    ] = None
    user: Annotated[
        str | None, typer.Option(envvar="TURNOUT_NATS_USER", help="User; the password is in TURNOUT_NATS_PASSWORD.")
    ] = None
    nkey_seed_file: Annotated[Path | None, typer.Option(envvar="NATS_NKEY", help="File with an nkey's seed.")] = None
    tls_ca: Annotated[Path | None, typer.Option(envvar="NATS_CA", help="Authority of the server (PEM).")] = None
    tls_cert: Annotated[Path | None, typer.Option(envvar="NATS_CERT", help="Our certificate (PEM).")] = None
    tls_key: Annotated[Path | None, typer.Option(envvar="NATS_KEY", help="Its private key (PEM).")] = None
    timeout: Annotated[float, typer.Option(help="Seconds that connecting, or a request, may take.")] = 5.0

    def open(self) -> AbstractAsyncContextManager[JetStream]:
        """Return a connection; its errors go to standard error.

        Raises:
            ConfigError: an option cannot be, or names a file that cannot be read.
        """
        from turnout.nats.jetstream import connect

        _warn_of_user_info(self.servers)
        return connect(self.options(os.environ), error_callback=lambda failure: show(str(failure)))

    def options(self, environment: Mapping[str, str]) -> ConnectionOptions:
        """Return the options for both clients, with the secrets from the *environment*.

        Raises:
            ConfigError: as `open`; each mistake names its flag or variable.
        """
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ConfigError([Mistake("--tls-cert", "a certificate and its key belong together")])
        settings = {camel_case(field.name): getattr(self, field.name) for field in fields(self)}
        settings["connectTimeout"] = self.timeout
        settings |= {option: environment.get(variable) for variable, option in SECRETS.items()}
        try:
            return ConnectionOptions.from_mapping({name: str(value) for name, value in settings.items() if value})
        except ConfigError as wrong:
            mistakes = [Mistake(_flag(mistake.path), mistake.problem) for mistake in wrong.mistakes]
            raise ConfigError(mistakes, what="NATS connection") from None


def with_access(command: Callable[..., None]) -> Callable[..., None]:
    """Return the *command* for Typer: its parameter ``access`` is replaced by the options of a connection."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(JetStreamAccess, eval_str=True).parameters

    @functools.wraps(command)
    def with_options(**options: Any) -> None:
        access = JetStreamAccess(**{name: options.pop(name) for name in shared})
        command(**options, access=access)

    parameters = [
        option.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.parameters.items()
        for option in (shared.values() if name == "access" else (parameter,))
    ]
    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {option.name: option.annotation for option in parameters}
    return with_options


def _flag(option: str) -> str:
    return _FLAGS.get(option) or "--" + re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", option)


def _warn_of_user_info(server: str) -> None:
    """Warn if a login in the server URL was given on the command line; from the environment it is private."""
    if "@" in server and any(server in argument for argument in sys.argv[1:]):
        show(
            "all users of this machine can read the login in --server while this runs: use --user and "
            f"{', '.join(SECRETS)}, --credentials, or NATS_URL"
        )


def show(text: str) -> None:
    """Print a message on standard error, with the prefix ``turnout:``."""
    sys.stderr.write(f"turnout: {text}\n")


def follow(work: Coroutine[object, object, None], *, has_end: bool = False) -> None:
    """Run work; Ctrl-C ends it, without an error if it has no end of its own."""
    try:
        asyncio.run(work)
    except KeyboardInterrupt:
        if has_end:
            raise


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
        moment = parse_time(text) if age is None else now - timedelta(seconds=age)
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


@with_access
def tail(
    subject: Annotated[str, typer.Argument(help="What to follow; wildcards are allowed.")],
    stream: Annotated[str, typer.Option(help="The stream, if the subject is not to find it.")] = "",
    from_: Annotated[str, typer.Option("--from", help=f"Where to begin: {_FORMS}.")] = "new",
    count: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="End after this many.")] = None,
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


Bucket = Annotated[str, typer.Argument(help="The bucket.")]
Key = Annotated[str, typer.Argument(help="The key.")]
Value = Annotated[str, typer.Argument(help="The value; - reads it from standard input.")]
Revision = Annotated[int | None, typer.Option(help="The revision: to read, or that the key must have.")]
Ttl = Annotated[float | None, typer.Option(help="Seconds after which it expires, where the bucket allows that.")]


@dataclass(frozen=True, slots=True)
class _Work:
    """Options of ``turnout kv`` that all its commands share."""

    access: JetStreamAccess
    as_json: bool

    def do(self, work: Callable[[JetStream], Awaitable[None]], *, follows: bool = False) -> None:
        """Connect, run *work* and close; Ctrl-C ends work that *follows* without an error."""

        async def whole() -> None:
            async with self.access.open() as js:
                await work(js)

        (follow if follows else asyncio.run)(whole())

    def with_bucket(self, bucket: str, work: Callable[[KeyValue], Awaitable[None]], *, follows: bool = False) -> None:
        """The same with a bucket opened."""

        async def open_it(js: JetStream) -> None:
            await work(await js.key_value(bucket))

        self.do(open_it, follows=follows)

    def print(self, facts: dict[str, object], plain: str) -> None:
        """Print one line of output, as JSON or as plain text."""
        typer.echo(json_text(facts) if self.as_json else plain)


def _facts(entry: Entry) -> dict[str, object]:
    return {
        "bucket": entry.bucket,
        "key": entry.key,
        "value": entry.value.decode("utf-8", "backslashreplace"),
        "revision": entry.revision,
        "created": entry.created.isoformat() if entry.created else None,
        "operation": entry.operation.value,
    }


def _line(entry: Entry) -> str:
    value = entry.value.decode("utf-8", "backslashreplace")
    return printable_lines(
        [f"[{entry.revision}] {entry.operation.value} {entry.key}" + (f" = {value}" if value else "")]
    )


def _value(text: str) -> bytes:
    return sys.stdin.buffer.read() if text == "-" else text.encode()


def _options(
    context: typer.Context,
    access: JetStreamAccess,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON lines.")] = False,
) -> None:
    """Read, write and watch key-value buckets."""
    context.obj = _Work(access, as_json)


def create_bucket(
    context: typer.Context,
    bucket: Bucket,
    history: Annotated[int, typer.Option(help="Entries kept for each key, 1 to 64.")] = 1,
    ttl: Annotated[float | None, typer.Option(help="Seconds after which entries expire.")] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Keep it in memory, not in files.")] = False,
) -> None:
    """Create a bucket; succeed if an equal one exists."""
    from turnout.nats.jetstream import StorageType
    from turnout.nats.jetstream.kv import KeyValueConfig

    storage = StorageType.MEMORY if memory else StorageType.FILE
    config = KeyValueConfig(bucket=bucket, history=history, ttl=ttl, storage=storage)

    async def work(js: JetStream) -> None:
        await js.create_key_value(config)
        context.obj.print({"bucket": bucket}, bucket)

    context.obj.do(work)


def delete_bucket(context: typer.Context, bucket: Bucket) -> None:
    """Delete a bucket with all it holds."""

    async def work(js: JetStream) -> None:
        await js.delete_key_value(bucket)
        context.obj.print({"deleted": bucket}, bucket)

    context.obj.do(work)


def buckets(context: typer.Context) -> None:
    """List the buckets."""

    async def work(js: JetStream) -> None:
        for name in sorted(await js.key_value_names()):
            context.obj.print({"bucket": name}, printable(name))

    context.obj.do(work)


def put(context: typer.Context, bucket: Bucket, key: Key, value: Value, ttl: Ttl = None) -> None:
    """Set a key, and print its revision."""

    async def work(kv: KeyValue) -> None:
        revision = await kv.put(key, _value(value), ttl=ttl)
        context.obj.print({"key": key, "revision": revision}, str(revision))

    context.obj.with_bucket(bucket, work)


def create(context: typer.Context, bucket: Bucket, key: Key, value: Value, ttl: Ttl = None) -> None:
    """Set a key that is not there, and print its revision."""

    async def work(kv: KeyValue) -> None:
        revision = await kv.create(key, _value(value), ttl=ttl)
        context.obj.print({"key": key, "revision": revision}, str(revision))

    context.obj.with_bucket(bucket, work)


def update(
    context: typer.Context,
    bucket: Bucket,
    key: Key,
    value: Value,
    revision: Annotated[int, typer.Option(help="The revision that the key must have.")],
) -> None:
    """Set a key if its revision is the one given, and print the new one."""

    async def work(kv: KeyValue) -> None:
        new_revision = await kv.update(key, _value(value), revision)
        context.obj.print({"key": key, "revision": new_revision}, str(new_revision))

    context.obj.with_bucket(bucket, work)


def get(context: typer.Context, bucket: Bucket, key: Key, revision: Revision = None) -> None:
    """Print the value of a key."""

    async def work(kv: KeyValue) -> None:
        entry = await kv.get(key, revision=revision)
        value = entry.value.decode("utf-8", "backslashreplace")
        context.obj.print(_facts(entry), printable_on_terminal(value))

    context.obj.with_bucket(bucket, work)


def delete(context: typer.Context, bucket: Bucket, key: Key, revision: Revision = None) -> None:
    """Delete a key; its history is kept."""

    async def work(kv: KeyValue) -> None:
        await kv.delete(key, revision=revision)
        context.obj.print({"deleted": key}, key)

    context.obj.with_bucket(bucket, work)


def purge(context: typer.Context, bucket: Bucket, key: Key, revision: Revision = None) -> None:
    """Delete a key with its history."""

    async def work(kv: KeyValue) -> None:
        await kv.purge(key, revision=revision)
        context.obj.print({"purged": key}, key)

    context.obj.with_bucket(bucket, work)


def keys(
    context: typer.Context,
    bucket: Bucket,
    patterns: Annotated[list[str] | None, typer.Argument(help="Keys or patterns; all if none is given.")] = None,
) -> None:
    """List the keys."""

    async def work(kv: KeyValue) -> None:
        for key in sorted(await kv.keys(*(patterns or ()))):
            context.obj.print({"key": key}, printable(key))

    context.obj.with_bucket(bucket, work)


def history(context: typer.Context, bucket: Bucket, key: Key) -> None:
    """List the history of a key, oldest first."""

    async def work(kv: KeyValue) -> None:
        for entry in await kv.history(key):
            context.obj.print(_facts(entry), _line(entry))

    context.obj.with_bucket(bucket, work)


def watch(
    context: typer.Context,
    bucket: Bucket,
    patterns: Annotated[list[str] | None, typer.Argument(help="Keys or patterns; all if none is given.")] = None,
    updates_only: Annotated[bool, typer.Option("--updates-only", help="Only changes from now on.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End after the messages that exist now.")] = False,
    wait: Annotated[float | None, typer.Option(help="End after this many seconds without a change.")] = None,
) -> None:
    """Print entries as they change."""
    from turnout.nats.jetstream.errors import RequestTimeoutError
    from turnout.nats.jetstream.kv import WatchOptions

    async def work(kv: KeyValue) -> None:
        async with await kv.watch(patterns or ">", WatchOptions(updates_only=updates_only)) as watcher:
            while True:
                try:
                    entry = await watcher.next(wait)
                except RequestTimeoutError:
                    return
                if entry is not None:
                    context.obj.print(_facts(entry), _line(entry))
                elif once:
                    return

    context.obj.with_bucket(bucket, work, follows=not once and wait is None)


def _with_json(command: Callable[..., None]) -> Callable[..., None]:
    """Return a *command* of the group with the group's ``--json``, which is then understood in both places."""

    @functools.wraps(command)
    def with_option(*, context: typer.Context, as_json: bool, **options: object) -> None:
        if as_json:
            context.obj = replace(context.obj, as_json=True)
        command(context=context, **options)

    own = inspect.signature(command, eval_str=True)
    option = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=AsJson)
    parameters = [
        *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own.parameters.values()),
        option,
    ]
    with_option.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_option.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return with_option


kv = typer.Typer(help="Read, write and watch key-value buckets.", no_args_is_help=True)
kv.callback()(with_access(_options))
for command in (
    put, create, update, get, delete, purge, keys, history, watch, buckets, create_bucket, delete_bucket,
):  # fmt: skip
    kv.command(command.__name__.replace("_", "-"))(_with_json(command))


def ack_format(
    tokens: Annotated[list[str], typer.Argument(help="Reply subjects, whole or as tokens after $JS.ACK.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line for each.")] = False,
) -> None:
    """Explain JSAck reply subjects of version 1 and 2 (ADR-15); 2 is the exit code for other subjects."""
    from turnout.errors import ConfigError, Mistake
    from turnout.nats.jetstream.errors import NotJetStreamMessageError
    from turnout.nats.protocol.positions import JSAck

    mistakes = []
    for text in tokens:
        reply = text if text.startswith("$") else f"$JS.ACK.{text}"
        try:
            ack = JSAck.parse(reply)
        except NotJetStreamMessageError as failure:
            mistakes.append(Mistake(text, str(failure)))
            continue
        facts = {**asdict(ack), "timestamp": ack.timestamp.isoformat()}
        if as_json:
            typer.echo(json_text(facts))
        else:
            width = max(len(name) for name in facts)
            typer.echo(
                printable_lines(
                    f"{name:<{width}}  {'-' if value in (None, '') else value}" for name, value in facts.items()
                )
            )
    if mistakes:
        raise ConfigError(mistakes, what="not a JetStream reply")
