"""Subject filters against the engine itself: whatever a route delivers, a filter has let through."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.batches import batch
from turnout.conditions import Condition, Group, Kiwi, Logic
from turnout.engine import Program
from turnout.engine.subject_filters import SubjectFilters
from turnout.routes import Route
from turnout.subjects import matches
from turnout.subjects.pattern import collide, is_subset
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.index import Index

ROUTE: dict[str, Any] = {
    "name": "r",
    "source": {"format": "nats", "servers": "nats://127.0.0.1", "stream": "S"},
    "value": {"format": "raw"},
    "sink": {"format": "nats", "servers": "nats://127.0.0.1"},
    "errors": {"tolerance": "all"},
}
TOKENS = ("a", "b", "ab", "c")
tokens = st.sampled_from(TOKENS)
topics = st.lists(tokens, min_size=1, max_size=4).map(".".join)
filters = st.builds(
    lambda some, full: ".".join([*some, *([">"] if full or not some else [])]),
    st.lists(st.sampled_from((*TOKENS, "*", "*")), max_size=3),
    st.booleans(),
)
patterns = st.lists(
    st.sampled_from(("a", "b", "ab", "c", ".", ".", "*", "?", ".a.", "a.*", ".?", "x")), min_size=1, max_size=6
).map("".join)
# Near to what topics are, so that many of them match.
patterns = st.one_of(
    patterns, st.lists(st.sampled_from((*TOKENS, *TOKENS, "x", "*", "?", "a*")), min_size=1, max_size=3).map(".".join)
)
REGEXES = (
    *(r"a", r"b", r"\.", r".*", r".+", r"(a|ab)", r"(.*)", r"[ab]", r"[^a]", r"\w+", r"a?", r"(?:b|c)"),
    *(r"(?i)a", r"b{1,2}", r"a*?", r"^", r"$", r"\Qa\E"),
)
regexes = st.lists(st.sampled_from(REGEXES), min_size=1, max_size=5).map("".join)


@st.composite
def mappings(draw: st.DrawFn) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for source in draw(st.lists(filters, max_size=3, unique=True)):
        wild = source.split(".").count("*")
        parts = st.sampled_from(
            [*TOKENS, "x"]
            + [f"{{{{wildcard({n})}}}}" for n in range(1, wild + 1)]
            + [f"{{{{left({n},1)}}}}" for n in range(1, wild + 1)]
            + [f"{{{{partition(3,{n})}}}}" for n in range(1, wild + 1)]
        )
        chosen = draw(st.lists(st.lists(parts, min_size=1, max_size=3), min_size=1, max_size=2, unique_by=tuple))
        end = [">"] if source.endswith(">") else []
        weight = draw(st.sampled_from((50, 40)))
        table[source] = [{"destination": ".".join([*filter_, *end]), "weight": weight} for filter_ in chosen]
    return table


def _guarded(name: str, kind: dict[str, Any], predicate: dict[str, Any] | None, negate: bool) -> dict[str, Any]:
    guard = {} if predicate is None else {"predicate": predicate, "negate": negate}
    return {"name": name, **kind, **guard}


predicates = st.one_of(
    st.none(),
    regexes.map(lambda one: {"type": "TopicNameMatches", "pattern": one}),
    filters.map(lambda one: {"type": "SubjectMatches", "subject": one}),
    st.just({"type": "HasHeaderKey", "name": "H"}),
)
kinds = st.one_of(
    st.just({"type": "Filter"}),
    st.builds(
        lambda regex, to: {"type": "RegexRouter", "regex": regex, "replacement": to},
        regexes,
        st.sampled_from(("b", "a.$0", "c.b", "$0.a")),
    ),
    st.sampled_from(
        [
            {"type": "SubjectTransform", "source": "a.*", "destination": "b.{{wildcard(1)}}"},
            {"type": "SubjectTransform", "source": "*.*.>", "destination": "{{wildcard(2)}}.{{wildcard(1)}}.>"},
            {"type": "TimestampRouter", "topic.format": "${topic}.a"},
        ]
    ),
)
transforms = st.lists(st.tuples(kinds, predicates, st.booleans()), max_size=2).map(
    lambda some: [_guarded(f"t{at}", *one) for at, one in enumerate(some) if one[0]["type"] != "Filter" or one[1]]
)
keys = st.sampled_from(("topic", "subject", "line", "topic", "subject", "line", "topic", "other"))
leaves = st.builds(
    Kiwi, keys, patterns, negated=st.sampled_from((*[False] * 9, True)), partial=st.sampled_from((*[False] * 9, True))
)  # fmt: skip
conditions = st.recursive(
    leaves,
    lambda inner: st.builds(Group, st.sampled_from(Logic), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=4,
)


def _covered(topic: str, chosen: tuple[str, ...]) -> bool:
    return any(matches(filter_, topic) for filter_ in chosen)


@settings(
    max_examples=2 * settings().max_examples,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    deadline=None,
)
@given(
    transforms,
    mappings(),
    st.lists(conditions, min_size=1, max_size=3),
    st.lists(topics, min_size=8, max_size=24, unique=True),
    st.lists(filters, max_size=2, unique=True),
)
def test_nothing_that_is_delivered_is_left_unread(
    stages: list[dict[str, Any]],
    table: dict[str, Any],
    drawn_conditions: list[Condition],
    read: list[str],
    own: list[str],
) -> None:
    """The engine delivers no record of the source whose subject the filters pass by; filters are as a server wants
    them, and within the source's own."""
    own = [] if len(own) == 2 and collide(*own) else own
    file = {
        **ROUTE,
        "transforms": stages,
        "mappings": table,
        "subscriptions": {"store": "memory://", "metadata": {"line": "topic"}},
    }
    route = Route.parse(json.dumps(file), {})
    store = open_store("memory://")
    for condition in drawn_conditions:
        store.create(Subscription(["out"], condition))
    derived = SubjectFilters(route, own)

    chosen = derived.of(derived.asked(condition) for condition in drawn_conditions)

    if chosen is None:
        return
    assert all(any(is_subset(filter_, of) for of in own or [">"]) for filter_ in chosen)
    assert not any(collide(one, other) for at, one in enumerate(chosen) for other in chosen[:at])
    rows = [topic for topic in read if not own or _covered(topic, tuple(own)) for _ in range(6)]
    program, index = Program.of(route), Index.of(store)
    if rows:
        result = program.run(batch([{"topic": topic} for topic in rows], first=0), index)
        delivered = {rows[offset] for offset in result.messages.column("offset").to_pylist()}
        assert all(_covered(topic, chosen) for topic in delivered)
