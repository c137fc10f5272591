"""``turnout ack-format``: a reply subject explained."""

from __future__ import annotations

import json
from collections.abc import Callable

from typer.testing import CliRunner

from turnout.cli.app import build_app

REPLY = "$JS.ACK.DOM.szMpdrwD.S.P.2.7.9.1795250826106239342.3"


def test_json() -> None:
    """Each reply is a JSON line; the tokens alone will do."""
    result = CliRunner().invoke(build_app(), ["ack-format", "--json", REPLY, REPLY.removeprefix("$JS.ACK.")])
    first, second = (json.loads(line) for line in result.stdout.splitlines())

    assert first == second
    assert (first["version"], first["domain"], first["stream_seq"], first["consumer_seq"]) == (2, "DOM", 7, 9)
    assert first["timestamp"].startswith("2026-11-21T")


def test_text() -> None:
    """For people, a line for each fact."""
    text = CliRunner().invoke(build_app(), ["ack-format", "$JS.ACK.S.C.1.2.3.4.5"]).stdout

    assert "stream         S\n" in text
    assert "domain         -\n" in text


def test_wrong(turnout: Callable[..., tuple[int, str, str]]) -> None:
    """A text that is not a JSAck is reported with the reason, and exit code 2."""
    code, _, err = turnout("ack-format", "$JS.ACK.a.b.1.1.1.1", "$JS.FC.x")

    assert code == 2
    assert "8 tokens" in err
    assert "does not begin" in err
