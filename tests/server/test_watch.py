"""Which files are routes, and which have changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnout.base.yaml_values import load
from turnout.server import watch
from turnout.server.watch import Files, digest_of

ROUTE = "name: a\n"


def test_a_folder_has_routes_and_other_things(tmp_path: Path) -> None:
    """Routes are YAML files; the configuration, hidden files and other formats are not."""
    for name in ("a.yaml", "b.yml", "turnout.yaml", ".hidden.yaml", "c.json", "mine.yaml"):
        (tmp_path / name).write_text(ROUTE)
    (tmp_path / "folder.d").mkdir()

    files = Files([tmp_path], config=tmp_path / "mine.yaml")

    assert [path.name for path in files.scan()] == ["a.yaml", "b.yml"]
    assert files.folder == tmp_path
    assert Files([tmp_path / "c.json"]).folder is None
    assert [path.name for path in Files([tmp_path / "c.json"]).scan()] == ["c.json"]


def test_a_change_of_a_file_or_of_one_that_it_names_is_another_digest(tmp_path: Path) -> None:
    """A change of size is detected even if the time stamp is unchanged."""
    route = tmp_path / "a.yaml"
    route.write_text("transforms: chain.json\n")
    files = Files([tmp_path])
    digests = [files.scan()[route].digest]
    (tmp_path / "chain.json").write_text("{}")
    digests.append(files.scan()[route].digest)
    stamp = (tmp_path / "chain.json").stat()
    (tmp_path / "chain.json").write_text('{"a": 1}')
    os.utime(tmp_path / "chain.json", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    digests.append(files.scan()[route].digest)

    assert len(set(digests)) == 3
    assert files.scan()[route].digest == digest_of(route.read_text(), tmp_path)


def test_what_cannot_be_read_is_told_and_what_is_gone_is_not_there(tmp_path: Path) -> None:
    """A file that is no text is no file that was removed; it is read again when it is one."""
    (tmp_path / "a.yaml").write_bytes(b"\xff\xfe\xff")
    (tmp_path / "b.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / "c.yaml").mkdir()
    files = Files([tmp_path])

    assert [(file.path.name, file.problem) for file in files.scan().values()] == [
        ("a.yaml", "is not UTF-8: the byte at 0"),
        ("c.yaml", "cannot be read: Is a directory"),
    ]
    (tmp_path / "a.yaml").write_text(ROUTE)
    assert files.scan()[tmp_path / "a.yaml"].problem == ""


def test_a_look_at_files_that_have_not_changed_parses_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server looks at all of them every second."""
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(f"name: unchanged-{name}\n")
    files = Files([tmp_path])
    parsed: list[str] = []
    monkeypatch.setattr(watch, "load", lambda text: (parsed.append(text), load(text))[1])

    files.scan()
    first = len(parsed)
    files.scan()

    assert (first, len(parsed)) == (3, 3)
