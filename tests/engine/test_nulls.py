"""Null, empty and absent values and keys, from each kind of source, in each format, to each kind of sink."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.engine.batches import batch, sent
from turnout.codecs import FORMATS
from turnout.engine import Program
from turnout.records.batch import ListedRecords
from turnout.routes import Route
from turnout.runtime.nats.sink import SinkOptions, lines_of

NATS = '{format: nats, servers: "nats://127.0.0.1:4222"'
KAFKA = '{format: kafka, servers: "127.0.0.1:9092"'
PROTO = 'syntax = "proto3"; message Order { string id = 1; }'
SETTINGS: dict[str, dict[str, object]] = {
    "avro": {"schema": "order.avsc"},
    "protobuf": {"schema": "order.proto", "message": "Order"},
    "jsonSchema": {"schema": "order.json"},
}
"""Settings of the formats that need any."""

ROWS = {
    "connect-json": {"schemas.enable": True},
    "connect-json, `schemas.enable: false`": {"schemas.enable": False},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fields = [{"name": "id", "type": "string"}]
    (tmp_path / "order.avsc").write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))
    (tmp_path / "order.proto").write_text(PROTO)
    (tmp_path / "order.json").write_text(json.dumps({"type": "object", "properties": {"id": {"type": "string"}}}))
    return tmp_path


def program(
    folder: Path, value: dict[str, object], *, source: str = NATS, sink: str = KAFKA, more: str = ""
) -> Program:
    stream = "stream: S" if source.startswith(NATS) else "topics: in"
    text = f"name: nulls\nsource: {source}, {stream}}}\nvalue: {json.dumps(value)}\nsink: {sink}}}\n"
    path = folder / "route.yaml"
    path.write_text(f"{text}{more}deadLetter: {{topic: dead}}\nerrors: {{tolerance: all}}\n")
    return Program.of(Route.load(path))


def outcome(program: Program, value: bytes | None) -> str:
    """The value that is sent for one that is read."""
    messages = program.run(batch([{"topic": "t", "value": value}])).messages
    (found,) = [(topic, body) for topic, _, body, _ in sent(messages)]
    if found[0] == "dead":
        return "error"
    return "null" if found[1] is None else "empty value" if found[1] == b"" else "value"


def table(folder: Path) -> list[str]:
    """The rows of the table of the page."""
    names = {name: {"format": name, **SETTINGS.get(name, {})} for name in FORMATS if name != "connect-json"}
    names |= {name: {"format": "connect-json", **settings} for name, settings in ROWS.items()}
    rows = []
    for name, value in sorted(names.items()):
        kafka = program(folder, value, source=KAFKA)
        nats = [program(folder, value, source=f"{NATS}{more}") for more in ("", ", emptyPayload: value")]
        cells = [outcome(kafka, None), outcome(kafka, b""), *(outcome(one, b"") for one in nats)]
        rows.append(
            f"| {', '.join(f'`{part}`' if '`' not in part else part for part in name.split(', '))} | "
            f"{' | '.join(cells)} |"
        )
    return rows


def test_the_page_has_the_table_of_formats(folder: Path) -> None:
    """Each format's reading of a null, of no bytes, and of an empty payload is in docs/nulls.md as it is."""
    page = (Path(__file__).parents[2] / "docs" / "nulls.md").read_text(encoding="utf-8")
    section = page.partition("## Null, empty and absent")[2].partition("\n## ")[0]
    found = [line for line in section.splitlines() if re.match(r"\| `", line) and line.count("|") == 6]

    assert found == table(folder), "\n".join(table(folder))


@pytest.mark.parametrize("name", ["json", "raw", "string", "bytes", "long", "connect-json"])
@pytest.mark.parametrize("listed", [True, False])
def test_an_empty_payload_is_a_tombstone(folder: Path, name: str, listed: bool) -> None:
    """A predicate sees a null, and Kafka gets one."""
    chain = "transforms: [{type: Filter, predicate: {type: RecordIsTombstone}, negate: true}]\n"
    run = program(folder, {"format": name}, more=chain)
    rows = batch([{"topic": "t", "value": b""}])
    source: Any = rows
    if listed:
        source = ListedRecords(["S:1"], ["t"], [0], [1], [1_700_000_000_000_000], [None], [b""], [[]], lambda: rows)

    messages = run.run(source).messages

    assert [(topic, value) for topic, _, value, _ in sent(messages)] == [("t", None)]


def test_a_dead_letter_of_an_empty_payload(folder: Path) -> None:
    """The original of a letter is null as well."""
    bad = [{"topic": "bad topic", "value": b""}]

    (_, _, value, _) = sent(program(folder, {"format": "raw"}).run(batch(bad)).messages)[0]

    assert value is None


def test_keys_and_tombstones_return_from_nats(folder: Path) -> None:
    """Kafka → NATS → Kafka: each key, null and empty too, and each tombstone, is as it was; the header is gone."""
    keys = [b"k1", None, b"", b"\0\xff", b" leading", b"two\r\nlines", b"base64:x", "ä".encode()]
    records = batch([{"topic": "t", "key": None, "value": b"v" if n % 2 else None} for n in range(len(keys))])
    records = records.set_column(records.schema.get_field_index("key"), "key", pa.array(keys, pa.binary()))
    into = program(folder, {"format": "raw"}, source=KAFKA, sink=f"{NATS}, keyHeader: Kafka-Key")
    messages = into.run(records).messages
    (sink,) = into.route.sinks.values()
    lines = lines_of(messages, SinkOptions.of(sink))  # type: ignore[arg-type]
    assert lines is not None

    headers = [
        [
            {"key": line.partition(b": ")[0].decode(), "value": line.partition(b": ")[2]}
            for line in block.split(b"\r\n")[:-1]
        ]
        for block in lines.to_pylist()
    ]
    stored = batch([{"topic": "t", "value": value or b""} for _, _, value, _ in sent(messages)])
    stored = stored.set_column(
        stored.schema.get_field_index("headers"), "headers", pa.array(headers, stored.schema.field("headers").type)
    )
    back = program(folder, {"format": "raw"}, source=f"{NATS}, keyHeader: Kafka-Key", sink=KAFKA).run(stored).messages

    assert back.column("key").to_pylist() == keys
    assert back.column("value").to_pylist() == records.column("value").to_pylist()
    assert all("Kafka-Key" not in dict(pairs) for _, _, _, pairs in sent(back))


def test_key_headers_that_cannot_be() -> None:
    """A header for a server, or of a name that cannot be written, is no header of keys."""
    for name in ("Nats-Msg-Id", "ä", "a b", "__turnout.key"):
        with pytest.raises(Exception, match="expected the name of a header"):
            Route.parse(f'name: r\nsource: {NATS}, stream: S}}\nsink: {NATS}, keyHeader: "{name}"}}\n', {})
