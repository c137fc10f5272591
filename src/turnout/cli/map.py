"""``turnout map``: try a subject transform, or the mappings of a file, on subjects."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from turnout.cli.exits import FAILED
from turnout.errors import ConfigError, Mistake, SubjectError

__all__ = ["register"]

_SHOWN = 10


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("map")
    def map_(
        words: Annotated[
            list[str] | None, typer.Argument(help="SOURCE DESTINATION SUBJECT…, or with --config SUBJECT…")
        ] = None,
        strict: Annotated[bool, typer.Option("--strict", help="Hold the transform to the rules for imports.")] = False,
        config: Annotated[
            Path | None, typer.Option(help="A file with mappings: a nats-server configuration, YAML or JSON.")
        ] = None,
        account: Annotated[str | None, typer.Option(help="With --config: whose mappings.")] = None,
        cluster: Annotated[str | None, typer.Option(help="With --config: the cluster of the server.")] = None,
        stdin: Annotated[bool, typer.Option("--stdin", help="Read subjects from standard input, a line each.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    ) -> None:
        """Show what a subject becomes, and why.

        turnout map 'foo.*' 'bar.{{partition(10,1)}}' foo.1 foo.2

        turnout map --config nats-server.conf --cluster west foo
        """
        given = list(words or ())
        lines = [line.rstrip("\r\n") for line in sys.stdin] if stdin else []
        if config is not None:
            if strict:
                raise ConfigError([Mistake("--strict", "it is for one transform, not for --config")])
            _explain_table(config, account, cluster, given + lines, as_json=as_json)
            return
        if len(given) < 2:
            raise ConfigError([Mistake("arguments", "expected SOURCE DESTINATION SUBJECT…, or --config FILE SUBJECT…")])
        for option, value in (("--account", account), ("--cluster", cluster)):
            if value is not None:
                raise ConfigError([Mistake(option, "it needs --config")])
        if not _try_transform(given[0], given[1], given[2:] + lines, strict=strict, as_json=as_json):
            raise typer.Exit(FAILED)


def _say(text: str) -> None:
    """Print text that may hold bytes that are not UTF-8, as those bytes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()


def _try_transform(source: str, destination: str, subjects: list[str], *, strict: bool, as_json: bool) -> bool:
    """Print what one transform makes of each subject; whether it made something of all of them."""
    from turnout.subjects import SubjectTransform

    transform = SubjectTransform.parse(source, destination, strict)
    results: list[dict[str, Any]] = []
    for subject in subjects:
        try:
            results.append({"subject": subject, "mapped": transform.apply(subject)})
        except SubjectError as failure:
            reason = getattr(failure, "reason", "bad_subject")
            results.append({"subject": subject, "mapped": None, "reason": reason, "error": str(failure)})
    if as_json:
        back = transform.reverse()
        reverse = None if back is None else {"source": back.source, "destination": back.destination}
        told = {"source": transform.source, "destination": destination, "strict": strict, "reverse": reverse}
        _say(json.dumps({**told, "results": results}, indent=1))
    else:
        if not results:
            _say(f"{transform}: a valid transform")
        for result in results:
            mapped = result["mapped"]
            _say(
                f"{result['subject']} -> {mapped}" if mapped is not None else f"{result['subject']}: {result['error']}"
            )
    return all(result["mapped"] is not None for result in results)


def _mappings(file: Path, account: str | None) -> dict[str, Any]:
    """The mappings of a file: those of a route or a bare table in YAML or JSON, else of a server's configuration."""
    from turnout.subjects import mappings_from_file

    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return mappings_from_file(file, account)
    import yaml

    if account is not None:
        raise ConfigError([Mistake("--account", f"{file} is no nats-server configuration, it has no accounts")])
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as failure:
        raise ConfigError([Mistake(str(file), str(failure))]) from failure
    found = loaded.get("mappings", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(found, dict):
        raise ConfigError([Mistake(str(file), f"expected a block of mappings, found {found!r}")])
    return found


def _explain_table(file: Path, account: str | None, cluster: str | None, subjects: list[str], *, as_json: bool) -> None:
    from turnout.subjects import MappingTable
    from turnout.subjects.explain import Explanation, explain

    table = MappingTable.from_config(_mappings(file, account))
    found = [explain(table, subject, cluster) for subject in subjects]
    if as_json:
        head = {"file": str(file), "account": account, "cluster": cluster, "mappings": len(table)}
        _say(json.dumps({**head, "results": [_as_json(one) for one in found]}, indent=1))
        return
    if not found:
        _say(f"{file}: {len(table)} valid mappings")

    def show(one: Explanation) -> None:
        if one.mapping is None:
            _say(f"{one.subject}: no mapping matches, the subject stays what it is")
        else:
            where = f"the destinations for cluster {one.group!r}" if one.group else "the default destinations"
            _say(f"{one.subject}: the mapping of {one.mapping.source!r}, {where}")
            for outcome in one.outcomes:
                target = "lost" if outcome.subject is None else f"{outcome.subject}  ({outcome.destination})"
                added = ", added to make 100%" if outcome.completed else ""
                _say(f"  {outcome.share:3d}%  {target}{added}")
        for source, why in one.others[:_SHOWN]:
            _say(f"  not {source!r}: {why}")
        if len(one.others) > _SHOWN:
            _say(f"  and {len(one.others) - _SHOWN} more; --json lists them all")

    for one in found:
        show(one)


def _as_json(one: Any) -> dict[str, Any]:
    return {
        "subject": one.subject,
        "source": None if one.mapping is None else one.mapping.source,
        "group": one.group,
        "destinations": [
            {"destination": o.destination, "subject": o.subject, "share": o.share, "completed": o.completed}
            for o in one.outcomes
        ],
        "not_taken": [{"source": source, "why": why} for source, why in one.others],
    }
