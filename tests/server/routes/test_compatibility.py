"""Effect of a route's changes on its checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml

from tests.runtime.test_offsets import checkpoint
from turnout.errors import ConfigError
from turnout.routes import Route
from turnout.runtime.offsets import committed
from turnout.server.errors import ConflictError
from turnout.server.routes.compatibility import begun_at, checked_start, compatibility, is_safe, set_aside

Document: TypeAlias = dict[str, Any]

NATS: Document = {
    "name": "r",
    "source": {"format": "nats", "servers": ["nats://u:p@a:4222", "nats://b:4222"], "stream": ["A", "B"]},
    "sink": {"format": "nats", "servers": "nats://a:4222"},
}
KAFKA: Document = {**NATS, "source": {"format": "kafka", "servers": "k:9092", "topics": ["x", "y"]}}
FILES: Document = {**NATS, "source": {"format": "json", "path": "in", "stream": True}}


def route(document: Document, file: Path | None = None, **changes: Any) -> Route:
    """A route, with changes of its source as ``source_key`` and of itself by their keys."""
    source = dict(document["source"])
    whole: Document = {**document, "source": source}
    for name, value in changes.items():
        if name.startswith("source_"):
            source[name.removeprefix("source_")] = value
        else:
            whole[name] = value
    return Route.parse(yaml.safe_dump(whole), {}, file=file)


SAFE: list[tuple[Document, Document, str]] = [
    (NATS, {"source_servers": "nats://b:4222"}, "source.servers"),
    (NATS, {"source_stream": ["A", "B", "C"]}, "source.stream"),
    (NATS, {"source_stream": "A, B,C"}, "source.stream"),
    (NATS, {"source_filterSubject": "a.>"}, "source.filterSubject"),
    (NATS, {"source_maxRecordsPerTrigger": 5}, "source.maxRecordsPerTrigger"),
    (NATS, {"source_start": "latest"}, "source.start"),
    (NATS, {"source_password": "x", "source_user": "y"}, "source.user"),
    (NATS, {"value": {"format": "json"}}, "value"),
    (NATS, {"key": {"format": "string"}}, "key"),
    (NATS, {"mappings": {"a": "b"}}, "mappings"),
    (NATS, {"transforms": [{"name": "t", "type": "InsertHeader", "header": "h", "value.literal": "v"}]}, "transforms"),
    (NATS, {"errors": {"tolerance": "all"}}, "transforms"),
    (NATS, {"cluster": "west"}, "cluster"),
    (NATS, {"tables": {"t": {"format": "csv", "path": "t.csv", "key": "id"}}}, "tables"),
    (NATS, {"subscriptions": {"store": "memory://a"}}, "subscriptions"),
    (NATS, {"deadLetter": {"topic": "dead"}}, "deadLetter"),
    (NATS, {"trigger": {"processingTime": "1 second"}}, "trigger"),
    (NATS, {"spark": {"spark.sql.shuffle.partitions": "3"}}, "spark"),
    (NATS, {"sink": {"format": "json", "path": "out"}}, "sink"),
    (KAFKA, {"source_maxRecordsPerTrigger": 5}, "source.maxRecordsPerTrigger"),
    (FILES, {"source_maxFilesPerTrigger": 5}, "source.maxFilesPerTrigger"),
]
UNSAFE: list[tuple[Document, Document, str]] = [
    (NATS, {"name": "other"}, "name"),
    (NATS, {"checkpoint": "elsewhere"}, "checkpoint"),
    (NATS, {"source_servers": "nats://c:4222"}, "source.servers"),
    (NATS, {"source_stream": "A"}, "source.stream"),
    (NATS, {"source_stream": ["A", "C"]}, "source.stream"),
    (NATS, {"source_domain": "hub"}, "source.apiPrefix"),
    (NATS, {"source": KAFKA["source"]}, "source.format"),
    (KAFKA, {"source_topics": ["x"]}, "source.topics"),
    (KAFKA, {"source_topics": ["x", "y", "z"]}, "source.topics"),
    (KAFKA, {"source_servers": "l:9092"}, "source.servers"),
    (FILES, {"source_path": "other"}, "source.path"),
    (FILES, {"source_format": "csv"}, "source.format"),
    (FILES, {"source_stream": False}, "source.stream"),
]


@pytest.mark.parametrize(("document", "changes", "place"), SAFE, ids=[f"{case[2]}-{n}" for n, case in enumerate(SAFE)])
def test_what_leaves_places_alone_is_safe(document: Document, changes: Document, place: str) -> None:
    """Work on records has no state, and options of a source do not change what its places mean."""
    differences = compatibility(route(document), route(document, **changes))

    assert is_safe(differences)
    assert place in [change.change for change in differences]
    assert all(change.reason for change in differences)


@pytest.mark.parametrize(
    ("document", "changes", "place"), UNSAFE, ids=[f"{case[2]}-{n}" for n, case in enumerate(UNSAFE)]
)
def test_what_places_mean_nothing_to_needs_a_new_checkpoint(document: Document, changes: Document, place: str) -> None:
    """Another source, another stream, another cluster: the change is named, with the reason."""
    differences = compatibility(route(document), route(document, **changes))

    assert [change.change for change in differences if not change.safe] == [place]
    assert all(change.reason for change in differences)


@pytest.mark.parametrize("document", [NATS, KAFKA, FILES])
def test_routes_that_say_the_same_differ_in_nothing(document: Document) -> None:
    """The order of topics is nothing either."""
    assert compatibility(route(document), route(document)) == []
    assert compatibility(route(KAFKA), route(KAFKA, source_topics="y, x")) == []


def test_credentials_in_an_address_are_not_the_address(tmp_path: Path) -> None:
    """Another password is another way in, and no other cluster; it is not repeated."""
    differences = compatibility(route(NATS), route(NATS, source_servers=["nats://u:secret@a:4222", "nats://b:4222"]))

    assert is_safe(differences)
    assert "secret" not in repr(differences)


def test_a_file_in_another_folder_has_another_checkpoint(tmp_path: Path) -> None:
    """The checkpoint is beside the file, unless the route sets it."""
    old, new = route(NATS, tmp_path / "a" / "r.yaml"), route(NATS, tmp_path / "b" / "r.yaml")

    assert [change.change for change in compatibility(old, new)] == ["checkpoint"]
    assert compatibility(old, route(NATS, tmp_path / "a" / "renamed.yaml")) == []


SECRET: Document = {
    **NATS,
    "deadLetter": {"topic": "dead", "secret": "s" * 16},
    "subscriptions": {"store": "mongodb://u:p@db/x"},
    "spark": {"spark.acme.password": "p"},
    "transforms": [{"name": "t", "type": "InsertHeader", "header": "h", "value.literal": "http://u:p@a"}],
    "mappings": {"a.*": "b.{{wildcard(1)}}"},
    "value": {"format": "avro", "registry": {"url": "http://r:1", "auth": {"user": "u", "password": "p"}}},
    "sink": {"format": "kafka", "servers": "k:1", "options": {"kafka.ssl.key.password": "p"}},
}
GUESSES: list[Document] = [
    {"source_servers": ["nats://u:guess@a:4222", "nats://b:4222"]},
    {"deadLetter": {"topic": "dead", "secret": "g" * 16}},
    {"subscriptions": {"store": "mongodb://u:guess@db/x"}},
    {"spark": {"spark.acme.password": "guess"}},
    {"transforms": [{"name": "t", "type": "InsertHeader", "header": "h", "value.literal": "http://u:guess@a"}]},
    {"value": {"format": "avro", "registry": {"url": "http://r:1", "auth": {"user": "u", "password": "guess"}}}},
    {"sink": {"format": "kafka", "servers": "k:1", "options": {"kafka.ssl.key.password": "guess"}}},
]


@pytest.mark.parametrize("guess", GUESSES)
def test_masked_secrets_are_not_compared(guess: Document) -> None:
    """A difference in a secret alone is not shown to a caller without permission."""
    assert compatibility(route(SECRET), route(SECRET, **guess)) != []
    assert compatibility(route(SECRET), route(SECRET, **guess), masked=True) == []


@pytest.mark.parametrize(("document", "changes", "place"), [*SAFE, *UNSAFE])
def test_other_differences_are_seen_beside_masked_secrets(document: Document, changes: Document, place: str) -> None:
    """Other values are compared as before, and so is the presence of a secret."""
    seen, masked = (
        compatibility(route(document), route(document, **changes), masked=hidden) for hidden in (False, True)
    )

    assert masked == seen
    assert place in [change.change for change in masked]


def test_subjects_are_compared_beside_masked_secrets() -> None:
    """The tokens of a subject are no secrets."""
    changes = compatibility(route(SECRET), route(SECRET, mappings={"c.*": "b.{{wildcard(1)}}"}), masked=True)

    assert [change.change for change in changes] == ["mappings"]


JSON: Document = {**NATS, "key": {"format": "json"}, "value": {"format": "json"}}
MASK: Document = {"name": "m", "type": "MaskField$Value", "fields": "card"}
DEEP: Document = {**MASK, "fields": "payment.card", "field.syntax.version": "V2"}
ONLY_EU: Document = {**MASK, "predicate": {"type": "HasHeaderKey", "name": "EU"}}
RENAME: Document = {"name": "r", "type": "ReplaceField$Value", "renames": "card:pan"}
EXCLUDE: Document = {"name": "x", "type": "ReplaceField$Value", "exclude": "card"}
INCLUDE: Document = {"name": "i", "type": "ReplaceField$Value", "include": "n"}
DROPPED: Document = {"name": "d", "type": "DropHeaders", "headers": "Token"}
UNCOVERING: list[tuple[list[Document], list[Document], str]] = [
    ([MASK], [], "value.card was masked"),
    ([MASK], [{**MASK, "fields": "crad"}], "value.card was masked"),
    ([MASK], [ONLY_EU], "value.card was masked"),
    ([ONLY_EU], [{**ONLY_EU, "negate": True}], "value.card was masked"),
    ([MASK], [RENAME, MASK], "value.card was masked"),
    ([RENAME, {**MASK, "fields": "pan"}], [RENAME], "value.card was masked"),
    ([DEEP], [{**DEEP, "field.syntax.version": "V1"}], "value.payment.card was masked"),
    ([{**MASK, "type": "MaskField$Key"}], [MASK], "key.card was masked"),
    ([EXCLUDE], [], "value.card was removed"),
    ([INCLUDE], [{**INCLUDE, "include": "n,card"}], "value.card was removed"),
    ([INCLUDE], [], "value.(any other field) was removed"),
    ([DROPPED], [], "header Token was removed"),
]
COVERING: list[tuple[list[Document], list[Document]]] = [
    ([MASK], [{**MASK, "replacement": "-"}]),
    ([MASK], [{**MASK, "name": "other", "fields": "card,name"}]),
    ([MASK], [EXCLUDE]),
    ([MASK], [{**MASK, "fields": "pan"}, INCLUDE]),
    ([MASK], [RENAME, {**MASK, "fields": "pan"}]),
    ([ONLY_EU], [MASK]),
    ([], [RENAME]),
    ([RENAME], []),
]


@pytest.mark.parametrize(("before", "after", "reason"), UNCOVERING)
def test_a_change_that_uncovers_content_is_first(before: list[Document], after: list[Document], reason: str) -> None:
    """Whatever way the mask was undone; the checkpoint stays valid all the same."""
    first, *others = compatibility(
        route(JSON, transforms=before), route(JSON, transforms=after, source_servers="nats://b:4222")
    )

    assert first.uncovers
    assert first.reason == f"{reason} and may be delivered as it is"
    assert is_safe([first, *others])
    assert "source.servers" in [change.change for change in others]


@pytest.mark.parametrize(("before", "after"), COVERING)
def test_a_change_that_uncovers_nothing(before: list[Document], after: list[Document]) -> None:
    """Content that stays covered, is covered in another way, or never was."""
    changes = compatibility(route(JSON, transforms=before), route(JSON, transforms=after))

    assert [change for change in changes if change.uncovers] == []


NATS_AS_TEXT: dict[str, Any] = {**NATS, "source": {**NATS["source"], "stream": "A, B"}}


@pytest.mark.parametrize(
    ("document", "start", "checked"),
    [
        (NATS, "earliest", "earliest"),
        (NATS, 17, 17),
        (NATS, {"A": 1, "B": 2}, {"A": 1, "B": 2}),
        (NATS_AS_TEXT, {"A": 1, "B": 2}, {"A": 1, "B": 2}),
        (NATS, "2026-01-31T12:00:00", "2026-01-31T12:00:00+00:00"),
        (KAFKA, {"x": {"0": 5}}, {"x": {"0": 5}}),
        (KAFKA, "2026-01-31T12:00:00Z", "2026-01-31T12:00:00+00:00"),
        (FILES, "earliest", "earliest"),
    ],
)
def test_places_of_each_source_are_taken(document: dict[str, Any], start: Any, checked: Any) -> None:
    """A time without a zone is UTC."""
    assert checked_start(route(document), start) == checked


@pytest.mark.parametrize(
    ("document", "start", "kind"),
    [
        (NATS, "tomorrow", ConfigError),
        (NATS, 0, ConfigError),
        (NATS, {"A": 1}, ConfigError),
        (NATS, {"A": 1, "B": 2, "C": 3}, ConfigError),
        (NATS, {"A": 1, "B": "two"}, ConfigError),
        (FILES, "latest", ConfigError),
        ({**FILES, "source": {"format": "json", "path": "in"}}, "earliest", ConflictError),
        ({**NATS, "source": {"format": "nats", "servers": "a", "stream": "A", "ackConsumer": "c"}}, 5, ConflictError),
    ],
)
def test_what_is_no_place_of_the_source_is_refused(document: dict[str, Any], start: Any, kind: type[Exception]) -> None:
    """Before anything is set aside."""
    with pytest.raises(kind):
        checked_start(route(document), start)


def test_a_route_begins_where_it_is_told(tmp_path: Path) -> None:
    """A position by name, or a time; without one the route's setting applies."""
    assert begun_at(route(NATS), {"A": 5, "B": 6}).source.options()["startingOffsets"] == '{"A": 5, "B": 6}'
    assert begun_at(route(KAFKA), "1970-01-01T00:00:02+00:00").source.start == "1970-01-01T00:00:02+00:00"  # type: ignore[attr-defined]
    assert begun_at(route(NATS), None) == route(NATS)


def test_checkpoints_are_set_aside_one_after_another(tmp_path: Path) -> None:
    """None is lost, and where none is there is nothing to do."""
    assert set_aside(tmp_path / "c") is None
    for number in (1, 2):
        checkpoint(tmp_path / "c", f'{{"A": {number}}}')
        assert set_aside(tmp_path / "c") == tmp_path / f"c.{number}"

    assert not (tmp_path / "c").exists()
    assert [committed(tmp_path / f"c.{number}").next for number in (1, 2)] == [{"A": 1}, {"A": 2}]
