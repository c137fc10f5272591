"""Tests that pass only at the second try are reported, and fail a strict run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from select import select
from types import SimpleNamespace

import pytest
from tools.run_tests import Run

from tools import run_tests


def test_a_run_knows_what_failed_last(tmp_path: Path) -> None:
    """Read from pytest's own cache; empty if there is none."""
    run = Run("not soak", tmp_path)
    assert run.failed() == set()

    cache = tmp_path / "v" / "cache"
    cache.mkdir(parents=True)
    (cache / "lastfailed").write_text(json.dumps({"tests/test_a.py::test_b": True}))

    assert run.failed() == {"tests/test_a.py::test_b"}


def test_a_second_try_is_printed_and_fails_a_strict_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reason alone excuses it; other runs only print it."""
    monkeypatch.setitem(run_tests.UNSTABLE, "b", "the clock of the machine")

    codes = [
        run_tests._report(names, strict=strict) for names, strict in (({"a"}, True), ({"a"}, False), ({"b"}, True))
    ]

    assert codes == [1, 0, 0]
    printed = capsys.readouterr().out
    assert "passed only at the second try: a (no known reason)" in printed
    assert "passed only at the second try: b (the clock of the machine)" in printed


def test_caches_are_filled_before_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this user's cache has already is not made again; tests wait for what each of them would make."""
    started: list[list[str]] = []

    def start(command: list[str], pass_fds: Sequence[int] = ()) -> SimpleNamespace:
        started.append(command[1:])
        held.extend(map(os.dup, pass_fds))
        return SimpleNamespace(wait=lambda: 0)

    monkeypatch.setattr(run_tests, "subprocess", SimpleNamespace(Popen=start))
    for is_filled, option in ((True, "-XX:SharedArchiveFile=a"), (False, "-XX:ArchiveClassesAtExit=a")):
        held: list[int] = []
        monkeypatch.setattr("turnout.loops.compiled.cache_is_filled", partial(bool, is_filled))
        monkeypatch.setattr("turnout.spark.session.build.archive_options", lambda _, option=option: [option])
        with run_tests._filled_caches() as ready:
            assert bool(select([ready], [], [], 0)[0]) == is_filled
            for end in held:
                os.close(end)
            assert os.read(ready, 1) == b""

    server = ["-m", "tests.ferretdb"]
    assert started == [server, ["-m", "turnout", "warm-up"], [str(run_tests._WARM_UP)], server]
    assert run_tests._WARM_UP.exists()
