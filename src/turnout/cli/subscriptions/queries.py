"""``turnout subscriptions read``, ``search``, ``match``, ``explain``, ``stats`` and ``export``: queries of a store."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import escaped_json, json_text, printable_lines
from turnout.base.untrusted import JsonObject
from turnout.cli.options import AsJson, StoreTimeout, StoreUrl, opened_store, store_url_of
from turnout.cli.subscriptions.changes import (
    Destination,
    Enabled,
    Key,
    Kind,
    LeafText,
    MetadataPairs,
    Partial,
    Pattern,
    Text,
    json_of,
    pairs_of,
    search_of,
)
from turnout.errors import SubscriptionInvalidError

if TYPE_CHECKING:
    from turnout.conditions import Explanation
    from turnout.rpc.client import MatchingClient
    from turnout.subscriptions import Match, Subscription

Pairs = Annotated[list[str] | None, typer.Argument(help="The message's metadata: key=value …")]
_SHOWN_CHARACTERS = 80
"""Number of characters of a wrong value in an error."""

Body = Annotated[str | None, typer.Option("--message", help="The metadata as a JSON object, or - for standard input.")]
Limit = Annotated[int, typer.Option(min=1, help="Results of one page.")]
Cursor = Annotated[str, typer.Option(help="The last id of the page before.")]


def read(id: str, store: StoreUrl = None, timeout: StoreTimeout = None) -> None:  # noqa: A002 - the argument's name on the command line
    """Print one subscription as JSON."""
    with opened_store(store, timeout) as opened:
        typer.echo(description(opened.read(id), indent=2))


def search(
    metadata: MetadataPairs = None,
    key: Key = None,
    pattern: Pattern = None,
    partial: Partial = False,
    leaf: LeafText = None,
    kind: Kind = None,
    destination: Destination = None,
    text: Text = None,
    enabled: Enabled = None,
    limit: Limit = 100,
    cursor: Cursor = "",
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Find subscriptions that have all the parts given, of their conditions, destinations or metadata; page by page."""
    from turnout.subscriptions.search import find

    wanted = search_of(metadata, key, pattern, partial, leaf, kind, destination, text, enabled)
    with opened_store(store, timeout) as opened:
        page = find(opened, wanted, limit=limit, cursor=cursor)
        subscriptions, after = list(page.items), page.cursor
    if as_json:
        from turnout.subscriptions.lines import subscription_to_json

        typer.echo(
            json.dumps(
                {"page": [subscription_to_json(one.hidden()) for one in subscriptions], "cursor": after},
                indent=1,
            )
        )
        return
    for subscription in subscriptions:
        typer.echo(description(subscription))
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


def description(subscription: Subscription, indent: int | None = None) -> str:
    """Return a subscription as JSON, with its revision."""
    from turnout.subscriptions.lines import subscription_to_json

    return json_text({**subscription_to_json(subscription.hidden()), "revision": subscription.revision}, indent=indent)


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
    from turnout.base.clocks import milliseconds_now

    now = milliseconds_now()
    with opened_store(store) as opened:
        return opened.read(id_).inactive(now, now)


def _plain(explanation: Explanation) -> JsonObject:
    from turnout.conditions.text import format_condition

    return {
        "conditionId": explanation.condition.id,
        "text": format_condition(explanation.condition),
        "holds": explanation.holds,
        "reason": explanation.reason,
        "children": [_plain(child) for child in explanation.children],
    }


def _is_plain(value: object) -> bool:
    values = value if isinstance(value, list) else [value]
    return not any(isinstance(one, dict | list) for one in values)


def _shortened(value: object) -> str:
    """Return the beginning of the JSON of a value."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _message(pairs: list[str] | None, body: str | None) -> Mapping[str, object]:
    message: dict[str, object] = {}
    if body is not None:
        data = json_of(body, "--message")
        if not isinstance(data, dict):
            raise SubscriptionInvalidError(f"--message: expected a JSON object, found {_shortened(data)}")
        for key, value in data.items():
            if not _is_plain(value):
                expected = "expected a text, a number, true, false, null or a list of them"
                raise SubscriptionInvalidError(f"--message: {key}: {expected}, found {_shortened(value)}")
        message = data
    return message | pairs_of(pairs or [], "metadata")
