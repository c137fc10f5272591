"""Route files of every kind that is wrong: one problem each, and the other routes run on."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.server.conftest import Bench, route_text
from turnout.base.yaml_values import load
from turnout.routes import Route
from turnout.server.routes import table
from turnout.server.routes.supervisor import Phase
from turnout.server.routes.table import Files, digest_of

WRONG = {
    "day": "start: 2024-02-30\n",
    "brackets": "[" * 60_000,
    "laughs": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
    "mappings": route_text("mappings", more="mappings: []"),
    "format": route_text("format", more="value: {format: []}"),
    "tag": route_text("tag", more="cluster: !!bool foo"),
    "half": route_text("half", more='cluster: "\\ud800"'),
    "nul": "name: a\0b\n",
    "long": "name: " + "x" * 100_000,
    "base60": "name: 1" + ":59" * 100_000,
    "path": route_text("path", more="transforms: " + "x" * 5000),
}  # fmt: skip


@pytest.mark.parametrize("first", [True, False], ids=["at startup", "while watching"])
def test_each_wrong_file_is_one_problem_and_the_others_run(bench: Bench, first: bool) -> None:
    """Including entries that are no files: a pipe, a folder, a link to itself, a name that is not UTF-8, a gigabyte."""
    if not first:
        bench.start("good")
    for name, text in WRONG.items():
        bench.write(name, text)
    os.mkfifo(bench.folder / "pipe.yaml")
    (bench.folder / "folder.yaml").mkdir()
    (bench.folder / "link.yaml").symlink_to(bench.folder / "link.yaml")
    (bench.folder / "bytes.yaml").write_bytes(b"name: caf\xe9\n")
    Path(os.fsdecode(os.fsencode(bench.folder) + b"/caf\xe9.yaml")).write_text(route_text("cafe"))
    with (bench.folder / "huge.yaml").open("wb") as huge:
        huge.truncate(1 << 30)
    bench.start("good")

    entries = {entry.file.path: entry for entry in bench.routes.entries()}
    wrong = [entry for path, entry in entries.items() if path.name != "good.yaml"]

    assert len(wrong) == len(WRONG) + 6
    assert [len(entry.mistakes) for entry in wrong if entry.name != "day"] == [1] * (len(wrong) - 1)
    assert {entry.status.phase for entry in wrong} == {Phase.INVALID}
    assert not bench.run_of("good").stop.is_set()


def test_a_failure_that_nobody_thought_of_is_the_problem_of_its_file(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with the name of the file."""
    parse = Route.parse

    def broken(text: str, **more: object) -> object:
        if "name: bad" in text:
            raise ZeroDivisionError
        return parse(text, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Route, "parse", broken)
    bench.write("bad")
    bench.start("good")

    (mistake,) = bench.routes.entry("bad").mistakes
    assert mistake.problem == "cannot be read: ZeroDivisionError; see the log"
    assert "bad.yaml" in caplog.text


def test_a_file_that_cannot_be_taken_now_is_taken_later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example while the disk of the state folder is full; the other routes are started immediately."""
    add = bench.state.add_revision
    monkeypatch.setattr(bench.state, "add_revision", lambda route, **row: 1 / 0 if route == "a" else add(route, **row))
    bench.write("a")
    bench.start("b")
    assert str(bench.routes.entry("a").mistakes[0].problem).startswith("cannot be taken: ZeroDivisionError")

    monkeypatch.undo()
    bench.routes.scan()
    bench.run_of("a")
    assert bench.routes.entry("a").mistakes == ()


_PIECES = (
    b"[" * 200, b"{", b"&a ", b"*a", b"<<: ", b"!!bool ", b"- ", b": ", b"\0", b"\xff", b"\xed\xa0\x80", b'"\\ud800"',
    b"2024-02-30", b"mappings: []\n", b"value: {format: []}\n", b"${HOME}", b"${file:/dev/zero}",
    b"transforms: /dev/zero\n", b"9" * 5000, b"~x",
)  # fmt: skip


def _mutated(content: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four changes: of a byte, of the length, of a line, or by something that YAML knows."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(content) + 1)
        match chance.randrange(5):
            case 0:
                content = content[:at] + bytes([chance.randrange(256)]) + content[at + 1 :]
            case 1:
                content = content[:at]
            case 2:
                lines = content.splitlines(keepends=True)
                chance.shuffle(lines)
                content = b"".join(lines)
            case _:
                content = content[:at] + chance.choice(_PIECES) + content[at:]
    return content


@pytest.mark.parametrize("rounds", [400, pytest.param(2000, marks=pytest.mark.heavy)])
def test_rounds_of_mutated_files_leave_a_healthy_route_alone(bench: Bench, rounds: int) -> None:
    """After each look every file has one entry, which runs or has mistakes; the route beside them never stops."""
    chance = random.Random(26)
    bench.start("good")
    more = "mappings: {'a.*': 'b.{{wildcard(1)}}'}\nvalue: {format: json}\nspark: {a: 1}\ncluster: c\n"
    wrong = 0
    for number in range(rounds):
        path = bench.folder / f"r{chance.randrange(4)}.yaml"
        path.unlink(missing_ok=True)
        if chance.random() < 0.9:
            healthy = route_text(path.stem, more=more).encode()
            part = bench.folder / f".{number}"
            part.write_bytes(_mutated(healthy, chance) if chance.random() < 0.9 else healthy)
            part.replace(path)
        bench.routes.scan()

        there = {file for file in bench.folder.iterdir() if file.suffix == ".yaml"}
        entries = [entry for entry in bench.routes.entries() if entry.file.path in there]
        assert sorted(entry.file.path for entry in entries) == sorted(there)
        assert all(entry.mistakes or entry.version or entry.pending for entry in entries)
        wrong += sum(bool(entry.mistakes) for entry in entries)
        assert "see the log" not in str([entry.mistakes for entry in entries]), path.read_bytes()
        good = bench.routes.entry("good")
        assert (good.status.phase, good.mistakes, len(bench.runner.runs["good"])) == (Phase.RUNNING, (), 1)
    assert wrong > rounds // 2


ROUTE = "name: a\n"


def test_a_folder_has_routes_and_other_things(tmp_path: Path) -> None:
    """Routes are YAML files; the configuration, tests, containers, hidden files and other formats are not."""
    others = ("turnout.yaml", ".hidden.yaml", "c.json", "mine.yaml", "a.test.yaml", "compose.yaml")
    for name in ("a.yaml", "b.yml", "test.yaml", *others):
        (tmp_path / name).write_text(ROUTE)
    (tmp_path / "folder.d").mkdir()

    files = Files([tmp_path], config=tmp_path / "mine.yaml")

    assert [path.name for path in files.scan()] == ["a.yaml", "b.yml", "test.yaml"]
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
    monkeypatch.setattr(table, "load", lambda text: (parsed.append(text), load(text))[1])

    files.scan()
    first = len(parsed)
    files.scan()

    assert (first, len(parsed)) == (3, 3)
