"""Our transforms beside Kafka's own compiled classes, over drawn configurations and records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transforms.drawn import CONFIGS, batches, stages
from tests.transforms.kafka.test_headers import LITERALS
from tests.transforms.kafka_host import KafkaHost, Thrown
from tests.transforms.test_options import VALUES
from tests.vectors.connect import same, same_outcome, same_schema, schema_of, value_of

from turnout.errors import ConfigError
from turnout.records import Failure, Record, Schema
from turnout.transforms import Chain
from turnout.transforms.java.regex import JavaRegex
from turnout.transforms.java.regex_characters import JavaRegexError
from turnout.transforms.java.values import trim
from turnout.transforms.kafka.headers import Literal, parse_literal
from turnout.transforms.options import KINDS, Option, OptionError

pytestmark = pytest.mark.kafka
EXAMPLES = settings().max_examples
PATIENT = settings(
    max_examples=EXAMPLES // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    deadline=None,
)
"""Half of the profile's examples: each draws up to five records, which takes most of the time."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaHost]:
    """Kafka's classes in a JVM of their own."""
    with KafkaHost() as host:
        yield host


def ours(staged: list[dict[str, Any]], records: list[Record]) -> ConfigError | list[Record | Failure | None]:
    config: dict[str, str] = {"transforms": ",".join(f"t{n}" for n in range(len(staged)))}
    guarded = [n for n, stage in enumerate(staged) if stage["predicate"] is not None]
    if guarded:
        config["predicates"] = ",".join(f"p{n}" for n in guarded)
    for n, stage in enumerate(staged):
        config |= {f"transforms.t{n}.{name}": value for name, value in stage["transform"].items()}
        if n in guarded:
            config |= {f"predicates.p{n}.{name}": value for name, value in stage["predicate"].items()}
            config |= {f"transforms.t{n}.predicate": f"p{n}", f"transforms.t{n}.negate": str(stage["negate"]).lower()}
    try:
        return Chain.from_config(config, strict=True).apply(records)
    except ConfigError as error:
        return error


def compare(kafka: KafkaHost, staged: list[dict[str, Any]], records: list[Record]) -> None:
    negating = [{**stage, "negate": stage["negate"] and stage["predicate"] is not None} for stage in staged]
    theirs, own = kafka.run(negating, records), ours(negating, records)

    if isinstance(theirs, Thrown) or isinstance(own, ConfigError):
        assert isinstance(theirs, Thrown) == isinstance(own, ConfigError), (theirs, own)
        return
    for record, actual, ours_ in zip(records, theirs, own, strict=True):
        if isinstance(actual, Thrown):
            assert isinstance(ours_, Failure), (record, actual, ours_)
        else:
            assert same_outcome(actual, ours_), (record, actual, ours_)


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_transform_gives_what_kafkas_gives(kafka: KafkaHost, name: str) -> None:
    """Topic, key, value, headers and schemas of each record are those of Kafka's class; what fails there fails here."""

    @PATIENT
    @given(stages(CONFIGS[name]), batches())
    def check(stage: dict[str, Any], records: list[Record]) -> None:
        compare(kafka, [stage], records)

    check()


@PATIENT
@given(st.lists(stages(st.one_of(*CONFIGS.values())), min_size=2, max_size=4), batches())
def test_chains_give_what_kafkas_give(kafka: KafkaHost, staged: list[dict[str, Any]], records: list[Record]) -> None:
    """Several stages, each with or without a predicate, one after the other."""
    compare(kafka, staged, records)


PIECES = st.sampled_from(
    [
        *(
            "a",
            "b",
            "A",
            "1",
            "é",
            ".",
            "\\.",
            "\\w",
            "\\D",
            "\\s",
            "[ab]",
            "[^a]",
            "[a-c&&[^b]]",
            "[[a]1]",
            "[\\d\\-]",
        ),
        *(
            "\\p{Lower}",
            "\\p{IsAlphabetic}",
            "[^\\W]",
            "(a)",
            "(?:b|ab)",
            "(?<n>b)",
            "(?i:a)",
            "(?=a)",
            "(?!b)",
            "(?>a|ab)",
        ),
        *("^", "$", "\\z", "\\Z", "|", "\\Qa.\\E", "(?s)", "(?m)", "(?d)", "(?i)", "(?x) ", "\\1", "\\R", "\\h"),
    ]
)
QUANTIFIERS = st.sampled_from(["", "", "", "*", "+", "?", "*?", "++", "?+", "{2}", "{1,2}", "{0,}+", "{1,3}?"])
PATTERNS = st.lists(st.tuples(PIECES, QUANTIFIERS).map("".join), max_size=6).map("".join)
TEXTS = st.lists(st.text("abAB1é. \n\r\u2028-", max_size=6), min_size=1, max_size=8)


@settings(PATIENT, max_examples=EXAMPLES)
@given(PATTERNS, TEXTS)
def test_patterns_match_what_javas_match(kafka: KafkaHost, pattern: str, texts: list[str]) -> None:
    """Whole matches, first finds and their groups equal those of java.util.regex."""
    theirs = kafka.match(pattern, texts)
    try:
        compiled = JavaRegex.of(pattern)
    except JavaRegexError:
        compiled = None
    if compiled is None or isinstance(theirs, Thrown):
        assert (compiled is None) == isinstance(theirs, Thrown), theirs
        return

    for text, (whole, *parts) in zip(texts, theirs, strict=True):
        assert (text, compiled.matches(text)) == (text, whole)
        first = compiled._compiled.search(text)
        assert (text, [None] if first is None else [first[0], *first.groups()]) == (text, parts)


def test_recorded_literals_are_what_kafkas_class_gives(kafka: KafkaHost) -> None:
    """The file that `test_literal` reads is what the installed class says."""
    for case, theirs in zip(LITERALS, kafka.literals([case["text"] for case in LITERALS]), strict=True):
        schema = schema_of(case["schema"])
        assert not isinstance(theirs, Thrown), (case, theirs)
        assert same_schema(schema, theirs[0]), (case, theirs)
        assert same(schema, value_of(schema, case["value"]), theirs[1]), (case, theirs)


def test_recorded_options_are_what_kafkas_class_gives(kafka: KafkaHost) -> None:
    """The file that `test_options` reads is what the installed class says."""
    for kind in {case["kind"] for case in VALUES}:
        cases = [case for case in VALUES if case["kind"] == kind]
        for case, theirs in zip(cases, kafka.option(kind, [case["text"] for case in cases]), strict=True):
            assert isinstance(theirs, Thrown) == case.get("refused", False), (case, theirs)
            assert isinstance(theirs, Thrown) or theirs == case["value"], case


def _nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    items = st.lists(inner, max_size=3).map(",".join)
    entries = st.lists(st.tuples(inner, inner).map(":".join), max_size=3).map(", ".join)
    return items.map("[{}]".format) | entries.map("{{{}}}".format)


ATOMS = st.sampled_from([case["text"] for case in LITERALS if len(case["text"]) < 30])
WHOLE = st.recursive(ATOMS, _nested, max_leaves=8)
LITERAL_TEXTS = st.one_of(WHOLE, st.lists(ATOMS, max_size=4).map("".join), st.text('[]{}:,"\\ a1.-e', max_size=12))


@settings(PATIENT, max_examples=EXAMPLES)
@given(st.lists(LITERAL_TEXTS.map(trim), min_size=1, max_size=20))
def test_literals_are_what_kafka_makes_of_them(kafka: KafkaHost, texts: list[str]) -> None:
    """Schema and value of any text, but for the maps that Python's dict cannot hold, which are text here."""
    for text, theirs in zip(texts, kafka.literals(texts), strict=True):
        literal = parse_literal(text)
        if literal == Literal(Schema("string"), text):
            # A map with keys that Python has no dict for is a text here.
            assert isinstance(theirs, Thrown) or theirs[1] == text or "{" in text, (text, theirs)
            continue
        assert not isinstance(theirs, Thrown), (text, theirs)
        assert same_schema(theirs[0], literal.schema), (text, theirs, literal)
        assert same(theirs[0], theirs[1], literal.value), (text, theirs, literal)


OPTION_TEXTS = st.text("0123456789+-,truefalsTRUE \t\x00\x1f\x85\u00a0\u2003\uff11", max_size=12)


@settings(PATIENT, max_examples=EXAMPLES)
@given(
    st.sampled_from(["BOOLEAN", "SHORT", "INT", "LONG", "STRING", "LIST"]),
    st.lists(
        st.text("0123456789+-,truefalsTRUE \t\x00\x1f\x85\u00a0\u2003\uff11", max_size=12), min_size=1, max_size=20
    ),
)
def test_options_are_what_kafka_makes_of_them(kafka: KafkaHost, kind: str, texts: list[str]) -> None:
    """Every text is the same value, or refused by both."""
    option = Option("o", KINDS[kind], "An option.")
    for text, theirs in zip(texts, kafka.option(kind, texts), strict=True):
        try:
            value = option.parse(text)
        except OptionError:
            assert isinstance(theirs, Thrown), (text, theirs)
        else:
            assert theirs == (list(value) if isinstance(value, tuple) else value), text
