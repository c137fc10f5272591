"""``turnout bench NAME``: run one of the benchmarks."""

from __future__ import annotations

import importlib
import json
import sys
from typing import Annotated, Any

import typer

from turnout.bundle import bundled
from turnout.errors import ConfigError, MissingExtraError, Mistake


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("bench")
    def bench(
        name: Annotated[str, typer.Argument(help="Which one; 'list' names them.")],
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
        size: Annotated[int | None, typer.Option(help="Records or items; the benchmark's own if not given.")] = None,
        quick: Annotated[bool, typer.Option(help="A small run, to see that it works.")] = False,
        case: Annotated[list[str] | None, typer.Option(help="Only cases whose name contains this.")] = None,
    ) -> None:
        """Measure turnout on this machine, and a baseline in the same minutes."""
        root = bundled("benchmarks").parent
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        harness: Any = importlib.import_module("benchmarks.harness")
        known = harness.names()
        if name == "list":
            typer.echo(json.dumps(known) if as_json else "\n".join(known))
            return
        if name not in known:
            raise ConfigError([Mistake("bench", f"no benchmark is named {name!r}; there are {', '.join(known)}")])
        try:
            module: Any = importlib.import_module(f"benchmarks.{name}")
            results = module.run(harness.Options(size=size, quick=quick, cases=tuple(case or ())))
        except ModuleNotFoundError as missing:
            raise MissingExtraError("all", missing.name or "a module") from missing
        harness.report(name, results, as_json=as_json)
