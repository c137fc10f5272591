"""``turnout serve`` before it starts anything."""

from __future__ import annotations

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
    """No JVM is started for it, and no trace is printed."""
    (tmp_path / "empty").write_text("")

    before = psutil.Process().children()
    code, _, err = turnout("serve", *arguments)

    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert psutil.Process().children() == before
