"""Schema registries of a route: variables, files, failure policy and secrets."""

from __future__ import annotations

import pickle
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from tests.codecs.schema_registry.stand_in import StandIn, running_registry

from turnout import Route
from turnout.codecs.schema_registry import RegistryOptions, registry_of
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import RouteError

_ROUTE = """
name: orders
source: {{format: nats, servers: "nats://127.0.0.1:4222", stream: ORDERS}}
value: {value}
transforms: {transforms}
sink: {{format: nats, servers: "nats://127.0.0.1:4222"}}
errors: {{tolerance: all, registry: {policy}}}
deadLetter: {{topic: dead}}
"""
_SCHEMA = '{"type":"record","name":"R","fields":[{"name":"n","type":"long"},{"name":"card","type":"string"}]}'
_MASK = "[{name: m, type: MaskField$Value, fields: card}]"
_INSERT = "[{name: i, type: InsertField$Value, static.field: origin, static.value: web}]"


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with running_registry() as running:
        yield running


def route(
    value: str, variables: dict[str, str] | None = None, *, policy: str = "wait", transforms: str = "[]"
) -> Route:
    return Route.parse(_ROUTE.format(value=value, policy=policy, transforms=transforms), variables or {})


def options_of(made: Route) -> RegistryOptions:
    found = made.value.settings["registry"]
    assert isinstance(found, RegistryOptions)
    return found


def test_variables_and_secrets() -> None:
    value = '{format: avro, registry: {url: "${URL}", auth: {token: "${TOKEN}"}}}'
    made = route(value, {"URL": "http://a:8081", "TOKEN": "hidden"}, policy="deadLetter")
    options = options_of(made)
    assert (options.urls, options.token and options.token.reveal()) == (("http://a:8081",), "hidden")
    assert options.dead_letter
    assert "hidden" not in repr(made)
    assert options_of(pickle.loads(pickle.dumps(made))) == options


def test_keys_have_subjects_of_keys() -> None:
    value = "{format: avro, registry: 'http://a'}"
    text = _ROUTE.format(value=value, policy="wait", transforms="[]") + "key: {format: avro, registry: 'http://a'}\n"
    made = Route.parse(text)
    key = made.key.settings["registry"]
    assert isinstance(key, RegistryOptions)
    assert (key.of_keys, options_of(made).of_keys) == (True, False)


def test_mistakes_name_the_setting_and_show_no_secret() -> None:
    with pytest.raises(RouteError, match=r"value.registry: auth.token: expected text") as failure:
        route("{format: avro, registry: {url: 'http://a', auth: {token: [hidden]}}}")
    assert "hidden" not in str(failure.value)
    with pytest.raises(RouteError, match="expected either registry or schema"):
        route("{format: avro}")


def test_files_start_from_the_routes_folder(tmp_path: Path) -> None:
    file = tmp_path / "route.yaml"
    value = "{format: avro, registry: {url: 'https://a', tls: {ca: ca.pem}}}"
    file.write_text(_ROUTE.format(value=value, policy="wait", transforms="[]"))
    (tmp_path / "ca.pem").write_bytes(Path(certifi.where()).read_bytes())
    assert options_of(Route.load(file)).ca == str(tmp_path / "ca.pem")


@pytest.mark.parametrize(
    ("transforms", "payload", "schema_id"),
    [("[]", b"\x02\x06555", 1), (_MASK, b"\x02\x00", 1), (_INSERT, b"\x02\x06555\x02\x06web", 2)],
)
def test_values_through_a_route(registry: StandIn, transforms: str, payload: bytes, schema_id: int) -> None:
    number = registry.add("orders-value", _SCHEMA)
    made = route(f"{{format: avro, registry: '{registry.url}', topic: orders}}", transforms=transforms)
    registry.clients.append(registry_of(options_of(made)))
    result = Program.of(made).run(
        record_batch([_record(_framed(number, b"\x02\x06555")), _record(_framed(99, b"\x02"))])
    )
    assert result.messages.topics.to_pylist() == ["orders.1", "dead"]
    assert result.messages.column("value").to_pylist() == [_framed(schema_id, payload), _framed(99, b"\x02")]


def test_dead_letters_while_the_registry_is_down(registry: StandIn) -> None:
    registry.failing = 503
    value = f"{{format: avro, registry: {{url: '{registry.url}', retries: 0}}}}"
    made = route(value, policy="deadLetter")
    registry.clients.append(registry_of(options_of(made)))
    result = Program.of(made).run(record_batch([_record(_framed(1, b"\x02"))]))
    assert (result.counts.delivered, result.counts.dead_lettered) == (0, 1)


def _framed(number: int, payload: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + payload


def _record(value: bytes) -> SampleRecord:
    return SampleRecord.of({"topic": "orders.1", "valueBase64": b64encode(value).decode()})
