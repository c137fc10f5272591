"""``turnout diff`` as a person or a build runs it, over records in files."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.test_documentation import commands, files
from tests.documentation import blocks
from turnout.conditions import parse
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.lines import export_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUTE = """
name: small
source: {format: json, path: RECORDS}
value: {format: json}
transforms: TRANSFORMS
subscriptions: {store: "sqlite:///subscriptions.db", metadata: {city: value.city}}
sink: {format: json, path: out}
deadLetter: {topic: dead}
errors: {tolerance: all}
"""
OLD = "[]"
NEW = '[{name: drop, type: Filter, predicate: {type: TopicNameMatches, pattern: "<b>.*"}}]'
RECORDS = [
    {"topic": "a", "partition": 0, "offset": 1, "value": '{"city": "Oulu"}'},
    {"topic": "<b>&", "partition": 0, "offset": 2, "value": '{"city": "Oulu"}'},
    {"topic": "a", "partition": 0, "offset": 3, "value": "no json"},
    {"topic": "<b>&", "partition": 0, "offset": 4, "value": '{"city": "Turku"}'},
]


@pytest.fixture
def folder(turnout: Any, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The present folder, with records, subscriptions and two versions of a route; Spark is there already."""

    @contextmanager
    def session(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("turnout.spark.session.build.route_session", session)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "records.json").write_text("\n".join(map(json.dumps, RECORDS)), encoding="utf-8")
    subscribe("sqlite:///subscriptions.db", oulu="city:Oulu")
    write("old.yaml", OLD)
    write("new.yaml", NEW)
    return tmp_path


def subscribe(url: str, **conditions: str) -> list[str]:
    """Store subscriptions; the lines that an export of them has."""
    store = open_store(url)
    store.create_many(Subscription([f"out.{name}"], parse(text), id=name) for name, text in conditions.items())
    lines = list(export_lines(store))
    store.close()
    return lines


def write(name: str, transforms: str, path: str = "in") -> None:
    text = ROUTE.replace("RECORDS", str(Path(path).absolute())).replace("TRANSFORMS", transforms)
    Path(name).write_text(text, encoding="utf-8")


def test_what_is_not_the_same(turnout: Any, folder: Path) -> None:
    """Exit code 0: the matrix, the numbers, and examples with their places."""
    code, out, _ = turnout("diff", "old.yaml", "new.yaml")

    *lines, cost = out.splitlines()
    assert code == 0
    assert lines == [
        "old  old.yaml",
        "new  new.yaml",
        "4 records compared (from earliest to latest)",
        "2 of them with differences",
        "    delivered → filtered (drop): 1",
        "    unmatched → filtered (drop): 1",
        "deliveries lost: 1 (oulu 1)",
        "examples, the first by sequence:",
        "  end otherwise, delivered → filtered (drop)",
        "    <b>&:2 <b>&",
        "  end otherwise, unmatched → filtered (drop)",
        "    <b>&:4 <b>&",
        "  deliveries lost",
        '    <b>&:2 <b>&: {"subscription": "oulu", "to": "out.oulu"} → nothing',
    ]
    assert re.fullmatch(r"cost: old \d+\.\d µs, new \d+\.\d µs of a processor's time for each record", cost)


COST = re.compile(r"old \d+\.\d µs, new \d+\.\d µs")


def test_the_page_tells_what_happens(
    turnout: Any, folder: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files, sessions and programs, run as they stand; but for the time of a processor."""
    monkeypatch.setenv("PWD", str(folder))
    (folder / "records").mkdir()
    (records,) = blocks("diff.md", "json")
    (folder / "records" / "orders.json").write_text(records.text, encoding="utf-8")
    for name, text in files("diff.md").items():
        (folder / name).write_text(text, encoding="utf-8")

    for command, expected in commands("diff.md"):
        _, out, err = turnout(*shlex.split(command)[1:])
        assert COST.sub("…", out + err) == COST.sub("…", expected)
    for block in blocks("diff.md", "python"):
        assert block.run({"spark": spark}) == block.told


def test_a_version_and_itself(turnout: Any, folder: Path) -> None:
    """There is nothing to tell, in any form."""
    code, out, _ = turnout("diff", "old.yaml", "old.yaml", "--fail-on", "changed > 0")
    assert (code, out.splitlines()[3]) == (0, "no differences")

    code, out, _ = turnout("diff", "old.yaml", "old.yaml", "--json")
    report = json.loads(out)

    assert (report["totals"]["records"], report["totals"]["changed"], report["examples"]) == (4, 0, [])
    assert report["fields"] == report["headers"] == {}
    assert [row["old"] == row["new"] for row in report["matrix"]] == [True] * len(report["matrix"])


def test_a_part_of_the_records(turnout: Any, folder: Path) -> None:
    """From an offset to before another."""
    _, out, _ = turnout("diff", "old.yaml", "new.yaml", "--from", "3", "--to", "4", "--json")

    assert json.loads(out)["totals"]["records"] == 1
    assert json.loads(out)["range"] == "from 3 to 4"


@pytest.mark.parametrize(
    ("condition", "expected"), [("lost > 0", 1), ("lost > 1", 0), ("gained > 0 or outcomes >= 2", 1)]
)
def test_a_build_fails(turnout: Any, folder: Path, condition: str, expected: int) -> None:
    """With exit code 1 where the condition holds, which is said; the report comes all the same."""
    code, out, err = turnout("diff", "old.yaml", "new.yaml", "--json", "--fail-on", condition)

    assert code == expected
    assert (f"turnout: {condition} holds" in err) == bool(expected)
    totals = json.loads(out)["totals"]
    assert (totals["lost"], totals["outcomes"], totals["old_delivered"], totals["new_filtered"]) == (1, 2, 2, 2)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("old.yaml", "new.yaml", "--fail-on", "lots > 0"), 'did you mean "lost"?'),
        (("old.yaml", "new.yaml", "--from", "yesterday"), "expected earliest, latest, a sequence"),
        (("old.yaml", "elsewhere.yaml"), "source.path: is "),
        (("old.yaml",), "one version alone"),
        (("old.yaml", "new.yaml", "old.yaml"), "expected an old and a new one, found 3"),
        (("old.yaml", "none.yaml"), "none.yaml: no such file"),
        (("old.yaml", "new.yaml", "--git", "HEAD~1..HEAD"), "expected REV1..REV2 and one file"),
        (("old.yaml", "--old-subscriptions", "none.jsonl"), "none.jsonl: no such file"),
        (("plain.yaml", "--old-subscriptions", "sqlite:///x.db"), "plain.yaml: the route has no subscriptions"),
    ],
)
def test_wrong_requests(turnout: Any, folder: Path, arguments: tuple[str, ...], problem: str) -> None:
    """Exit code 2, and the reason, before any record is read."""
    write("elsewhere.yaml", OLD, path="other")
    plain = [line for line in (folder / "old.yaml").read_text(encoding="utf-8").splitlines() if "store" not in line]
    (folder / "plain.yaml").write_text("\n".join(plain), encoding="utf-8")

    code, out, err = turnout("diff", *arguments)

    assert (code, out) == (2, "")
    assert problem in err


def test_two_snapshots_of_subscriptions(turnout: Any, folder: Path) -> None:
    """One route with what two files, or a file and a store, hold."""
    lines = subscribe("memory://diff-cli", oulu="city:Oulu", turku="city:Turku")
    (folder / "new.jsonl").write_text("\n".join(lines), encoding="utf-8")

    code, out, _ = turnout("diff", "old.yaml", "--new-subscriptions", "new.jsonl", "--json")

    report = json.loads(out)
    assert (code, report["totals"]["gained"], report["totals"]["lost"]) == (0, 1, 0)
    assert report["subscriptions"]["gained"] == {"turku": 1}
    both = ("--old-subscriptions", "new.jsonl", "--new-subscriptions", "sqlite:///subscriptions.db")
    _, out, _ = turnout("diff", "old.yaml", *both, "--json")
    assert json.loads(out)["subscriptions"]["lost"] == {"turku": 1}


def git(*arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(folder: Path) -> Path:
    """A repository with two revisions of a route in a folder, whose transforms stand in a file of their own."""
    git("init", "--quiet", "--initial-branch=main")
    (folder / "routes").mkdir()
    (folder / "subscriptions.db").rename(folder / "routes" / "subscriptions.db")
    write("routes/route.yaml", "chain.properties")
    for predicate in ("none", "<b>.*"):
        chain = (
            "transforms=drop\ntransforms.drop.type=org.apache.kafka.connect.transforms.Filter\n"
            "transforms.drop.predicate=rare\npredicates=rare\n"
            "predicates.rare.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches\n"
            f"predicates.rare.pattern={predicate}\n"
        )
        (folder / "routes" / "chain.properties").write_text(chain, encoding="utf-8")
        git("add", "routes/route.yaml", "routes/chain.properties")
        git("commit", "--quiet", "--message", predicate)
    return folder


@pytest.mark.parametrize(
    ("inside", "arguments", "names"),
    [
        (".", ("--git", "HEAD~1..HEAD", "routes/route.yaml"), ("HEAD~1:routes/route.yaml", "HEAD:routes/route.yaml")),
        ("routes", ("--git", "main~1..", "route.yaml"), ("main~1:routes/route.yaml", "HEAD:routes/route.yaml")),
        ("routes", ("HEAD~1:routes/route.yaml", "route.yaml"), ("HEAD~1:routes/route.yaml", "route.yaml")),
        (
            "routes",
            ("HEAD~1:./route.yaml", "HEAD:./route.yaml"),
            ("HEAD~1:routes/route.yaml", "HEAD:routes/route.yaml"),
        ),
    ],
)
def test_revisions(
    turnout: Any,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    inside: str,
    arguments: tuple[str, ...],
    names: tuple[str, str],
) -> None:
    """Files beside the route are those of its revision, and what git does not have is there; git's state stays."""
    monkeypatch.chdir(repository / inside)
    before = status(repository)

    code, out, err = turnout("diff", *arguments, "--json")

    report = json.loads(out)
    assert (code, err, report["old"], report["new"]) == (0, "", *names)
    assert (report["totals"]["lost"], report["totals"]["new_filtered"], report["totals"]["old_filtered"]) == (1, 2, 0)
    assert status(repository) == before


def status(repository: Path) -> str:
    return subprocess.run(
        ["git", "status", "--porcelain", "--branch"], cwd=repository, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--git", "HEAD~9..HEAD", "routes/route.yaml"), "git knows no revision 'HEAD~9'"),
        (("--git", "--output=x..HEAD", "routes/route.yaml"), "git knows no revision '--output=x'"),
        (("HEAD:none.yaml", "HEAD:routes/route.yaml"), "HEAD:none.yaml: the revision has no such file"),
        (("HEAD:./../../x.yaml", "HEAD:routes/route.yaml"), "is outside of the repository"),
        (("--git", "HEAD~1", "routes/route.yaml"), "expected REV1..REV2 and one file, found 'HEAD~1'"),
    ],
)
def test_wrong_revisions(turnout: Any, repository: Path, arguments: tuple[str, ...], problem: str) -> None:
    """Exit code 2, with the revision and the file."""
    code, _, err = turnout("diff", *arguments)

    assert code == 2
    assert problem in err


class _Page(HTMLParser):
    """Reads a page: its tags are closed in order, and its texts and attributes are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_page(turnout: Any, folder: Path) -> None:
    """One file that asks for nothing else; whatever records hold is text in it."""
    turnout("diff", "old.yaml", "new.yaml", "--html", "report.html")

    text = (folder / "report.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    page.close()
    assert page.open == []
    assert {"<b>&", "<b>&:2", "oulu", "2 of 4 records with differences"} <= set(page.texts)
    assert "b" not in {tag for tag, _ in page.tags}
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not {"src", "href"} & {name for _, attributes in page.tags for name in attributes}
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert [attributes["style"] for tag, attributes in page.tags if tag == "div" and "style" in attributes]
