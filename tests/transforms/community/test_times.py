"""ExtractTimestamp, TimestampNow, TimestampNowField; Jeremy Custenborder's classes are the vectors' oracle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.transforms.community_host import CONFIGS, JeremysHost, made_vectors
from tests.transforms.debezium_host import read_vectors

from turnout.records import Failure, Field, Moment, Record, Schema
from turnout.records.schema import TIMESTAMP
from turnout.transforms import Chain
from turnout.transforms.community import times

NOW = 1_577_836_800_000


@pytest.fixture(scope="module")
def jeremys() -> Iterator[JeremysHost]:
    """The classes in a JVM of their own."""
    with JeremysHost() as host:
        yield host


@pytest.mark.kafka
@pytest.mark.parametrize("name", CONFIGS)
def test_the_vectors_are_the_classes_answers(jeremys: JeremysHost, name: str) -> None:
    """Topics, timestamps, headers, and what fails."""
    assert made_vectors(jeremys, name) == read_vectors(name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "now", lambda: NOW)


def applied(record: Record, **stage: object) -> Record:
    outcome = Chain.from_route([stage]).apply(record)
    assert outcome is not None
    return outcome


@pytest.mark.usefixtures("clock")
def test_the_time_of_the_record_is_that_of_its_processing() -> None:
    """TimestampNow leaves everything else."""
    record = Record("t", {"a": 1}, key="k", timestamp=5)

    assert applied(record, type="TimestampNow").timestamp == NOW


@pytest.mark.usefixtures("clock")
def test_fields_get_the_time() -> None:
    """As a date object or in seconds; a field that is there keeps its place, and its schema if that fits."""
    optional = Schema("int64", optional=True, name=TIMESTAMP, version=1)
    schema = Schema("struct", optional=True, fields=(Field("at", optional), Field("n", Schema("string"))))
    record = Record("t", {"at": None, "n": "x"}, value_schema=schema)

    made = applied(record, type="TimestampNowField$Value", fields="at,seen,n")

    assert made.value == {"at": Moment(NOW), "seen": Moment(NOW), "n": Moment(NOW)}
    assert made.value_schema is not None
    assert made.value_schema.optional
    assert [(field.name, field.schema.optional) for field in made.value_schema.fields] == [
        ("at", True),
        ("seen", False),
        ("n", False),
    ]


@pytest.mark.usefixtures("clock")
def test_units_are_added() -> None:
    """As often as the amount says, where the class adds one."""
    stage = {"type": "TimestampNowField$Value", "fields": "a", "target.type": "Unix", "add.amount": 2}

    assert applied(Record("t", {}), **stage, **{"add.chronounit": "HOURS"}).value == {"a": NOW // 1000 + 7200}


def test_a_timestamp_may_be_inside_and_in_seconds() -> None:
    """As Aiven's class has it; a field with that name comes first."""
    stage = {"type": "io.aiven.kafka.connect.transforms.ExtractTimestamp$Value", "field.name": "a.b"}
    chain = Chain.from_route([{**stage, "timestamp.resolution": "seconds"}])
    inner = Schema("struct", optional=True, fields=(Field("b", Schema("int64")),))
    typed = Schema("struct", fields=(Field("a", inner),))
    records = [
        Record("t", {"a": {"b": 5}}),
        Record("t", {"a.b": 6, "a": {"b": 5}}),
        Record("t", {"a": {"b": 7}}, value_schema=typed),
        Record("t", {"a": None}, value_schema=typed),
        Record("t", {"a": {"b": Moment(8)}}),
    ]

    made = chain.apply(records)

    assert [one.timestamp for one in made if isinstance(one, Record)] == [5000, 6000, 7000, 8]
    assert isinstance(made[3], Failure)
