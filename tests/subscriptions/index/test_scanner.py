"""Texts in values, at their beginning or end are found in one search, and the index says what the interpreter says."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.conditions import Kiwi, all_of, any_of, kiwi, not_, one_of
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Index, scan_one, scanner, secondary_keys
from turnout.subscriptions.index.arrays import ONE_OF

_texts = st.text(alphabet="abé\ud800", min_size=1, max_size=6).map(lambda text: text.encode("utf-8", "surrogatepass"))
_searched = st.one_of(st.tuples(st.sampled_from([b"~", b"^", b"$", b"="]), _texts).map(b"".join), st.just(b"="))
_TESTS: dict[str, Callable[[bytes, bytes], bool]] = {
    "~": bytes.__contains__,
    "^": bytes.startswith,
    "$": bytes.endswith,
    "=": bytes.__eq__,
}


@pytest.mark.parametrize("factor", [1, scanner._FACTOR])
@given(
    texts=st.lists(_searched, unique=True, max_size=20),
    values=st.lists(st.one_of(_texts, st.just(b"")), min_size=1, max_size=6),
    most_bytes=st.sampled_from([1, 8, 1 << 20]),
    most_candidates=st.sampled_from([1, 4, 1 << 20]),
    long_value=st.sampled_from([0, 1 << 13]),
    most_compared=st.sampled_from([0, 1 << 10]),
)
def test_finds_what_is_there(factor, texts, values, most_bytes, most_candidates, long_value, most_compared):
    """All texts of a value are found, each once, also where hashes are the same for many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "_FACTOR", factor)
        patch.setattr(scanner, "_known_powers", np.ones(1, np.uint64))
        patch.setattr(scanner, "_MOST_BYTES", most_bytes)
        patch.setattr(scanner, "_MAX_PAIRS", most_candidates)
        patch.setattr(scan_one, "_LONG_BYTES", long_value)
        patch.setattr(scan_one, "_MOST_COMPARED", most_compared)
        search = scanner.Scanner(texts, np.arange(7, 7 + len(texts), dtype=np.int32))
        owners, literals = search.find(values)
        count = len(values) + 1
        numbers = np.arange(7, 7 + count * len(texts), dtype=np.int32)
        grouped = scanner.Scanner(texts * count, numbers, np.repeat(np.arange(count), len(texts)))
        in_groups = grouped.find(values, np.arange(len(values)))
        one = scan_one.OneScan(grouped)
        texts_ = [value.decode("utf-8", "surrogatepass") for value in values]
        single = [sorted(one.find({text: [0]}).get(0, [])) for text in texts_]
        last = len(values)
        asked = {text: [last] for text in texts_}
        for number, text in enumerate(texts_):
            asked[text].append(number)
        together = one.find(asked)
    true = [
        (owner, 7 + number)
        for owner, value in enumerate(values)
        for number, text in enumerate(texts)
        if _TESTS[chr(text[0])](value, text[1:])
    ]

    assert true == list(zip(owners.tolist(), literals.tolist(), strict=True))
    of_values = [[literal for own, literal in true if own == owner] for owner in range(len(values))]
    assert single == of_values
    assert [(owner, literal + owner * len(texts)) for owner, literal in true] == list(
        zip(*(part.tolist() for part in in_groups), strict=True)
    )
    of_groups = [[number - group * len(texts) for number in sorted(together.get(group, []))] for group in range(count)]
    assert of_groups == [*of_values, sorted({literal for _, literal in true})]


@pytest.mark.parametrize(
    "value",
    [b"a" * 1_000_000, (b"a" * 40 + b"b" * 60) * 10_000, (b"aaa" + b"x" * 97) * 10_000],
    ids=["one letter", "long runs", "a run now and then"],
)
def test_memory_is_bounded_where_texts_repeat(value):
    """Five hundred texts of one letter are a billion candidates in a megabyte of it: they are not all held."""
    search = scanner.Scanner([b"~" + b"a" * size for size in range(1, 501)], np.arange(500, dtype=np.int32))
    tracemalloc.start()
    try:
        _, literals = search.find([value])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(literals) == sum(b"a" * size in value for size in range(1, 501))
    assert peak < 250e6


@pytest.mark.parametrize("value", [b"a" * 8_000_000, b"abcdefgh" * 1_000_000], ids=["one letter", "a text"])
def test_memory_is_bounded_for_a_long_value(value):
    """A value of eight megabytes is searched in pieces, and texts across two of them are found."""
    texts = [b"~aaaa", b"~hab", b"=" + value[:100], b"$" + value[-100:], b"^" + value[:100], b"~no"]
    search = scanner.Scanner(texts, np.arange(len(texts), dtype=np.int32))
    tracemalloc.start()
    try:
        _, literals = search.find([value])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    true = [number for number, text in enumerate(texts) if _TESTS[chr(text[0])](value, text[1:])]
    assert true == literals.tolist()
    assert peak < 250e6


_pieces = st.text(alphabet="abAİςσΣ😀-", min_size=1, max_size=5)
_patterns = st.tuples(
    st.sampled_from(["{}", "{}*", "*{}", "*{}*", "*{}*{}", "{}*{}*", "{}?*", "*{}?{}*"]), _pieces, _pieces
)
_leaves = st.builds(
    Kiwi, st.sampled_from("kl"), _patterns.map(lambda drawn: drawn[0].format(*drawn[1:])), ignore_case=st.booleans()
)
_conditions = st.recursive(
    _leaves,
    lambda inner: st.builds(
        lambda logic, children: logic(*children),
        st.sampled_from([all_of, any_of, one_of]),
        st.lists(st.one_of(inner, inner.map(not_)), min_size=1, max_size=4),
    ),
    max_leaves=8,
)
_values = st.lists(_pieces, max_size=3).map("".join)
_messages = st.fixed_dictionaries({}, optional={"k": _values, "l": _values})


@given(st.lists(_conditions, min_size=1, max_size=10), st.lists(_messages, min_size=1, max_size=6), st.booleans())
def test_is_the_interpreter(stored_conditions, given_messages, hot):
    """Texts anywhere in values, alone and in alternatives, match as the interpreter says, also as changes come."""
    subscriptions = subscriptions_of(stored_conditions)
    true = expected(subscriptions, given_messages)
    with pytest.MonkeyPatch.context() as patch:
        if hot:
            patch.setattr(secondary_keys, "HOT", 0)
            patch.setattr(secondary_keys, "_LEAST_SAVED", 0)
        index, matcher = Index.of(subscriptions, sample=given_messages[:2]), Matcher(subscriptions[1:])
        matcher.add(subscriptions[0])
        matcher.add(Subscription(["d"], stored_conditions[-1], id="gone"))
        matcher.stats()
        matcher.remove("gone")

    assert true == pairs(index, given_messages)
    assert true == sorted((row, id_) for row, ids in enumerate(matcher.match_many(given_messages).ids()) for id_ in ids)
    for row, message in enumerate(given_messages):
        found = sorted((row, match.subscription_id) for match in matcher.match(message))
        assert [pair for pair in true if pair[0] == row] == found


def test_nothing_is_left_to_verify():
    """Parts of one key are one fact and alternatives for it one set, whatever their operations."""
    either = any_of(kiwi("k", "*\\\\cmd.exe"), kiwi("k", "C:*"), kiwi("k", "*-e*"), kiwi("k", "x"))
    matcher = Matcher(
        [
            Subscription(["d"], either, id="either"),
            Subscription(["d"], all_of(kiwi("l", "*abc*"), not_(either)), id="neither"),
        ]
    )
    (layer,) = matcher._state.layers
    arrays, head = layer.view.segment.arrays, layer.view.segment.head

    assert {(key, kind.op) for key, kind in (head.facts[fact] for fact in head.probed)} == {
        ("k", "part"),
        ("l", "part"),
    }
    assert len(arrays.test_form) == 0
    assert arrays.check_op.tolist() == [ONE_OF * 2 + 1]
    assert [match.subscription_id for match in matcher.match({"k": "C:\\cmd.exe", "l": "abc"})] == ["either"]
    assert [match.subscription_id for match in matcher.match({"k": "C", "l": "xabc"})] == ["neither"]


def test_beginnings_alone_are_not_searched():
    """If a key has no texts to be contained, prefixes are looked up by their hashes."""
    matcher = Matcher(subscriptions_of([kiwi("k", f"{n:03}*") for n in range(20)]))
    ((anchor, _),) = matcher.stats(1).hottest

    assert anchor.kind.op == "^"


def test_many_beginnings_are_hashed():
    """Many more beginnings than texts anywhere are looked up by their hashes, and found beside these."""
    prefixes = [kiwi("k", f"{n:05}*") for n in range(1_100)]
    matcher = Matcher(subscriptions_of([*prefixes, kiwi("k", "*x*"), any_of(kiwi("k", "00007*"), kiwi("k", "*y*"))]))
    kinds = {anchor.kind.op for anchor, _ in matcher.stats(2_000).hottest}

    assert kinds == {"^", "part"}
    assert sorted(matcher.match({"k": "00007x"}).ids) == ["1100", "1101", "7"]
    assert sorted(matcher.match_many([{"k": "00007y"}]).ids()[0]) == ["1101", "7"]
