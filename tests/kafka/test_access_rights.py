"""A user without rights, at a broker with access control."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.kafka_broker import started_broker

from turnout.embedded import free_port
from turnout.errors import StreamError
from turnout.kafka.admin import KafkaAdmin, RecordLimits
from turnout.kafka.options import KafkaOptions
from turnout.kafka.producer import KafkaMessages, KafkaProducer
from turnout.kafka.reader import PartitionRange, RangeReader

pytestmark = pytest.mark.kafka

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = f"""
listeners=PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},SASL://127.0.0.1:%d
advertised.listeners=PLAINTEXT://127.0.0.1:{{port}},SASL://127.0.0.1:%d
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config={MODULE} required user_ann="hidden";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaOptions]:
    """Options of a user who may read `open`, write to `out`, and knows of `seen`."""
    sasl = free_port()
    with started_broker(tmp_path_factory.mktemp("kafka"), PROPERTIES % (sasl, sasl)) as started:
        everyone = KafkaOptions.of(started.servers)
        with KafkaAdmin(everyone) as admin:
            for topic in ("open", "out", "closed", "seen"):
                admin.create_topic(topic, 1, {})
        with KafkaProducer(everyone) as producer:
            producer.publish(KafkaMessages(["open", "closed", "seen"], [b"o", b"c", b"s"], [None] * 3), _unexpected)
            producer.flush()
        allowed = {"open": AclOperation.READ, "out": AclOperation.WRITE, "seen": AclOperation.DESCRIBE}
        client = AdminClient({"bootstrap.servers": started.servers})
        for done in client.create_acls([_rule(*one) for one in allowed.items()]).values():
            done.result(10)
        jaas = f'{MODULE} required username="ann" password="hidden";'
        yield KafkaOptions.of(
            f"127.0.0.1:{sasl}",
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas},
            timeout=5.0,
            patience=8.0,
        )


def _rule(topic: str, operation: AclOperation) -> AclBinding:
    kind, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(ResourceType.TOPIC, topic, kind, "User:ann", "*", operation, allow)


def _unexpected(index: int, reason: Exception) -> None:
    pytest.fail(f"message {index}: {reason}")


def test_what_is_allowed(ann: KafkaOptions) -> None:
    """Reading and writing need no rights of groups, of settings or of the cluster."""
    with KafkaAdmin(ann) as admin:
        assert set(admin.topics()) == {"open", "out", "seen"}
        assert {name: info.writable for name, info in admin.describe(["open", "out"]).items()} == {
            "open": False,
            "out": True,
        }
        assert admin.record_limits(["open", "out"]) == RecordLimits({}, None)
        assert admin.creates_topics() is None
    [batch] = RangeReader(ann, PartitionRange("open", 0, 0, 1)).batches()
    assert batch.column("value").to_pylist() == [b"o"]


@pytest.mark.parametrize("topic", ["closed", "seen"])
def test_a_topic_that_may_not_be_read(ann: KafkaOptions, topic: str) -> None:
    """The error names the topic and the missing right, and is no lost connection, after which a run would try again."""
    with pytest.raises(StreamError, match=rf"'{topic}'.*TOPIC_AUTHORIZATION_FAILED"):
        list(RangeReader(ann, PartitionRange(topic, 0, 0, 1)).batches())


def test_topics_that_may_not_be_written(ann: KafkaOptions) -> None:
    """A message is refused alone; a transaction and the control topic need rights of their own."""
    refused: dict[int, StreamError] = {}
    with KafkaProducer(ann) as producer:
        producer.publish(KafkaMessages(["closed", "out"], [b"x"] * 2, [None] * 2), refused.__setitem__)
        assert producer.flush().stored == 1
    assert [str(refused[0])] == ["Broker: Topic authorization failed"]
    with KafkaProducer(ann, "turnout.q.0") as producer, pytest.raises(StreamError, match="TRANSACTIONAL_ID_AUTH"):
        producer.begin()
    with KafkaAdmin(ann) as admin, pytest.raises(StreamError, match=r"'turnout.control' cannot be created: Auth"):
        admin.create_topic("turnout.control", 1, {})
