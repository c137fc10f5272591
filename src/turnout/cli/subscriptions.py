"""``turnout subscriptions …``: the service, and commands on stored subscriptions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Literal

import typer

from turnout.cli.analyze import analyze
from turnout.cli.arguments import coupled, json_of, leaves_of, pairs_of
from turnout.cli.options import AsJson
from turnout.cli.serve_subscriptions import serve
from turnout.cli.stores import StoreTimeout, StoreUrl, opened_store
from turnout.cli.subscription_changes import (
    Delivery,
    Expires,
    ExpiresBy,
    From,
    Project,
    echo_doubts,
    history,
    pause,
    resume,
    settings_of,
    update,
)
from turnout.cli.subscription_queries import description, explain, match, search, stats
from turnout.cli.subscription_secrets import Sign, echo_secret, reseal, secret_key, secret_part, signed_with
from turnout.cli.token import token
from turnout.errors import SubscriptionInvalidError, TurnoutError
from turnout.terminal import escaped_json, printable_lines

_BATCH = 100_000
"""Maximum number of ids deleted as one change: the service's limit."""


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands = typer.Typer(help="Store subscriptions, find them, and serve them over gRPC.", no_args_is_help=True)
    for command in (
        serve,
        token,
        create,
        read,
        update,
        pause,
        resume,
        delete,
        history,
        search,
        match,
        explain,
        stats,
        analyze,
        reseal,
    ):
        commands.command(command.__name__)(command)
    commands.command("secret-key")(secret_key)
    commands.command("import")(import_)
    commands.command("export")(export)
    app.add_typer(commands, name="subscriptions")


def create(
    condition: Annotated[
        str | None, typer.Argument(help="What to look for: 'subject:orders* AND NOT location:Helsinki'.")
    ] = None,
    to: Annotated[list[str] | None, typer.Option("--to", help="A destination; give it several times.")] = None,
    id: Annotated[str, typer.Option("--id", help="The subscription's id; a new one if not given.")] = "",  # noqa: A002 - the option's name
    meta: Annotated[list[str] | None, typer.Option(help="The subscription's own metadata: name=value.")] = None,
    has: Annotated[list[str] | None, typer.Option(help="A leaf: key=pattern.")] = None,
    has_word: Annotated[list[str] | None, typer.Option(help="A leaf on any word of the value: key=pattern.")] = None,
    has_not: Annotated[list[str] | None, typer.Option(help="A negated leaf: key=pattern.")] = None,
    logic: Annotated[Literal["and", "or", "xor"], typer.Option(help="How the leaves of --has… are coupled.")] = "and",
    body: Annotated[
        str | None, typer.Option("--body", help="JSON as for the service's Create; - reads standard input.")
    ] = None,
    expires: Expires = None,
    expires_by: ExpiresBy = "record",
    delivery: Delivery = None,
    sign: Sign = False,
    start: From = None,
    project: Project = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Store it paused.")] = False,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Store a subscription and print its id: from text, from flags, or from JSON."""
    from turnout.conditions import parse
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.lines import doubts, subscription_from_json
    from turnout.subscriptions.signing_secrets import new_secret
    from turnout.subscriptions.validation import check

    leaves = leaves_of(has, has_word, has_not)
    if sum(map(bool, (condition, leaves, body))) != 1:
        raise SubscriptionInvalidError(
            "give the condition once: as text, by --has, --has-word and --has-not, or --body"
        )
    settings = settings_of(expires, expires_by, delivery, start, project)
    if body is not None:
        if to or meta or id or settings or disabled:
            raise SubscriptionInvalidError("--body has all of the subscription: leave the options for its parts out")
        subscription = subscription_from_json(json_of(body, "--body"))
    else:
        parsed = parse(condition) if condition is not None else coupled(leaves, logic)
        own = pairs_of(meta or [], "--meta")
        subscription = Subscription(to or [], parsed, own, id, enabled=not disabled, **settings)
        check(subscription)
    secret = new_secret() if sign else ""
    if sign:
        subscription = replace(subscription, delivery=signed_with(secret, subscription.delivery))
    with opened_store(store, timeout, create=True) as opened:
        created = opened.create(subscription)
    if body is not None:
        echo_doubts(doubts([subscription], [created]))
    typer.echo(json.dumps({"id": created, **secret_part(secret)}) if as_json else printable_lines([created]))
    echo_secret(secret, as_json=as_json)


def read(id: str, store: StoreUrl = None, timeout: StoreTimeout = None) -> None:  # noqa: A002 - the argument's name on the command line
    """Print one subscription as JSON."""
    with opened_store(store, timeout) as opened:
        typer.echo(description(opened.read(id), indent=2))


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids to delete.")] = None,
    id_file: Annotated[
        typer.FileText | None, typer.Option("--ids", help="A file with an id on each line; - is standard input.")
    ] = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
) -> None:
    """Delete subscriptions: all of them, or none if one does not exist; more than 100,000 in batches."""
    if bool(ids) == (id_file is not None):
        raise SubscriptionInvalidError("give the ids as arguments, or a file of them with --ids: one of both")
    from turnout.subscriptions.store import delete_many

    lines = (line.rstrip("\r\n") for line in id_file or () if line.strip())
    chosen = list(dict.fromkeys(ids or lines))
    with opened_store(store, timeout) as opened:
        for start in range(0, len(chosen), _BATCH):
            try:
                delete_many(opened, chosen[start : start + _BATCH])
            except TurnoutError:
                if start:
                    typer.echo(f"{start:,} deleted before that", err=True)
                raise
    shown = [f"deleted {id_}" for id_ in chosen] if ids else [f"{len(chosen):,} deleted"]
    typer.echo(printable_lines(shown), err=True)


def import_(
    file: Annotated[str, typer.Argument(help="JSON lines; - for standard input.")],
    existing: Annotated[
        Literal["fail", "skip"], typer.Option(help="What to do with an id that is stored already.")
    ] = "fail",
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Store the subscriptions of a file of JSON lines, as `export` writes it."""
    from turnout.subscriptions.lines import Imported, import_lines

    def progress(imported: Imported) -> None:
        if not as_json and sys.stderr.isatty():
            typer.echo(f"\r{imported.created:,} stored", err=True, nl=False)

    with opened_store(store, timeout, create=True) as opened, _reading(file) as lines:
        done = import_lines(opened, lines, existing=existing, progress=progress, warn=lambda one: echo_doubts([one]))
    if as_json:
        typer.echo(json.dumps({"created": done.created, "skipped": done.skipped}))
    else:
        typer.echo(f"{done.created:,} stored, {done.skipped:,} were there already", err=True)


def export(
    file: Annotated[str, typer.Argument(help="The file to write; - for standard output.")] = "-",
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
) -> None:
    """Write every subscription as a line of JSON."""
    from turnout.subscriptions.lines import export_lines

    count = 0
    with opened_store(store, timeout) as opened, _writing(file) as out:
        for line in export_lines(opened):
            out.write(f"{escaped_json(line)}\n")
            count += 1
    typer.echo(f"{count:,} written", err=True)


@contextmanager
def _reading(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as opened:
        yield opened


@contextmanager
def _writing(file: str) -> Iterator[IO[str]]:
    if file == "-":
        yield sys.stdout
        return
    with Path(file).open("w", encoding="utf-8") as opened:
        yield opened
