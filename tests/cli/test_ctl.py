"""``turnout ctl`` against a whole server on real sockets, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificates
from tests.server.conftest import route_text, wait_for
from tests.server.fakes import FakeRunner
from tests.server.test_serving import serving
from turnout.cli.ctl import ServerClient
from turnout.history.tap import Tapped
from turnout.server.routes.supervisor import Phase
from turnout.server.serving import RouteServer

HEALTHY = Path(__file__).parents[2] / "deploy" / "image" / "healthy.py"


@pytest.fixture
def runner() -> FakeRunner:
    return FakeRunner()


@pytest.fixture
def server(tmp_path, runner) -> Iterator[RouteServer]:
    """A server with two routes that run."""
    folder = tmp_path / "routes"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(route_text(name))
    with serving(folder, runner) as running:
        wait_for(lambda: all(entry.status.phase is Phase.RUNNING for entry in running.routes.entries()))
        yield running


@pytest.fixture
def ctl(turnout, server, monkeypatch):
    monkeypatch.setenv("TURNOUT_URL", server.url)
    return lambda *words: turnout("ctl", *words)


def test_a_server_that_asks_for_certificates(turnout, tmp_path, monkeypatch) -> None:
    """The command shows its own, also for streams; without one, or with another authority's, it is not served."""
    pems = make_certificates(tmp_path)
    (tmp_path / "routes").mkdir()
    (tmp_path / "routes" / "a.yaml").write_text(route_text("a"))
    tls = {"cert": f"{pems}/server.pem", "key": f"{pems}/server.key", "clientCa": f"{pems}/ca.pem"}
    with serving(tmp_path / "routes", FakeRunner(), tls=tls) as server:
        wait_for(lambda: all(entry.status.phase is Phase.RUNNING for entry in server.routes.entries()))
        ours = ("ctl", "--server", server.url, "--tls-ca", f"{pems}/ca.pem")

        def own(name: str) -> tuple[str, ...]:
            return ("--tls-cert", f"{pems}/{name}.pem", "--tls-key", f"{pems}/{name}.key")

        assert turnout(*ours, "list")[0] == 1
        assert turnout(*ours, *own("stranger"), "list")[0] == 1
        code, out, _ = turnout(*ours, *own("client"), "list")
        assert (code, out.split()[:2]) == (0, ["a", "running"])
        code, _, err = turnout(*ours, *own("client"), "logs", "a")
        assert (code, err) == (0, "")
        monkeypatch.setenv("TURNOUT_CERT", f"{pems}/client.pem")
        code, _, err = turnout(*ours, "list")
        assert (code, "belong together" in err) == (2, True)
        monkeypatch.setenv("TURNOUT_KEY", f"{pems}/client.key")
        assert turnout(*ours, "list")[0] == 0
        monkeypatch.setenv("TURNOUT_KEY", f"{pems}/server.key")
        code, _, err = turnout(*ours, "list")
        assert (code, "cannot be used" in err) == (2, True)
        healthy = [sys.executable, str(HEALTHY), f"{server.url}/live"]
        shown = {"API_TLS_CERT": f"{pems}/client.pem", "API_TLS_KEY": f"{pems}/client.key"}
        for more, status in ((shown, 0), ({}, 1)):
            environment = {**os.environ, "API_TLS_CERT": "", **more}
            assert subprocess.run(healthy, env=environment, check=False, capture_output=True).returncode == status


def test_routes_are_listed(ctl) -> None:
    """With state and counts; a state chooses some."""
    code, out, err = ctl("list")

    assert (code, err) == (0, "")
    assert [line.split()[:2] for line in out.splitlines() if not line.startswith(" ")] == [
        ["a", "running"], ["b", "running"],
    ]  # fmt: skip
    assert [route["name"] for route in json.loads(ctl("list", "--json")[1])] == ["a", "b"]
    assert ctl("list", "--state", "failed")[1].strip() == ""
    assert ctl("list", "--state", "no such state")[0] == 2


def test_routes_are_paused_and_resumed(ctl, server, runner) -> None:
    """Several in one command; a restart begins another run."""
    assert ctl("pause", "a", "b")[0] == 0
    wait_for(lambda: all(entry.status.phase is Phase.PAUSED for entry in server.routes.entries()))
    assert ctl("resume", "a")[0] == 0
    wait_for(lambda: server.routes.entry("a").status.phase is Phase.RUNNING)
    runs = len(runner.runs["a"])
    assert ctl("restart", "a")[0] == 0
    wait_for(lambda: len(runner.runs["a"]) > runs)


def test_offsets_are_shown_and_reset(ctl, server, monkeypatch) -> None:
    """A reset needs a paused route, which the answer says."""
    assert ctl("offsets", "b") == (0, "nothing is committed\n", "")
    code, _, err = ctl("offsets", "b", "--reset", "earliest")
    assert code == 1
    assert "paused" in err
    assert ctl("pause", "b")[0] == 0
    wait_for(lambda: server.routes.entry("b").status.phase is Phase.PAUSED)
    code, _, err = ctl("offsets", "b", "--reset", "earliest")
    assert (code, "503" in err) == (1, True)  # the route's nats-server is away
    monkeypatch.setattr(server.routes, "_resolve", lambda _, to: to)
    code, out, err = ctl("offsets", "b", "--reset", "earliest", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["begins_at"] == "earliest"
    code, _, err = ctl("offsets", "b", "--reset", "never")
    assert (code, "never" in err) == (2, True)


def test_records_are_watched(ctl, server, monkeypatch) -> None:
    """Each as it was and as it became; the reason of a server that cannot be read ends the command."""
    tapped = Tapped("IN", 7, "mapped", "changed", {"topic": "in.a"}, {"topic": "out.a"})
    monkeypatch.setattr("turnout.server.rest.records.taps", lambda *_, **__: iter([tapped, tapped]))

    code, out, _ = ctl("tap", "a", "--stage", "mapped", "--limit", "1")

    assert code == 0
    assert out.splitlines() == [
        "IN:7 in.a  mapped: changed", '    before {"topic": "in.a"}', '    after  {"topic": "out.a"}',
    ]  # fmt: skip
    lines = ctl("tap", "a", "--json", "--stage", "mapped")[1].splitlines()
    assert [json.loads(line)["sequence"] for line in lines] == [7, 7]
    code, _, err = ctl("tap", "a", "--where", "a:(")
    assert code == 2
    assert "Traceback" not in err


def test_one_route_is_shown(ctl, server) -> None:
    """With its file, and the versions that were started."""
    code, out, err = ctl("show", "a")
    document = json.loads(ctl("show", "a", "--json")[1])

    assert (code, err) == (0, "")
    assert out.splitlines()[0].split()[:2] == ["a", "running"]
    assert f"    file {server.routes.entry('a').file.path}" in out.splitlines()
    assert "versions, the newest first: 1" in out.splitlines()
    assert [one["digest"] for one in document["revisions"]] == [document["running_digest"]]


LETTER = {
    "sequence": 3, "stream": "DEAD", "stored": 0.0, "stage": "value", "class_name": "ValueError",
    "reason": "is no JSON", "subscription": "desk", "destination": "out.desk", "tries": 2, "done": False,
    "verified": True,
    "record": {"topic": "in.a"},
}  # fmt: skip
ENDPOINT = {
    "destination": "https://a.example", "subscription": "", "state": "open", "waiting": 1200, "in_flight": 1,
    "last_status": 500, "last_error": "answered 500", "last_at": 0.0, "tenant": "",
}  # fmt: skip
GIVEN_UP = {
    "position": "7", "destination": "https://a.example", "subscription": "", "at": 0.0, "reason": "8 attempts",
    "webhook_id": "x", "attempts": [{"at": 0.0, "status": 500, "error": "answered 500"}], "size": 2,
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/v1/routes/a/dead-letters?limit=20&stage=value": {"items": [LETTER], "cursor": None},
    "/v1/routes/a/dead-letters/groups": [{"stage": None, "reason": None, "count": 4, "first": 0.0, "last": 0.0}],
    "/v1/routes/a/webhooks": [ENDPOINT],
    "/v1/routes/a/webhooks/dead-letters?limit=20": [GIVEN_UP],
    "/v1/routes/b/webhooks": None,
    "/v1/routes/b/dead-letters?limit=20": {"items": [], "cursor": None},
}


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (
            ("letters", "a", "--stage", "value"),
            [
                "1970-01-01T00:00:00+00:00  DEAD:3  value: is no JSON, redriven without success 2 times",
                "    for desk → out.desk",
                '    {"topic": "in.a"}',
            ],
        ),
        (("letters", "a", "--groups"), ["       4  matched by no subscription"]),
        (
            ("webhooks", "a"),
            [
                "https://a.example  open  1,200 waiting, 1 in flight",
                "    1970-01-01T00:00:00+00:00  answered 500",
            ],
        ),
        (("webhooks", "a", "--letters"), ["1970-01-01T00:00:00+00:00  7  https://a.example  8 attempts, 1 attempt"]),
        (("webhooks", "b"), ["no dispatcher runs here"]),
        (("letters", "b"), ["no dead letters"]),
    ],
)
def test_letters_and_webhooks_are_shown(turnout, monkeypatch, words, lines) -> None:
    """A letter with its reason, an endpoint with its backlog and last error; as JSON the server's own answer."""
    monkeypatch.setattr(ServerClient, "call", lambda _, __, path: ANSWERS[path])

    assert turnout("ctl", *words) == (0, "\n".join(lines) + "\n", "")
    code, out, _ = turnout("ctl", *words, "--json")
    assert code == 0
    answers = [answer.get("items") if isinstance(answer, dict) else answer for answer in ANSWERS.values()]
    assert json.loads(out) in answers


def test_letters_of_a_route_without_any(ctl) -> None:
    """The server's sentence says why there are none to show."""
    code, _, err = ctl("letters", "a")

    assert code == 1
    assert err.startswith("turnout: ")
    assert ctl("webhooks", "a")[0] == 1


def test_what_happened_is_logged(ctl, server) -> None:
    """The last events, of all routes or of some; the command ends with the last one that is stored."""
    assert ctl("pause", "a")[0] == 0
    wait_for(lambda: server.routes.entry("a").status.phase is Phase.PAUSED)
    wait_for(lambda: "paused" in ctl("logs", "a", "--limit", "1")[1])

    code, out, err = ctl("logs")
    last = json.loads(ctl("logs", "a", "-n", "1", "--json")[1])

    assert (code, err) == (0, "")
    assert {line.split("  ")[1] for line in out.splitlines()} == {"a", "b"}
    assert (last["event"], last["route"], last["state"]) == ("route.state", "a", "paused")


def test_former_names_of_options(turnout, server) -> None:
    """They are understood, with a note that has the present name, and not listed; a value is no name."""
    code, out, err = turnout("ctl", f"--url={server.url}", "list", "--json")

    assert (code, err) == (0, "note: --url is called --server now\n")
    assert len(json.loads(out)) == 2
    assert "--url" not in turnout("ctl", "--help")[1]
    code, _, err = turnout("ctl", "--server", server.url, "pause", "--", "--url")
    assert (code, "note" in err) == (2, False)


def test_a_route_that_there_is_not(ctl) -> None:
    """The server's own sentence, and a wrong request."""
    code, _, err = ctl("pause", "c")

    assert code == 2
    assert "c" in err
    assert "Traceback" not in err
    assert ctl("tap", "c")[0] == 2


def test_a_token(turnout, tmp_path, monkeypatch) -> None:
    """It is read from a file or the environment, never from the command line; without it the error names both."""
    folder = tmp_path / "routes"
    folder.mkdir()
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("ann-long-enough-token-0123456789\n")
    tokens.chmod(0o600)
    (tmp_path / "mine").write_text("ann-long-enough-token-0123456789\n")
    with serving(folder, tokens=str(tokens)) as server:
        monkeypatch.setenv("TURNOUT_URL", server.url)
        code, _, err = turnout("ctl", "list")
        assert (code, "TURNOUT_TOKEN" in err) == (2, True)
        assert turnout("ctl", "--token-file", "mine", "list")[0] == 0
        monkeypatch.setenv("TURNOUT_TOKEN", "ann-long-enough-token-0123456789")
        assert turnout("ctl", "list")[0] == 0


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://switch.example:8090", "in the clear"),
        ("ftp://127.0.0.1", "expected http://host:port"),
        ("127.0.0.1:8090", "expected http://host:port"),
        ("http://ann:hunter2@127.0.0.1", "expected http://host:port"),
    ],
)
def test_addresses_that_are_refused(turnout, monkeypatch, url, problem) -> None:
    """Before anything is sent; what stands in an address is not shown."""
    monkeypatch.setenv("TURNOUT_TOKEN", "secret-token")

    code, _, err = turnout("ctl", "--server", url, "list")

    assert code == 2
    assert problem in err
    assert "hunter2" not in err
    assert "secret-token" not in err


def test_a_server_that_is_away(turnout) -> None:
    """Failed work, in one sentence."""
    code, _, err = turnout("ctl", "--server", "http://127.0.0.1:9", "list")

    assert code == 1
    assert err.startswith("turnout: http://127.0.0.1:9 cannot be reached: ")
    assert "Traceback" not in err
