"""Changed servers of a source, and their effect on its checkpoint."""

from __future__ import annotations

import pytest

from turnout.routes.endpoints import NatsSource
from turnout.runtime.endpoints import server_changes


@pytest.mark.parametrize(
    ("new", "verdicts"),
    [
        ("nats://a:4222, nats://b:4222", []),
        (["nats://a:4222", "nats://b:4222"], []),
        ("nats://user:secret@a:4222,nats://b:4222", ["safe"]),
        ("nats://b:4222,nats://c:4222", ["safe"]),
        ("nats://c:4222", ["needs_new_checkpoint"]),
    ],
)
def test_changed_servers(new: str | list[str], verdicts: list[str]) -> None:
    """A list may be written as one text; one address in common means the same cluster."""
    before, after = (
        NatsSource.model_validate({"format": "nats", "servers": servers, "stream": "S"})
        for servers in ("nats://a:4222, nats://b:4222", new)
    )

    assert verdicts == [change.verdict for change in server_changes(before, after, "elsewhere")]
