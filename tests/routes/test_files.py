"""Files that a route names: a connector's own, and a nats-server's configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnout.errors import RouteError
from turnout.routes import Route

SMALL = """name: small
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
"""
ACCOUNTS = 'accounts { ORDERS { mappings { foo: bar, "a.*": "b.$1" } }, OTHER { jetstream: enabled } }\n'


def load(folder: Path, more: str) -> Route:
    (folder / "route.yaml").write_text(SMALL + more + "\n")
    return Route.load(folder / "route.yaml", {})


def problem(folder: Path, more: str) -> str:
    """The problem of the one mistake; it is in the line of what was added."""
    with pytest.raises(RouteError) as raised:
        load(folder, more)
    (mistake,) = raised.value.mistakes
    assert mistake.line is not None
    assert mistake.line >= 4
    return f"{mistake.path}: {mistake.problem}"


def connector(folder: Path, **more: str) -> str:
    config = {"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": "a", **more}
    (folder / "c.json").write_text(json.dumps({"name": "c", "config": config}))
    return "transforms: c.json"


def test_a_connector_holds_more_than_a_route_needs(tmp_path: Path) -> None:
    """Properties of other parts of Connect are listed in a note, and so are disabled ones."""
    more = {"connector.class": "x.Y", "tasks.max": "1", "transforms.old.type": "Filter", "topics": "t"}

    route = load(tmp_path, connector(tmp_path, **more))

    names = "connector.class, tasks.max, transforms.old.type, topics"
    assert route.notes == (f"c.json: these belong to other parts of Connect and are ignored: {names}",)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("transforms.d.header", 'transforms.d.header: unknown option; did you mean "headers"?'),
        ("errors.tolerence", 'errors.tolerence: unknown name; did you mean "errors.tolerance"?'),
        ("value.convertor", 'value.convertor: unknown name; did you mean "value.converter"?'),
        ("transforms.dd.headers", "transforms.dd.headers: 'dd' is not listed in 'transforms'; did you mean \"d\"?"),
    ],
)
def test_slips_in_a_connector(tmp_path: Path, name: str, expected: str) -> None:
    """A misspelt property is not taken for a property of another part."""
    assert expected in problem(tmp_path, connector(tmp_path, **{name: "x"}))


def test_unknown_names_in_a_routes_own_block(tmp_path: Path) -> None:
    """In the route itself other programs do not read them: each is a mistake with its line."""
    block = "transforms:\n  transforms: d\n  transforms.d.type: DropHeaders\n  transforms.d.headers: a\n  tasks.max: 1"

    with pytest.raises(RouteError) as raised:
        load(tmp_path, block)

    (mistake,) = raised.value.mistakes
    assert (mistake.path, mistake.line) == ("transforms.tasks.max", 8)
    assert mistake.problem.startswith("unknown name")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("c.properties", b"name=x\n", "defines no transforms"),
        ("c.json", b'{"config": {"transform": "d"}}', "did you mean \"transforms\" by 'transform'?"),
        ("c.json", b'{"transforms": "d", "transforms": "e"}', "'transforms' occurs twice"),
        ("c.properties", b"transforms=d\ntransforms = e\n", "line 2: 'transforms' occurs twice"),
        ("c.json", b"[" * 100_000, "too deep"),
        ("c.json", b"[]", "expected an object"),
        ("c.json", b"{\n1}", "line 2: not JSON"),
        ("c.properties", b"transforms=\xe9", "found the byte 0xe9, expected text in UTF-8"),
    ],
)
def test_files_that_are_no_connectors(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    """The file is named, and what is wrong in it."""
    (tmp_path / name).write_bytes(content)

    problems = problem(tmp_path, f"transforms: {name}")

    assert expected in problems
    assert str(tmp_path / name) in problems


def test_an_errors_block_is_put_over_the_connectors(tmp_path: Path) -> None:
    """Settings missing in the route are taken from the connector's own properties."""
    policy = {"errors.tolerance": "all", "errors.log.enable": "true", "errors.deadletterqueue.topic.name": "dead"}

    route = load(tmp_path, connector(tmp_path, **policy) + "\nerrors: {log: false, predicates: not-matched}")

    assert (route.errors.tolerance, route.errors.log) == ("all", False)
    assert route.errors.failed_predicates == "not-matched"
    assert route.dead_letter is not None
    assert route.dead_letter.topic == "dead"


def test_the_mappings_of_one_account(tmp_path: Path) -> None:
    """A server's configuration may keep them under its accounts."""
    (tmp_path / "server.conf").write_text(ACCOUNTS)

    route = load(tmp_path, "mappings: {file: server.conf, account: ORDERS}")

    assert route.mappings.apply("a.1") == "b.1"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("mappings: server.conf", "has no mappings at its top; these accounts have some: ORDERS"),
        ("mappings: {file: server.conf, account: OTHER}", "no mappings in the account 'OTHER'; these"),
        ("mappings: {file: server.conf, account: ORDER}", 'there are: ORDERS, OTHER; did you mean "ORDERS"?'),
        ("mappings: {file: server.conf, acount: ORDERS}", 'mappings.acount: unknown name; did you mean "account"?'),
        ("mappings: {file: nowhere.conf, account: A}", "nowhere.conf: No such file"),
        ("mappings: empty.conf", "empty.conf has no mappings in it"),
        ("mappings: broken.conf", "broken.conf, line 1: the file ends inside a block"),
        ("mappings: {file: server.conf, account: [A]}", "mappings.account: found ['A'], expected a text"),
    ],
)  # fmt: skip
def test_configurations_without_mappings(tmp_path: Path, more: str, expected: str) -> None:
    """Missing mappings are a mistake that lists the accounts with mappings."""
    (tmp_path / "server.conf").write_text(ACCOUNTS)
    (tmp_path / "empty.conf").write_text("port: 4222\n")
    (tmp_path / "broken.conf").write_text("mappings {")

    assert expected in problem(tmp_path, more)


def test_a_subject_may_be_called_file(tmp_path: Path) -> None:
    """Mappings of subjects of these names are mappings."""
    assert load(tmp_path, "mappings: {file: bar}").mappings.apply("file") == "bar"
