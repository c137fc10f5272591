"""Drafts of routes from configurations of Kafka connectors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from turnout.codecs import Format
from turnout.engine import Program
from turnout.engine.sample_records import SampleRecord, record_batch
from turnout.errors import ConfigError, RouteError
from turnout.routes import Route
from turnout.routes.drafts import Draft, draft_of_connector, source_of
from turnout.routes.variables import Variables
from turnout.transforms import Chain

VECTORS = sorted((Path(__file__).parents[2] / "vectors" / "connect").glob("*.json"))
JSON = "org.apache.kafka.connect.json.JsonConverter"
SINK = {"connector.class": "com.example.LakeSinkConnector", "topics": "orders, returns"}
MASK = {
    "transforms": "mask",
    "transforms.mask.type": "org.apache.kafka.connect.transforms.MaskField$Value",
    "transforms.mask.fields": "card,cvv",
    "transforms.mask.replace.null.with.default": "false",
    "transforms.mask.predicate": "eu",
    "transforms.mask.negate": "true",
    "predicates": "eu",
    "predicates.eu.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    "predicates.eu.pattern": "eu.*",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def connector(folder: Path, config: dict[str, Any], name: str = "orders to lake") -> Path:
    file = folder / "orders.json"
    file.write_text(json.dumps({"name": name, "config": config}))
    return file


def read(draft: Draft) -> Route:
    """The route, as a run would read it."""
    return Route.parse(draft.text("somewhere"), dict.fromkeys(draft.variables, "x"))


def part_of(draft: Draft, name: str) -> dict[str, Any]:
    """A block of the drafted route."""
    block = draft.document[name]
    assert isinstance(block, dict)
    return block


def stages_of(draft: Draft) -> list[dict[str, Any]]:
    stages = draft.document["transforms"]
    assert isinstance(stages, list)
    return stages


def left(draft: Draft) -> dict[str, str]:
    return dict(draft.left)


def meaning(chain: Chain) -> list[Any]:
    """Return the effect of a chain, independent of its predicates' names."""
    guards = [[(guard.predicate, guard.negate) for guard in stage.guards] for stage in chain.stages]
    return [
        (stage.name, stage.transform, guard, stage.negate) for stage, guard in zip(chain.stages, guards, strict=True)
    ]


def test_a_sink_connector(tmp_path) -> None:
    """Its topics are read from Kafka, its converters are formats, its dead letters and errors the route's."""
    errors = {
        "errors.tolerance": "all",
        "errors.log.enable": "true",
        "errors.deadletterqueue.topic.name": "dlq",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    client = {"consumer.override.bootstrap.servers": "b1:9092", "consumer.override.auto.offset.reset": "latest"}

    draft = draft_of_connector(connector(tmp_path, {**SINK, **MASK, **errors, **client}))

    route = read(draft)
    assert route.name == "orders-to-lake"
    assert route.source.options() == {"servers": "b1:9092", "topics": "orders,returns", "start": "latest"}
    assert (route.value, route.sinks[""].format) == (Format("connect-json", schemas_enable=False), "nats")
    assert (route.errors.tolerance, route.errors.log) == ("all", True)
    assert route.dead_letter is not None
    assert (route.dead_letter.topic, route.dead_letter.context_headers) == ("dlq", True)
    assert meaning(route.chain) == meaning(Chain.from_config(MASK))


def test_a_connector_whose_worker_has_the_converter(tmp_path) -> None:
    """A field that it names cannot be looked up in bytes: what is missing is said, here and by the route."""
    properties = {name: text for name, text in {**SINK, **MASK}.items() if not name.startswith("value.converter")}
    file = connector(tmp_path, properties)

    draft = draft_of_connector(file)

    assert left(draft)["value.converter"].startswith("not there, the worker's configuration has it")
    with pytest.raises(RouteError) as of_route:
        read(draft)
    with pytest.raises(RouteError) as of_file:
        Route.parse(
            f"{{name: a, source: {{format: json, path: in}}, transforms: {file}, sink: {{format: json, path: out}}}}"
        )
    assert {one.problem for one in of_route.value.mistakes} == {
        f"no value has a field {name!r} at that point; it is bytes, as the route does not say how it is read: "
        "add value: {format: …}"
        for name in ("card", "cvv")
    }
    assert {one.problem for one in of_file.value.mistakes} == {
        f"no value has a field {name!r} at that point; it is bytes, as orders.json has no value.converter, which "
        "Connect takes from the worker's configuration: add it there, or value: {format: …} to the route"
        for name in ("card", "cvv")
    }


def test_every_property_is_taken_or_left(tmp_path) -> None:
    """Each property is listed, with a reason if it was not converted."""
    more = {
        "tasks.max": "4",
        "lake.url": "http://lake",
        "errors.retry.timeout": "1000",
        "header.converter": "x.Y",
        "transforms.old.type": "Filter",
        "consumer.override.group.id": "g",
        "consumer.override.max.poll.records": "500",
    }

    draft = draft_of_connector(connector(tmp_path, {**SINK, **MASK, **more}))

    names = [name for name, _ in (*draft.taken, *draft.left)]
    untold = [name for name in {**SINK, **MASK, **more} if not name.startswith(tuple(names))]
    assert untold == ["transforms", "predicates"]
    assert left(draft)["transforms.old.type"] == "'old' is not listed in 'transforms'"
    assert left(draft)["tasks.max"] == "Spark decides how many tasks run"
    assert draft.lossy


@pytest.mark.parametrize(
    ("more", "lossy"),
    [
        ({"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}, False),
        ({"header.converter": "org.apache.kafka.connect.json.JsonConverter"}, True),
        ({"value.converter": JSON, "value.converter.schemas.enable": "false", "tasks.max": "2"}, False),
        ({"value.converter": JSON, "value.converter.replace.null.with.default": "maybe"}, True),
        ({"value.converter": JSON, "value.converter.decimal.form": "NUMERIC"}, True),
        ({"key.converter": "x.Key"}, True),
    ],
)
def test_a_draft_tells_whether_meaning_was_lost(tmp_path, more: dict[str, str], lossy: bool) -> None:
    """A converter, or a setting of one, that is left out changes the values; other parts of Connect do not."""
    assert draft_of_connector(connector(tmp_path, {**SINK, **more})).lossy == lossy


def test_variables_of_connect_stay_variables(tmp_path) -> None:
    """Those with a provider stay as they are, others become text; credentials are not split at a variable's colon."""
    registry = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "${env:REGISTRY}",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
    }
    insert = "org.apache.kafka.connect.transforms.InsertField$Value"
    stages = {
        "transforms": "i",
        "transforms.i.type": insert,
        "transforms.i.static.field": "e",
        "transforms.i.static.value": "${env:STAGE} ${file:/opt/x:y} ${PRICE}",
    }
    one = {**registry, "value.converter.basic.auth.user.info": "${file:/opt/s.properties:sr}"}
    two = {**registry, "value.converter.basic.auth.user.info": "${secrets:a/b:user}:${secrets:a/b:pw}"}

    whole = draft_of_connector(connector(tmp_path, {**SINK, **stages, **one}))
    split = draft_of_connector(connector(tmp_path, {**SINK, **two}))

    assert part_of(whole, "value")["registry"] == {
        "url": "${env:REGISTRY}",
        "auth": {"userInfo": "${file:/opt/s.properties:sr}"},
    }
    assert whole.document["transforms"] == [
        {
            "name": "i",
            "type": "InsertField$Value",
            "static.field": "e",
            "static.value": "${env:STAGE} ${file:/opt/x:y} $${PRICE}",
        }
    ]
    assert "is text in Connect" in left(whole)["transforms.i.static.value"]
    assert whole.mistakes(whole.text("c.json")) == ()
    assert part_of(split, "value")["registry"]["auth"] == {
        "user": "${secrets:a/b:user}",
        "password": "${secrets:a/b:pw}",
    }
    refused = split.mistakes(split.text("c.json"))
    assert [one.path for one in refused] == ["value.registry.auth.user", "value.registry.auth.password"]
    assert all("there is no provider 'secrets' of values here" in one.problem for one in refused)


def test_secrets_stay_where_they_are(tmp_path) -> None:
    """A password of Kafka's client becomes a variable, one of the connector is left; variables are kept."""
    config = {
        **SINK,
        "lake.password": "hunter2",
        "consumer.override.sasl.jaas.config": "password=hunter2",
        "consumer.override.ssl.key.password": "${file:/run/secrets/kafka:key}",
    }

    draft = draft_of_connector(connector(tmp_path, config))

    assert "hunter2" not in draft.text("orders.json") + repr(draft)
    assert draft.variables == ("KAFKA_SASL_JAAS_CONFIG",)
    assert part_of(draft, "source")["options"] == {
        "kafka.sasl.jaas.config": "${KAFKA_SASL_JAAS_CONFIG}",
        "kafka.ssl.key.password": "${file:/run/secrets/kafka:key}",
    }


def test_a_source_connector(tmp_path) -> None:
    """It writes to Kafka; where its records are instead is a guess, or is said."""
    config = {
        "connector.class": "io.example.PostgresConnector",
        "producer.override.bootstrap.servers": "b:9092",
        **MASK,
    }
    file = connector(tmp_path, config, "inventory")

    guessed = draft_of_connector(file)
    draft = draft_of_connector(file, source=source_of("nats://n:4222/STOCK"), name="stock")

    assert part_of(guessed, "source")["stream"] == "INVENTORY"
    assert guessed.document["sink"] == {"format": "kafka", "servers": "b:9092"}
    assert left(guessed)["source"].startswith("a guess: the stream INVENTORY")
    assert (part_of(draft, "source")["stream"], read(draft).name) == ("STOCK", "stock")


def test_what_turnout_does_not_have_is_named(tmp_path) -> None:
    """An unknown transform or converter remains in the route, and is a mistake."""
    config = {
        **SINK,
        "transforms": "u",
        "transforms.u.type": "io.debezium.transforms.Unwrap",
        "value.converter": "x.Avro",
    }

    draft = draft_of_connector(connector(tmp_path, config))

    (mistake,) = draft.mistakes(draft.text("orders.json"))
    assert mistake.path == "transforms[0].type"
    assert "no converter 'x.Avro' is known" in left(draft)["value.converter"]
    assert draft.lossy


def _configurations() -> Iterator[dict[str, Any]]:
    """The properties of every vector of which a chain can be built; those of one transform under an alias."""
    for file in VECTORS:
        for case in json.loads(file.read_text(encoding="utf-8")):
            config = dict(case["config"])
            if "type" in config:
                config = {"transforms": "t", **{f"transforms.t.{name}": value for name, value in config.items()}}
            try:
                Chain.from_config(config)
            except ConfigError:
                continue
            yield config


def test_imported_chains_mean_what_they_meant(tmp_path) -> None:
    """Every chain of the vectors is unchanged in the converted route, in every spelling."""
    compared = 0
    for config in _configurations():
        draft = draft_of_connector(connector(tmp_path, {"connector.class": "C", **config}))
        stages: Any = draft.document.get("transforms", [])
        variables = Variables({}, tmp_path)
        imported = Chain.from_route(variables.fill_in({"transforms": stages})["transforms"])
        assert variables.mistakes == []
        assert meaning(imported) == meaning(Chain.from_config(config)), config
        compared += bool(imported.stages)

    assert compared > 100


def test_a_registry_is_a_block_without_secrets(tmp_path) -> None:
    """The converters of Confluent read their schemas there; its credentials are variables."""
    config = {
        **SINK,
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://a:8081,http://b:8081",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.basic.auth.user.info": "ann:hunter2",
    }

    draft = draft_of_connector(connector(tmp_path, config))

    assert draft.document["value"] == {
        "format": "avro",
        "registry": {
            "url": ["http://a:8081", "http://b:8081"],
            "auth": {"user": "ann", "password": "${SCHEMA_REGISTRY_PASSWORD}"},
        },
    }
    assert draft.variables == ("SCHEMA_REGISTRY_PASSWORD",)
    assert "hunter2" not in draft.text("") + repr(draft)
    assert draft.mistakes(draft.text("")) == ()


@pytest.mark.parametrize(
    ("name", "value", "step"),
    [
        ("connector.class", "io.debezium.connector.mysql.MySqlConnector", "--from kafka://HOST:9092/TOPIC"),
        ("value.converter", "io.apicurio.registry.utils.converter.AvroConverter", "/apis/ccompat/v7"),
    ],
)
def test_classes_with_a_next_step(tmp_path, name, value, step) -> None:
    """Unsupported classes are listed with the replacement."""
    draft = draft_of_connector(connector(tmp_path, {**SINK, name: value}))

    assert step in next(item.why for item in draft.left if item.name == name)


@pytest.mark.parametrize("text", ["{}", '{"version": "4.1"}', '{"a": {"info": {"tasks": []}}}', '{"config": {"a": 1}}'])
def test_what_is_no_connector(tmp_path, text) -> None:
    """A JSON file of something else is refused, with what a connector has."""
    file = tmp_path / "x.json"
    file.write_text(text)

    with pytest.raises(
        ConfigError, match=r"x\.json is no connector: expected at least one of connector\.class, topics"
    ):
        draft_of_connector(file)


def test_the_expanded_form_of_connects_rest_interface(tmp_path) -> None:
    """One connector with its tasks and state is read; of several, one has to be chosen."""
    info = {"name": "lake", "config": SINK, "tasks": [{"connector": "lake", "task": 0}], "type": "sink"}
    file = tmp_path / "expanded.json"
    file.write_text(json.dumps({"lake": {"info": info, "status": {"name": "lake"}}}))

    draft = draft_of_connector(file)

    assert draft.document["name"] == "lake"
    assert part_of(draft, "source")["topics"] == ["orders", "returns"]
    file.write_text(json.dumps({"lake": {"info": info}, "other": {"info": info}}))
    with pytest.raises(ConfigError, match=r"has 2 connectors \(lake, other\): choose one by its name"):
        draft_of_connector(file)


def test_one_of_several_connectors(tmp_path) -> None:
    """A file may have several, in a list or by name; one is chosen by its name."""
    one, two = {"connector.class": "A", "topics": "a"}, {"connector.class": "B", "topics": "b"}
    file = tmp_path / "many.json"
    documents = (
        {"connectors": {"one": one, "two": {"config": two}}},
        [{"name": "one", "config": one}, two | {"name": "two"}],
    )
    for document in documents:
        file.write_text(json.dumps(document))

        assert part_of(draft_of_connector(file, connector="two"), "source")["topics"] == ["b"]
        with pytest.raises(ConfigError, match="did you mean"):
            draft_of_connector(file, connector="twp")


STRIMZI = """
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: kafka.strimzi.io/v1
kind: KafkaConnector
metadata: {name: lake}
spec:
  class: com.example.LakeSinkConnector
  tasksMax: 2
  pause: true  # starts later
  config:
    topics: "orders"
    transforms: drop
    transforms.drop.type: org.apache.kafka.connect.transforms.ReplaceField$Value
    transforms.drop.blacklist: card,cvv
    value.converter: org.apache.kafka.connect.json.JsonConverter
    value.converter.schemas.enable: false
"""


def test_a_resource_of_strimzi(tmp_path) -> None:
    """It is read as the connector that its operator makes, and an option under its former name has today's."""
    file = tmp_path / "lake.yaml"
    file.write_text(STRIMZI)

    draft = draft_of_connector(file)

    assert draft.document["name"] == "lake"
    assert draft.document["value"] == {"format": "connect-json", "schemas.enable": False}
    assert draft.document["transforms"] == [{"name": "drop", "type": "ReplaceField$Value", "exclude": "card,cvv"}]
    assert left(draft)["transforms.drop.blacklist"] == "exclude = card,cvv"
    assert "# changed: transforms.drop.blacklist" in draft.text("lake.yaml")
    assert "spec.pause" in left(draft)
    assert not draft.lossy
    assert not draft.mistakes(draft.text("lake.yaml"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "not YAML"),
        (
            "a: 1\n---\nkind: KafkaConnector\nspec: {tasksMax: 1, tasksMax: 2}",
            "line 4: not YAML: spec.tasksMax occurs twice",
        ),
        ("a: [*b]\nb: &b 1", "undefined alias"),
        ("kind: Kafka", "kind KafkaConnector or KafkaMirrorMaker2, found Kafka"),
        ("- 1", "expected an object"),
        ("---\na: 1\n---\nb: 2", "found none"),
    ],
)
def test_yaml_without_a_connector(tmp_path, text: str, problem: str) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        draft_of_connector(file)


DEBEZIUM = r"""
debezium.sink.type=nats-jetstream
debezium.sink.nats-jetstream.url=${NATS:nats://nats:4222}
debezium.sink.nats-jetstream.create-stream=true
debezium.sink.nats-jetstream.auth.user=ann
debezium.sink.nats-jetstream.auth.password=s3cr3t
debezium.source.connector.class=io.debezium.connector.postgresql.PostgresConnector
debezium.source.topic.prefix=shop
debezium.transforms=unwrap
debezium.transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState
debezium.transforms.unwrap.drop.tombstones=false
debezium.transforms.unwrap.delete.handling.mode=rewrite
debezium.transforms.unwrap.predicate=orders
debezium.predicates=orders
debezium.predicates.orders.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches
debezium.predicates.orders.pattern=shop.public.orders
debezium.format.value.schemas.enable=false
"""


def test_debezium_server(tmp_path) -> None:
    """It continues to read the database; the route reads its stream, and does its transforms."""
    file = tmp_path / "application.properties"
    file.write_text(DEBEZIUM)

    draft = draft_of_connector(file)

    source = {"format": "nats", "servers": "${NATS:-nats://nats:4222}", "stream": "DebeziumStream", "user": "ann"}
    assert part_of(draft, "source").items() >= source.items()
    assert "s3cr3t" not in draft.text("application.properties")
    (stage,) = stages_of(draft)
    assert stage["delete.tombstone.handling.mode"] == "rewrite-with-tombstone"
    assert stage["predicate"]
    assert draft.document["value"] == {"format": "connect-json", "schemas.enable": False}
    names = {name for name, _ in (*draft.taken, *draft.left)}
    written = {line.partition("=")[0] for line in DEBEZIUM.split()}
    whole = {name for name in written if not name.startswith(("debezium.transforms", "debezium.predicates"))}
    assert whole <= names
    assert {"debezium.transforms", "debezium.transforms.unwrap", "debezium.transforms.unwrap.drop.tombstones"} <= names
    assert not draft.mistakes(draft.text("application.properties"))


@pytest.mark.parametrize(("sink", "lossy"), [("kafka", False), ("pulsar", True)])
def test_other_sinks_of_debezium_server(tmp_path, sink: str, lossy: bool) -> None:
    file = tmp_path / "application.properties"
    file.write_text(
        f"debezium.sink.type={sink}\ndebezium.sink.kafka.producer.bootstrap.servers=k:9092\n"
        "debezium.source.connector.class=X\ndebezium.source.topic.prefix=shop\n"
    )
    draft = draft_of_connector(file)
    assert draft.lossy == lossy
    if sink == "kafka":
        assert part_of(draft, "source")["servers"] == "k:9092"
        assert part_of(draft, "source")["topicPattern"] == r"shop\..*"


MIRROR_MAKER = """
clusters = us-west, eu
us-west.bootstrap.servers = west:9092
eu.bootstrap.servers = eu:9092
us-west->eu.enabled = true
us-west->eu.topics = orders.*, returns
eu->us-west.enabled = false
replication.factor = 3
"""
MIRROR_MAKER_2 = """
kind: KafkaMirrorMaker2
metadata: {name: copy}
spec:
  connectCluster: b
  clusters:
  - {alias: a, bootstrapServers: "a:9092"}
  - {alias: b, bootstrapServers: "b:9092", config: {client.rack: x}, authentication: {type: tls}}
  mirrors:
  - sourceCluster: a
    targetCluster: b
    topicsPattern: "foo|bar"
    topicsExcludePattern: "bar"
    sourceConnector:
      config: {replication.policy.class: org.apache.kafka.connect.mirror.IdentityReplicationPolicy}
"""
REPLICATOR = {
    "connector.class": "io.confluent.connect.replicator.ReplicatorSourceConnector",
    "src.kafka.bootstrap.servers": "a:9092",
    "dest.kafka.bootstrap.servers": "b:9092",
    "topic.whitelist": "orders.eu,returns",
    "topic.rename.format": "${topic}.copy",
}


@pytest.mark.parametrize(
    ("name", "text", "copied", "not_copied", "copy"),
    [
        (
            "mm2.properties",
            MIRROR_MAKER,
            ["orders", "orders.eu", "returns"],
            ["a.internal", "return"],
            "us-west.orders.eu",
        ),
        ("mm2.yaml", MIRROR_MAKER_2, ["foo"], ["bar", "food"], "orders.eu"),
        ("replicator.json", json.dumps(REPLICATOR), ["orders.eu", "returns"], ["ordersxeu"], "orders.eu.copy"),
    ],
)
def test_copies_of_topics(tmp_path, name: str, text: str, copied: list[str], not_copied: list[str], copy: str) -> None:
    """A route copies the topics that the connector copied, to the same names and partitions."""
    file = tmp_path / name
    file.write_text(text)

    draft = draft_of_connector(file)

    source, sink = part_of(draft, "source"), part_of(draft, "sink")
    assert (source["format"], sink["format"], sink["partitionBy"]) == ("kafka", "kafka", "record")
    assert [topic for topic in [*copied, *not_copied] if re.fullmatch(source["topicPattern"], topic)] == copied
    assert not draft.mistakes(draft.text(name))
    route = read(draft)
    batch = Program.of(route).transformed(record_batch([SampleRecord.of({"topic": "orders.eu", "value": "x"})]))
    assert batch.topics == [copy]
    lossy = {item.name for item in draft.left if draft.word(item) == "lost"}
    assert lossy == ({"target.cluster.authentication"} if name == "mm2.yaml" else set())


@pytest.mark.parametrize(
    ("tombstones", "deletes", "mode"),
    [
        ("true", "drop", "drop"),
        ("false", None, "tombstone"),
        (None, "rewrite", "rewrite"),
        ("false", "rewrite", "rewrite-with-tombstone"),
        (None, "none", "delete-to-tombstone"),
    ],
)
def test_former_names_of_debeziums_options(tmp_path, tombstones: str | None, deletes: str | None, mode: str) -> None:
    """Both options that Debezium 2.5 joined become the one that it has now."""
    options = {"drop.tombstones": tombstones, "delete.handling.mode": deletes, "operation.header": "true"}
    unwrap = {f"transforms.u.{option}": text for option, text in options.items() if text is not None}
    unwrap |= {"transforms": "u", "transforms.u.type": "io.debezium.transforms.UnwrapFromEnvelope"}
    draft = draft_of_connector(connector(tmp_path, {**SINK, "value.converter": JSON, **unwrap}))

    (stage,) = stages_of(draft)
    assert stage["type"].endswith("ExtractNewRecordState")
    assert (stage["delete.tombstone.handling.mode"], stage["add.headers"]) == (mode, "op")
    assert not {"drop.tombstones", "delete.handling.mode"} & stage.keys()
    assert not draft.mistakes(draft.text("x"))


def test_former_metadata_fields_keep_their_names(tmp_path) -> None:
    """`add.source.fields` named fields of the source, and put them into `__version`."""
    unwrap = {
        "transforms": "u",
        "transforms.u.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.u.add.fields": "op",
        "transforms.u.add.source.fields": "version,connector",
    }
    plain = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
    route = read(draft_of_connector(connector(tmp_path, {**SINK, **plain, **unwrap})))

    source = {"version": "3.6", "connector": "mysql"}
    event = {"before": None, "after": {"id": 1}, "source": source, "op": "c"}
    result = Program.of(route).run(record_batch([SampleRecord.of({"topic": "t", "value": event})]))

    (text,) = result.messages.column("value").to_pylist()
    assert json.loads(text) == {"id": 1, "__op": "c", "__version": "3.6", "__connector": "mysql"}


def test_every_part_of_a_mirror_is_reported(tmp_path) -> None:
    """Groups, checkpoints and the storage of Connect's own topics are left, each with the reason."""
    file = tmp_path / "mm2.yaml"
    more = """    groupsPattern: ".*"
    checkpointConnector: {config: {checkpoints.topic.replication.factor: 1}}
"""
    storage = MIRROR_MAKER_2.replace("{client.rack: x}", "{client.rack: x, config.storage.replication.factor: 1}")
    file.write_text(storage.rstrip() + "\n" + more)

    draft = draft_of_connector(file)

    reasons = left(draft)
    assert "keep their own offsets" in reasons["spec.mirrors.groupsPattern"]
    assert "the route's checkpoint" in reasons["spec.mirrors.checkpointConnector"]
    assert "Connect's own" in reasons["target.cluster.config.storage.replication.factor"]
    assert part_of(draft, "sink")["options"] == {"kafka.client.rack": "x"}


def test_replicators_login_and_converter(tmp_path) -> None:
    """Its class of bytes is Kafka's; a login is a variable that `check` takes for one."""
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="hunter2";'
    util = "io.confluent.connect.replicator.util.ByteArrayConverter"
    more = {"src.kafka.sasl.jaas.config": login, "key.converter": util, "value.converter": util}
    file = tmp_path / "replicator.json"
    file.write_text(json.dumps(REPLICATOR | more))

    draft = draft_of_connector(file)
    text = draft.text("x")

    assert (draft.document["key"], draft.document["value"]) == ({"format": "bytes"}, {"format": "bytes"})
    assert not draft.lossy
    assert not draft.mistakes(text)
    assert "topic.rename.format" not in left(draft)
    assert "hunter2" not in text


def test_a_former_login_of_a_registry_is_not_shown(tmp_path) -> None:
    """The report of a renamed option has no password."""
    registry = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r:8081",
        "value.converter.basic.auth.credentials.source": "USER_INFO",
        "value.converter.schema.registry.basic.auth.user.info": "u:hunter2",
    }
    draft = draft_of_connector(connector(tmp_path, {**SINK, **registry}))

    assert "hunter2" not in draft.text("x")


def test_what_debezium_server_has_and_a_route_does_not(tmp_path) -> None:
    """CloudEvents and key stores are lost, each with the thing to do instead."""
    file = tmp_path / "application.properties"
    file.write_text(
        "debezium.sink.type=nats-jetstream\n"
        "debezium.sink.nats-jetstream.auth.tls.keystore=/k.jks\n"
        "debezium.source.connector.class=io.debezium.connector.mysql.MySqlConnector\n"
        "debezium.format.value=cloudevents\n"
    )

    draft = draft_of_connector(file)

    lost = {item.name: item.why for item in draft.left if draft.word(item) == "lost"}
    assert "source.tlsCert" in lost["debezium.sink.nats-jetstream.auth.tls.keystore"]
    assert "ExtractField$Value with field: data" in lost["debezium.format.value"]


@pytest.mark.parametrize(
    "text", ["{name: a, config: {C}}", "{C}", "connectors: {a: {C}}", '{"a": {"info": {"config": {C}}}}']
)
def test_connects_own_forms_in_yaml(tmp_path, text: str) -> None:
    """A file of YAML may have what Connect has as JSON."""
    file = tmp_path / "a.yaml"
    file.write_text(text.replace("C", 'connector.class: x.Sink, topics: t, transforms: ""'))

    draft = draft_of_connector(file)

    assert part_of(draft, "source")["topics"] == ["t"]


def test_another_vendors_converter_is_no_misspelling(tmp_path) -> None:
    """Apicurio's AvroConverter is not Kafka's LongConverter; the step says what reads its values."""
    converter = {"value.converter": "io.apicurio.registry.utils.converter.AvroConverter"}
    reason = left(draft_of_connector(connector(tmp_path, {**SINK, **converter})))["value.converter"]

    assert "did you mean io.confluent.connect.avro.AvroConverter?" in reason
    assert "ccompat" in reason
    thrift = left(draft_of_connector(connector(tmp_path, {**SINK, "value.converter": "a.b.LoongConverter"})))
    assert "did you mean" not in thrift["value.converter"]


def test_the_converter_of_a_source_connector_is_what_kafka_gets(tmp_path) -> None:
    """Texts of an outbox are written by the sink; how records are read the route has to say."""
    outbox = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "saga",
        "transforms.saga.type": "io.debezium.transforms.outbox.EventRouter",
    }
    draft = draft_of_connector(connector(tmp_path, outbox))

    assert "value" not in draft.document
    assert part_of(draft, "sink")["value"] == {"format": "string"}
    assert ("value.converter", "sink.value") in [(one.name, one.path) for one in draft.taken]
    assert "says how records are read" in left(draft)["value.converter"]
    assert all("add value: {format: …}" in mistake.problem for mistake in draft.mistakes(draft.text("x")))
