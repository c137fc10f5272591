"""Options and arguments that mean the same in several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

RouteFile: TypeAlias = Annotated[Path, typer.Argument(help="The route's YAML file.", dir_okay=False)]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]
Master: TypeAlias = Annotated[str, typer.Option(help="Spark's master.")]
SparkLog: TypeAlias = Annotated[Path | None, typer.Option(help="Where Spark's own messages go.")]
