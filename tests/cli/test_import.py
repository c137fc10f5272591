"""``turnout import``: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnout.routes import Route

PROPERTIES = """name=orders
connector.class=FileStreamSink
file=/tmp/out
topics=orders
transforms=only
transforms.only.type=org.apache.kafka.connect.transforms.RegexRouter
transforms.only.regex=a(.*)
transforms.only.replacement=b$1
"""


@pytest.fixture
def file(turnout, tmp_path) -> Path:
    """A connector in the present folder."""
    (tmp_path / "orders.properties").write_text(PROPERTIES)
    return tmp_path / "orders.properties"


def test_the_route_and_what_it_is_made_of(turnout, file) -> None:
    """The route on standard output, a line for each thing on standard error."""
    code, out, err = turnout("import", "connect", file.name, "--to", "nats://h:4222/LAKE")

    route = Route.parse(out, {})
    assert code == 0
    assert (route.name, route.sinks[""].options()["stream"]) == ("orders", "LAKE")
    assert err.splitlines() == [
        "taken  name → name",
        "taken  topics → source.topics",
        "taken  transforms.only → transforms[0]",
        (
            "left   value.converter: not there, the worker's configuration has it: values are bytes until "
            "value: {format: …} says otherwise"
        ),
        "left   connector.class: turnout reads and writes NATS, Kafka and files: --from and --to say where",
        "left   file: an option of the connector",
        "3 taken, 0 changed, 3 left",
    ]
    assert [line for line in out.splitlines() if line.startswith("# left: ")] == [
        f"# left: {line.removeprefix('left   ')}" for line in err.splitlines() if line.startswith("left")
    ]


def test_a_file_that_is_written(turnout, file, tmp_path) -> None:
    """``check`` takes it; it is not written over."""
    arguments = ("import", "connect", file.name, "--output", "made/route.yaml")

    codes = [turnout(*arguments)[0], turnout(*arguments)[0], turnout(*arguments, "--force")[0]]

    assert codes == [0, 2, 0]
    assert turnout("check", "made/route.yaml")[0] == 0


def test_mistakes_are_told(turnout, file) -> None:
    """The route is printed all the same, and the exit code is 1."""
    file.write_text(PROPERTIES.replace("RegexRouter", "RegexRuter"))

    code, out, err = turnout("import", "connect", file.name)
    output = json.loads(turnout("import", "connect", file.name, "--json")[1])

    assert code == 1
    assert "RegexRuter" in out
    assert "wrong  transforms[0].type: no transform is named" in err
    assert [mistake["path"] for mistake in output["mistakes"]] == ["transforms[0].type"]
    assert output["route"] == out
    assert output["taken"][0] == {"name": "name", "place": "name"}


def test_a_server(turnout, tmp_path) -> None:
    """A nats-server's configuration, by account."""
    mappings = 'accounts { A { mappings { "a.*": "b.$1" } }, B { mappings { c: d } } }'
    (tmp_path / "nats.conf").write_text(mappings)

    code, out, _ = turnout("import", "nats", "nats.conf", "--account", "B", "--from", "nats://h/S")

    assert code == 0
    assert Route.parse(out, {}).mappings.apply("c") == "d"
    assert turnout("import", "nats", "nats.conf")[0] == 2
    assert turnout("import", "nats", "none.conf")[0] == 2


RULE = """title: {title}
id: {id}
level: low
detection:
  selection: {{Image|endswith: /sh}}
  condition: {condition}
"""


@pytest.fixture
def rules(turnout, tmp_path) -> Path:
    """A folder with a rule, one of the same id, one that cannot be expressed, and one that is no YAML."""
    folder = tmp_path / "rules"
    folder.mkdir()
    for name, condition in (("a", "selection"), ("b", "selection"), ("c", "selection | count() > 2")):
        (folder / f"{name}.yml").write_text(RULE.format(title=name, id="one", condition=condition))
    (folder / "d.yml").write_text("a: [")
    return folder


def test_rules_of_sigma(turnout, rules) -> None:
    """A line for each subscription; what is left has its file, its path and the reason, and stops nothing."""
    code, out, err = turnout("import", "sigma", "rules", "--to", "alerts.{level}")

    (line,) = out.splitlines()
    assert code == 1
    assert json.loads(line)["id"] == "one"
    assert json.loads(line)["route"]["destinations"] == ["alerts.low"]
    assert err.splitlines()[:2] == [
        "left   rules/b.yml: id: another rule has the id 'one'",
        "left   rules/c.yml: detection.condition: aggregates several events: a condition sees one (line 6)",
    ]
    assert err.splitlines()[2].startswith("left   rules/d.yml: is no YAML: ")
    assert err.splitlines()[3:] == ["1 rule taken, 3 left"]


def test_rules_of_eventbridge(turnout, tmp_path) -> None:
    """A rule is a subscription of its name; what is left has its file, its path and the reason, and stops nothing."""
    pattern = {"source": ["shop"], "detail": {"total": [{"numeric": [">", 5]}]}}
    rules = [{"Name": "large", "EventPattern": json.dumps(pattern)}, {"Name": "odd", "EventPattern": {"a": []}}]
    (tmp_path / "rules.json").write_text(json.dumps({"Rules": rules}))
    (tmp_path / "no.json").write_text("{")
    code, out, _ = turnout("import", "eventbridge", "rules.json", "no.json", "--to", "events.{name}", "--json")

    answer = json.loads(out)
    (taken,) = answer["subscriptions"]
    assert (code, answer["keys"]) == (1, ["detail.total[]:number", "source[]:text"])
    assert (taken["id"], taken["route"]["destinations"]) == ("large", ["events.large"])
    assert [(left["file"], left["path"], left["reason"][:11]) for left in answer["left"]] == [
        ("rules.json", "odd: a", "expected a "),
        ("no.json", "", "is no JSON:"),
    ]
    assert turnout("import", "eventbridge", "rules.json", "--output", "rules.jsonl")[0] == 1
    assert turnout("subscriptions", "import", "rules.jsonl", "--store", "sqlite:///s.db")[0] == 0
    (tmp_path / "one.json").write_text(json.dumps(rules[0]))
    assert turnout("import", "eventbridge", "one.json")[::2] == (0, "1 rule taken, 0 left\n")
    assert turnout("import", "eventbridge", "no.json")[0] == 1
    assert turnout("import", "eventbridge", "nowhere.json")[0] == 2


def test_identity_and_state_of_eventbridges_rules(turnout, tmp_path) -> None:
    """The bus is part of the id, a disabled rule is disabled, and what has no pattern or no name of its own is left."""
    rules = [
        {"Name": "paid", "EventPattern": {"a": ["b"]}},
        {"Name": "paid", "EventBusName": "shop", "State": "DISABLED", "EventPattern": {"a": ["c"]}},
        {"Name": "paid", "EventBusName": "default", "EventPattern": {"a": ["d"]}},
        {"Name": "nightly", "ScheduleExpression": "cron(0 2 * * ? *)"},
    ]
    (tmp_path / "rules.json").write_text(json.dumps({"Rules": rules}))
    (tmp_path / "twice.json").write_text('{"a": ["b"], "a": ["c"]}')
    destination = ("--to", "{bus}.{name}")
    code, out, _ = turnout("import", "eventbridge", "rules.json", "twice.json", *destination, "--json")

    answer = json.loads(out)
    taken = [(one["id"], one["route"]["destinations"], one.get("enabled", True)) for one in answer["subscriptions"]]
    assert (code, taken) == (1, [("paid", ["default.paid"], True), ("shop:paid", ["shop.paid"], False)])
    assert [(left["path"], left["reason"]) for left in answer["left"]] == [
        ("paid", "another rule has this name on the same bus"),
        ("nightly", "has the schedule cron(0 2 * * ? *) and no pattern: start it by a timer"),
        ("", "the key 'a' occurs twice in one object"),
    ]
    assert turnout("import", "eventbridge", "rules.json", "--output", "rules.jsonl")[0] == 1
    assert turnout("subscriptions", "import", "rules.jsonl", "--store", "sqlite:///s.db")[0] == 0
    assert json.loads(turnout("subscriptions", "read", "shop:paid", "--store", "sqlite:///s.db")[1])["enabled"] is False


def test_targets_of_eventbridge(turnout, tmp_path) -> None:
    """Each input of a rule's targets is a subscription with a projection; what has no expression is named."""
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    inputs = [{"InputPath": "$.detail"}, {"InputPath": "$.a[*]"}, {}, {"Input": "{}"}]
    targets = [{"Id": f"t{number}", "Arn": "arn", **given} for number, given in enumerate(inputs)]
    rule = {"Name": "large", "EventPattern": {"source": ["shop"]}, "Targets": targets}
    (tmp_path / "rules.json").write_text(json.dumps(rule))
    code, out, _ = turnout("import", "eventbridge", "rules.json", "--json")

    answer = json.loads(out)
    taken = [(one["id"], one["route"]["destinations"], one.get("project")) for one in answer["subscriptions"]]
    assert (code, taken) == (
        1,
        [
            ("large.t0", ["events.large.t0"], "value.detail"),
            ("large.t2", ["events.large.t2"], None),
            ("large.t3", ["events.large.t3"], "{}"),
        ],
    )
    assert [left["path"] for left in answer["left"]] == ["large: Targets[1].InputPath"]


def test_rules_of_sigma_for_programs(turnout, rules) -> None:
    """The same as JSON, with the keys that a route has to list."""
    code, out, err = turnout("import", "sigma", "rules", "--json")

    answer = json.loads(out)
    assert (code, answer["keys"], len(answer["subscriptions"])) == (1, ["Image"], 1)
    assert err == "1 rule taken, 3 left\n"
    assert answer["left"][1] == {
        "file": "rules/c.yml",
        "path": "detection.condition",
        "reason": "aggregates several events: a condition sees one",
        "line": 6,
    }


def test_rules_of_sigma_in_a_store(turnout, rules) -> None:
    """The output can be imported; where a rule is left the exit code is 1, without a file 2."""
    assert turnout("import", "sigma", "rules", "--output", "rules.jsonl")[0] == 1
    assert turnout("subscriptions", "import", "rules.jsonl", "--store", "sqlite:///s.db")[0] == 0
    _, out, _ = turnout("subscriptions", "match", "Image=/bin/SH", "--store", "sqlite:///s.db")

    assert out.split() == ["one", "alerts.low"]
    assert turnout("import", "sigma", "rules/d.yml")[0] == 1
    assert turnout("import", "sigma", "nowhere.yml")[0] == 2


def test_a_lost_converter_is_an_exit_code(turnout, tmp_path) -> None:
    """The route is written all the same; the loss is in its head, in the report and in JSON."""
    config = {"connector.class": "x.Sink", "topics": "orders", "value.converter": "x.Avro", "tasks.max": "2"}
    (tmp_path / "c.json").write_text(json.dumps({"name": "c", "config": config}))

    code, out, err = turnout("import", "connect", "c.json")
    _, as_json, _ = turnout("import", "connect", "c.json", "--json")

    assert code == 1
    assert "# lost: value.converter: no converter 'x.Avro' is known" in out
    assert "lost   value.converter: no converter 'x.Avro' is known" in err
    assert "left   tasks.max: " in err
    lossy = {one["name"]: one["lossy"] for one in json.loads(as_json)["left"]}
    assert (lossy["value.converter"], lossy["tasks.max"]) == (True, False)


TEMPLATE = """Parameters: {Stage: {Type: String}}
Resources:
  Paid: {Type: AWS::Events::Rule, Properties: {EventPattern: {source: [shop, !Ref Stage]}}}
  Queue:
    Type: AWS::Lambda::EventSourceMapping
    Properties: {EventSourceArn: "arn:aws:sqs:x", FilterCriteria: {Filters: [{Pattern: '{"body": {"a": ["x"]}}'}]}}
"""


def test_rules_of_a_template(turnout, tmp_path) -> None:
    """Exit codes: 1 with an unresolved reference, 0 with its value, and 3 with --exact, as a filter tests a body."""
    (tmp_path / "stack.yaml").write_text(TEMPLATE)
    code, _, err = turnout("import", "eventbridge", "stack.yaml")
    given = ("import", "eventbridge", "stack.yaml", "--parameter", "Stage=prod")
    taken, exact, as_json = turnout(*given), turnout(*given, "--exact"), turnout(*given, "--json")

    assert (code, taken[0], exact[0]) == (1, 0, 3)
    assert err.splitlines() == [
        "changed stack.yaml: Queue: tests fields of the value, which Lambda has in 'body'",
        "left   stack.yaml: Paid.EventPattern.source[1]: refers to Stage: give --parameter Stage=VALUE",
        "1 rule taken, 1 of them differently, 1 left",
    ]
    assert [json.loads(line)["id"] for line in taken[1].splitlines()] == ["Paid", "Queue"]
    assert taken[2].splitlines()[-1] == "2 rules taken, 1 of them differently, 0 left"
    assert [one["path"] for one in json.loads(as_json[1])["changed"]] == ["Queue"]


def test_a_template_without_rules_is_named(turnout, tmp_path) -> None:
    """So is a parameter without a value, and what is no YAML."""
    (tmp_path / "empty.yaml").write_text("Resources: {B: {Type: 'AWS::S3::Bucket'}}")
    (tmp_path / "bad.yaml").write_text("a: [")

    assert "empty.yaml: has no rule of an event bus and no filters" in turnout("import", "eventbridge", "empty.yaml")[2]
    assert "bad.yaml: is no YAML" in turnout("import", "eventbridge", "bad.yaml")[2]
    assert turnout("import", "eventbridge", "empty.yaml", "--parameter", "x")[0] == 2


STREAM = {
    "config": {
        "name": "ALL",
        "subjects": ["all.>"],
        "republish": {"src": "all.*", "dest": "live.$1"},
        "sources": [{"name": "EU", "subject_transforms": [{"src": "orders.>", "dest": "eu.>"}]}],
    },
    "state": {},
}


def test_the_parts_of_a_stream(turnout, tmp_path) -> None:
    """A source becomes a route from its stream; republish one from the stream itself."""
    (tmp_path / "info").write_text(json.dumps(STREAM))
    code, out, err = turnout("import", "nats", "info")
    republish, again, _ = turnout("import", "nats", "info", "--account", "republish")

    source, other = Route.parse(out, {}), Route.parse(again, {})
    assert (code, republish) == (0, 0)
    assert (source.source.options()["stream"], source.sinks[""].options()["stream"]) == ("EU", "ALL")
    assert source.mappings.apply("orders.1") == "eu.1"
    assert (source.source.filters, other.source.filters) == (("orders.>",), ("all.*",))
    assert (other.source.options()["stream"], other.mappings.apply("all.x")) == ("ALL", "live.x")
    assert "left   config.republish: another part of the stream: --account names the one" in err
    assert turnout("import", "nats", "info", "--account", "mirror")[0] == 2
    assert "all.x: the mapping of 'all.*'" in turnout("map", "--config", "info", "--account", "republish", "all.x")[1]


def test_an_accounts_jwt(turnout, tmp_path) -> None:
    """A route of its mappings, for clients with credentials."""
    jwts = pytest.importorskip("tests.subjects.jwts")
    operator, account = jwts.Key("O"), jwts.Key("A")
    claims = jwts.claim(account, operator, "SHOP", "account", mappings={"a.*": [{"subject": "b.$1"}]})
    (tmp_path / "SHOP.jwt").write_text(jwts.decorated(jwts.token(operator, claims)))

    code, out, err = turnout("import", "nats", "SHOP.jwt", "--from", "nats://h/S")

    assert code == 0
    assert Route.parse(out, {"NATS_CREDS": __file__}).mappings.apply("a.1") == "b.1"
    assert "left   resolver: users have credentials: set the variable NATS_CREDS to a .creds file" in err
