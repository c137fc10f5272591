"""``turnout schema [route|test|server]``: the files of turnout as JSON Schema, for editors."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer


class SchemaKind(StrEnum):
    """Kinds of files that have a JSON Schema."""

    ROUTE = "route"
    TEST = "test"
    SERVER = "server"


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("schema")
    def schema(kind: Annotated[SchemaKind, typer.Argument(help="The kind of file.")] = SchemaKind.ROUTE) -> None:
        """Print the JSON Schema of route files, of their tests or of a server's settings, with installed plug-ins.

        An editor with a YAML language server checks and completes a file that begins with

        # yaml-language-server: $schema=route.schema.json
        """
        typer.echo(json.dumps(_schema_of(kind), indent=2, ensure_ascii=False))


def _schema_of(kind: SchemaKind) -> dict[str, object]:
    from turnout.routes.json_schema import DIALECT, model_schema, route_schema

    if kind is SchemaKind.SERVER:
        from turnout.server.config import ServerConfig

        return {"$schema": DIALECT, "title": "Settings of turnout serve", **model_schema(ServerConfig)}
    from turnout.history.suite.suite import suite_schema, test_file_schema

    return test_file_schema() if kind is SchemaKind.TEST else route_schema(suite_schema())
