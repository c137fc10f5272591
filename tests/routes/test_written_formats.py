"""Formats of sinks and of webhooks in route files: mistakes with their places, files, registries, and notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from turnout.codecs import Format
from turnout.errors import ConfigError, RouteError
from turnout.history.replay import with_sink
from turnout.routes import Route
from turnout.routes.limits import CallerLimits

AVRO = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}


def text(value: dict[str, Any], sink: dict[str, Any], **more: Any) -> str:
    document = {
        "name": "orders",
        "source": {"format": "nats", "servers": "nats://a", "stream": "S"},
        "value": value,
        "sink": {"format": "nats", "servers": "nats://a", **sink},
        **more,
    }
    return json.dumps(document, indent=1)


def test_without_formats_sinks_get_what_is_read() -> None:
    """Also where they are null, as a template leaves them."""
    route = Route.parse(text({"format": "json"}, {"key": None, "value": None}))

    assert not route.written
    assert route.formats_of("") == (Format(), Format("json"))


def test_files_and_policies_of_the_route_apply(tmp_path: Path) -> None:
    """Names of files start at the route's folder, a registry knows the side and the policy of errors."""
    (tmp_path / "r.avsc").write_text(json.dumps(AVRO))
    registry = {"format": "avro", "registry": "http://127.0.0.1:1"}
    made = Route.parse(
        text(
            {"format": "json"},
            {"key": registry, "value": {"format": "avro", "schema": "r.avsc"}},
            errors={"tolerance": "all", "registry": "deadLetter"},
        ),
        file=tmp_path / "route.yaml",
    )
    key, value = made.formats_of("")

    assert value.settings["schema"] == str(tmp_path / "r.avsc")
    options: Any = key.settings["registry"]
    assert (options.of_keys, options.dead_letter) == (True, True)
    assert (
        with_sink(made, "{format: json, path: x, value: {format: avro, schema: r.avsc}}").formats_of("").value == value
    )


@pytest.mark.parametrize(
    ("sink", "path", "problem"),
    [
        ({"value": {"format": "jsn"}}, "sink.value.format", "expected one of"),
        ({"value": {"format": "avro"}}, "sink.value.format", "expected either registry or schema"),
        ({"value": {"format": "avro", "schema": "none.avsc"}}, "sink.value.format", "No such file"),
        ({"value": {"format": "json", "mapping": "odd"}}, "sink.value.mapping", "expected plain or protobuf"),
        ({"value": {"format": "avro", "schema": AVRO, "unknownFields": "x"}}, "sink.value.unknown.fields", "REFUSE"),
        ({"key": {"format": "json", "shema": "n INT"}}, "sink.key.shema", 'did you mean "schema"?'),
        ({"value": "json"}, "sink.value", "expected a block of names and values"),
    ],
)
def test_mistakes(sink: dict[str, Any], path: str, problem: str) -> None:
    """Each is named with its place and line, as those of the route's own formats."""
    with pytest.raises(RouteError) as failure:
        Route.parse(text({"format": "json"}, sink))

    (mistake,) = failure.value.mistakes
    assert mistake.path == path
    assert problem in mistake.problem
    assert mistake.line is not None


def test_mistakes_of_several_sinks() -> None:
    """All are reported at once."""
    sinks = {name: {"format": "nats", "servers": "nats://a", "value": {"format": "x"}} for name in ("one", "two")}
    with pytest.raises(RouteError) as failure:
        Route.parse(text({"format": "json"}, {}, sinks=sinks).replace('"sink": {', '"tests": {'))

    assert {mistake.path for mistake in failure.value.mistakes} >= {"sinks.one.value.format", "sinks.two.value.format"}


def test_a_block_of_a_replay_is_checked_likewise() -> None:
    """A format that cannot be used is a mistake, and not a sink with other bytes."""
    route = Route.parse(text({"format": "json"}, {}))

    with pytest.raises(ConfigError, match="expected either registry or schema"):
        with_sink(route, "{format: json, path: x, value: {format: avro}}")


def test_a_schema_that_no_value_fits() -> None:
    """It is a mistake where no transform comes between, and else a matter of each record."""
    read = {"format": "avro", "schema": {**AVRO, "fields": [*AVRO["fields"], {"name": "x", "type": "string"}]}}
    sink = {"value": {"format": "avro", "schema": AVRO}}
    with pytest.raises(RouteError, match="x: the schema that is written has no such field; leave it out by Replace"):
        Route.parse(text(read, sink))

    transforms = [{"name": "drop", "type": "ReplaceField$Value", "exclude": "x"}]
    assert Route.parse(text(read, sink, transforms=transforms)).written
    assert Route.parse(text(read, {"value": {**sink["value"], "unknownFields": "drop"}})).written
    with pytest.raises(RouteError, match="x: expected a value, which the schema that is written requires"):
        Route.parse(text({"format": "avro", "schema": AVRO}, {"value": read}))


def test_notes_and_warnings() -> None:
    """What a pair changes is a note at its place, what is probably meant otherwise a warning."""
    route = Route.parse(text({"format": "avro", "schema": AVRO}, {"value": {"format": "msgpack"}}))
    assert "sink.value: avro → msgpack: the schema is not written" in route.notes
    bytes_route = Route.parse(text({"format": "raw"}, {"value": {"format": "json"}}))
    (warning,) = bytes_route.warnings
    assert warning.path == "sink.value"
    assert "say how they are read by the route's own format" in warning.problem


def test_protobuf_becomes_its_json_mapping(tmp_path: Path) -> None:
    """Where the route reads messages, and does not say otherwise."""
    (tmp_path / "a.proto").write_text('syntax = "proto3"; message A { int64 order_id = 1; }')
    read = {"format": "protobuf", "schema": "a.proto"}
    formats = [
        Route.parse(text(read, {"value": value}), file=tmp_path / "r.yaml").formats_of("").value
        for value in ({"format": "json"}, {"format": "json", "mapping": "plain"}, {"format": "connect-json"})
    ]

    assert [one.settings.get("mapping") for one in formats] == ["PROTOBUF", "PLAIN", None]


def test_callers_name_no_files_of_sinks(tmp_path: Path) -> None:
    """Files of formats that are written have the limits of those that are read."""
    limits = CallerLimits(True, tmp_path)
    files = {"value": {"format": "avro", "schema": "/etc/passwd"}}
    tls = {"key": {"format": "avro", "registry": {"url": "https://a", "tls": {"ca": "/etc/passwd"}}}}
    document = {"sink": files, "sinks": {"one": tls}, "webhooks": files}

    assert [path for path, _ in limits.mistakes(document, tmp_path)] == [
        ("webhooks", "value", "schema"),
        ("sink", "value", "schema"),
        ("sinks", "one", "key", "registry", "tls", "ca"),
    ]


def test_dead_letters_have_no_format() -> None:
    """They are what was read; the mistake says so."""
    letters = {"topic": "dead", "value": {"format": "json"}}
    with pytest.raises(RouteError, match="dead letters are the bytes that were read"):
        Route.parse(text({"format": "json"}, {"value": {"format": "msgpack"}}, deadLetter=letters))
