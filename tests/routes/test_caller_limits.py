"""Limits of routes that callers write."""

from __future__ import annotations

from pathlib import Path

from turnout.routes.caller_limits import CallerLimits


def test_callers_name_no_files_elsewhere(tmp_path: Path) -> None:
    """A file outside of the folder of routes is refused, with the place of its name in the document."""
    limits = CallerLimits(writer=True, folder=tmp_path)
    document = {"value": {"format": "avro", "registry": {"url": "https://a", "tls": {"ca": "/etc/passwd"}}}}
    assert [path for path, _ in limits.mistakes(document, tmp_path)] == [("value", "registry", "tls", "ca")]
