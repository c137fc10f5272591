"""Faults of a machine, its processes and its servers, drawn one after the other while a route runs."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.integration.stepped_clock import SteppedClock
from tests.integration.switch import Switch
from tests.integration.traffic import POISON, store_poison, stored
from tests.nats.wire.proxy import CuttingProxy

from turnout.embedded import NatsServer

_FROZEN_SECONDS = 5.0
_POISONED_AT_ONCE = 3
_UP_SECONDS = 120.0
_STEPS_SECONDS = (120.0, 3600.0, 6 * 3600.0)
"""Offsets by which the clock is set forwards or back from the machine's."""


@dataclass
class Scene:
    """Targets of faults, and the results of the run."""

    switch: Switch
    server: NatsServer
    proxy: CuttingProxy
    store: str
    disk: Path | None
    clock: SteppedClock | None
    random: random.Random
    poisoned: int = 0
    bag: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    starts: int = 0

    def keep_running(self) -> None:
        """Start the switch again if it has ended: as a supervisor does. It must have said why in one sentence."""
        if self.switch.runs():
            return
        if self.starts:
            self._note_end()
        self.switch.start()
        self.starts += 1

    def wait_until_it_delivers(self) -> None:
        """Return when the switch has delivered something, through any number of starts."""
        before, deadline = stored(self.server, "OUT"), time.monotonic() + _UP_SECONDS
        while stored(self.server, "OUT") == before:
            self.keep_running()
            assert time.monotonic() < deadline, self.switch.said()[-3000:]
            time.sleep(0.2)

    def draw(self) -> None:
        """Let one fault happen: each comes before any comes again."""
        if not self.bag:
            self.bag = self.random.sample(list(FAULTS), len(FAULTS))
        name = self.bag.pop()
        if FAULTS[name](self):
            self.faults[name] += 1

    def _note_end(self) -> None:
        """Count how the switch ended, by its last line; that of a switch that was killed is not its own."""
        output, code = self.switch.said(), self.switch.wait(0)
        if code < 0:
            self.ends[f"signal {-code}"] += 1
            return
        last = output.rstrip().rpartition("\n")[2]
        assert "Traceback" not in output, output[-3000:]
        assert code == 1, (code, output[-3000:])
        assert last.startswith("turnout: route chaos failed: "), output[-3000:]
        self.ends[last.removeprefix("turnout: route chaos failed: ")[:70]] += 1


def _kill(process: psutil.Process | None) -> bool:
    if process is None:
        return False
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
    return True


def _driver(scene: Scene) -> bool:
    """Its JVM and its workers notice by themselves, and may still be at it when the next run begins."""
    return scene.switch.runs() and _kill(scene.switch.process)


def _everything(scene: Scene) -> bool:
    if scene.switch.runs():
        scene.switch.kill()
    return True


def _jvm(scene: Scene) -> bool:
    return _kill(scene.switch.jvm())


def _worker(scene: Scene) -> bool:
    workers = scene.switch.workers()
    return bool(workers) and _kill(scene.random.choice(workers))


def _server(scene: Scene) -> bool:
    scene.server.restart(kill=True)
    return True


def _frozen(scene: Scene) -> bool:
    scene.server.pause()
    time.sleep(scene.random.uniform(0.5, _FROZEN_SECONDS))
    scene.server.resume()
    return True


def _cut(scene: Scene) -> bool:
    scene.proxy.cut()
    return True


def _power(scene: Scene) -> bool:
    """All processes end at once, and the newest files of the checkpoint are empty, or full of zeros."""
    if scene.switch.runs():
        scene.switch.kill()
    for log in ("offsets", "commits"):
        folder = scene.switch.checkpoint / log
        entries = sorted((int(file.name) for file in folder.glob("*") if file.name.isdigit()), reverse=True)
        # The very first entry says where the run began: nothing could be known without it.
        for number in entries[: scene.random.choice([0, 1, 2])]:
            if number > 1:
                (folder / str(number)).write_bytes(b"")
    index = sorted((scene.switch.checkpoint / "subscriptions").glob("*-*.*"), key=lambda file: file.stat().st_mtime)
    for file in index[len(index) - scene.random.choice([0, 1, 2]) :]:
        size = file.stat().st_size
        kept = scene.random.randrange(size + 1)
        file.write_bytes(file.read_bytes()[:kept] + bytes(size - kept))
    return True


def _full(scene: Scene) -> bool:
    """The checkpoint's disk has no room for a while."""
    if scene.disk is None:
        return False
    ballast = scene.disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb") as file:
        while True:
            file.write(b"x" * 4096)
            file.flush()
    time.sleep(scene.random.uniform(1, 6))
    ballast.unlink()
    return True


def _clock(scene: Scene) -> bool:
    """The wall clock of the driver, the JVM and the workers is set forwards or back, and stays so until the next."""
    if scene.clock is None:
        return False
    scene.clock.set(scene.random.choice(_STEPS_SECONDS) * scene.random.choice([-1, 1]) + scene.random.uniform(-60, 60))
    return True


def _poison(scene: Scene) -> bool:
    kinds = list(POISON)
    for _ in range(_POISONED_AT_ONCE):
        store_poison(scene.store, kinds[scene.poisoned % len(kinds)], scene.poisoned)
        scene.poisoned += 1
    return True


def _asked(scene: Scene) -> bool:
    """SIGTERM to all: it ends well, and is started again."""
    if not scene.switch.runs():
        return False
    scene.switch.signal_group(signal.SIGTERM)
    code = scene.switch.wait(_UP_SECONDS)
    output = scene.switch.said()
    assert "Traceback" not in output, output[-3000:]
    # One that was ending by another fault already ends with that one's sentence.
    assert code == 0 or "turnout: route chaos failed: " in output or code == -signal.SIGTERM, (code, output[-3000:])
    scene.ends[f"asked, {code}"] += 1
    scene.switch.start()
    scene.starts += 1
    return True


FAULTS: dict[str, Callable[[Scene], bool]] = {
    "driver kill -9": _driver,
    "all processes kill -9": _everything,
    "JVM kill -9": _jvm,
    "worker kill -9": _worker,
    "nats-server kill -9": _server,
    "nats-server frozen": _frozen,
    "connections cut": _cut,
    "power cut": _power,
    "full disk": _full,
    "clock step": _clock,
    "poison subscription": _poison,
    "asked to stop": _asked,
}
"""Faults, one per line; each returns whether it had a target."""


@contextlib.contextmanager
def disk_of_its_own(place: Path, size: str) -> Iterator[Path | None]:
    """A small file system at *place*; None, with the reason printed, where none can be mounted."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        print(f"no full disk is drawn: a file system cannot be mounted here: {done.stderr.strip()}")
        yield None
        return
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
