"""Exit codes, which are the same for all commands."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperCommand

from turnout.base.files import FileChanges
from turnout.cli import app
from turnout.cli.app import COMMANDS, all_commands
from turnout.cli.exits import read_again, stop_on_signals
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, create_stream
from turnout.subscriptions import open_store


def leaves(command: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command that does something, with the words that name it."""
    children = getattr(command, "commands", None)
    if children is None:
        yield path, command
        return
    for name, child in children.items():
        yield from leaves(child, *path, name)


def _arguments(command: Any) -> list[str]:
    return [given.name for given in command.params if given.param_type_name == "argument"]


LEAVES = dict(found for name, command in all_commands().items() for found in leaves(command, name))
TAKE_A_FILE = [
    path
    for path, command in LEAVES.items()
    if path[0] != "ctl" and _arguments(command) in (["route"], ["routes"], ["file"])
]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_done_is_zero_and_a_wrong_request_two(path, turnout) -> None:
    """``--help`` is done; an option that there is not is a wrong request."""
    assert turnout(*path, "--help")[0] == 0
    assert turnout(*path, "--no-such-option")[0] == 2


PRINTS_NO_RESULT = {("serve",), ("kiwi-tree", "serve"), ("subscriptions", "serve")}
PRINTS_JSON_ANYWAY = {("schema",), ("subscriptions", "read"), ("subscriptions", "export")}


def test_every_command_prints_json() -> None:
    """With ``--json``; services have none, and print JSON lines with ``--log-format json``."""
    without = {
        path for path, command in LEAVES.items() if not any("--json" in parameter.opts for parameter in command.params)
    }

    assert without == PRINTS_NO_RESULT | PRINTS_JSON_ANYWAY
    for path in PRINTS_NO_RESULT:
        assert any("--log-format" in parameter.opts for parameter in LEAVES[path].params)


@pytest.mark.parametrize("path", TAKE_A_FILE, ids=" ".join)
def test_a_file_that_is_not_there_is_a_wrong_request(path, turnout) -> None:
    """It is named, and there is no traceback."""
    code, _, err = turnout(*path, "missing.yaml")

    assert code == 2
    assert "Traceback" not in err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_interrupted_ends_with_130(name, turnout, monkeypatch) -> None:
    """Ctrl-C, where a command does not end in order by it, gives what a shell expects, and no traceback."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "loaded_command", lambda *_: TyperCommand(name=name, callback=interrupted))

    code, out, err = turnout(name)

    assert (code, out, err.strip()) == (130, "", "")


def test_an_interrupt_during_startup(tmp_path) -> None:
    """Modules are imported when Ctrl-C comes: the command ends with 130 and without a traceback."""
    code = """if True:
        import sys, signal
        class Interrupted:
            def find_spec(self, name, path=None, target=None):
                if name == "turnout.routes.document":
                    signal.raise_signal(signal.SIGINT)
        from turnout.cli import main
        sys.meta_path.insert(0, Interrupted())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["turnout", "run", "route.yaml"]
        main()
    """
    (tmp_path / "route.yaml").touch()

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)

    assert (done.returncode, done.stderr.strip()) == (128 + signal.SIGINT, "")


def test_a_folder_where_a_file_is_expected(turnout, tmp_path) -> None:
    """It is a wrong request in one sentence, also where only reading finds it out."""
    code, _, err = turnout("import", "nats", str(tmp_path))

    assert code == 2
    assert "Traceback" not in err


def test_one_short_option_means_one_thing() -> None:
    """In all commands; a long option that begins alike is another."""
    meanings: dict[str, set[str]] = {}
    for command in (*LEAVES.values(), *all_commands().values()):
        for parameter in command.params:
            long = next((name for name in parameter.opts if name.startswith("--")), parameter.name)
            for name in parameter.opts:
                if not name.startswith("--"):
                    meanings.setdefault(name, set()).add(long)

    short = {name: longs for name, longs in meanings.items() if name.startswith("-")}
    assert set(short) >= {"-s", "-n", "-y"}
    assert {name: longs for name, longs in short.items() if len(longs) > 1} == {}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["tail", "EXITS.*", "--from", "all"], 0),
        (["tail", "EXITS.*", "--from", "all", "--limit", "5"], 130),
        (["tail", "EXITS.*", "--from", "all", "--wait", "600"], 130),
        (["kv", "watch", "exits"], 0),
        (["kv", "watch", "exits", "--wait", "600"], 130),
        (["tap", "{route}", "source", "--from", "earliest"], 0),
        (["tap", "{route}", "source", "--from", "earliest", "--limit", "5"], 130),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_an_interrupted_command_is_done_if_it_has_no_end(
    nats_server: NatsServer, tmp_path: Path, arguments: list[str], code: int
) -> None:
    """What follows a stream for ever is done; what was to show a number of records, or to wait for the last, is not."""
    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "EXITS", "subjects": ["EXITS.*"]})
        create_stream(connection, {"name": "KV_exits", "subjects": ["$KV.exits.>"], "allow_rollup_hdrs": True})
        for subject in ("EXITS.a", "$KV.exits.a"):
            connection.request(subject, b"first")
    route = tmp_path / "route.yaml"
    route.write_text(
        f"name: exits\nsource: {{format: nats, servers: '{nats_server.url}', stream: EXITS}}\n"
        f"sink: {{format: nats, servers: '{nats_server.url}'}}\n"
    )
    tap = arguments[0] == "tap"
    given = [argument.replace("{route}", str(route)) for argument in arguments]
    command = [sys.executable, "-m", "turnout", *([*given[:2], "--stage", *given[2:]] if tap else given)]
    environment = {**os.environ, "NATS_URL": nats_server.url, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        shown = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)

    assert shown, errors
    assert process.returncode == code, errors


def test_an_interrupted_replay_is_not_done(turnout, tmp_path, monkeypatch, nats_server) -> None:
    """A replay that was stopped before its end exits with 130, and says how it goes on."""
    from turnout.cli.history import replay
    from turnout.engine.counts import Counts
    from turnout.spark.history.replay import ReplayResult

    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "EXITS", "subjects": ["EXITS.*"]})
    (tmp_path / "route.yaml").write_text(
        f"name: exits\nsource: {{format: nats, servers: '{nats_server.url}', stream: EXITS}}\n"
        f"sink: {{format: nats, servers: '{nats_server.url}'}}\n"
    )
    for stopped, expected in ((True, 130), (False, 0)):

        def carried_out(plan, *_args, stopped=stopped, **_options):
            return ReplayResult(plan, Counts(), 1.0, stopped=stopped)

        monkeypatch.setattr(replay, "_carried_out", carried_out)
        for form in ((), ("--json",)):
            code, _, err = turnout("replay", "route.yaml", "--from", "earliest", *form)

            assert code == expected, err


def test_a_replay_that_delivers_nothing_is_not_done(turnout, tmp_path, monkeypatch, nats_server) -> None:
    """It says why, that there are no dead letters, and exits with 1; what no subscription matches is no failure."""
    from turnout.cli.history import replay
    from turnout.engine.counts import Counts
    from turnout.spark.history.replay import ReplayResult

    with Connection.open(nats_server.url) as connection:
        create_stream(connection, {"name": "NOTHING", "subjects": ["NOTHING.*"]})
    (tmp_path / "route.yaml").write_text(
        f"name: exits\nsource: {{format: nats, servers: '{nats_server.url}', stream: NOTHING}}\n"
        f"unmatched: pass\nsubscriptions: {{store: 'sqlite:///s.db'}}\n"
        f"sink: {{format: nats, servers: '{nats_server.url}'}}\n"
    )
    open_store(f"sqlite:///{tmp_path}/s.db").close()
    for counts, expected, note in (
        (Counts(read=2, discarded=2), 1, "a replay writes no dead letters: what fails is discarded"),
        (Counts(read=2, discarded=1, delivered=1, messages=1), 0, "a replay writes no dead letters"),
        (Counts(read=2, unmatched=2), 0, "2 records without a subscription that matches: not replayed"),
    ):

        def carried_out(plan, *_args, counts=counts, **_options):
            return ReplayResult(plan, counts, 1.0, by_subscription={}, notes=("2 failed at TASK_PUT: a loop",))

        monkeypatch.setattr(replay, "_carried_out", carried_out)
        code, out, err = turnout("replay", "route.yaml", "--from", "10m", "--dry-run")
        of_json, as_json, _ = turnout("replay", "route.yaml", "--from", "10m", "--dry-run", "--json")

        assert code == of_json == expected, err
        assert f"note: {note}" in out
        assert "note: 2 failed at TASK_PUT: a loop" in out
        assert [shown.partition(":")[0] for shown in json.loads(as_json)["notes"]] == [
            "2 failed at TASK_PUT",
            note.partition(":")[0],
        ]


@pytest.mark.parametrize(("options", "expected"), [((), 0), (("--drain",), 130)])
def test_an_interrupted_drain_is_not_done(turnout, tmp_path, monkeypatch, options, expected) -> None:
    """Deliveries without an end are done by a signal; a drain is not."""
    from turnout.delivery import dispatcher
    from turnout.delivery.failures import DeliveryCounts

    async def deliver(_route, stop, *, drain, ready, watch):
        signal.raise_signal(signal.SIGTERM)
        assert await asyncio.to_thread(stop.wait, 30)
        return DeliveryCounts()

    monkeypatch.setattr(dispatcher, "deliver", deliver)
    monkeypatch.setattr("turnout.cli.serve.loaded_route", lambda *_: None)
    assert turnout("deliver", "--route", "route.yaml", *options)[0] == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.timeout(60)
def test_a_signal_that_comes_while_the_event_is_locked(number: signal.Signals) -> None:
    """It sets the event without waiting for the lock that the main thread holds while it checks the event."""
    with stop_on_signals() as stop:
        with vars(stop)["_cond"]:
            signal.raise_signal(number)

        assert stop.wait(30)


@pytest.mark.timeout(60)
def test_a_signal_that_another_thread_gets() -> None:
    """The main thread waits and does not notice; the event is set all the same, and at once."""
    with stop_on_signals() as stop:
        waits = threading.Event()

        def get_it() -> None:
            waits.wait()
            signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

        thread = threading.Thread(target=get_it)
        thread.start()
        waits.set()

        assert stop.wait(30)
        thread.join()


@pytest.mark.timeout(60)
def test_a_hangup_reads_files_again_and_ends_nothing(tmp_path: Path) -> None:
    """Work that follows files goes on after SIGHUP, each time; the handler that was there is there again."""
    before = signal.getsignal(signal.SIGHUP)
    changes = FileChanges([tmp_path / "tokens"])
    heard = threading.Event()

    def on_hangup() -> None:
        read_again()
        heard.set()

    with stop_on_signals(on_hangup=on_hangup) as stop:
        for _ in range(2):
            signal.raise_signal(signal.SIGHUP)
            assert heard.wait(30)
            assert changes.found()
            heard.clear()
        assert not stop.is_set()

    assert signal.getsignal(signal.SIGHUP) is before


@pytest.mark.timeout(60)
def test_a_stop_is_said_at_once() -> None:
    """At the first signal, before the work has ended; not again."""
    said = []
    with stop_on_signals(lambda: said.append(stop.is_set())) as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.wait(30)

    assert said == [True]


def test_the_handlers_that_were_there_are_there_again() -> None:
    """After the block, and after the first signal: a second one ends the process as it always did."""
    before, descriptor = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(descriptor)

    with stop_on_signals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.wait(30)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(descriptor) == descriptor
