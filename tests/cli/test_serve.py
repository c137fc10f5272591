"""``turnout serve`` before it starts anything."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from tests.delivery.receiver import Hooks, Receiver
from turnout.cli.app import build_app
from turnout.embedded import NatsServer


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "no such folder"),
        ([".", "--listen", "8090"], "expected host:port"),
        ([".", "--listen", "0.0.0.0:8090"], "needs tls, or --insecure"),
        ([".", "--config", "missing.yaml"], "no such file"),
        ([".", "--tokens", "empty"], "has no tokens"),
        ([".", "--log-format", "xml"], "logFormat"),
    ],
)
def test_a_wrong_request_ends_with_2_and_a_sentence(
    turnout: Callable[..., tuple[int, str, str]], tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    """No JVM is started for it, no trace is printed, and what other tests log goes nowhere else than before."""
    (tmp_path / "empty").write_text("")

    before, handlers = psutil.Process().children(), logging.root.handlers[:]
    code, _, err = turnout("serve", *arguments)

    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert psutil.Process().children() == before
    assert logging.root.handlers == handlers


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
