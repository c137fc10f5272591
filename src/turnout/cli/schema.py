"""``turnout schema [route|test]``: the files of turnout as JSON Schema, for editors."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

__all__ = ["register"]


class Kind(StrEnum):
    """The files that there is a schema of."""

    ROUTE = "route"
    TEST = "test"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("schema")
    def schema(kind: Annotated[Kind, typer.Argument(help="Of which files.")] = Kind.ROUTE) -> None:
        """Print the JSON Schema of route files or of their tests, with the plug-ins that are installed here.

        An editor with a YAML language server checks and completes a file that begins with

        # yaml-language-server: $schema=route.schema.json
        """
        from turnout.history.schema import suite_schema, test_file_schema
        from turnout.routes.json_schema import route_schema

        made = test_file_schema() if kind is Kind.TEST else route_schema(suite_schema())
        typer.echo(json.dumps(made, indent=2, ensure_ascii=False))
