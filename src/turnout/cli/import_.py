"""``turnout import …``: routes and subscriptions from existing configurations."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import json_text, plural, printable_lines, printable_on_terminal
from turnout.base.untrusted import JsonObject
from turnout.cli.exits import DONE, FAILED
from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.routes.drafts import Draft
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.eventbridge import EventRule
    from turnout.subscriptions.sigma import SkippedRule

_MAX_RULES = 64 << 20
"""Bytes of a file of rules; a plan of Terraform has everything that it deploys."""

DIFFERENT = 3
"""Exit code with --exact: everything was taken, and some of it differently."""

File = Annotated[Path, typer.Argument(help="The file to read.", dir_okay=False)]
Name = Annotated[str | None, typer.Option(help="Name of the route.")]
From = Annotated[str | None, typer.Option("--from", metavar="ADDRESS", help="Source of the records.")]
To = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where messages go.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the route here.", dir_okay=False)]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON: the route, converted and omitted parts.")]
Written = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the subscriptions here.", dir_okay=False)]
ListedAsJson = Annotated[bool, typer.Option("--json", help="Print JSON: subscriptions, their keys, omitted parts.")]
Exact = Annotated[bool, typer.Option("--exact", help="Exit with 3 if a part was taken differently; 0 by default.")]


def connect(
    file: File,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="Which connector, of several.")] = None,
    name: Name = None,
    source: From = None,
    to: To = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
    exact: Exact = False,
) -> None:
    """A connector of Kafka Connect, Strimzi, MirrorMaker or Debezium Server, as its .json, .yaml or .properties has it.

    turnout import connect orders.json --to nats://127.0.0.1:4222 --output orders.yaml
    """
    from turnout.routes.drafts import draft_of_connector

    written = _DraftFile(file, output, force=force, as_json=as_json, exact=exact)
    drafted = partial(draft_of_connector, file, connector=connector, name=name)
    raise typer.Exit(written.write(lambda ends: drafted(**ends), source, to))


def nats(
    file: File,
    account: Annotated[
        str | None, typer.Option(help="Whose mappings; of a stream mirror, republish or a source.")
    ] = None,
    name: Name = None,
    source: From = None,
    to: To = None,
    output: Output = None,
    force: Force = False,
    as_json: AsJson = False,
    exact: Exact = False,
) -> None:
    """The mappings of a nats-server's configuration, of an account's JWT, or of a stream.

    turnout import nats nats-server.conf --account ORDERS --from nats://127.0.0.1:4222/ORDERS
    """
    from turnout.routes.drafts import draft_of_server

    written = _DraftFile(file, output, force=force, as_json=as_json, exact=exact)
    raise typer.Exit(written.write(lambda ends: draft_of_server(file, account, name=name, **ends), source, to))


def sigma(
    paths: Annotated[list[Path], typer.Argument(help="Rule files, and folders with such.", exists=True)],
    to: Annotated[list[str] | None, typer.Option(help="A destination, with the rule's {level}; repeatable.")] = None,
    logsource: Annotated[
        bool, typer.Option("--logsource", help="Require product, category and service, as keys of these names.")
    ] = False,
    arrays: Annotated[
        bool, typer.Option("--arrays", help="Read fields with dots through arrays; those of a search in one element.")
    ] = False,
    lists: Annotated[
        list[str] | None,
        typer.Option("--list", metavar="NAME=FILE", help="Values of %NAME% for expand, one a line; repeatable."),
    ] = None,
    output: Written = None,
    force: Force = False,
    as_json: ListedAsJson = False,
    exact: Exact = False,
) -> None:
    """Sigma's detection rules and filters, as subscriptions for turnout subscriptions import.

    turnout import sigma rules/linux --to 'alerts.{level}' --output alerts.jsonl
    """
    values = {name: _lines_of(Path(file)) for name, file in (_named_value("--list", text) for text in lists or [])}
    found = _sigma_subscriptions(paths, to or ["alerts.{level}"], values, logsource=logsource, arrays=arrays)
    raise typer.Exit(_write_subscriptions(found, output, force=force, as_json=as_json, exact=exact))


def eventbridge(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="Patterns, rules, answers of list-rules; templates of CloudFormation, SAM, CDK and Serverless; "
            "Terraform's plan as JSON.",
            exists=True,
        ),
    ],
    to: Annotated[
        list[str] | None, typer.Option(help="A destination, with the rule's {name} and {bus}; repeatable.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Value of a parameter of the templates; repeatable."),
    ] = None,
    output: Written = None,
    force: Force = False,
    as_json: ListedAsJson = False,
    exact: Exact = False,
) -> None:
    """EventBridge's rules, and filters of Lambda and Pipes, as subscriptions for turnout subscriptions import.

    turnout import eventbridge rules.json --to 'events.{name}' --output rules.jsonl

    turnout import eventbridge cdk.out/Shop.template.json --parameter Stage=prod --output rules.jsonl
    """
    given = dict(_named_value("--parameter", text) for text in parameter or [])
    found = _event_subscriptions(paths, to or ["events.{name}"], given)
    raise typer.Exit(_write_subscriptions(found, output, force=force, as_json=as_json, exact=exact))


@dataclass(slots=True)
class _Imported:
    """Subscriptions made of rules.

    Attributes:
        subscriptions: in the order of the files.
        rules: their number.
        left: rules that give none.
        changed: parts of rules that are taken in another form.
    """

    subscriptions: list[Subscription] = field(default_factory=list)
    rules: int = 0
    left: list[SkippedRule] = field(default_factory=list)
    changed: list[SkippedRule] = field(default_factory=list)


def _named_value(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError([Mistake(option, f"expected NAME=…, found {text!r}")])
    return name, value


def _lines_of(file: Path) -> list[str]:
    """Return the lines of a file that are not empty."""
    from turnout.base.files import read_file

    try:
        text = read_file(file, max_bytes=_MAX_RULES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as failure:
        raise ConfigError([Mistake("--list", f"{file} cannot be read: {failure}")]) from None
    return [line for line in text.splitlines() if line.strip()]


def _event_subscriptions(paths: list[Path], destinations: list[str], parameters: Mapping[str, str]) -> _Imported:
    """Return the rules as subscriptions, named after them or their file, and the omitted ones."""
    from turnout.subscriptions.eventbridge import PatternError, rules_of
    from turnout.subscriptions.sigma import SkippedRule
    from turnout.subscriptions.templates import template_rules

    imported = _Imported()
    ids: set[str] = set()
    for path in paths:
        document = _document_of(path)
        if isinstance(document, SkippedRule):
            imported.left.append(document)
            continue
        rules = template_rules(document, parameters)
        number = -1
        for number, rule in enumerate(rules_of(document) if rules is None else rules):  # noqa: B007 - counts
            if isinstance(rule, PatternError):
                imported.left.append(SkippedRule(path, rule.path, rule.reason))
                continue
            imported.changed += [SkippedRule(path, rule.name, note) for note in rule.notes]
            taken = False
            for found in _subscriptions_of_rule(rule, path, destinations):
                if isinstance(found, SkippedRule):
                    imported.left.append(found)
                elif found.id in ids:
                    imported.left.append(SkippedRule(path, found.id, "another rule has this name on the same bus"))
                else:
                    ids.add(found.id)
                    imported.subscriptions.append(found)
                    taken = True
            imported.rules += taken
        if number < 0:
            reason = "has no rule of an event bus and no filters: expected AWS::Events::Rule, an event eventBridge …"
            imported.left.append(SkippedRule(path, "", reason))
    return imported


def _document_of(path: Path) -> object | SkippedRule:
    """Return the document of a file: JSON, or in files of another name YAML with tags of CloudFormation."""
    from turnout.base.files import read_file
    from turnout.base.untrusted import RepeatedKeyError, unique_object
    from turnout.subscriptions.sigma import SkippedRule

    try:
        content = read_file(path, max_bytes=_MAX_RULES)
        if path.suffix == ".json" or content.lstrip()[:1] in (b"{", b"["):
            document: object = json.loads(content, object_pairs_hook=unique_object)
            return document
    except RepeatedKeyError as problem:
        return SkippedRule(path, "", str(problem))
    except (OSError, ValueError, RecursionError) as problem:
        return SkippedRule(path, "", f"is no JSON: {problem}")
    import yaml

    from turnout.base.yaml_values import load, position_of

    try:
        document = load(content.decode("utf-8-sig"), with_tags=True)
    except yaml.YAMLError as failure:
        problem_text, line = position_of(failure)
        return SkippedRule(path, "", f"is no YAML: {problem_text}", line)
    except UnicodeDecodeError as failure:
        return SkippedRule(path, "", f"is not UTF-8: the byte at {failure.start}")
    return document


def _subscriptions_of_rule(
    rule: EventRule, file: Path, destinations: list[str]
) -> Iterator[Subscription | SkippedRule]:
    """Yield a subscription for each input that the rule's targets have, of several named after the first such."""
    from turnout.subscriptions.eventbridge import PatternError, projection_of
    from turnout.subscriptions.sigma import SkippedRule

    name = rule.name or file.stem
    inputs: dict[str, str] = {}
    for number, target in enumerate(rule.targets):
        id_ = str(target.get("Id", number))
        try:
            inputs.setdefault(projection_of(target, name), id_)
        except PatternError as problem:
            yield SkippedRule(file, f"{name}: Targets[{number}].{problem.path}", problem.reason)
    if not rule.targets:
        inputs = {"": ""}
    for project, id_ in inputs.items():
        yield _event_subscription(rule, file, destinations, project, id_ if len(inputs) > 1 else "")


def _event_subscription(
    rule: EventRule, file: Path, destinations: list[str], project: str, target: str
) -> Subscription | SkippedRule:
    from turnout.errors import SubscriptionInvalidError
    from turnout.subscriptions import Subscription
    from turnout.subscriptions.eventbridge import PatternError
    from turnout.subscriptions.sigma import SkippedRule
    from turnout.subscriptions.validation import check

    name = rule.name or file.stem
    id_ = rule.id or name
    if target:
        name, id_ = f"{name}.{target}", f"{id_}.{target}"
    topics = [
        destination.replace("{name}", name).replace("{bus}", rule.bus or "default") for destination in destinations
    ]
    metadata = {"name": name} | ({"bus": rule.bus} if rule.bus else {})
    try:
        subscription = Subscription(topics, rule.condition, metadata, id_, project=project, enabled=rule.enabled)
        check(subscription)
    except PatternError as problem:
        return SkippedRule(file, f"{name}: {problem.path}".removesuffix(": "), problem.reason)
    except SubscriptionInvalidError as problem:
        return SkippedRule(file, name, str(problem))
    return subscription


def _write_subscriptions(imported: _Imported, output: Path | None, *, force: bool, as_json: bool, exact: bool) -> int:
    """Write subscriptions, and report the omitted ones; return the exit code, see `_exit_code`."""
    from turnout.conditions import keys_of
    from turnout.subscriptions.lines import subscription_to_json

    subscriptions = imported.subscriptions
    if as_json:
        shown = {
            "subscriptions": [subscription_to_json(subscription) for subscription in subscriptions],
            "keys": sorted({key for subscription in subscriptions for key in keys_of(subscription.condition)}),
            **{
                name: [
                    {"file": str(rule.file), "path": rule.path, "reason": rule.reason, "line": rule.line}
                    for rule in rules
                ]
                for name, rules in (("changed", imported.changed), ("left", imported.left))
            },
        }
        typer.echo(json_text(shown, indent=1))
    else:
        lines = "".join(f"{json_text(subscription_to_json(subscription))}\n" for subscription in subscriptions)
        if output is None:
            typer.echo(lines, nl=False)
        else:
            write_new({output: lines}, force=force)
        rows = [("changed", str(rule)) for rule in imported.changed] + [("left", str(rule)) for rule in imported.left]
        _print_table(rows)
    differing = len({(rule.file, rule.path) for rule in imported.changed})
    differently = f", {differing:,} of them differently" if differing else ""
    typer.echo(f"{plural(imported.rules, 'rule')} taken{differently}, {len(imported.left):,} left", err=True)
    return _exit_code(complete=bool(subscriptions) and not imported.left, changed=exact and differing > 0)


def _exit_code(*, complete: bool, changed: bool) -> int:
    """Return 0 if everything was taken, 3 if some of it differently and --exact is set, 1 if something was left."""
    if not complete:
        return FAILED
    return DIFFERENT if changed else DONE


def _print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Print a line for each part on standard error: whether it is taken, changed, left, lost or wrong, and why."""
    lines = printable_lines([f"{word:6} {text}" for word, text in rows])
    typer.echo(lines, err=True, nl=bool(lines))


def _sigma_subscriptions(
    paths: list[Path], destinations: list[str], lists: Mapping[str, list[str]], *, logsource: bool, arrays: bool
) -> _Imported:
    """Return the rules as subscriptions, and the omitted ones; of several rules with one id the first is converted."""
    from turnout.errors import SubscriptionInvalidError
    from turnout.subscriptions.sigma import SigmaFilter, SigmaRule, SkippedRule, read_file, rule_files

    imported = _Imported()
    ids: set[str] = set()
    found = [rule for file in rule_files(paths) for rule in read_file(file, arrays=arrays, lists=lists)]
    filters = [one for one in found if isinstance(one, SigmaFilter)]
    rules = [one for one in found if isinstance(one, SigmaRule)]
    for one in found:
        if isinstance(one, SkippedRule):
            imported.left.append(one)
        elif isinstance(one, SigmaFilter):
            if not any(map(one.is_for, rules)):
                imported.left.append(SkippedRule(one.file, "filter", "is for no rule of these files"))
        elif one.id in ids:
            imported.left.append(SkippedRule(one.file, "id", f"another rule has the id {one.id!r}"))
        else:
            try:
                made = one.with_filters(filters).subscriptions(destinations, with_logsource=logsource)
            except SubscriptionInvalidError as problem:
                imported.left.append(SkippedRule(one.file, "", str(problem)))
            else:
                ids |= {one.id} - {""}
                imported.subscriptions += made
                imported.rules += 1
                if len(made) > 1:
                    note = f"is divided into {len(made)} subscriptions: an event that several match is sent by each"
                    imported.changed.append(SkippedRule(one.file, "detection", note))
    return imported


@dataclass(frozen=True, slots=True)
class _DraftFile:
    """Output file of a draft."""

    file: Path
    output: Path | None
    force: bool
    as_json: bool
    exact: bool

    def write(self, drafted: Callable[[JsonObject], Draft], source: str | None, to: str | None) -> int:
        """Make and write the draft, and report its parts; return the exit code, see `_exit_code`.

        Something is left where ``turnout check`` would reject it, or where a part is lost that changes its meaning.
        """
        from turnout.routes.drafts import sink_of, source_of

        ends = {"source": source_of(source) if source else None, "sink": sink_of(to) if to else None}
        draft = drafted(ends)
        text = draft.text(self.file.name)
        mistakes = draft.mistakes(text, self.output)
        if self.output is not None:
            write_new({self.output: text}, force=self.force)
        if self.as_json:
            typer.echo(json_text(_json(draft, text, mistakes), indent=1))
        else:
            if self.output is None:
                typer.echo(printable_on_terminal(text), nl=False)
            _print_draft(draft, mistakes)
        changed = any(draft.word(item) == "changed" for item in draft.left)
        return _exit_code(complete=not mistakes and not draft.lossy, changed=self.exact and changed)


def write_new(files: dict[Path, str], *, force: bool) -> None:
    """Write files, all or none.

    Raises:
        ConfigError: one is there already, and is not to be written over.
    """
    existing = [file for file in files if file.exists()]
    if existing and not force:
        raise ConfigError([Mistake(str(file), "is there already: --force writes over it") for file in existing])
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def _print_draft(draft: Draft, mistakes: tuple[Mistake, ...]) -> None:
    rows = [("taken", f"{name} → {path}") for name, path in draft.taken]
    rows += [(draft.word(item), f"{item.name}: {item.why}") for item in draft.left]
    rows += [("wrong", str(mistake)) for mistake in mistakes]
    _print_table(rows)
    counts = Counter(word for word, _ in rows)
    words = ("taken", "changed", "left", *(word for word in ("lost", "wrong") if counts[word]))
    typer.echo(", ".join(f"{counts[word]:,} {word}" for word in words), err=True)


def _json(draft: Draft, text: str, mistakes: tuple[Mistake, ...]) -> dict[str, object]:
    return {
        "route": text,
        "document": draft.document,
        "taken": [{"name": name, "place": path} for name, path in draft.taken],
        "left": [{**item._asdict(), "lossy": draft.word(item) == "lost"} for item in draft.left],
        "variables": draft.variables,
        "mistakes": [{"path": mistake.path, "problem": mistake.problem, "line": mistake.line} for mistake in mistakes],
    }


import_ = typer.Typer(help="Make a route, or subscriptions, of what you have already.", no_args_is_help=True)
import_.command("connect")(connect)
import_.command("nats")(nats)
import_.command("sigma")(sigma)
import_.command("eventbridge")(eventbridge)
