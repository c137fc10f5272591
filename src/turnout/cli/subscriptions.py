"""``turnout subscriptions …``: the service, and commands on stored subscriptions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from turnout.cli.analyze import analyze
from turnout.cli.arguments import coupled, json_of, leaves_of, pairs_of
from turnout.cli.options import AsJson
from turnout.cli.serve import serve
from turnout.cli.stores import StoreTimeout, StoreUrl, opened_store, store_url_of
from turnout.cli.subscription_changes import (
    Delivery,
    Expires,
    ExpiresBy,
    From,
    Project,
    history,
    pause,
    resume,
    settings_of,
    update,
)
from turnout.cli.token import token
from turnout.errors import SubscriptionInvalidError, TurnoutError
from turnout.terminal import escaped_json, json_text, printable_lines
from turnout.untrusted import JsonObject

if TYPE_CHECKING:
    from turnout.conditions import Explanation
    from turnout.rpc.client import MatchingClient
    from turnout.subscriptions import Match, Subscription

Pairs = Annotated[list[str] | None, typer.Argument(help="The message's metadata: key=value …")]
Body = Annotated[str | None, typer.Option("--message", help="The metadata as a JSON object, or - for standard input.")]
Limit = Annotated[int, typer.Option(min=1, help="Results of one page.")]
Cursor = Annotated[str, typer.Option(help="The last id of the page before.")]

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
    ):
        commands.command(command.__name__)(command)
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
    from turnout.subscriptions.lines import subscription_from_json
    from turnout.subscriptions.rules import check

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
    with opened_store(store, timeout, create=True) as opened:
        created = opened.create(subscription)
    typer.echo(json.dumps({"id": created}) if as_json else printable_lines([created]))


def read(id: str, store: StoreUrl = None, timeout: StoreTimeout = None) -> None:  # noqa: A002 - the argument's name on the command line
    """Print one subscription as JSON."""
    with opened_store(store, timeout) as opened:
        typer.echo(_description(opened.read(id), indent=2))


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids to delete.")] = None,
    id_file: Annotated[
        typer.FileText | None, typer.Option("--ids", help="A file with an id on each line; - is standard input.")
    ] = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
) -> None:
    """Delete subscriptions: all of them, or none if one does not exist; more than 100,000 in batches of so many."""
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


def search(
    key: Annotated[str | None, typer.Option(help="With --pattern: the leaf's key.")] = None,
    pattern: Annotated[str | None, typer.Option(help="The leaf's pattern, letter by letter.")] = None,
    partial: Annotated[bool, typer.Option(help="The leaf tests single words.")] = False,
    meta: Annotated[list[str] | None, typer.Option(help="The subscription's own metadata: name=value.")] = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Find subscriptions by a leaf that they contain, or by their metadata; a page at a time."""
    if (key is None) != (pattern is None):
        raise SubscriptionInvalidError("--key and --pattern belong together: one is missing")
    if key is not None and meta:
        raise SubscriptionInvalidError("search by --key and --pattern, or by --meta: not both at once")
    subscriptions: list[Subscription]
    with opened_store(store, timeout) as opened:
        if key is not None and pattern is not None:
            matches = opened.search_by_condition(key, pattern, partial, limit=limit, cursor=cursor)
            subscriptions, after = [match.subscription for match in matches.items], matches.cursor
        else:
            page = opened.search_by_metadata(pairs_of(meta or [], "--meta"), limit=limit, cursor=cursor)
            subscriptions, after = list(page.items), page.cursor
    if as_json:
        from turnout.subscriptions.lines import subscription_to_json

        typer.echo(
            json.dumps(
                {"page": [subscription_to_json(subscription) for subscription in subscriptions], "cursor": after},
                indent=1,
            )
        )
        return
    for subscription in subscriptions:
        typer.echo(_description(subscription))
    if after:
        typer.echo(printable_lines([f"there are more: --cursor {after}"]), err=True)


def match(
    pairs: Pairs = None,
    message: Body = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Print the subscriptions that match a message, with their destinations."""
    metadata = _message(pairs, message)
    matches = sorted(_matches(store_url_of(store, timeout), metadata), key=lambda match: match.subscription_id)
    if as_json:
        rows = [
            {
                "subscriptionId": match.subscription_id,
                "destinations": match.destinations,
                "conditionIds": match.leaf_ids,
            }
            for match in matches
        ]
        typer.echo(json.dumps({"matches": rows}, indent=1))
        return
    for match in matches:
        typer.echo(printable_lines([f"{match.subscription_id}  {' '.join(match.destinations)}"]))
    typer.echo(f"{len(matches)} matched", err=True)


def explain(
    id: str,  # noqa: A002 - the argument's name on the command line
    pairs: Pairs = None,
    message: Body = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Explain the result of matching a subscription with a message, down to each leaf."""
    url = store_url_of(store, timeout)
    explanation, inactive = _explained(url, id, _message(pairs, message)), _inactive(url, id)
    matched = explanation.holds and not inactive
    if as_json:
        answer = {"matched": matched, "inactive": inactive, "explanation": _plain(explanation)}
        typer.echo(json.dumps(answer, indent=1))
        return
    if inactive:
        typer.echo(
            f"not matched because the subscription {inactive}; its condition is {str(explanation.holds).lower()}:"
        )
    else:
        typer.echo(f"{'matched' if matched else 'not matched'} because")
    typer.echo(printable_lines(explanation.lines(1)))


def stats(
    hottest: Annotated[int, typer.Option(min=0, help="How many of the anchors with the most terms.")] = 10,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Print statistics of the subscription index: anchors, the hottest of them, and terms without one."""
    from turnout.subscriptions import Matcher

    with opened_store(store, timeout) as opened:
        matcher = Matcher.from_store(opened)
    index = matcher.stats(hottest)
    if as_json:
        rows = [{"key": a.key, "kind": str(a.kind), "text": a.text, "terms": count} for a, count in index.hottest]
        typer.echo(
            json.dumps(
                {
                    "revision": matcher.revision,
                    "subscriptions": index.subscriptions,
                    "terms": index.terms,
                    "anchors": index.anchors,
                    "always": index.always,
                    "hottest": rows,
                },
                indent=1,
            )
        )
        return
    typer.echo(f"{index.subscriptions:,} subscriptions at revision {matcher.revision}")
    typer.echo(f"{index.terms:,} terms under {index.anchors:,} anchors")
    typer.echo(f"{index.always:,} terms without an anchor: each is verified on every message")
    for anchor, count in index.hottest:
        typer.echo(printable_lines([f"{count:>9,}  {anchor}"]))


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
        done = import_lines(opened, lines, existing=existing, progress=progress)
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


@contextmanager
def _service(address: str | None) -> Iterator[MatchingClient | None]:
    """Yield a client of the service if the store's address is one (``grpc://``), else None."""
    url = store_url_of(address)
    if not url.startswith("grpc://"):
        yield None
        return
    from turnout.rpc.client import Channel, MatchingClient

    client = MatchingClient(Channel.parse(url))
    try:
        yield client
    finally:
        client.close()


def _matches(store: str, metadata: Mapping[str, object]) -> list[Match]:
    from turnout.subscriptions import Matcher

    with _service(store) as service:
        if service is not None:
            return service.match(metadata)
    with opened_store(store) as opened:
        return list(Matcher.from_store(opened).match(metadata))


def _explained(store: str, id_: str, metadata: Mapping[str, object]) -> Explanation:
    from turnout.conditions import explain as explanation_of
    from turnout.records.text import texts_of_values

    with _service(store) as service:
        if service is not None:
            return service.explain(id_, metadata)
    with opened_store(store) as opened:
        return explanation_of(opened.read(id_).condition, texts_of_values(metadata))


def _inactive(store: str, id_: str) -> str:
    """Return the reason that a subscription matches nothing now; "" if there is none."""
    from turnout.epoch import milliseconds_now

    now = milliseconds_now()
    with opened_store(store) as opened:
        return opened.read(id_).inactive(now, now)


def _description(subscription: Subscription, indent: int | None = None) -> str:
    from turnout.subscriptions.lines import subscription_to_json

    return json_text({**subscription_to_json(subscription), "revision": subscription.revision}, indent=indent)


def _plain(explanation: Explanation) -> JsonObject:
    from turnout.conditions.text import format_condition

    return {
        "conditionId": explanation.condition.id,
        "text": format_condition(explanation.condition),
        "holds": explanation.holds,
        "reason": explanation.reason,
        "children": [_plain(child) for child in explanation.children],
    }


def _is_texts(value: object) -> bool:
    texts = value if isinstance(value, list) else [value]
    return all(isinstance(text, str) for text in texts)


def _message(pairs: list[str] | None, body: str | None) -> Mapping[str, object]:
    message: dict[str, object] = {}
    if body is not None:
        data = json_of(body, "--message")
        if not isinstance(data, dict) or not all(map(_is_texts, data.values())):
            raise SubscriptionInvalidError("--message: expected a JSON object of texts, or lists of texts")
        message = data
    return message | pairs_of(pairs or [], "metadata")
