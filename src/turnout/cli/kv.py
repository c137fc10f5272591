"""``turnout kv …``: key-value buckets, under any prefix or domain."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.cli.jetstream_options import JetStreamAccess, follow, with_access
from turnout.terminal import json_text, printable, printable_lines, printable_on_terminal

if TYPE_CHECKING:
    from turnout.nats.jetstream import JetStream
    from turnout.nats.jetstream.kv import KeyValue
    from turnout.nats.jetstream.kv_watch import Entry

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
    from turnout.nats.jetstream.kv_watch import WatchOptions

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


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(help="Read, write and watch key-value buckets.", no_args_is_help=True)
    commands.callback()(with_access(_options))
    for command in (put, create, update, get, delete, purge, keys, history, watch, buckets):
        commands.command(command.__name__)(command)
    commands.command("create-bucket")(create_bucket)
    commands.command("delete-bucket")(delete_bucket)
    app.add_typer(commands, name="kv")
