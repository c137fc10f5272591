"""``turnout demo --webhooks``, as a user calls it, with fewer flights."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.spark
@pytest.mark.heavy
def test_every_match_is_received() -> None:
    """Every stored match is received with a right signature, although one request in ten fails, and is in a feed."""
    command = [sys.executable, "-m", "turnout", "demo", "--webhooks", "--limit", "8000", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    hooks = json.loads(done.stdout)["webhooks"]

    assert done.returncode == 0, done.stderr
    assert hooks["complete"]
    assert hooks["expected"] == hooks["received"] > 100
    assert hooks["feeds"] == hooks["expected"]
    assert hooks["same_feeds"]
    assert hooks["refused"] == hooks["dispatcher"]["failed"] > 10
