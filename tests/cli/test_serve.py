"""``turnout serve`` before it starts anything."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
from typer.testing import CliRunner

from tests.delivery.receiver import Hooks, Receiver
from turnout.cli.app import build_app
from turnout.cli.serve import _DeliveryProgress
from turnout.delivery.dispatcher import Dispatcher
from turnout.delivery.failures import DeliveryCounts
from turnout.delivery.queue import Backlog
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


def json_lines(*words: str, folder: Path, until: str) -> list[dict[str, Any]]:
    """Run a command with JSON logs until a line has a text, end it by SIGTERM, and return its lines."""
    command = [sys.executable, "-m", "turnout", *words, "--log-format", "json"]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if until in line:
                process.terminate()
        assert process.wait(60) == 0
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "words",
    [
        ["kiwi-tree", "serve", "--port", "0"],
        ["subscriptions", "serve", "--port", "0", "--store", "sqlite:///new.db"],
    ],
    ids=" ".join,
)
def test_everything_a_service_says_is_json(tmp_path: Path, words: list[str]) -> None:
    """From its address to its end, which begins with a line at the signal."""
    lines = json_lines(*words, folder=tmp_path, until="serving on port")
    messages = [line.get("message", "") for line in lines]

    assert [message for message in messages if message.startswith("serving on port ")] != []
    assert "stopping after the work under way" in messages


def test_what_ends_a_command_is_json(turnout: Callable[..., tuple[int, str, str]]) -> None:
    """The error is a line of the log, and the exit code the same; a form that there is not is a wrong request."""
    code, _, err = turnout("run", "missing.yaml", "--log-format", "json")
    (line,) = map(json.loads, err.splitlines())

    assert code == 2
    assert (line["level"], line["message"]) == ("error", "missing.yaml: no such file")
    assert turnout("deliver", "--route", "missing.yaml", "--log-format", "xml")[::2] == (
        2, "turnout: bad configuration: 1 mistake\n  --log-format: expected text or json, found 'xml'\n"
    )  # fmt: skip


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
    assert drained.stderr.startswith(f"delivering the messages of {hooks.name}; Ctrl-C lets requests under way end\n")
    assert (json.loads(single.stdout), single.exit_code) == ({"moved": 1, "enabled": []}, 0)
    assert (json.loads(missing.stdout), missing.exit_code) == ({"moved": 0, "enabled": []}, 1)
    assert json.loads(redriven.stdout) == {"moved": 1, "enabled": []}
    assert (json.loads(enabled.stdout), enabled.exit_code) == ({"moved": 0, "enabled": []}, 1)


@dataclass
class FakeDispatcher:
    """What the progress of `turnout deliver` asks for."""

    name: str = "DELIVERIES"
    under_way: int = 2
    counts: DeliveryCounts = field(default_factory=DeliveryCounts)
    backlog: Backlog | None = None
    state: str = "closed"
    reason: str = ""

    def endpoints(self) -> list[Any]:
        return [
            SimpleNamespace(
                destination="webhook:e",
                subscription="",
                state=self.state,
                reason=self.reason,
                last_status=503,
                last_error="no\x1b[2J",
            )
        ]


def test_progress_of_deliver(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts that have changed, changes of an endpoint's state and the end are lines on standard error."""
    monkeypatch.setattr(_DeliveryProgress, "_LOG_SECONDS", 0.0)
    fake, stop = FakeDispatcher(), threading.Event()
    progress = _DeliveryProgress()
    progress.look(stop)
    progress.begin(cast("Dispatcher", fake))
    progress.look(stop)
    fake.counts.delivered, fake.counts.failed, fake.counts.retried = 1_200, 3, 3
    fake.backlog, fake.state = Backlog(40, None), "open"
    progress.look(stop)
    progress.look(stop)
    fake.state, fake.reason = "disabled", "failures since 2026-01-02 03:04 UTC"
    progress.look(stop)
    fake.state = "closed"
    progress.look(stop)
    stop.set()
    progress.look(stop)
    out, err = capsys.readouterr()

    assert out == ""
    assert err.splitlines() == [
        "delivering the messages of DELIVERIES; Ctrl-C lets requests under way end",
        "0 delivered, 0 failed, 0 not sent, 0 retried, 0 dead letters",
        "webhook:e fails, and gets only probes: 503 no\\x1b[2J",
        "1,200 delivered, 3 failed, 0 not sent, 3 retried, 0 dead letters; 40 wait",
        "webhook:e is disabled by failures since 2026-01-02 03:04 UTC",
        "webhook:e takes messages again",
        "stopping; requests under way: 2",
    ]
