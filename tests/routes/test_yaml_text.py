"""YAML that would be read as something else than it looks like, or without end, is a mistake with its line."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from turnout.errors import RouteError
from turnout.routes import Route

SMALL = """name: small
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
"""
LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
)


def only(text: str) -> tuple[str, str, int | None]:
    """The one mistake of a text: path, problem and line."""
    with pytest.raises(RouteError) as raised:
        Route.parse(text, {})
    (mistake,) = raised.value.mistakes
    assert "\n" not in mistake.problem
    return mistake.path, mistake.problem, mistake.line


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        pytest.param(LAUGHS, "aliases stand for more than 10,000 values", 4, id="a billion laughs"),
        pytest.param("a: &a [*a]", "the alias *a is inside its own anchor", 1, id="an alias of itself"),
        pytest.param("a: " + "[" * 5000, "more than 50 nested blocks", 1, id="5,000 lists"),
        pytest.param("a: " + "{b: " * 5000, "more than 50 nested blocks", 1, id="5,000 blocks"),
        pytest.param(SMALL + "spark: {a: !!python/object:os.system x}", "the tag 'tag:yaml.org,2002:py", 4, id="tag"),
        pytest.param(SMALL + "cluster: !mine x", "the tag '!mine' is not understood", 4, id="a tag of one's own"),
        pytest.param(SMALL + "spark: {a: !!int x}", "found 'x', which is no int", 4, id="a tag that does not fit"),
        pytest.param(SMALL + "spark: {a: 0b_}", "found '0b_', which is no int", 4, id="a number that is none"),
        pytest.param(SMALL + "cluster: a\0b", "the character U+0000 is not allowed", 4, id="a control character"),
        pytest.param(SMALL + "---\nname: b", "but found another document", 4, id="two documents"),
    ],
)  # fmt: skip
def test_what_yaml_does_not_stop(text: str, problem: str, line: int) -> None:
    """One line says what is wrong and where."""
    path, found, at = only(text)

    assert (path, at) == ("", line)
    assert problem in found


def test_hostile_yaml_takes_little_memory() -> None:
    """Exponential aliases ("billion laughs") are never expanded."""
    tracemalloc.start()
    try:
        only(LAUGHS)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 16 << 20


def test_too_large_a_file() -> None:
    """A text of many megabytes is not even read."""
    assert "characters, expected 4,194,304 at most" in only("#" * (5 << 20))[1]


def test_bytes_that_are_no_utf8(tmp_path: Path) -> None:
    """The line and the byte are named."""
    (tmp_path / "route.yaml").write_bytes(SMALL.encode() + b"cluster: caf\xe9\n")

    with pytest.raises(RouteError) as raised:
        Route.load(tmp_path / "route.yaml", {})

    (mistake,) = raised.value.mistakes
    assert (mistake.problem, mistake.line) == ("found the byte 0xe9, expected text in UTF-8", 4)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Editors of Windows write one."""
    (tmp_path / "route.yaml").write_bytes(b"\xef\xbb\xbf" + SMALL.encode())

    assert Route.load(tmp_path / "route.yaml", {}).name == "small"


def test_a_key_twice() -> None:
    """YAML takes the last; here each is named with the line of the first."""
    path, problem, line = only(SMALL + "spark:\n  a: 1\n  b: 2\n  a: 3\n")

    assert (path, problem, line) == ("spark.a", "occurs twice, first on line 5", 7)
    assert only(SMALL + "name: other\n")[:2] == ("name", "occurs twice, first on line 1")


def test_aliases_and_merge_keys_are_fine() -> None:
    """YAML's own means against repetition work, within bounds."""
    text = SMALL + "spark:\n  <<: &common {a: 1}\n  b: 2\nsubscriptions: {store: 'memory://x', metadata: {a: topic}}\n"
    twice = (
        SMALL.replace("sink: {", "sink: &sink {").replace("sink: &sink", "sinks: {a: &sink").rstrip() + ", b: *sink}"
    )

    assert Route.parse(text, {}).spark == {"a": "1", "b": "2"}
    assert list(Route.parse(twice, {}).sinks) == ["a", "b"]


@pytest.mark.parametrize("day", ["2020-99-99", "2020-01-01T25:00:00Z"])
def test_a_date_that_is_none(day: str) -> None:
    """A time is a text until its option parses it."""
    path, problem, line = only(SMALL.replace("stream: S", f"stream: S, start: {day}"))

    assert (path, line) == ("source.start", 2)
    assert problem.startswith(f"found {day!r}, expected earliest, latest, a sequence, an ISO time")


def test_a_date_that_is_one() -> None:
    """Quoted or not, its text is unchanged."""
    route = Route.parse(SMALL.replace("stream: S", "stream: S, start: 2020-01-31T12:00:00Z"), {})

    assert route.source.options()["startingOffsets"] == "2020-01-31T12:00:00Z"


def test_a_text_where_a_block_is_expected() -> None:
    """``value: json`` is one mistake, not a traceback."""
    path, problem, line = only(SMALL + "value: json\n")

    assert (path, problem, line) == ("value", "found 'json', expected a block of names and values", 4)


def test_a_key_that_is_no_text() -> None:
    """A name has to be one."""
    path, problem, _ = only(SMALL + "1: a\n")

    assert path == "[1]"
    assert "found 1, expected a name" in problem


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("NO", "false"),
        ("on", "true"),
        ("1.10", "1.1"),
        ("007", "7"),
        ("12:30:00", "45000"),
        ("0x1F", "31"),
        ("1_000", "1000"),
        ("12345678901234567890.12", "1.2345678901234567e+19"),
        ("'NO'", ""),
        ("true", ""),
        ("False", ""),
        ("17", ""),
        ("-1.5", ""),
        ("1e3", ""),
        ("2026-01-01", ""),
        ("Norway", ""),
    ],
)
def test_an_option_that_yaml_reads_as_something_else(written: str, read: str) -> None:
    """Options are texts, and `NO` is a country."""
    stage = f"transforms:\n  - type: InsertHeader\n    header: h\n    value.literal: {written}\n"

    found = [(warning.problem, warning.line) for warning in Route.parse(SMALL + stage, {}).warnings]

    told = f"found {written}, which YAML reads as {read}: put it in quotes if its text is meant"
    assert found == ([(told, SMALL.count("\n") + 4)] if read else [])


def test_where_a_value_is_no_text() -> None:
    """Switches and numbers of turnout are read as YAML has them; a secret is not shown."""
    parts = "errors: {tolerance: all, log: yes}\ntrigger: {latency: low}\nspark: {spark.ssl.keyPassword: 0711}\n"

    (warning,) = Route.parse(SMALL + parts, {}).warnings

    assert "0711" not in str(warning)
    assert warning.line == SMALL.count("\n") + 3


@pytest.mark.parametrize(("source", "read"), [("no", False), ("007", 7), ("12:30", 750), ("1.10", 1.1), ("~", None)])
def test_a_source_of_a_mapping_that_yaml_reads_as_something_else(source: str, read: object) -> None:
    """A subject `no` is not one of the name False; in quotes it is itself."""
    path, problem, line = only(f"{SMALL}mappings:\n  {source}: b\n")

    assert (path.removeprefix("mappings").strip('.[]"'), line) == (str(read), SMALL.count("\n") + 1)
    assert problem == f"a source is text, found {read!r}: put it in quotes"
    quoted = Route.parse(f'{SMALL}mappings:\n  "{source}": b\n', {})
    assert [mapping.source for mapping in quoted.mappings.mappings] == [source]
