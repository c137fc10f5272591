"""``turnout serve`` before it starts anything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest


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
