"""``turnout new``: what it writes works, with a stream to look at and without."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from tests.nats.jetstream.support import fresh
from turnout.cli.app import build_app
from turnout.codecs import Format, codec_of
from turnout.codecs.conversion import writing_codec
from turnout.codecs.ddl import parse_ddl
from turnout.embedded import NatsServer
from turnout.nats.wire import Connection, ConnectionOptions, create_stream
from turnout.routes import Route
from turnout.routes.drafts.starter import columns_of
from turnout.routes.json_schema import route_schema

AWAY = "nats://127.0.0.1:9"
ORDERS: list[dict[str, Any]] = [
    {"city": "Oulu", "total": 20, "lines": [{"sku": "a", "n": 1}]},
    {"city": None, "total": 2.5, "paid at": True},
]


def published(server: NatsServer, subjects: list[str], values: list[bytes]) -> str:
    """A stream with these values on its first subject's first place."""
    stream = fresh("NEW")
    with Connection.open(ConnectionOptions.of(server.url)) as connection:
        create_stream(connection, {"name": stream, "subjects": [f"{stream}.{subject}" for subject in subjects]})
        for value in values:
            connection.request(f"{stream}.eu.17", value)
    return stream


def document(folder: Path, name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((folder / name).read_text(encoding="utf-8"))
    return read


def test_a_route_of_a_stream(turnout, tmp_path, nats_server) -> None:
    """Columns, subjects and a test come from the stream; check, test and the schema take all of it."""
    stream = published(nats_server, ["*.*"], [json.dumps(value).encode() for value in ORDERS])
    away = published(nats_server, ["away.>"], [])

    code, out, err = turnout(
        "new", "orders", "--from", f"{nats_server.url}/{stream}", "--to", f"{nats_server.url}/{away}", "--yes"
    )

    assert (code, err) == (0, "")
    assert out.splitlines() == ["orders.yaml", "orders.test.yaml", "compose.yaml", "2 of 2 tests pass"]
    route = Route.load(tmp_path / "orders.yaml", {})
    assert route.value.settings["schema"] == (
        "city STRING, total DOUBLE, lines ARRAY<STRUCT<sku: STRING, n: BIGINT>>, `paid at` BOOLEAN"
    )
    assert route.mappings.apply(f"{stream}.eu.17") == f"{away}.away.{stream}.eu.17"
    assert turnout("check", "orders.yaml")[0] == 0
    assert turnout("test", "orders.yaml")[0] == 0
    assert turnout("check", "orders.yaml", "--connect")[1].count("\nok ") >= 3
    assert list(Draft202012Validator(route_schema()).iter_errors(document(tmp_path, "orders.yaml"))) == []


@pytest.mark.parametrize("written", ["json", "connect-json", "msgpack", "avro", "jsonSchema", "protobuf", "string"])
def test_another_format_for_the_sink(turnout, tmp_path, nats_server, written) -> None:
    """The sink's format has the types of the sample, where it needs a schema; check, test and the codec take it."""
    values = [{**ORDERS[0], "at": {"lat": 1.5, "ok": True}}, {"city": None, "total": 2.5, "lines": []}]
    stream = published(nats_server, ["*.*"], [json.dumps(value).encode() for value in values])
    ends = ("--from", f"{nats_server.url}/{stream}", "--to", nats_server.url)

    code, out, err = turnout("new", "orders", *ends, "--sink-format", written, "--yes")

    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "2 of 2 tests pass"
    assert turnout("check", "orders.yaml")[0] == 0
    route = Route.load(tmp_path / "orders.yaml", {})
    format_ = route.written[""].value
    assert format_.format == written
    reader = codec_of(route.value)
    (block,) = reader.decode(np.array([0]), [json.dumps(values[0]).encode()])[0]
    (text,) = writing_codec(format_, route.value, reader).encode(block)
    (read,) = codec_of(format_).decode(np.array([0]), [text])[0]
    (again,) = codec_of(Format("json")).encode(read)
    assert json.loads(again or b"") == {**values[0], "total": 20.0} or written == "string"
    assert (tmp_path / "orders.proto").exists() == (written == "protobuf")


@pytest.mark.parametrize(
    ("values", "written", "problem"),
    [
        ([b'{"a":1}'], "arvo", "expected json, connect-json, msgpack, avro"),
        ([b"[1, 2]"], "avro", "avro needs a schema, and none can be derived of 1 sampled records: create the route"),
        ([b'{"a":1}', b'{"a":"x"}'], "avro", "2 sampled records give no avro schema: a has no schema"),
        ([b'{"a":[[1]]}'], "protobuf", "a is a list of lists"),
        ([b'{"a b":1}'], "protobuf", "a b: a field of Protobuf has a name of letters, digits and _"),
    ],
)
def test_a_format_that_cannot_be_derived(turnout, tmp_path, nats_server, values, written, problem) -> None:
    """Nothing is written, and the mistake says what to do."""
    stream = published(nats_server, ["*.*"], values)
    ends = ("--from", f"{nats_server.url}/{stream}", "--to", nats_server.url)

    code, out, err = turnout("new", "orders", *ends, "--sink-format", written, "--yes")

    assert (code, out) == (2, "")
    assert "--sink-format" in err
    assert problem in " ".join(err.split())
    assert list(tmp_path.iterdir()) == []


def test_the_route_does_not_publish_to_what_it_reads(turnout, tmp_path, nats_server) -> None:
    """If no target stream is named, a subject outside of the source is chosen."""
    stream = published(nats_server, ["*.*"], [])

    turnout("new", "--from", f"{nats_server.url}/{stream}", "--to", nats_server.url, "--yes")

    route = Route.load(tmp_path / f"{stream.lower()}.yaml", {})
    assert route.mappings.apply(f"{stream}.a.b") == f"routed.{stream}.a.b"


@pytest.mark.parametrize("values", [[b'{"a":1}', b"\xff\x00"], [b"[1, 2]"], [b"5", b'"x"'], []])
def test_values_of_every_kind(turnout, tmp_path, nats_server, values) -> None:
    """Bytes that are no JSON, JSON that is no object, and an empty stream: the tests that are written pass."""
    stream = published(nats_server, [">"], values)

    code, _, err = turnout("new", "r", "--from", f"{nats_server.url}/{stream}", "--to", nats_server.url, "--yes")

    assert (code, err) == (0, "")
    assert Route.load(tmp_path / "r.yaml", {}).value.settings == {}
    assert turnout("test", "r.yaml")[0] == 0


def test_a_stream_that_cannot_be_looked_at(turnout, tmp_path) -> None:
    """It is said, and the files are written all the same."""
    code, _, err = turnout("new", "a", "--from", f"{AWAY}/ORDERS", "--to", AWAY, "--yes", "--folder", "x")

    assert code == 0
    assert "note: the stream ORDERS was not read" in err
    assert turnout("test", "x/a.yaml")[0] == 0


def test_passwords_are_not_written(turnout, tmp_path) -> None:
    """An address with one is what a variable holds; the notes do not show it either."""
    address = AWAY.replace("//", "//ann:hunter2@")

    code, out, err = turnout("new", "a", "--from", f"{address}/S", "--to", address, "--json")

    assert code == 0
    assert document(tmp_path, "a.yaml")["source"]["servers"] == "${NATS_URL}"
    written = "".join(file.read_text() for file in tmp_path.iterdir())
    assert "hunter2" not in written + out + err
    assert len(json.loads(out)["notes"]) == 1


@pytest.mark.parametrize(
    ("source", "to"),
    [("kafka://b:9092/orders", "kafka://c:9092"), ("parquet:in", "csv:out"), ("kafka://b:9092/a,b", "nats://h")],
)
def test_other_ends(turnout, tmp_path, source, to) -> None:
    """Kafka and files are not looked at; what is written works."""
    assert turnout("new", "a", "--from", source, "--to", to, "--yes")[0] == 0
    assert turnout("check", "a.yaml")[0] == 0
    assert turnout("test", "a.yaml")[0] == 0


def test_questions(tmp_path, monkeypatch) -> None:
    """Missing settings are asked for, with a suggestion."""
    monkeypatch.chdir(tmp_path)
    answers = f"{AWAY}/ORDERS\n{AWAY}\n\n"

    done = CliRunner().invoke(build_app(), ["new"], input=answers)

    assert done.exit_code == 0
    questions = re.findall(r"([A-Z][^\[:\n]*) \[([^\]]*)\]: ", done.output)
    assert [question for question, _ in questions] == [
        "Where records come from", "Where messages go", "What the route is called",
    ]  # fmt: skip
    assert questions[2][1] == "orders"
    assert (tmp_path / "orders.yaml").exists()


def test_files_that_are_there_stay(turnout, tmp_path) -> None:
    """Existing files are not overwritten without --force; with it all three are."""
    (tmp_path / "a.test.yaml").write_text("mine")

    code, _, err = turnout("new", "a", "--from", "csv:in", "--to", "csv:out", "--yes")
    forced, _, _ = turnout("new", "a", "--from", "csv:in", "--to", "csv:out", "--yes", "--force")

    assert (code, forced) == (2, 0)
    assert "a.test.yaml: is there already" in err
    assert document(tmp_path, "compose.yaml")["services"]["turnout"]["command"][1] == "/routes/a.yaml"


def test_columns_can_be_read_again() -> None:
    """The inferred schema is valid DDL, for any names and values."""
    objects: list[dict[str, object]] = [
        {"a b": 1, "select": [1, 2.5], "deep": {"x": {}, "y": [None]}, "mixed": 1, "`": [[True]]},
        {"mixed": "one", "deep": {"z": 1 << 70}, "none": None},
    ]

    columns = columns_of(objects)

    fields = {field.name: field.schema.type for field in parse_ddl(columns).schema.fields}
    assert fields == {
        "a b": "int64", "select": "array", "deep": "struct", "mixed": "variant", "`": "array", "none": "variant",
    }  # fmt: skip


def test_a_few_malformed_records(turnout, tmp_path, nats_server) -> None:
    """The values are JSON all the same, with their columns; the file says how many will be dead letters."""
    values = [json.dumps({"city": "Oulu", "total": number}).encode() for number in range(19)]
    stream = published(nats_server, ["*.*"], [*values, b"{cut"])

    code, out, _ = turnout("new", "orders", "--from", f"{nats_server.url}/{stream}", "--yes")

    assert (code, out.splitlines()[-1]) == (0, "2 of 2 tests pass")
    assert Route.load(tmp_path / "orders.yaml", {}).value.settings["schema"] == "city STRING, total BIGINT"
    assert "# Of 20 records 1 are not JSON: such records are dead letters." in (tmp_path / "orders.yaml").read_text()


def test_tombstones_have_no_format(turnout, tmp_path, nats_server) -> None:
    """Empty values are not counted as malformed: the others are JSON."""
    values = [json.dumps({"city": "Oulu", "total": number}).encode() for number in range(2)]
    stream = published(nats_server, ["*.*"], [*values, b"", b"", b""])

    assert turnout("new", "orders", "--from", f"{nats_server.url}/{stream}", "--yes")[0] == 0
    assert Route.load(tmp_path / "orders.yaml", {}).value.settings["schema"] == "city STRING, total BIGINT"
    assert "not JSON" not in (tmp_path / "orders.yaml").read_text()


def test_many_malformed_records(turnout, tmp_path, nats_server) -> None:
    """A stream of which more than a tenth is no JSON has values that are not decoded."""
    stream = published(nats_server, ["*.*"], [b'{"n": 1}', b"{cut"])

    assert turnout("new", "orders", "--from", f"{nats_server.url}/{stream}", "--yes")[0] == 0
    assert Route.load(tmp_path / "orders.yaml", {}).value.format == "raw"


def test_a_second_route_in_the_folder(turnout, tmp_path) -> None:
    """The servers of the first stay as they are, and that is said; --force writes them anew."""
    first = turnout("new", "first", "--from", f"{AWAY}/A", "--yes", "--sample", "0")
    before = (tmp_path / "compose.yaml").read_text()

    code, out, err = turnout("new", "second", "--from", f"{AWAY}/B", "--yes", "--sample", "0")

    assert (first[0], code) == (0, 0)
    assert out.splitlines()[:-1] == ["second.yaml", "second.test.yaml"]
    assert "note: compose.yaml exists already and is unchanged: it does not run second yet" in err
    assert (tmp_path / "compose.yaml").read_text() == before
    assert "compose.yaml" in turnout("new", "second", "--from", f"{AWAY}/B", "--yes", "--sample", "0", "--force")[1]
    assert "/routes/second.yaml" in (tmp_path / "compose.yaml").read_text()


@pytest.mark.parametrize("to", ["kafka://127.0.0.1:9092", "nats://127.0.0.1:4222"])
def test_a_route_of_kafka(turnout, tmp_path, to) -> None:
    """Its brokers are a variable, in the container too; back into Kafka it goes under other topics."""
    code, out, _ = turnout("new", "lake", "--from", "kafka://127.0.0.1:9092/orders,returns", "--to", to, "--yes")

    compose = document(tmp_path, "compose.yaml")
    assert (code, out.splitlines()[-1]) == (0, "2 of 2 tests pass")
    assert compose["services"]["turnout"]["environment"]["KAFKA_SERVERS"].startswith("${KAFKA_SERVERS:?")
    assert ("nats" in compose["services"]) == to.startswith("nats")
    mapped = Route.load(tmp_path / "lake.yaml", {}).mappings.apply("returns")
    assert mapped == ("routed.returns" if to.startswith("kafka") else "returns")


_ROW = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int32"}]}
_SOURCE = {"type": "struct", "fields": [{"field": "table", "type": "string"}]}
_ENVELOPE = {
    "type": "struct",
    "name": "server.orders.Envelope",
    "fields": [
        {"field": "before", **_ROW},
        {"field": "after", **_ROW},
        {"field": "source", **_SOURCE},
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64"},
    ],
}


@pytest.mark.parametrize("has_schema", [False, True])
def test_change_events_of_debezium(turnout, tmp_path, nats_server, has_schema) -> None:
    """Their rows are taken out; values with schemas are read by these."""
    rows: list[dict[str, Any]] = [{"before": None, "after": {"id": n}, "op": "c"} for n in range(3)]
    rows.append({"before": {"id": 1}, "after": None, "op": "d"})
    events: list[dict[str, Any]] = [{**row, "source": {"table": "orders"}, "ts_ms": 1} for row in rows]
    if has_schema:
        events = [{"schema": _ENVELOPE, "payload": event} for event in events]
    stream = published(nats_server, ["*.*"], [json.dumps(event).encode() for event in events])

    code, out, err = turnout("new", "orders", "--from", f"{nats_server.url}/{stream}", "--yes")

    assert (code, err, out.splitlines()[-1]) == (0, "", "2 of 2 tests pass")
    route = Route.load(tmp_path / "orders.yaml", {})
    assert [stage.transform.class_name() for stage in route.chain.stages] == ["ExtractNewRecordState"]
    assert route.value.format == ("connect-json" if has_schema else "json")
    assert route.value.settings == {}
