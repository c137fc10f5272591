"""A store's URL before any store is opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import ConfigError
from turnout.subscriptions import open_store
from turnout.subscriptions.store_url import existing, url_problem, with_absolute_paths

HERE = Path("/routes")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("sqlite:///a b.db?timeout=5", "sqlite:////routes/a%20b.db?timeout=5"),
        ("sqlite:////var/a.db", "sqlite:////var/a.db"),
        ("grpc://h:1?ca=ca.pem&timeout=5", "grpc://h:1?ca=/routes/ca.pem&timeout=5"),
        ("mongodb://u:p@h/db?tls=true&tlsCAFile=/ca.pem", "mongodb://u:p@h/db?tls=true&tlsCAFile=/ca.pem"),
        ("memory://x", "memory://x"),
    ],
)
def test_files_start_from_a_folder(url: str, expected: str) -> None:
    """Relative names get whole, all else stays."""
    assert with_absolute_paths(url, HERE) == expected


def test_who_reads_makes_no_store(tmp_path: Path) -> None:
    """The error names the path, and no file is created; an existing store is opened and can be written."""
    url = f"sqlite:///{tmp_path}/s.db"

    with pytest.raises(ConfigError, match=f"there is no store at '{tmp_path}/s.db'"):
        open_store(existing(url))
    assert list(tmp_path.iterdir()) == []
    open_store(url).close()
    with open_store(existing(url)) as store:
        assert store.revision() == 0
    assert existing(f"{url}?mode=ro") == f"{url}?mode=ro"


@pytest.mark.parametrize("url", ["sqlit:///x.db", "x.db", "", "sqlite:x.db", "postgres://u:hunter2@h/db"])
def test_what_names_no_store(url: str) -> None:
    """The supported schemes are listed, passwords are not shown."""
    problem = url_problem(url)

    assert problem is not None
    assert "sqlite://" in problem
    assert "hunter2" not in problem
