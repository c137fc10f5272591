"""Variables of a route with defaults, also nested, and secrets from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import RouteError
from turnout.routes import Route

TEXT = """name: a
source: {{format: nats, servers: 'nats://127.0.0.1:4222', stream: S{source}}}
sink: {{format: nats, servers: 'nats://127.0.0.1:4222'}}
cluster: "{cluster}"
"""


def cluster(text: str, **values: str) -> str | None:
    return Route.parse(TEXT.format(cluster=text, source=""), values).cluster


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${A:-x${B}y}", "xBy"),
        ("${A:-${C:-${B}}}", "B"),
        ("${B}-${B}", "B-B"),
        ("${B:-x}", "B"),
        ("${EMPTY:-x}", "x"),
        ("${EMPTY}", ""),
        ("${A:-}", ""),
        ("$A {B} }", "$A {B} }"),
        ("${spark.app.name}", "${spark.app.name}"),
    ],
)
def test_variables(text: str, expected: str) -> None:
    """A default may hold variables; what Spark fills in itself is left to it."""
    assert cluster(text, B="B", EMPTY="") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${A}", "the variable A is not set"),
        ("${A:-x${B}y}", "the variable B is not set"),
        ("${A:-hunter2", "the '${A…' is never closed"),
        ("${1A}", "found ${1A…, expected ${NAME}, ${NAME:-a default} or ${file:path:key}"),
        ("${A-hunter2}", "found ${A…, expected ${NAME}"),
        ("${A:-" * 20 + "x" + "}" * 20, "more than 16 nested variables"),
    ],
)
def test_variables_that_cannot_be_filled_in(text: str, problem: str) -> None:
    """Each is a mistake with its line."""
    with pytest.raises(RouteError) as raised:
        cluster(text)

    (mistake,) = raised.value.mistakes
    assert (mistake.path, mistake.line) == ("cluster", 4)
    assert problem in mistake.problem
    assert "hunter2" not in mistake.problem


def load(folder: Path, source: str) -> Route:
    (folder / "route.yaml").write_text(TEXT.format(cluster="c", source=source))
    return Route.load(folder / "route.yaml", {})


def test_secrets_from_files(tmp_path: Path) -> None:
    """A whole file without its last line end, or one key of a properties file, beside the route."""
    (tmp_path / "token").write_text("hunter2\n")
    (tmp_path / "app.properties").write_text("# ours\nnats.token = hunter3\n")

    assert load(tmp_path, ", token: '${file:token}'").source.options()["token"] == "hunter2"
    keyed = load(tmp_path, ", token: '${file:app.properties:nats.token}'")
    assert keyed.source.options()["token"] == "hunter3"
    assert load(tmp_path, f", token: '${{file:{tmp_path}/token}}'").source.options()["token"] == "hunter2"


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("nowhere", "cannot be read: No such file"),
        ("app.properties:nats.tokn", "has no key 'nats.tokn'; did you mean \"nats.token\"?"),
        ("binary", "is no text in UTF-8"),
    ],
)
def test_secrets_that_are_not_there(tmp_path: Path, place: str, problem: str) -> None:
    """The file and the key are named, what is in the file is not."""
    (tmp_path / "app.properties").write_text("nats.token = hunter3\n")
    (tmp_path / "binary").write_bytes(b"hunter\xff")

    with pytest.raises(RouteError) as raised:
        load(tmp_path, f", token: '${{file:{place}}}'")

    assert problem in raised.value.mistakes[0].problem
    assert "hunter" not in str(raised.value)


def test_what_came_from_a_file_is_not_repeated(tmp_path: Path) -> None:
    """Wherever it is used, and whatever is wrong with it there."""
    (tmp_path / "secret").write_text("hunter2 'x\n")

    with pytest.raises(RouteError) as raised:
        load(tmp_path, ", start: '${file:secret}', window: '${file:secret}'")

    assert "hunter2" not in str(raised.value)
    assert "***" in str(raised.value)
