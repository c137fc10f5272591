"""``turnout subscriptions update``, ``pause``, ``resume`` and ``history``: versions of a subscription."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from turnout.cli.arguments import json_of, pairs_of
from turnout.cli.options import AsJson
from turnout.cli.stores import StoreTimeout, StoreUrl, opened_store
from turnout.cli.subscription_secrets import Sign, echo_secret, secret_part, signed_with
from turnout.errors import SubscriptionInvalidError
from turnout.terminal import json_text, printable_lines
from turnout.untrusted import JsonObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from turnout.subscriptions import Subscription
    from turnout.subscriptions.audit import AuditEntry

Expires = Annotated[
    str | None, typer.Option(help="ISO 8601 time from which on it matches nothing; never takes that back.")
]
ExpiresBy = Annotated[
    Literal["record", "wall"], typer.Option(help="Compare it with the time of records, or with the clock.")
]
Project = Annotated[
    str | None,
    typer.Option(
        "--project",
        metavar="CEL",
        help="The messages' body, computed from the record: {'id': value.id}; an empty text for the record's value.",
    ),
]
Delivery = Annotated[
    str | None, typer.Option(help='Settings of HTTP deliveries as JSON, as {"ordered": true}; - is standard input.')
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="PLACE", help="Earlier records it gets too: earliest, an ISO time or a sequence."),
]
Ids = Annotated[list[str], typer.Argument(help="The ids of the subscriptions.")]
ExpectedRevision = Annotated[
    int | None, typer.Option(min=0, help="Refuse if the subscription is at another revision than this one.")
]


def update(
    id: str,  # noqa: A002 - the argument's name on the command line
    condition: Annotated[str | None, typer.Argument(help="What to look for from now on, as text.")] = None,
    to: Annotated[list[str] | None, typer.Option("--to", help="A destination; replaces all.")] = None,
    meta: Annotated[
        list[str] | None, typer.Option(help="The subscription's own metadata, name=value; replaces all.")
    ] = None,
    body: Annotated[
        str | None,
        typer.Option("--body", help="The whole new version as JSON, as `read` prints it; - is standard input."),
    ] = None,
    expires: Expires = None,
    expires_by: ExpiresBy = "record",
    delivery: Delivery = None,
    sign: Sign = False,
    start: From = None,
    project: Project = None,
    expected_revision: ExpectedRevision = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Replace parts of a subscription, or all of it, under the same id; a running route sees one change."""
    from turnout.conditions import parse
    from turnout.subscriptions.lines import doubts, subscription_from_json
    from turnout.subscriptions.signing_secrets import new_secret
    from turnout.subscriptions.validation import check

    parts: JsonObject = {}
    if condition is not None:
        parts["condition"] = parse(condition)
    if to:
        parts["destinations"] = to
    if meta:
        parts["metadata"] = pairs_of(meta, "--meta")
    parts |= settings_of(expires, expires_by, delivery, start, project)
    if (bool(parts) or sign) == (body is not None):
        raise SubscriptionInvalidError("give the changes, or the whole new version with --body, not both")
    if body is not None:
        new = subscription_from_json(json_of(body, "--body"))
        _edit(id, lambda _: new, expected_revision, store, timeout, as_json=as_json)
        echo_doubts(doubts([new], [id]))
        return
    secret = new_secret() if sign else ""

    def change(found: Subscription) -> Subscription:
        version = replace(found, **parts)
        if secret:
            version = replace(version, delivery=signed_with(secret, version.delivery))
        check(version)
        return version

    _edit(id, change, expected_revision, store, timeout, as_json=as_json, secret=secret)


def _edit(
    id_: str,
    change: Callable[[Subscription], Subscription],
    expected_revision: int | None,
    store: str | None,
    timeout: float | None,
    *,
    as_json: bool,
    secret: str = "",
) -> None:
    from turnout.subscriptions.store import edit

    with opened_store(store, timeout) as opened:
        revision = edit(opened, id_, change, expected_revision)
    if as_json:
        typer.echo(json.dumps({"id": id_, "revision": revision, **secret_part(secret)}))
    else:
        typer.echo(printable_lines([f"{id_} is at revision {revision}"]), err=True)
    echo_secret(secret, as_json=as_json)


def echo_doubts(problems: Iterable[str]) -> None:
    """Print what is probably not meant in stored conditions."""
    for problem in problems:
        typer.echo(printable_lines([f"warning: {problem}"]), err=True)


def settings_of(
    expires: str | None, expires_by: str, delivery: str | None, start: str | None, project: str | None
) -> JsonObject:
    """Return the settings that the options give, as arguments of a subscription.

    Raises:
        SubscriptionInvalidError: one means nothing.
    """
    from turnout.subscriptions.settings import settings_from_mapping

    settings: JsonObject = {}
    if expires == "never":
        settings["expires"] = None
    elif expires is not None:
        settings |= settings_from_mapping({"expires": {"at": expires, "by": expires_by}})
    if delivery is not None:
        settings |= settings_from_mapping({"delivery": json_of(delivery, "--delivery")})
    if start is not None:
        settings |= {"start": None, **settings_from_mapping({"from": start})}
    if project is not None:
        settings["project"] = project
    return settings


def pause(
    ids: Ids,
    keep: Annotated[bool, typer.Option("--keep", help="Deliver what passes meanwhile on `resume`.")] = False,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
) -> None:
    """Disable subscriptions: they match nothing from a route's next micro-batch on, and keep their ids."""

    def paused(found: Subscription) -> Subscription:
        # A second pause does not drop the records that the first one keeps.
        return replace(found, enabled=False, keep=keep or (found.keep and not found.enabled))

    _change(ids, paused, "paused", store, timeout)


def resume(ids: Ids, store: StoreUrl = None, timeout: StoreTimeout = None) -> None:
    """Enable subscriptions that `pause` has disabled; records since a pause with --keep are delivered."""
    _change(ids, lambda found: replace(found, enabled=True), "enabled", store, timeout)


def _change(
    ids: list[str],
    change: Callable[[Subscription], Subscription],
    state: str,
    store: str | None,
    timeout: float | None,
) -> None:
    from turnout.subscriptions.store import edit

    with opened_store(store, timeout) as opened:
        for id_ in ids:
            # The same again would be a change in the log that changes nothing.
            found = opened.read(id_)
            if change(found) != found:
                edit(opened, id_, change)
            typer.echo(printable_lines([f"{id_} is {state}"]), err=True)


def history(
    id: str,  # noqa: A002 - the argument's name on the command line
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Print every change of a subscription that the store remembers: time, author and changes."""
    from turnout.subscriptions.lines import subscription_to_json
    from turnout.subscriptions.store import history_of

    with opened_store(store, timeout) as opened:
        entries = [entry.hidden() for entry in history_of(opened, id)]
    if as_json:
        rows = [
            {
                "revision": entry.revision,
                "at": None if entry.at is None else entry.at.isoformat(),
                "actor": entry.actor,
                "action": entry.action,
                "before": None if entry.before is None else subscription_to_json(entry.before),
                "after": None if entry.after is None else subscription_to_json(entry.after),
            }
            for entry in entries
        ]
        typer.echo(json_text({"entries": rows}, indent=1))
        return
    for entry in entries:
        typer.echo(printable_lines(_lines(entry)))
    if not entries:
        typer.echo("no change is remembered", err=True)


def _lines(entry: AuditEntry) -> list[str]:
    at = "at an unknown time" if entry.at is None else entry.at.isoformat(timespec="seconds")
    lines = [f"revision {entry.revision}  {at}  {entry.action} by {entry.actor or 'unknown'}"]
    before, after = _facts(entry.before), _facts(entry.after)
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old != new:
            lines += [f"  - {name}: {old}"] * (old is not None) + [f"  + {name}: {new}"] * (new is not None)
    return lines


def _facts(subscription: Subscription | None) -> dict[str, str]:
    """Return the fields of a version by name, as texts for people."""
    if subscription is None:
        return {}
    from turnout.conditions import format_condition
    from turnout.subscriptions.settings import settings_to_mapping

    return {
        "condition": format_condition(subscription.condition),
        "destinations": " ".join(subscription.destinations),
        **{f"metadata.{name}": value for name, value in subscription.metadata.items()},
        **{name: json.dumps(value) for name, value in settings_to_mapping(subscription).items()},
    }
