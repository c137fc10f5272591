"""``turnout explain ROUTE --record FILE``: what each stage does to one record."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from turnout.errors import ConfigError, Mistake

if TYPE_CHECKING:
    from turnout.engine.explain import StageReport

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("explain")
    def explain(
        route: Annotated[Path, typer.Argument(help="The route's YAML file.", dir_okay=False)],
        record: Annotated[str, typer.Option(help="A JSON file with the record's topic, value …; - reads it here.")],
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")] = False,
    ) -> None:
        """Show what every stage of a route's chain does to one record, and why."""
        from turnout.records.without_pandas import spare_pandas

        spare_pandas()
        from turnout.engine.explain import explain as reports_of
        from turnout.engine.explain import record_batch
        from turnout.routes import Route

        loaded = Route.load(route)
        reports = list(reports_of(loaded.chain, loaded.key, loaded.value, record_batch(_read(record))))
        if as_json:
            typer.echo(json.dumps([asdict(report) for report in reports], indent=1, ensure_ascii=False))
        else:
            for report in reports:
                typer.echo("\n".join(_lines(report)))


def _read(name: str) -> dict[str, Any]:
    text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError([Mistake(name, f"is not JSON: {error}")], what="bad record") from None
    if not isinstance(given, dict):
        raise ConfigError([Mistake(name, "expected a JSON object with topic, value …")], what="bad record")
    return given


def _lines(report: StageReport) -> list[str]:
    lines = [f"{report.name}  ({report.transform}): {report.outcome}"]
    for answer in report.answers:
        saw = ", ".join(f"{key} = {value!r}" for key, value in answer.saw.items())
        turned = ", negated" if answer.negate else ""
        lines.append(f"    {answer.predicate} is {str(answer.holds).lower()}{turned}; it saw {saw or 'nothing'}")
    if report.error:
        lines.append(f"    {report.error}")
    for name, value in report.after.items():
        before = report.before.get(name)
        if before != value:
            lines.append(f"    {name}: {_shown(before)}")
            lines.append(f"    {' ' * len(name)}→ {_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
