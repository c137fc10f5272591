"""Our codecs beside Apicurio's serializers (Maven), with the ids of Confluent's API: bytes in both directions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from tests.codecs.avro.strategies import batches
from tests.codecs.protobuf.schemas import class_of
from tests.codecs.schema_registry.apicurio_api import ApicurioStandIn
from tests.codecs.schema_registry.apicurio_host import ApicurioError, ApicurioHost
from tests.codecs.schema_registry.stand_in import StandIn, running_registry

from turnout.codecs import Format, codec_of
from turnout.codecs.codec import Codec
from turnout.codecs.schema_registry import RegistryCodec, RegistryOptions, registry_of
from turnout.records import Block
from turnout.records.block import rows_of

pytestmark = pytest.mark.kafka


@dataclass(frozen=True)
class Peer:
    """Apicurio's serializers with a registry."""

    host: ApicurioHost
    registry: StandIn
    topics: Iterator[int]

    def codec(self, format_name: str) -> RegistryCodec:
        options = RegistryOptions.read({"url": self.registry.url, "retries": 0, "wait": 0})
        if not self.registry.clients:
            self.registry.clients.append(registry_of(options))
        made = codec_of(Format(format_name, registry=options))
        assert isinstance(made, RegistryCodec)
        return made

    def topic(self, type_: str, schema: str) -> str:
        """Return a new topic whose values have a schema."""
        topic = f"t{next(self.topics)}"
        self.registry.add(f"{topic}-value", schema, type_)
        return topic


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with running_registry(ApicurioStandIn()) as registry, ApicurioHost() as host:
        host.url = registry.url
        yield Peer(host, registry, count())


def read_alone(own: Codec, texts: Sequence[bytes]) -> Block:
    """Return the only block of some texts."""
    (block,), errors = own.decode(rows_of(len(texts)), texts)
    assert not errors
    return block


def anew(own: RegistryCodec, block: Block, topic: str) -> list[bytes]:
    """Return the values of a changed block, written for a topic: none of the original bytes are used."""
    assert block.schema is not None
    changed = block.with_columns(block.schema, {name: list(column) for name, column in block.columns.items()})
    written = own.encode_for(changed, [topic] * len(block))
    assert not written.errors
    return [text for text in written.texts if text is not None]


@settings(
    max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(batch=batches())
def test_avro(peer: Peer, batch: tuple[object, object, list[bytes]]) -> None:
    """Random schemas: both write the same bytes, except for the order of a map in Java, and read each other's."""
    _, schema, data = batch
    text = json.dumps(schema)
    topic, own = peer.topic("AVRO", text), peer.codec("avro")

    theirs = peer.host.write("avro", topic, text, data)
    framed = [theirs[0][:5] + datum for datum in data]
    ours = anew(own, read_alone(own, theirs), topic)
    read = peer.host.read("avro", topic, ours)

    assert read_alone(own, theirs).whole() == read_alone(own, framed).whole()
    assert read_alone(own, [theirs[0][:5] + datum for datum in read]).whole() == read_alone(own, framed).whole()
    if '"map"' not in text:
        assert theirs == framed == ours
        assert read == data


def test_json_schema(peer: Peer) -> None:
    """Their bytes are ours; they validate what they read."""
    properties = {
        "n": {"type": "integer"},
        "city": {"type": "string"},
        "at": {"type": "array", "items": {"type": "number"}},
    }
    schema = json.dumps(
        {"title": "shop.Item", "type": "object", "properties": properties, "required": list(properties)}
    )
    topic, own = peer.topic("JSON", schema), peer.codec("jsonSchema")
    data = [b'{"n":1,"city":"Oulu","at":[1.5,2.0]}', '{"n":-9007199254740993,"city":"\\"Å\\"","at":[]}'.encode()]

    theirs = peer.host.write("jsonSchema", topic, schema, data)

    assert theirs == [theirs[0][:5] + datum for datum in data]
    ours = anew(own, read_alone(own, theirs), topic)
    assert ours == theirs
    assert peer.host.read("jsonSchema", topic, ours) == data
    with pytest.raises(ApicurioError, match="city"):
        peer.host.read("jsonSchema", topic, [theirs[0][:5] + b'{"n":1}'])


def test_protobuf(peer: Peer) -> None:
    """The message's name instead of indexes is kept; Confluent's indexes are not Apicurio's to read."""
    schema = """syntax = "proto3"; package shop; message Item {
        int32 n = 1; string city = 2; repeated sint64 many = 3; map<string, double> by = 4; Lid lid = 5;
        optional bool flag = 6; message Lid {fixed32 color = 1; bytes raw = 2;}
    }"""
    item = class_of(schema)
    topic, own = peer.topic("PROTOBUF", schema), peer.codec("protobuf")
    messages = [item(n=-1, city="Ü", many=[3, -4], by={"a": 0.5}, lid={"color": 7, "raw": b"\0"}, flag=True), item()]
    data = [message.SerializeToString(deterministic=True) for message in messages]

    theirs = peer.host.write("protobuf", topic, schema, data)

    assert theirs == [theirs[0][:5] + b"\x06\n\x04Item" + datum for datum in data]
    block = read_alone(own, theirs)
    assert own.encode(block) == theirs
    ours = anew(own, block, topic)
    assert ours == theirs
    assert peer.host.read("protobuf", topic, ours) == data
    indexed = [theirs[0][:5] + b"\0" + datum for datum in data]
    assert read_alone(own, indexed).whole() == block.whole()
    with pytest.raises(ApicurioError):
        peer.host.read("protobuf", topic, indexed)
