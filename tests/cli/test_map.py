"""``turnout map``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from turnout.cli.app import build_app
from turnout.errors import ConfigError, SubjectError

CONFIG = """
mappings { foo: [{dest: foo.west, weight: 100%, cluster: west}, {dest: foo.else, weight: 60%}], "o.*": "p.$1" }
accounts { A { mappings { x: y } } }
"""


def _run(*words: str, given: str = "") -> Result:
    return CliRunner().invoke(build_app(), ["map", *words], input=given, catch_exceptions=False)


def test_a_transform_is_tried_on_subjects() -> None:
    """One line each; exit code 1 when one of them could not be mapped."""
    done = _run("foo.*", "bar.{{partition(10,1)}}", "foo.1", "foo.2")
    failed = _run("foo.*", "bar.$1", "foo.1", "x", "--json")
    output = json.loads(failed.stdout)

    assert (done.exit_code, done.stdout) == (0, "foo.1 -> bar.4\nfoo.2 -> bar.1\n")
    assert failed.exit_code == 1
    assert [result.get("reason") for result in output["results"]] == [None, "no_match"]
    assert output["reverse"] == {"source": "bar.*", "destination": "foo.$1"}


def test_a_wrong_request_is_refused() -> None:
    """The front turns these into exit code 2."""
    for words in (["foo.*"], [], ["a", "b", "--cluster", "x"], ["a", "--config", "f", "--strict"]):
        with pytest.raises(ConfigError):
            _run(*words)
    with pytest.raises(SubjectError):
        _run("foo.*", "bar.{{nope(1)}}")
    with pytest.raises(SubjectError):
        _run("foo.*", "bar", "--strict")


def test_a_files_mappings_are_explained(tmp_path: Path) -> None:
    """Which mapping, its shares, and why not the others; subjects from the command line and from stdin."""
    file = tmp_path / "server.conf"
    file.write_text(CONFIG)
    west = _run("--config", str(file), "--cluster", "west", "foo")
    output = json.loads(_run("--config", str(file), "--json", "--stdin", given="foo\nzzz\n").stdout)
    account = _run("--config", str(file), "--account", "A", "x")

    assert west.stdout.splitlines() == [
        "foo: the mapping of 'foo', the destinations for cluster 'west'",
        "  100%  foo.west  (foo.west)",
        "    0%  foo.else: it is for clusters that have no destinations of their own",
        "  not 'o.*': token 1 is 'foo', not 'o'",
    ]
    assert [(d["subject"], d["share"]) for d in output["results"][0]["destinations"]] == [("foo", 40), ("foo.else", 60)]
    assert output["results"][0]["not_chosen"] == [{"destination": "foo.west", "why": "it is for the cluster 'west'"}]
    assert output["results"][1]["source"] is None
    assert "100%  y" in account.stdout


def test_programs_are_told_what_is_wrong(tmp_path: Path) -> None:
    """With --json a wrong transform or table is an answer: reason, text, token, position; exit code 2."""
    file = tmp_path / "table.yaml"
    file.write_text("foo: [{dest: a.$1, weight: 10}]\nb..c: d\n")
    transform = _run("foo.*", "bar.{{nope(1)}}", "--json")
    table = _run("--config", str(file), "foo", "--json")
    errors = json.loads(transform.stdout)["errors"] + json.loads(table.stdout)["errors"]

    assert (transform.exit_code, table.exit_code) == (2, 2)
    assert [(e["reason"], e["text"], e["token"], e["position"]) for e in errors] == [
        ("unknown_function", "bar.{{nope(1)}}", "{{nope(1)}}", 4),
        ("bad_destination", "a.$1", "$1", 2),
        ("bad_source", "b..c", "", 2),
    ]
    assert [(e["source"], e["entry"]) for e in errors] == [(None, None), ("foo", 0), ("b..c", None)]


def test_standard_input_is_a_filter_of_bytes() -> None:
    """A line each, in and out as they are, UTF-8 or not, and with the line ends of either world."""
    result = CliRunner().invoke(build_app(), ["map", "foo.*", "bar.$1", "--stdin"], input=b"foo.\xff\r\nfoo.1\n\n")

    assert result.exit_code == 1
    assert result.stdout_bytes == (
        b"foo.\xff -> bar.\xff\nfoo.1 -> bar.1\n: invalid subject '': an empty token at position 0\n"
    )


def test_a_routes_own_cluster_is_taken(tmp_path: Path) -> None:
    """Unless another one is given; a route may name a server's configuration for its mappings."""
    (tmp_path / "server.conf").write_text(
        "accounts { A { mappings { foo: [{dest: west, weight: 100%, cluster: w}, {dest: rest, weight: 100%}] } } }"
    )
    (tmp_path / "route.yaml").write_text(
        "name: x\ncluster: '${NOT_SET_HERE:-w}'\nmappings: {file: server.conf, account: A}\n"
    )

    assert "100%  west" in _run("--config", str(tmp_path / "route.yaml"), "foo").stdout
    assert "100%  rest" in _run("--config", str(tmp_path / "route.yaml"), "--cluster", "e", "foo").stdout


def test_a_route_or_a_bare_table_serves_too(tmp_path: Path) -> None:
    """YAML and JSON, with and without the key ``mappings``; a decoded claim; a server's configuration in JSON."""
    (tmp_path / "route.yaml").write_text("name: x\nmappings:\n  foo: bar\n")
    (tmp_path / "table.json").write_text('{"foo": "bar"}')
    (tmp_path / "claim.json").write_text('{"nats": {"mappings": {"foo": [{"subject": "bar"}]}}}')
    (tmp_path / "server.json").write_text('{"mappings": {"x": "y"}, "accounts": {"A": {"mappings": {"foo": "bar"}}}}')
    (tmp_path / "wrong.yaml").write_text("- a\n")

    for name in ("route.yaml", "table.json", "claim.json"):
        assert "100%  bar" in _run("--config", str(tmp_path / name), "foo").stdout
    assert "100%  bar" in _run("--config", str(tmp_path / "server.json"), "--account", "A", "foo").stdout
    assert "100%  y" in _run("--config", str(tmp_path / "server.json"), "x").stdout
    with pytest.raises(ConfigError, match="expected a block of mappings"):
        _run("--config", str(tmp_path / "wrong.yaml"), "foo")
    with pytest.raises(ConfigError, match="has no accounts"):
        _run("--config", str(tmp_path / "table.json"), "--account", "A", "foo")


def test_an_account_and_older_servers() -> None:
    """``--account`` says whose hash is meant; a source that older servers match otherwise is warned of."""
    done = _run("foo.*", "x.{{account-hash()}}.$1", "foo.1", "--account", "SHOP")
    assert (done.exit_code, done.stdout) == (0, "foo.1 -> x.UUssF3Ay.1\n")
    with pytest.raises(SubjectError, match="no account here"):
        _run("foo.*", "x.{{account-hash()}}.$1", "foo.1")

    starred = _run("*foo", "bar", "*foo")
    assert starred.stdout == "*foo -> bar\n"
    assert "nats-server before 2.15.3" in starred.stderr
