"""Addresses of SQLite stores."""

from __future__ import annotations

import pytest

from turnout.errors import ConfigError
from turnout.subscriptions import open_store


def test_relative_and_absolute_paths(tmp_path, monkeypatch):
    """Three slashes begin a relative path, four an absolute one; escapes are undone."""
    monkeypatch.chdir(tmp_path)
    open_store("sqlite:///here.db").close()
    open_store(f"sqlite:///{tmp_path}/there%20it%3Fis.db").close()

    assert (tmp_path / "here.db").exists()
    assert (tmp_path / "there it?is.db").exists()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite://here.db", "third slash"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:///x.db?mode=rx", "rwc, rw, ro"),
        ("sqlite:///x.db?timeout=soon", "number of seconds"),
        ("sqlite:///x.db?synchronous=maybe", "full, normal, off"),
        ("sqlite:///x.db?retention=long", "12h, 30d, 0 or forever"),
        ("sqlite:///x.db?cache=1", "unknown option 'cache'"),
        ("sqlite:////nowhere/at/all/x.db", "no folder '/nowhere/at/all'"),
        ("sqlite:////tmp", "is a folder"),
        ("sqlite:////tmp/is-not-there.db?mode=ro", "does not create one"),
    ],
)
def test_bad_addresses(url, words, tmp_path, monkeypatch):
    """An address that cannot be is a wrong request, with the reason."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        open_store(url)
