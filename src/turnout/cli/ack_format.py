"""``turnout ack-format REPLY``: the fields in the reply subject of a JetStream message."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from turnout.terminal import json_text, printable_lines


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command("ack-format")
    def ack_format(
        tokens: Annotated[list[str], typer.Argument(help="Reply subjects, whole or as tokens after $JS.ACK.")],
        as_json: Annotated[bool, typer.Option("--json", help="Print a JSON line for each.")] = False,
    ) -> None:
        """Explain JSAck reply subjects of version 1 and 2 (ADR-15); 2 is the exit code for other subjects."""
        from turnout.errors import ConfigError, Mistake
        from turnout.nats.jetstream.errors import NotJetStreamMessageError
        from turnout.nats.protocol.positions import JSAck

        mistakes = []
        for text in tokens:
            reply = text if text.startswith("$") else f"$JS.ACK.{text}"
            try:
                ack = JSAck.parse(reply)
            except NotJetStreamMessageError as failure:
                mistakes.append(Mistake(text, str(failure)))
                continue
            facts = {**asdict(ack), "timestamp": ack.timestamp.isoformat()}
            if as_json:
                typer.echo(json_text(facts))
            else:
                width = max(len(name) for name in facts)
                typer.echo(printable_lines(f"{name:<{width}}  {_as_text(value)}" for name, value in facts.items()))
        if mistakes:
            raise ConfigError(mistakes, what="not a JetStream reply")


def _as_text(value: object) -> str:
    return "-" if value is None or value == "" else str(value)
