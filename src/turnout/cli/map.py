"""``turnout map``: try a subject transform, or the mappings of a file, on subjects."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from turnout.base.terminal import plural, printable_on_terminal
from turnout.base.untrusted import JsonObject
from turnout.cli.exits import FAILED, WRONG_REQUEST
from turnout.errors import ConfigError, Mistake, SubjectError

if TYPE_CHECKING:
    from turnout.subjects.mapping import MappingExplanation

_SHOWN_SUBJECTS = 10


def map_(
    words: Annotated[
        list[str] | None, typer.Argument(help="SOURCE DESTINATION SUBJECT…, or with --config SUBJECT…")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Hold the transform to the rules for imports.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A file with mappings: a route, a nats-server configuration, the JWT of an account, "
            "nats stream info --json, a Stream of NACK, YAML or JSON."
        ),
    ] = None,
    account: Annotated[
        str | None,
        typer.Option(
            help="With --config: whose mappings; of a stream mirror, republish or a source. Else the account that "
            "{{account-hash()}} means."
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="With --config: the cluster of the server; a route's own if not given.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Read subjects from standard input, a line each.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the subjects that a subject is mapped to, and the reasons.

    turnout map 'foo.*' 'bar.{{partition(10,1)}}' foo.1 foo.2

    turnout map --config nats-server.conf --cluster west foo
    """
    from turnout.subjects.functions import with_account

    arguments = list(words or ())
    lines = _lines() if stdin else iter(())
    try:
        if config is not None:
            if strict:
                raise ConfigError([Mistake("--strict", "it is for one transform, not for --config")])
            _explain_table(config, account, cluster, chain(arguments, lines), as_json=as_json)
            return
        _check_transform(arguments, cluster)
        source, destination, *subjects = arguments
        if account is not None:
            source, destination = with_account(source, account), with_account(destination, account)
        _warn({source: destination})
        if not _try_transform(source, destination, chain(subjects, lines), strict=strict, as_json=as_json):
            raise typer.Exit(FAILED)
    except SubjectError as failure:
        if not as_json:
            raise
        _print(json.dumps({"errors": _errors(failure)}, indent=1))
        raise typer.Exit(WRONG_REQUEST) from None


def _warn(mappings: Mapping[str, object]) -> None:
    """Warn of mappings that probably mean something else than was intended."""
    from turnout.subjects.mapping_readers import mapping_warnings

    for warning in mapping_warnings(mappings):
        typer.echo(f"warning: {printable_on_terminal(warning)}", err=True)


def _check_transform(arguments: Sequence[str], cluster: str | None) -> None:
    """Refuse arguments and options that cannot be combined without ``--config``.

    Raises:
        ConfigError: an argument is missing, or an option is for a table of mappings.
    """
    if len(arguments) < 2:
        problem = "expected SOURCE DESTINATION SUBJECT…, or --config FILE SUBJECT…"
        raise ConfigError([Mistake("arguments", problem)])
    if cluster is not None:
        raise ConfigError([Mistake("--cluster", "it needs --config")])


def _lines() -> Iterator[str]:
    """Yield the lines of standard input one by one; bytes that are not UTF-8 are read as surrogate escapes."""
    from turnout.subjects.pattern import decode

    for line in sys.stdin.buffer:
        yield decode(line.rstrip(b"\r\n"))


def _print(text: str) -> None:
    """Print text on standard output; surrogate escapes are written as the original bytes."""
    sys.stdout.flush()
    sys.stdout.buffer.write(printable_on_terminal(text).encode("utf-8", "surrogateescape") + b"\n")
    sys.stdout.buffer.flush()


def _errors(failure: SubjectError) -> list[JsonObject]:
    """Return the mistakes of a transform or a table as JSON values; null for absent facts."""
    return [
        {
            "reason": getattr(error, "reason", "bad_subject"),
            "error": str(error),
            "source": getattr(error, "source", None),
            "entry": getattr(error, "entry", None),
            "text": error.text,
            "token": getattr(getattr(error, "cause", None) or error, "token", None),
            "position": error.position,
        }
        for error in getattr(failure, "errors", (failure,))
    ]


def _try_transform(source: str, destination: str, subjects: Iterable[str], *, strict: bool, as_json: bool) -> bool:
    """Print the result of one transform for each subject; return True if all were transformed."""
    from turnout.subjects import SubjectTransform

    transform = SubjectTransform.parse(source, destination, strict)

    def tried(subject: str) -> JsonObject:
        try:
            return {"subject": subject, "mapped": transform.apply(subject)}
        except SubjectError as failure:
            reason = getattr(failure, "reason", "bad_subject")
            return {"subject": subject, "mapped": None, "reason": reason, "error": str(failure)}

    if as_json:
        results = [tried(subject) for subject in subjects]
        back = transform.reverse()
        reverse = None if back is None else {"source": back.source, "destination": back.destination}
        head = {"source": transform.source, "destination": destination, "strict": strict, "reverse": reverse}
        _print(json.dumps({**head, "results": results}, indent=1))
        return all(result["mapped"] is not None for result in results)
    count = failed = 0
    for subject in subjects:
        result = tried(subject)
        mapped = result["mapped"]
        count += 1
        failed += mapped is None
        _print(f"{subject} -> {mapped}" if mapped is not None else f"{subject}: {result['error']}")
    if not count:
        _print(f"{transform}: a valid transform")
    return not failed


def _mappings(file: Path, account: str | None) -> tuple[JsonObject, str | None]:
    """Return the mappings of a file, and the cluster that the file itself names.

    It is a route or a bare table in YAML or JSON, or what `turnout.subjects.load_document` reads.
    """
    from turnout.subjects import load_document, mappings_from_file, mappings_of_document
    from turnout.subjects.errors import ConfigSyntaxError
    from turnout.subjects.mapping_readers import stream_of_document

    if file.suffix.lower() not in (".yaml", ".yml", ".json"):
        return mappings_from_file(file, account), None
    try:
        document = load_document(file)
    except ConfigSyntaxError:
        # The reader of routes says more about YAML.
        document = {}
    of_server = {"accounts", "resolver_preload"} & {name.lower() for name in document}
    if of_server or isinstance(document.get("nats"), dict) or stream_of_document(document) is not None:
        return mappings_of_document(document, account), None
    from turnout.routes.yaml_text import YamlText, decoded

    heading = f"{file} cannot be used"
    written = YamlText.parse(decoded(file.read_bytes(), what=heading), what=heading)
    loaded = written.value
    if written.mistakes:
        raise ConfigError(written.mistakes, what=heading)
    if not isinstance(loaded, dict):
        raise ConfigError([Mistake(str(file), f"expected a block of mappings, found {loaded!r}")])
    if account is not None:
        raise ConfigError([Mistake("--account", f"{file} has no accounts")])
    return _of_route(loaded, file) if "mappings" in loaded else (loaded, None)


def _of_route(loaded: JsonObject, file: Path) -> tuple[JsonObject, str | None]:
    """Return the mappings of a possibly incomplete route, inline or from a file, and its cluster."""
    from turnout.routes.files import mappings_of
    from turnout.routes.variables import Variables

    variables = Variables(os.environ, file.parent)
    filled = variables.fill_in({name: loaded.get(name) for name in ("cluster", "mappings")})
    cluster = filled["cluster"]
    mappings = mappings_of(filled["mappings"], file.parent)
    wrong = [Mistake(".".join(map(str, path)), problem) for path, problem in variables.mistakes]
    if not isinstance(mappings, dict):
        wrong.append(Mistake(str(file), f"expected a block of mappings, found {mappings!r}"))
    if not isinstance(cluster, str | None):
        wrong.append(Mistake("cluster", f"expected a text, found {cluster!r}"))
    if wrong:
        raise ConfigError(wrong)
    return mappings, cluster


def _explain_table(
    file: Path, account: str | None, cluster: str | None, subjects: Iterable[str], *, as_json: bool
) -> None:
    from turnout.subjects import MappingTable
    from turnout.subjects.mapping import explain

    mappings, own = _mappings(file, account)
    table = MappingTable.from_config(mappings)
    _warn(mappings)
    cluster = own if cluster is None else cluster
    explanations = (explain(table, subject, cluster) for subject in subjects)
    if as_json:
        head = {"file": str(file), "account": account, "cluster": cluster, "mappings": len(table)}
        _print(json.dumps({**head, "results": [_as_json(explanation) for explanation in explanations]}, indent=1))
        return
    count = 0
    for explanation in explanations:
        count += 1
        _show(explanation)
    if not count:
        _print(f"{file}: {plural(len(table), 'valid mapping')}")


def _show(explanation: MappingExplanation) -> None:
    """Print an explanation as text."""
    if explanation.mapping is None:
        _print(f"{explanation.subject}: no mapping matches, the subject is unchanged")
    else:
        where = (
            f"the destinations for cluster {explanation.group!r}" if explanation.group else "the default destinations"
        )
        _print(f"{explanation.subject}: the mapping of {explanation.mapping.source!r}, {where}")
        for outcome in explanation.outcomes:
            target = "lost" if outcome.subject is None else f"{outcome.subject}  ({outcome.destination})"
            added = ", added to make 100%" if outcome.completed else ""
            _print(f"  {outcome.share:3d}%  {target}{added}")
        for destination, reason in explanation.skipped:
            _print(f"    0%  {destination}: {reason}")
    for source, reason in explanation.others[:_SHOWN_SUBJECTS]:
        _print(f"  not {source!r}: {reason}")
    if len(explanation.others) > _SHOWN_SUBJECTS:
        _print(f"  and {len(explanation.others) - _SHOWN_SUBJECTS} more; --json lists them all")


def _as_json(explanation: MappingExplanation) -> JsonObject:
    return {
        "subject": explanation.subject,
        "source": None if explanation.mapping is None else explanation.mapping.source,
        "group": explanation.group,
        "destinations": [
            {"destination": o.destination, "subject": o.subject, "share": o.share, "completed": o.completed}
            for o in explanation.outcomes
        ],
        "not_chosen": [{"destination": destination, "why": reason} for destination, reason in explanation.skipped],
        "not_taken": [{"source": source, "why": reason} for source, reason in explanation.others],
    }
