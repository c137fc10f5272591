"""nats-server's configuration grammar, as far as any file uses it."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.subjects import load_config, mappings_from_file, parse_config
from turnout.subjects.errors import ConfigSyntaxError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1; b: two // x\nc three # y", {"a": 1, "b": "two", "c": "three"}),
        ("a { b 1, c { d 'x' } }", {"a": {"b": 1, "c": {"d": "x"}}}),
        ("a = [1, two\n 3 ] \n b = []", {"a": [1, "two", 3], "b": []}),
        ('{"a": {"b": [1, {"c": "d"}]}}', {"a": {"b": [1, {"c": "d"}]}}),
        (
            "a: 40%, b: 8K, c: 64MB, d: -1.5, e: 1.2.3.4:4222",
            {"a": "40%", "b": 8000, "c": 67108864, "d": -1.5, "e": "1.2.3.4:4222"},
        ),
        ("a on\nb No\nc 'true'", {"a": True, "b": False, "c": "true"}),
        ('a "x\\t\\x41\\"\\\\"\nb \'\\n\'', {"a": 'x\tA"\\', "b": "\\n"}),
        ("a (\n one\n two )\n)\nb 1", {"a": "\n one\n two )\n", "b": 1}),
        ("x 5\na $x\nb { x 6, c $x }\nd $x", {"x": 5, "a": 5, "b": {"x": 6, "c": 6}, "d": 5}),
        ("a $HOST\nb $2a$11$hash", {"a": "h", "b": "$2a$11$hash"}),
        ("a 1\na 2", {"a": 2}),
        ("", {}),
    ],
)
def test_every_form_of_the_grammar_is_read(text: str, expected: dict[str, object]) -> None:
    """Separators, quotes, comments, blocks, numbers with units, booleans, variables."""
    assert parse_config(text, environment={"HOST": "h"}) == expected


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a {\nb 1", 2, "the file ends inside a block"),
        ("a = [1\n", 2, "the file ends inside an array"),
        ('\na "x', 2, "the file ends inside a string"),
        ("a 'x", 1, "the file ends before the closing '"),
        ("a (\nx", 1, "the file ends before the '\\)'"),
        ("= 3", 1, "expected a key"),
        ("a = $nope", 1, r"the variable \$nope is not defined"),
        ("a 1 2", 1, "expected a comma"),
        ("a = ]", 1, "expected a value"),
        ('a = "\\q"', 1, r"there is no escape \\q"),
        ('a = "\\xZZ"', 1, "two hexadecimal digits"),
        ("a { b 1 } }", 1, "expected a comma"),
        ("mappings { a.*: b.{{wildcard(1)}} }", 1, "expected a comma"),
        ("include nosuch.conf", 1, "cannot read the included file"),
        ("a " + "{b " * 100, 1, "more than 64 blocks"),
        ("a " + "[" * 100, 1, "more than 64 arrays"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(text: str, line: int, problem: str) -> None:
    """The message has the place and what was expected there."""
    with pytest.raises(ConfigSyntaxError, match=problem) as failure:
        parse_config(text)

    assert failure.value.line == line


def test_includes_are_read_from_their_files_folder(tmp_path: Path) -> None:
    """Inside blocks too; an error in an included file names that file; a circle ends."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("port 1\nmappings { include 'sub/maps.conf'\n late: x }")
    (tmp_path / "sub" / "maps.conf").write_text('foo: bar\ninclude "more.conf"\n')
    (tmp_path / "sub" / "more.conf").write_text("baz: qux")
    (tmp_path / "circle.conf").write_text("include circle.conf\n")
    (tmp_path / "bad.conf").write_text("include sub/wrong.conf\n")
    (tmp_path / "sub" / "wrong.conf").write_text("\na = $nope")

    assert mappings_from_file(tmp_path / "main.conf") == {"foo": "bar", "baz": "qux", "late": "x"}
    with pytest.raises(ConfigSyntaxError, match="include one another"):
        load_config(tmp_path / "circle.conf")
    with pytest.raises(ConfigSyntaxError, match=r"wrong\.conf, line 2"):
        load_config(tmp_path / "bad.conf")
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "none.conf")
