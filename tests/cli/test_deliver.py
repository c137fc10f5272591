"""``turnout deliver``."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from typer.testing import CliRunner

from tests.delivery.receiver import Hooks, Receiver
from turnout.cli.app import build_app
from turnout.embedded import NatsServer


def test_deliver_redrive_and_enable(nats_server: NatsServer, tmp_path: Path) -> None:
    """Redrives move the dead letters of an endpoint out of reach, one or all.

    Exit code 1: a letter that is not there, and enabling an endpoint that is not disabled.
    """
    hooks = Hooks(nats_server.url, Receiver(url="http://127.0.0.1:9/in"), delivery={"retry": []})
    file = tmp_path / "hooks.yaml"
    file.write_text(json.dumps(hooks.document))
    asyncio.run(hooks.publish(b"x", b"y"))
    command = ["deliver", "--route", str(file), "--json"]

    drained, single, missing, redriven, enabled = (
        CliRunner().invoke(build_app(), [*command, *more])
        for more in (["--drain"], ["--letter", "2"], ["--letter", "2"], ["--redrive"], ["--enable", "webhook:e"])
    )

    assert json.loads(drained.stdout)["counts"]["dead"] == 2
    assert (json.loads(single.stdout), single.exit_code) == ({"moved": 1, "enabled": []}, 0)
    assert (json.loads(missing.stdout), missing.exit_code) == ({"moved": 0, "enabled": []}, 1)
    assert json.loads(redriven.stdout) == {"moved": 1, "enabled": []}
    assert (json.loads(enabled.stdout), enabled.exit_code) == ({"moved": 0, "enabled": []}, 1)
