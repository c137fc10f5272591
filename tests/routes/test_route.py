"""A route file is read whole: either it can run, or every mistake in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnout.errors import RouteError
from turnout.routes import DEFAULT_SINK, Route

SMALL = """
name: small
source: {format: nats, servers: "nats://127.0.0.1:4222", stream: S}
sink: {format: nats, servers: "nats://127.0.0.1:4222"}
"""


def mistakes(text: str, **variables: str) -> dict[str, str]:
    """The mistakes of a text by their path."""
    with pytest.raises(RouteError) as raised:
        Route.parse(text, variables)
    return {mistake.path: mistake.problem for mistake in raised.value.mistakes}


def test_the_smallest_route() -> None:
    """A source and a sink are enough; all else has a default."""
    route = Route.parse(SMALL, {})

    assert route.name == "small"
    assert route.source.options() == {
        "servers": "nats://127.0.0.1:4222",
        "stream": "S",
        "startingOffsets": "earliest",
    }
    assert list(route.sinks) == [DEFAULT_SINK]
    assert route.value.format == "raw"
    assert len(route.chain.stages) == 0
    assert len(route.mappings) == 0
    assert route.unmatched == "drop"
    assert route.errors.tolerance == "none"


def test_a_route_passes_over_its_tests() -> None:
    """Whoever reads them says what is wrong with them."""
    assert Route.parse(f"{SMALL}tests: [{{nam: x}}]\n", {}) == Route.parse(SMALL, {})


def test_the_example_route() -> None:
    """The example that the demo runs is a valid route with every part."""
    route = Route.load(Path("examples/flights.yaml"), {"NATS_URL": "nats://127.0.0.1:1"})

    assert route.source.options()["servers"] == "nats://127.0.0.1:1"
    assert route.subscriptions is not None
    assert route.subscriptions.store == f"sqlite:///{Path('examples/subscriptions.db').absolute()}"
    assert [stage.name for stage in route.chain.stages] == [
        "cancelled", "origin", "readable", "private", "private-header", "when",
    ]  # fmt: skip
    assert route.cluster == "east"
    assert route.file == Path("examples/flights.yaml")


def test_all_mistakes_at_once() -> None:
    """One reading names the mistakes of every part, each with its path, what was found and what was expected."""
    problems = mistakes(
        """
name: all wrong
sourc: {}
source: {format: nats, servers: "nats://127.0.0.1:4222", steam: S, maxRecordsPerTrigger: many}
value: {format: jsn}
transforms:
  - {name: t, type: Filtre}
mappings: {"foo..bar": "x"}
sink: {format: natz, servers: x}
errors: {tolerance: some}
trigger: {processingTime: soon}
"""
    )

    assert problems["name"].startswith("found 'all wrong', expected")
    assert 'did you mean "source"?' in problems["sourc"]
    assert 'did you mean "stream"?' in problems["source.steam"]
    assert problems["source.stream"] == "is required and missing"
    assert problems["source.maxRecordsPerTrigger"] == "found 'many', expected a whole number"
    assert problems["sink"] == (
        "format: found 'natz', expected one of nats, kafka, json, parquet, csv, avro, spark, delta, iceberg;"
        ' did you mean "nats"?'
    )
    assert problems["errors.tolerance"] == "found 'some', expected 'none' or 'all'"
    assert "expected an interval" in problems["trigger.processingTime"]
    assert any(path.startswith("value") for path in problems)
    assert any(path.startswith("transforms") for path in problems)
    assert any(path.startswith("mappings") for path in problems)


def test_a_mistake_names_its_line() -> None:
    """The line is that of the key in the file."""
    with pytest.raises(RouteError) as raised:
        Route.parse(SMALL + "errors:\n  tolerance: some\n", {})

    assert [(m.path, m.line) for m in raised.value.mistakes] == [("errors.tolerance", 6)]


@pytest.mark.parametrize(
    ("text", "path", "problem"),
    [
        ("", "", "found NoneType, expected a block of names and values"),
        ("- a", "", "found list, expected a block of names and values"),
        ("a: [", "", "not YAML"),
        (SMALL + "sinks: {}", "", "needs exactly one of sink and sinks"),
        (SMALL + "unmatched: pass", "unmatched", "has a meaning only with subscriptions"),
        (SMALL.replace("stream: S", "stream: S, pushDown: true"), "source", "pushDown needs subscriptions"),
        (
            SMALL.replace("stream: S", "stream: S, pushDown: true")
            + "subscriptions: {store: 'memory://x'}\nunmatched: pass",
            "source",
            "pushDown needs unmatched: drop, found pass",
        ),
        (SMALL + "trigger: {availableNow: true, latency: low}", "trigger", "availableNow excludes"),
        (
            SMALL + "subscriptions: {store: 'memory://x', metadata: {a: 'value.items[0].sku'}}",
            "subscriptions.metadata",
            "a field that is called so is written value.`items[0]`.sku",
        ),
        (
            SMALL + "subscriptions: {store: 'memory://x', metadata: {b: value.n, a: value.items.0.sku}}",
            "subscriptions.metadata",
            "a field that is called so is written value.items.`0`.sku",
        ),
        (
            SMALL + "subscriptions: {store: 'memory://x', metadata: {a: 'value.b:numbr'}}",
            "subscriptions.metadata",
            'did you mean "number"? A field that is called so is written in backticks: value.`b:numbr`',
        ),
        (
            SMALL + "subscriptions: {store: 'memory://x', metadata: {'*': 'value.*:number'}}",
            "subscriptions.metadata",
            "a prefix has no kind: keys below it end with one",
        ),
        (
            SMALL + "subscriptions: {store: 'memory://x', metadata: {'a:text': value.b}}",
            "subscriptions.metadata",
            "conditions put the kind behind a name, and list it as a",
        ),
        (
            SMALL + "subscriptions: {store: 'memory://x', metadata: {a: valu.b}}",
            "subscriptions.metadata",
            "a: valu.b",
        ),
    ],
)
def test_what_does_not_fit_together(text: str, path: str, problem: str) -> None:
    """Parts that exclude or need each other are mistakes too."""
    problems = mistakes(text)

    assert problem in problems[path]


def test_variables() -> None:
    """``${NAME}`` comes from the environment, ``:-`` gives a default, and one that is not set is a mistake."""
    text = SMALL.replace("nats://127.0.0.1:4222", "${URL}").replace("stream: S", "stream: '${STREAM:-S}'")

    route = Route.parse(text, {"URL": "nats://127.0.0.1:9"})

    assert route.source.options()["servers"] == "nats://127.0.0.1:9"
    assert route.source.options()["stream"] == "S"
    assert "the variable URL is not set" in mistakes(text)["source.servers"]


def test_a_secret_is_not_repeated() -> None:
    """A wrong value in a secret's place is not shown."""
    problems = mistakes(SMALL.replace("stream: S", "stream: S, password: [hunter2]"))

    assert "hunter2" not in problems["source.password"]


def test_a_connector_file(tmp_path: Path) -> None:
    """``transforms`` may name a Kafka Connect connector's file; both of its formats mean the same."""
    (tmp_path / "connector.json").write_text(
        '{"name": "c", "config": {"transforms": "d", "transforms.d.type": "DropHeaders", "transforms.d.headers": "a"}}'
    )
    (tmp_path / "connector.properties").write_text(
        "# a comment\ntransforms = d\ntransforms.d.type=DropHeaders\ntransforms.d.headers: \\\n  a\n"
    )
    chains = []
    for name in ("connector.json", "connector.properties"):
        (tmp_path / "route.yaml").write_text(SMALL + f"transforms: {name}\n")
        chains.append(Route.load(tmp_path / "route.yaml", {}).chain)

    assert chains[0] == chains[1]
    assert [stage.name for stage in chains[0].stages] == ["d"]


def test_a_nats_server_configuration(tmp_path: Path) -> None:
    """``mappings`` may name a nats-server configuration file."""
    (tmp_path / "server.conf").write_text(
        'port: 4222\nmappings: { foo: "bar", "a.*": [{dest: "b.$1", weight: 100%}] }\n'
    )
    (tmp_path / "route.yaml").write_text(SMALL + "mappings: server.conf\n")

    route = Route.load(tmp_path / "route.yaml", {})

    assert route.mappings.apply("foo") == "bar"
    assert route.mappings.apply("a.1") == "b.1"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A file that a part names and that is missing is a mistake of that part."""
    (tmp_path / "route.yaml").write_text(SMALL + "mappings: nowhere.conf\n")

    with pytest.raises(RouteError, match=r"mappings: .*nowhere\.conf: No such file"):
        Route.load(tmp_path / "route.yaml", {})


def test_a_mistake_in_mappings_names_its_line() -> None:
    """That of the source, or of the destination among several."""
    with pytest.raises(RouteError) as raised:
        Route.parse(
            SMALL + 'mappings:\n  "a.*": b\n  "c..d": x\n  "e.*":\n'
            '    - {destination: f, weight: 50%}\n    - {destination: "g.$9", weight: 50%}\n',
            {},
        )

    assert [mistake.line for mistake in raised.value.mistakes] == [7, 10]


def test_every_problem_is_one_line() -> None:
    """This includes problems of parsers with longer messages."""
    problems = mistakes(SMALL + "transforms: [{type: Filter, predicate: {when: '[[['}}]")

    assert all("\n" not in problem for problem in problems.values())
    assert "neither JSON nor YAML" in problems["transforms[0].predicate.when"]


def test_numbers_out_of_range() -> None:
    """The error has the value found and the value expected."""
    problems = mistakes(SMALL.replace("stream: S", "stream: S, timeout: -1"))

    assert problems["source.timeout"] == "found -1, expected greater than 0"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("format: nats, stream: [A, B]", None),
        ("format: nats, stream: ['A:1', B]", "feeds need names of streams without : and , and found 'A:1'"),
        ("format: kafka, topics: [a, b]", None),
        ("format: kafka, topicPattern: a.*", "feeds need a source of format nats, or of format kafka with topics"),
        (f"format: kafka, topics: {'a' * 181}", "feeds need topics of at most 180 characters, found one of 181"),
        ("format: kafka, topics: orders", None),
    ],
)
def test_sources_that_have_feeds(source: str, problem: str | None) -> None:
    """Streams or topics that are named, as their names are in cursors and in the names of files."""
    servers = "127.0.0.1:9092" if "kafka" in source else "nats://127.0.0.1:4222"
    text = f"""
name: fed
source: {{{source}, servers: "{servers}"}}
subscriptions: {{store: "memory://", feeds: true}}
sink: {{format: nats, servers: "nats://127.0.0.1:4222"}}
"""
    if problem is None:
        assert Route.parse(text, {}).subscriptions is not None
        return
    assert problem in mistakes(text)["subscriptions.feeds"]
