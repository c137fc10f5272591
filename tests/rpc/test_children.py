"""Programs that are started by a process with gRPC."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import collections, contextlib, subprocess, threading
from turnout.errors import SubscriptionNotFoundError
from turnout.rpc.client import Channel
from turnout.rpc.remote_store import RemoteStore
from turnout.rpc.server import subscriptions_server
from turnout.rpc.server import ServerSettings
from turnout.subscriptions import open_store

codes, done = collections.Counter(), threading.Event()


def ask(port):
    with RemoteStore(Channel(f"127.0.0.1:{port}", timeout=10)) as store:
        while not done.is_set():
            with contextlib.suppress(SubscriptionNotFoundError):
                store.read("nobody")


with open_store("memory://") as backing:
    settings = ServerSettings(host="127.0.0.1", port=0, grace_seconds=2.0, log_level="error")
    with subscriptions_server(backing, settings) as server:
        callers = [threading.Thread(target=ask, args=(server.port,)) for _ in range(2)]
        for caller in callers:
            caller.start()
        for _ in range(120):
            # As PySpark starts its JVM.
            child = subprocess.Popen(["true"], preexec_fn=lambda: None)
            codes[child.wait(30)] += 1
        done.set()
        for caller in callers:
            caller.join()
print(dict(codes))
"""


def test_they_begin_while_calls_are_under_way() -> None:
    """gRPC's handlers of a fork aborted one child in twenty-five, before it was another program.

    Of 120 children one would be aborted in 99 of 100 runs.
    """
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False)

    assert (done.stdout, done.stderr) == ("{0: 120}\n", "")
