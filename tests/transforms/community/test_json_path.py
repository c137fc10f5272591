"""ConfluentFilter: paths as Jayway's JsonPath evaluates them, and records in batches."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from tests.transforms.community_host import PATHS, JaywayHost, made_paths

from turnout.errors import RecordError
from turnout.records import Record
from turnout.transforms import Chain
from turnout.transforms.community.json_path import JsonPath, PathMissingError

CASES: list[list[Any]] = json.loads(PATHS.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("path", "document", "answer"), CASES)
def test_a_path_leads_to_what_jayway_finds(path: str, document: str, answer: Any) -> None:
    """A null that a condition is applied to counts as missing, for which Confluent has an option."""
    parsed = JsonPath.parse(path)
    try:
        found = parsed.found(json.loads(document))
    except PathMissingError:
        assert answer in ("missing", "error")
    except RecordError:
        assert answer == "error"
    else:
        assert (found[0] if parsed.is_definite else found) == answer[0]


@pytest.mark.kafka
def test_the_recorded_answers_are_jayways() -> None:
    """The file that is read above is what the library says."""
    with JaywayHost() as host:
        assert made_paths(host) == CASES


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("$..a", "any depth"),
        ("$.a[?(@.b == $.c)]", "root is not seen"),
        ("$.a.min()", "functions such as min"),
        ("$.a[?(@.b =~ /(/)]", "no regular expression"),
        ("$.a[1:2:3]", "indexes"),
        ("$.a[?(" + "(" * 40 + "@.b" + ")" * 40 + ")]", "nest deeper"),
        ("$.a b", "a step"),
        ("$.a[?(@.b = 1)]", "expected .\\). at offset 9"),
    ],
)
def test_what_is_not_read_is_named(path: str, problem: str) -> None:
    """The message says what was expected where, or what is not supported."""
    with pytest.raises(ValueError, match=problem):
        JsonPath.parse(path)


def test_records_of_a_batch_are_kept_each_by_itself() -> None:
    """Types and shapes may differ; the chain can be sent to a worker."""
    stage = {"type": "ConfluentFilter$Value", "filter.condition": "$.a[?(@ > 1)]", "filter.type": "include"}
    chain = Chain.from_route([{**stage, "missing.or.null.behavior": "exclude"}])
    records = [Record("t", value) for value in ({"a": [1, 2]}, {"a": [1]}, {"b": 1}, None, {"a": [3], "c": 1})]

    outcomes = pickle.loads(pickle.dumps(chain)).apply(records)

    assert [None if one is None else one.value for one in outcomes] == [
        {"a": [1, 2]},
        None,
        None,
        None,
        {"a": [3], "c": 1},
    ]
