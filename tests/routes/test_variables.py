"""Variables of a route with defaults, also nested, and secrets from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
        ("${env:B}", "B"),
        ("$${B} ${B}", "${B} B"),
        ("$${1A} $${", "${1A} ${"),
    ],
)
def test_variables(text: str, expected: str) -> None:
    """A default may hold variables; the environment is a provider of Connect as well; $${ is a text."""
    assert cluster(text, B="B", EMPTY="") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${A}", "the variable A is not set"),
        ("${A:-x${B}y}", "the variable B is not set"),
        ("${A:-hunter2", "the '${A…' is never closed"),
        ("${1A}", "found ${1A…, expected ${NAME}, ${NAME:-a default} or ${file:path:key}"),
        ("${A-hunter2}", "found ${A…, expected ${NAME}"),
        ("${env:A}", "the variable A is not set"),
        ("${vault:hunter2:x}", "found ${vault:…, and there is no provider 'vault' of values here"),
        ("${secret:ns/name:hunter2}", "there is no provider 'secret'"),
        ("${secrets:ns/name:hunter2}", "there is no provider 'secrets'"),
        ("${dir:/run/secrets:hunter2}", "write ${file:path} with the whole path of the key's file"),
        ("${A:hunter2}", "a default is written with a hyphen, as in ${A:-a default}"),
        ("${spark.app.name}", "found ${spark…"),
        ("${system:user.home}", "Spark fills it in in the block spark alone"),
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


ENDS = """name: a
source: {format: nats, servers: 'nats://127.0.0.1:4222', stream: S}
value: {format: json}
sink: {format: nats, servers: 'nats://127.0.0.1:4222'}
"""


def test_variables_in_every_part() -> None:
    """Deliveries, dead letters, mappings with their sources, transforms, predicates, formats, errors and thresholds."""
    text = (
        ENDS.replace("format: json}", "format: '${FORMAT}'}")
        + """
key: {format: "${FORMAT}"}
transforms:
  - {type: InsertField$Value, static.field: e, static.value: "${NAME} $${NAME}"}
  - {type: MaskField$Value, fields: "${FIELD},b", predicate: {type: HasHeaderKey, name: "${NAME}"}}
  - {type: Filter, predicate: {when: {key: topic, pattern: "${NAME}*"}}}
mappings: {"${NAME}.*": "${NAME}-out.{{wildcard(1)}}"}
subscriptions: {store: "memory://a", metadata: {e: "value.${FIELD}"}}
webhooks:
  secrets: ["${SECRET}"]
  endpoints:
    billing: {url: "https://${NAME}.example/x", secrets: ["${SECRET}"], delivery: {headers: {X-Plan: "${NAME}"}}}
deadLetter: {topic: "dead.${NAME}", secret: "${SECRET}"}
errors: {tolerance: "${ALL}"}
tests: {cases: [{name: "${NOBODY}"}]}
"""
    )
    secret = "whsec_" + "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFB"
    route = Route.parse(text, {"NAME": "eu", "FIELD": "card", "SECRET": secret, "FORMAT": "json", "ALL": "all"})

    insert, mask, drop = route.chain.stages
    assert repr(insert.transform).count("eu ${NAME}") == 1
    assert mask.transform.named_fields is not None
    assert [named.path for named in mask.transform.named_fields()] == [("card",), ("b",)]
    assert list(mask.guards[0].predicate.named_headers()) == [("name", "eu")]
    assert "eu*" in repr(drop.guards[0].predicate)
    assert route.mappings.apply("eu.7") == "eu-out.7"
    assert route.key.format == route.value.format == "json"
    assert route.subscriptions is not None
    assert route.subscriptions.metadata == {"e": "value.card"}
    assert route.webhooks is not None
    billing = route.webhooks.endpoints["billing"]
    assert (billing.url, billing.secrets) == ("https://eu.example/x", [secret])
    assert dict(billing.settings.headers) == {"X-Plan": "eu"}
    assert route.webhooks.secrets == [secret]
    assert route.dead_letter is not None
    assert (route.dead_letter.topic, route.dead_letter.secret) == ("dead.eu", secret)
    assert route.errors.tolerance == "all"


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ("webhooks: {secrets: ['${X}']}", "webhooks.secrets[0]"),
        ("deadLetter: {topic: 'dead.${X}'}", "deadLetter.topic"),
        ("mappings: {'a.*': 'b.${X}'}", 'mappings["a.*"]'),
        ("transforms: [{type: MaskField$Value, fields: '${X}'}]", "transforms[0].fields"),
        ("transforms: [{type: ReplaceField$Value, exclude: '${vault:a:b}'}]", "transforms[0].exclude"),
        ("transforms: [{type: TimestampRouter, topic.format: '${topc}'}]", 'transforms[0]["topic.format"]'),
        (
            "transforms: [{type: InsertField$Value, static.field: a, static.value: '${topic}'}]",
            'transforms[0]["static.value"]',
        ),
        ("transforms: [{type: RegexRouter, regex: a, replacement: '${X}'}]", "transforms[0].replacement"),
        (
            "transforms: {transforms: m, transforms.m.type: MaskField$Value, transforms.m.fields: '${X}'}",
            'transforms["transforms.m.fields"]',
        ),
        ("spark: {'${X}': y}", "spark.${X}"),
    ],
)
def test_variables_without_a_value_are_refused_in_every_part(part: str, path: str) -> None:
    """No part of a route takes the text of a variable as data."""
    with pytest.raises(RouteError) as raised:
        Route.parse(f"{ENDS}{part}\n", {})

    assert path in [mistake.path for mistake in raised.value.mistakes]


def test_placeholders_of_transforms_stay() -> None:
    """They mean something in one option: variables of that name have no effect there."""
    text = f"""{ENDS}
transforms:
  - {{type: TimestampRouter, topic.format: "${{topic}}.${{timestamp}}.${{REGION}}"}}
  - {{type: RegexRouter, regex: "(?<a>.)(.*)", replacement: "${{a}}$2${{REGION}}"}}
  - {{type: EventRouter, route.topic.replacement: "x.${{routedByValue}}.${{REGION}}"}}
  - type: ContentBasedRouter
    language: jsr223.groovy
    topic.expression: "value.op == 'c' ? 'a' : null"
"""
    values = {"topic": "wrong", "timestamp": "wrong", "a": "wrong", "routedByValue": "wrong", "REGION": "eu"}
    transforms: list[Any] = [stage.transform for stage in Route.parse(text, values).chain.stages]
    times, names, events, _ = transforms

    assert times.topic_format == "${topic}.${timestamp}.eu"
    assert names.replacement == "${a}$2eu"
    assert events.replacement == "x.${routedByValue}.eu"


def test_variables_of_a_connectors_file(tmp_path: Path) -> None:
    """Those with a provider are filled in, others are text as in Connect, with a warning; unused ones do not matter."""
    (tmp_path / "s.properties").write_text("user = ann:hunter2\nfield = card\n")
    (tmp_path / "c.properties").write_text(
        "transforms=m,i,t\n"
        "transforms.m.type=org.apache.kafka.connect.transforms.MaskField$Value\n"
        "transforms.m.fields=${file:s.properties:field}\n"
        "transforms.i.type=org.apache.kafka.connect.transforms.InsertField$Value\n"
        "transforms.i.static.field=e\n"
        "transforms.i.static.value=${env:STAGE} ${PRICE}\n"
        "transforms.t.type=org.apache.kafka.connect.transforms.TimestampRouter\n"
        "transforms.t.topic.format=${topic}-x\n"
        "connection.password=${vault:db:password}\n"
        "value.converter=io.confluent.connect.avro.AvroConverter\n"
        "value.converter.schema.registry.url=http://127.0.0.1:1\n"
        "value.converter.basic.auth.credentials.source=USER_INFO\n"
        "value.converter.basic.auth.user.info=${file:s.properties:user}\n"
    )
    text = ENDS.replace("value: {format: json}", "transforms: c.properties")
    route = Route.parse(text, {"STAGE": "live", "PRICE": "1"}, file=tmp_path / "route.yaml")

    mask, insert, _ = (stage.transform for stage in route.chain.stages)
    registry: Any = route.value.settings["registry"]
    assert [named.path for named in mask.named_fields()] == [("card",)]
    assert "live ${PRICE}" in repr(insert)
    assert (registry.user, registry.password.reveal()) == ("ann", "hunter2")
    assert [(one.path, one.problem) for one in route.warnings] == [
        (
            "transforms.transforms.i.static.value",
            "${PRICE} is text in a connector's file and is not replaced: write ${env:PRICE} for the variable",
        )
    ]

    file = tmp_path / "c.properties"
    file.write_text(file.read_text().replace("${env:STAGE}", "${secrets:ns/name:stage}"))
    with pytest.raises(RouteError, match="there is no provider 'secrets'"):
        Route.parse(text, {}, file=tmp_path / "route.yaml")


def test_user_and_password_in_one_variable() -> None:
    """A registry takes both as one text, as a secret often has them."""
    text = ENDS.replace(
        "{format: json}", "{format: avro, registry: {url: 'http://a', auth: {userInfo: '${USER_INFO}'}}}"
    )
    registry: Any = Route.parse(text, {"USER_INFO": "ann:hunter2:x"}).value.settings["registry"]
    assert (registry.user, registry.password.reveal()) == ("ann", "hunter2:x")
    with pytest.raises(RouteError, match=r"auth\.userInfo: expected a user and a password") as raised:
        Route.parse(text, {"USER_INFO": "hunter2"})
    assert "hunter2" not in str(raised.value)
