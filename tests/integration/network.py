"""Networks of hosts on one machine, by Linux's network namespaces: links between them that can be cut."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from tests.integration.routes import wait_for

from turnout.embedded import start_server

ADDRESSES: Final = {"brokers": "10.213.0.1", "lease": "10.213.1.1"}
"""Addresses of the network's services, each of which hosts reach by a link of its own."""

_CLONE_NEWNET: Final = 0x40000000


def _ip(*arguments: str, host: int | None = None) -> None:
    inside = () if host is None else ("nsenter", "-t", str(host), "-n")
    done = subprocess.run([*inside, "ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextmanager
def own_network() -> Iterator[None]:
    """Move this thread, and the processes that it starts, to a network without any other machine.

    The test is skipped where that is not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with ExitStack() as resources:
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        resources.callback(os.close, before)
        if libc.unshare(_CLONE_NEWNET):
            pytest.skip(f"no network namespaces: {os.strerror(ctypes.get_errno())}")
        resources.callback(libc.setns, before, _CLONE_NEWNET)
        try:
            _ip("link", "set", "lo", "up")
            for address in ADDRESSES.values():
                _ip("address", "add", f"{address}/32", "dev", "lo")
            _ip("link", "add", "probe0", "type", "veth", "peer", "name", "probe1")
            _ip("link", "delete", "probe0")
        except (AssertionError, OSError) as failure:
            pytest.skip(f"no links between network namespaces: {failure}")
        yield


class HostNetwork:
    """Network of a host, with a link to each service; it ends with this process.

    Args:
        number: from 1 on; other hosts have other ones.
        folder: for the log of the process that keeps it.
    """

    def __init__(self, number: int, folder: Path) -> None:
        self._number = number
        with (folder / "network").open("wb") as log:
            self._keeper = start_server(["unshare", "--net", "sleep", "infinity"], log)
        own = Path("/proc/thread-self/ns/net").stat().st_ino
        wait_for(lambda: Path(f"/proc/{self._keeper.pid}/ns/net").stat().st_ino != own)
        _ip("link", "set", "lo", "up", host=self._keeper.pid)
        for name, address in ADDRESSES.items():
            _ip("link", "add", f"{name}{number}", "type", "veth", "peer", "name", name, "netns", str(self._keeper.pid))
            _ip("address", "add", address, "peer", self.address(name), "dev", f"{name}{number}")
            _ip("address", "add", self.address(name), "peer", address, "dev", name, host=self._keeper.pid)
            _ip("link", "set", name, "up", host=self._keeper.pid)
            self.mend(name)

    def address(self, name: str) -> str:
        """Return the address of the host's end of a link."""
        return f"{ADDRESSES[name]}{self._number}"

    @property
    def prefix(self) -> list[str]:
        """Command by which another one runs on the host, under the same process id."""
        return ["nsenter", "-t", str(self._keeper.pid), "-n"]

    def cut(self, name: str) -> None:
        """Lose what is sent over a link, on both ways, without a word to either side."""
        _ip("link", "set", f"{name}{self._number}", "down")

    def mend(self, name: str) -> None:
        """Let a link carry messages again."""
        _ip("link", "set", f"{name}{self._number}", "up")

    def close(self) -> None:
        """End the network."""
        self._keeper.kill()
        self._keeper.wait()
