"""Names of the last release that have moved: they warn, and lead to what they named."""

from __future__ import annotations

import importlib
import sys

import pytest

import turnout.jetstream
import turnout.nats.jetstream


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("turnout.wire", "turnout.nats.wire", "Connection"),
        ("turnout.protocol", "turnout.nats.protocol", "ConnectionOptions"),
        ("turnout.engine.given", "turnout.engine.sample_records", "record_batch"),
    ],
)
def test_old_names_warn(old: str, new: str, name: str) -> None:
    """The object is the same."""
    sys.modules.pop(old, None)
    with pytest.warns(DeprecationWarning, match=new.replace(".", r"\.")):
        module = importlib.import_module(old)

    assert getattr(module, name) is getattr(importlib.import_module(new), name)
    sys.modules.pop(old)


def test_the_client_keeps_its_public_name() -> None:
    """`turnout.jetstream` has all that its home exports, without a warning."""
    assert turnout.jetstream.__all__ == turnout.nats.jetstream.__all__
    assert all(
        getattr(turnout.jetstream, name) is getattr(turnout.nats.jetstream, name) for name in turnout.jetstream.__all__
    )


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        ("turnout.subjects.errors", "IndexOutOfRangeError", "DestinationError"),
        ("turnout.subjects.errors", "TotalOver100Error", "MappingEntryError"),
    ],
)
def test_old_names_in_a_module_warn(module: str, old: str, new: str) -> None:
    """The replacement catches what the old name caught."""
    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
        replacement = getattr(home, old)

    assert replacement is getattr(home, new)
    with pytest.raises(AttributeError):
        _ = home.NoSuchName


def test_old_name_of_with_prefix_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes its arguments on."""
    received: dict[str, object] = {}
    monkeypatch.setattr(turnout.jetstream.JetStream, "with_prefix", lambda _self, **options: received.update(options))
    js = object.__new__(turnout.jetstream.JetStream)
    with pytest.warns(DeprecationWarning, match="with_prefix"):
        js.behind(domain="hub")

    assert received == {"domain": "hub"}
