"""``turnout subscriptions create``, ``update``, ``pause``, ``resume``, ``delete``, ``import`` and ``history``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from turnout.base.terminal import json_text, plural, printable_lines
from turnout.base.untrusted import JsonObject
from turnout.cli.options import AsJson, StoreTimeout, StoreUrl, opened_store
from turnout.errors import SubscriptionInvalidError, TurnoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from turnout.conditions import Condition
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.delivery_settings import DeliverySettings
    from turnout.subscriptions.import_set import ImportSet
    from turnout.subscriptions.past import AuditEntry
    from turnout.subscriptions.search import Edit, Search


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
OptionalIds = Annotated[list[str] | None, typer.Argument(help="The ids of the subscriptions.")]
MetadataPairs = Annotated[
    list[str] | None,
    typer.Option("--metadata", "--meta", metavar="NAME=VALUE", help="The subscription's own metadata; several times."),
]
Key = Annotated[str | None, typer.Option(help="A key that a leaf reads.")]
Pattern = Annotated[str | None, typer.Option(help="With --key: the pattern of a leaf, letter by letter.")]
Partial = Annotated[bool, typer.Option("--partial", help="The leaf with the pattern tests single words.")]
LeafText = Annotated[str | None, typer.Option("--leaf", help="A leaf of any kind as text: 'total>5'.")]
Kind = Annotated[str | None, typer.Option(help="The kind of a leaf: kiwi, compare, cidr, regex …")]
Destination = Annotated[str | None, typer.Option(help="One of its destinations; * stands for any text.")]
Text = Annotated[str | None, typer.Option(help="A text in its id, or in a name or value of its metadata.")]
Enabled = Annotated[bool | None, typer.Option("--enabled/--disabled", help="Only those that are enabled, or paused.")]
Everything = Annotated[bool, typer.Option("--all", help="All subscriptions of the store.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")]
ExpectedRevision = Annotated[
    int | None, typer.Option(min=0, help="Refuse if the subscription is at another revision than this one.")
]

_BATCH = 100_000
"""Maximum number of ids deleted as one change: the service's limit."""


def create(
    condition: Annotated[
        str | None, typer.Argument(help="What to look for: 'subject:orders* AND NOT location:Helsinki'.")
    ] = None,
    to: Annotated[list[str] | None, typer.Option("--to", help="A destination; give it several times.")] = None,
    id: Annotated[str, typer.Option("--id", help="The subscription's id; a new one if not given.")] = "",
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
    from turnout.subscriptions.credentials import new_secret
    from turnout.subscriptions.lines import doubts, subscription_from_json
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


def delete(
    ids: Annotated[list[str] | None, typer.Argument(help="The ids to delete.")] = None,
    id_file: Annotated[
        typer.FileText | None, typer.Option("--ids", help="A file with an id on each line; - is standard input.")
    ] = None,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
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
    if as_json:
        typer.echo(json_text({"deleted": chosen}))
        return
    shown = [f"deleted {id_}" for id_ in chosen] if ids else [f"{len(chosen):,} deleted"]
    typer.echo(printable_lines(shown), err=True)


def import_(
    file: Annotated[str, typer.Argument(help="JSON lines; - for standard input.")],
    existing: Annotated[
        Literal["fail", "skip", "replace"],
        typer.Option(help="What to do with an id that is stored already; replace makes all changes as one."),
    ] = "fail",
    set_: Annotated[
        str,
        typer.Option(
            "--set", metavar="NAME", help="With replace: the set that owns what is imported, in its metadata."
        ),
    ] = "",
    prefix: Annotated[
        str | None, typer.Option(help="With replace, without a set: the beginning of the ids that the import owns.")
    ] = None,
    prune: Annotated[
        bool, typer.Option("--prune", help="Remove what the import owns and the file does not have.")
    ] = False,
    prune_all: Annotated[
        bool, typer.Option("--prune-all", help="The same, also if the file has nothing of what the import owns.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With replace: print the changes, and make none.")] = False,
    against: Annotated[
        Path | None, typer.Option(help="With --dry-run: a route whose last records are matched.", dir_okay=False)
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="How many of each stream or partition.")] = 1_000,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Store the subscriptions of a file of JSON lines, as `export` writes it; with replace, bring the store to them."""
    from turnout.subscriptions.import_set import ImportSet
    from turnout.subscriptions.lines import Imported, import_lines

    owned = ImportSet(set_, prefix, prune, prune_all)
    if existing == "replace":
        _replace(file, owned, store, timeout, dry_run=dry_run, against=against, last=last, as_json=as_json)
        return
    if dry_run or against is not None or owned != ImportSet():
        raise SubscriptionInvalidError("--set, --prefix, --prune, --prune-all and --dry-run: with --existing replace")

    def progress(imported: Imported) -> None:
        if not as_json and sys.stderr.isatty():
            typer.echo(f"\r{imported.created:,} stored", err=True, nl=False)

    with opened_store(store, timeout, create=True) as opened, _reading(file) as lines:
        done = import_lines(opened, lines, existing=existing, progress=progress, warn=lambda one: echo_doubts([one]))
    if as_json:
        typer.echo(json.dumps({"created": done.created, "skipped": done.skipped}))
    else:
        typer.echo(f"{done.created:,} stored, {done.skipped:,} were there already", err=True)


def _replace(
    file: str,
    owned: ImportSet,
    store: str | None,
    timeout: float | None,
    *,
    dry_run: bool,
    against: Path | None,
    last: int,
    as_json: bool,
) -> None:
    """Bring the stored subscriptions of an import to the content of a file, or print what this would change."""
    from turnout.routes import Route
    from turnout.subscriptions.import_set import import_set, plan_lines
    from turnout.subscriptions.lines import doubts, read_lines, whole_subscription

    if against is not None and not dry_run:
        raise SubscriptionInvalidError("--against: the effect on its records is compared with --dry-run")
    route = None if against is None else Route.load(against)
    with _reading(file) as lines:
        new = list(map(whole_subscription, read_lines(lines, plain=False)))
    effect: JsonObject | None = None
    effect_lines: tuple[str, ...] = ()
    with opened_store(store, timeout, create=not dry_run) as opened:
        before = opened.snapshot() if route is not None else None
        plan = import_set(opened, new, owned, dry_run=dry_run)
    if route is not None and before is not None:
        from turnout.history.diff.diff import import_report
        from turnout.history.diff.report import report_json, report_lines

        report = import_report(route, last, before, plan.after(before))
        effect, effect_lines = report_json(report), tuple(report_lines(report))
    echo_doubts(doubts(new, [one.id for one in new]))
    if as_json:
        changed = [{"id": id_, "fields": list(names)} for id_, names in plan.fields.items()]
        answer = {"added": plan.added, "changed": changed, "removed": plan.removed, "adopted": plan.adopted}
        numbers = {"unchanged": plan.unchanged, "kept": plan.kept, "revision": plan.revision, "dryRun": dry_run}
        typer.echo(json_text({**answer, **numbers, "effect": effect}, indent=1))
        return
    counts = f"{len(plan.added):,} added, {len(plan.changed):,} changed, {len(plan.removed):,} removed"
    rest = f"{plan.unchanged:,} unchanged, {plan.kept:,} of others"
    adopted = f"; {len(plan.adopted):,} of them belonged to no set before" if plan.adopted else ""
    if dry_run:
        shown = [*plan_lines(plan), *effect_lines]
        typer.echo(printable_lines(shown), nl=bool(shown))
        typer.echo(f"{counts}, {rest}{adopted}; nothing was changed", err=True)
        return
    typer.echo(f"{counts}, {rest}{adopted}; at revision {plan.revision}", err=True)


@contextmanager
def _reading(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as opened:
        yield opened


def update(
    id: str,
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
    from turnout.subscriptions.credentials import new_secret
    from turnout.subscriptions.lines import doubts, subscription_from_json
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
    from turnout.subscriptions.model import settings_from_mapping

    given: JsonObject = {}
    if expires is not None:
        given["expires"] = None if expires == "never" else {"at": expires, "by": expires_by}
    if delivery is not None:
        given["delivery"] = json_of(delivery, "--delivery")
    if start is not None:
        given["from"] = start
    if project is not None:
        given["project"] = project
    return settings_from_mapping(given)


def pause(
    ids: OptionalIds = None,
    keep: Annotated[bool, typer.Option("--keep", help="Deliver what passes meanwhile on `resume`.")] = False,
    metadata: MetadataPairs = None,
    key: Key = None,
    pattern: Pattern = None,
    partial: Partial = False,
    leaf: LeafText = None,
    kind: Kind = None,
    destination: Destination = None,
    text: Text = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Disable subscriptions, by ids or a search: they match nothing from a route's next micro-batch on."""
    from turnout.subscriptions.search import Edit

    given = search_of(metadata, key, pattern, partial, leaf, kind, destination, text)
    edit = Edit(enabled=False, keep=keep)
    _edit_all(ids, given, edit, "paused", store, timeout, everything=everything, dry_run=dry_run, as_json=as_json)


def resume(
    ids: OptionalIds = None,
    metadata: MetadataPairs = None,
    key: Key = None,
    pattern: Pattern = None,
    partial: Partial = False,
    leaf: LeafText = None,
    kind: Kind = None,
    destination: Destination = None,
    text: Text = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Enable subscriptions that `pause` has disabled; records since a pause with --keep are delivered."""
    from turnout.subscriptions.search import Edit

    given = search_of(metadata, key, pattern, partial, leaf, kind, destination, text)
    edit = Edit(enabled=True)
    _edit_all(ids, given, edit, "enabled", store, timeout, everything=everything, dry_run=dry_run, as_json=as_json)


def label(
    ids: OptionalIds = None,
    add: Annotated[
        list[str] | None, typer.Option("--add", metavar="NAME=VALUE", help="Set this in their metadata; several times.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", metavar="NAME", help="Remove this name from it; several times.")
    ] = None,
    metadata: MetadataPairs = None,
    key: Key = None,
    pattern: Pattern = None,
    partial: Partial = False,
    leaf: LeafText = None,
    kind: Kind = None,
    destination: Destination = None,
    text: Text = None,
    enabled: Enabled = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    store: StoreUrl = None,
    timeout: StoreTimeout = None,
    as_json: AsJson = False,
) -> None:
    """Edit the metadata of subscriptions, by ids or a search; the rest of it stays."""
    from turnout.subscriptions.search import Edit

    given = search_of(metadata, key, pattern, partial, leaf, kind, destination, text, enabled)
    edit = Edit(metadata=pairs_of(add, "--add"), without=tuple(remove or ()))
    _edit_all(ids, given, edit, "labelled", store, timeout, everything=everything, dry_run=dry_run, as_json=as_json)


def _edit_all(
    ids: list[str] | None,
    search: Search,
    edit: Edit,
    state: str,
    store: str | None,
    timeout: float | None,
    *,
    everything: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Edit the subscriptions with these ids, or all that a search finds, as one change."""
    from turnout.subscriptions.search import edit_all, edit_ids

    if bool(ids) == bool(search or everything):
        raise SubscriptionInvalidError("give the ids, or a search (--all finds everything): one of both")
    with opened_store(store, timeout) as opened:
        if ids:
            done = edit_ids(opened, ids, edit, dry_run=dry_run)
        else:
            done = edit_all(opened, search, edit, dry_run=dry_run, everything=everything)
    if as_json:
        changed = {"changed": done.ids, "found": done.found, "revision": done.revision, "dryRun": dry_run}
        typer.echo(json_text(changed))
    elif ids and not dry_run:
        typer.echo(printable_lines(f"{id_} is {state}" for id_ in ids), err=True)
    else:
        would = "would change; nothing was changed" if dry_run else f"changed: {state} at revision {done.revision}"
        typer.echo(printable_lines(done.ids), nl=bool(done.ids))
        typer.echo(f"{done.found:,} found, {len(done.ids):,} {would}", err=True)


def history(id: str, store: StoreUrl = None, timeout: StoreTimeout = None, as_json: AsJson = False) -> None:
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
    from turnout.subscriptions.model import settings_to_mapping

    return {
        "condition": format_condition(subscription.condition),
        "destinations": " ".join(subscription.destinations),
        **{f"metadata.{name}": value for name, value in subscription.metadata.items()},
        **{name: json.dumps(value) for name, value in settings_to_mapping(subscription).items()},
    }


def search_of(
    metadata: list[str] | None,
    key: str | None,
    pattern: str | None,
    partial: bool,
    leaf: str | None,
    kind: str | None,
    destination: str | None,
    text: str | None,
    enabled: bool | None = None,
) -> Search:
    """Return the search that the options describe.

    Raises:
        SubscriptionInvalidError: one means nothing.
    """
    from turnout.subscriptions.search import Search

    return Search(pairs_of(metadata, "--metadata"), key, pattern, partial, leaf, kind, destination, text, enabled)


def split_pairs(written: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    """Return the names and values of ``name=value`` arguments.

    Raises:
        SubscriptionInvalidError: one is no pair.
    """
    pairs = []
    for pair in written or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise SubscriptionInvalidError(f"{option}: expected name=value, found {pair!r}")
        pairs.append((name, value))
    return pairs


def pairs_of(written: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the values of ``name=value`` arguments by name; see `split_pairs`."""
    return dict(split_pairs(written, option))


def json_of(written: str, option: str) -> object:
    """Return the value of a JSON argument; ``-`` is standard input.

    Raises:
        SubscriptionInvalidError: it is no JSON.
    """
    text = sys.stdin.read() if written == "-" else written
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise SubscriptionInvalidError(f"{option}: not JSON: {problem}") from problem


def leaves_of(has: list[str] | None, has_word: list[str] | None, has_not: list[str] | None) -> list[Condition]:
    """Return the leaves that ``--has``, ``--has-word`` and ``--has-not`` name."""
    from turnout.conditions import kiwi, not_

    conditions: list[Condition] = [kiwi(*pair) for pair in split_pairs(has, "--has")]
    conditions += [kiwi(*pair, partial=True) for pair in split_pairs(has_word, "--has-word")]
    conditions += [not_(kiwi(*pair)) for pair in split_pairs(has_not, "--has-not")]
    return conditions


def coupled(leaves: list[Condition], logic: str) -> Condition:
    """Couple leaves by ``--logic``: and, or, xor."""
    from turnout.conditions import all_of, any_of, one_of

    if len(leaves) == 1:
        return leaves[0]
    return {"and": all_of, "or": any_of, "xor": one_of}[logic](*leaves)


Sign = Annotated[
    bool,
    typer.Option("--sign", help="Sign its requests with a new secret, printed once; earlier secrets stay valid."),
]


def secret_key(as_json: AsJson = False) -> None:
    """Print a new key for TURNOUT_SECRET_KEY, which encrypts the secrets of subscriptions."""
    from turnout.subscriptions.sealing import new_key

    key = new_key()
    typer.echo(json.dumps({"key": key}) if as_json else key)


def reseal(store: StoreUrl = None, timeout: StoreTimeout = None, as_json: AsJson = False) -> None:
    """Encrypt the secrets of all subscriptions with the first key of TURNOUT_SECRET_KEY."""
    from turnout.errors import SubscriptionNotFoundError
    from turnout.subscriptions.sealing import SealError, needed_keys, resealed
    from turnout.subscriptions.store import edit

    keys = needed_keys()
    changed: list[str] = []
    failed: dict[str, str] = {}
    with opened_store(store, timeout) as opened:
        for one in opened.snapshot():
            try:
                if resealed(keys, one) != one:
                    edit(opened, one.id, lambda found: resealed(keys, found))
                    changed.append(one.id)
            except SealError as problem:
                failed[one.id] = str(problem)
            except SubscriptionNotFoundError:
                # Deleted since the snapshot.
                continue
    if as_json:
        typer.echo(json.dumps({"resealed": changed, "failed": failed}))
    else:
        lines = [f"{id_}: {problem}" for id_, problem in failed.items()]
        typer.echo(printable_lines([*lines, f"{plural(len(changed), 'subscription')} encrypted anew"]), err=True)
    if failed:
        raise typer.Exit(1)


def signed_with(secret: str, delivery: DeliverySettings | None) -> DeliverySettings:
    """Return delivery settings with one more secret, before the others.

    Raises:
        ConfigError: there would be too many.
    """
    from turnout.subscriptions.credentials import PlainSecret
    from turnout.subscriptions.delivery_settings import DeliverySettings

    settings = delivery or DeliverySettings()
    return replace(settings, secrets=(PlainSecret(secret), *settings.secrets))


def secret_part(secret: str) -> dict[str, str]:
    """Return the part of a JSON output that shows a new secret; empty for none."""
    return {"secret": secret} if secret else {}


def echo_secret(secret: str, *, as_json: bool) -> None:
    """Print a new secret on standard error, unless the output is JSON and has it."""
    if secret and not as_json:
        typer.echo(f"the secret, which is not shown again: {secret}", err=True)


def token(
    tenant: Annotated[str, typer.Argument(help="Whose subscriptions it opens; * for the whole store.")],
    right: Annotated[
        list[str] | None,
        typer.Option("--right", help="read, write, match or unmasked; several times. [the first three]"),
    ] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option("--destination", help="Pattern of destinations of new subscriptions; several times. [any]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print a new token on standard error, once, and its entry for the token file on standard output."""
    from turnout.rpc.caller import USUAL_RIGHTS, Right
    from turnout.rpc.tokens import EVERY_TENANT, entry_of, new_token
    from turnout.subscriptions.tenants import check_tenant

    if tenant != EVERY_TENANT:
        check_tenant(tenant)
    unknown = sorted(set(right or ()) - {str(right_name) for right_name in Right})
    if unknown:
        raise SubscriptionInvalidError(f"--right: expected {', '.join(Right)}, found {', '.join(map(repr, unknown))}")
    written, entry = new_token()
    if as_json:
        text = entry_of(entry, tenant, [Right(name) for name in right or USUAL_RIGHTS], destination or ())
        typer.echo(json_text({"token": written, "entry": text}))
        return
    typer.echo(f"the token, which is not kept anywhere: {written}", err=True)
    typer.echo(entry_of(entry, tenant, [Right(name) for name in right or USUAL_RIGHTS], destination or ()), nl=False)
