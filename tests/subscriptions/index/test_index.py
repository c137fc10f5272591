"""The index finds what the interpreter says, for every condition, message and way to ask."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages, multivalued_messages
from tests.subscriptions.index.asking import columns_of, expected, pairs, subscriptions_of
from turnout.conditions import Kiwi, Operator, all_of, any_of, compare, evaluate, kiwi, leaves, not_, one_of
from turnout.conditions.model import with_ids
from turnout.subscriptions import Matcher, Snapshot, Subscription
from turnout.subscriptions.index import Column, Index, IndexFileError, postings, segment, segment_matcher
from turnout.subscriptions.index import index as index_module
from turnout.subscriptions.index.index import Manifest, SegmentFiles, manifest_path, read_gone, write_gone
from turnout.subscriptions.stores.memory import MemoryStore

_conditions = st.lists(conditions, min_size=1, max_size=12)
_messages = st.lists(messages, min_size=1, max_size=8)


@contextmanager
def low_bounds():
    """Every bound so low that few subscriptions meet it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings, "HOT", 0)
        patch.setattr(postings, "_LEAST_SAVED", 0)
        patch.setattr(segment, "_MIN_PREPARED_TESTS", 1)
        patch.setattr(segment, "_GROUP", 2)
        patch.setattr(segment_matcher, "_FIRST_ROOMS", segment_matcher._Rooms(1, 1, 1, 1, 1, 4))
        patch.setattr(index_module, "ROWS", 3)
        yield


@given(_conditions, _messages, st.lists(messages, max_size=4))
def test_is_the_interpreter(stored_conditions, given_messages, sample):
    """For any conditions, messages and sample exactly these pairs match, each once, sorted by row."""
    subscriptions = subscriptions_of(stored_conditions)
    index = Index.of(subscriptions, sample=sample)
    matches = index.match(columns_of(given_messages), len(given_messages))

    assert expected(subscriptions, given_messages) == pairs(index, given_messages)
    assert sorted(matches.rows.tolist()) == matches.rows.tolist()


@given(_conditions, st.lists(multivalued_messages, min_size=1, max_size=8))
def test_several_values_of_a_key(stored_conditions, given_messages):
    """Of several values, each leaf looks for one by itself, in each way to ask."""
    subscriptions = subscriptions_of(stored_conditions)
    wanted = expected(subscriptions, given_messages)
    assert wanted == pairs(Index.of(subscriptions), given_messages)
    with low_bounds():
        assert wanted == pairs(Index.of(subscriptions), given_messages)

    matcher = Matcher(subscriptions)
    by_matcher = [sorted(match.subscription_id for match in matcher.match(message)) for message in given_messages]
    assert by_matcher == [sorted(ids) for ids in matcher.match_many(given_messages).ids()]
    assert wanted == sorted((row, id_) for row, ids in enumerate(by_matcher) for id_ in ids)


_bounds = st.tuples(st.sampled_from(list(Operator)), st.integers(0, 12))
_conjunctions = st.lists(_bounds, min_size=1, max_size=4)


@given(
    st.lists(_conjunctions, min_size=1, max_size=20),
    st.lists(st.lists(st.integers(-1, 13), min_size=1, max_size=4, unique=True), min_size=1, max_size=6),
)
def test_several_numbers_of_a_key(bounds, numbers):
    """Each bound looks for a number by itself: one may be above the lower bound, and another below the upper one."""
    conditions_ = [all_of(*(compare("n", op, number) for op, number in own)) for own in bounds]
    nested = [all_of(condition, any_of(condition, kiwi("x", "1"))) for condition in conditions_]
    subscriptions = subscriptions_of([*conditions_, *nested])
    given_messages = [{"n": tuple(map(str, own)) if len(own) > 1 else str(own[0])} for own in numbers]
    assert expected(subscriptions, given_messages) == pairs(Index.of(subscriptions), given_messages)


def test_exactly_one_of_several_values():
    """Texts that exclude each other as one value do not as several."""
    matcher = Matcher([Subscription(["d"], one_of(kiwi("sku", "a"), kiwi("sku", "b")), id="one")])
    skus = [("a",), ("b", "c"), ("a", "b"), ("c", "d"), ("a", "a")]
    assert [matcher.match({"sku": own}).ids for own in skus] == [["one"], ["one"], [], [], ["one"]]


@given(_conditions, _messages)
def test_is_the_interpreter_at_every_bound(stored_conditions, given_messages):
    """Second literals, batches in halves and new generations of books change no answer."""
    with low_bounds():
        subscriptions = subscriptions_of(stored_conditions)
        index = Index.of(subscriptions)

        assert expected(subscriptions, given_messages) == pairs(index, given_messages)
        assert expected(subscriptions, given_messages) == pairs(index, given_messages)
        matcher = Matcher(subscriptions)
        assert [len(matcher.match(message)) for message in given_messages] == [
            len(expected(subscriptions, [message])) for message in given_messages
        ]


def test_numbers_of_many_entries():
    """Numbers at the limits of many intervals, and values that are no numbers, match what the interpreter says."""
    subscriptions = subscriptions_of(
        all_of(
            compare("a", ">=", n),
            compare("a", "<", n + 90),
            compare("b", "<=", n * 2),
            not_(compare("c", "=", n)),
            any_of(kiwi("k", str(n % 3)), kiwi("k", "x")),
        )
        for n in range(200)
    )
    matcher = Matcher(subscriptions)
    values = ("0", "90", "100.5", "289", "-1e300", "none", None)
    for message in ({"a": a, "b": b, "c": "100", "k": "1"} for a in values for b in values):
        given_message = {key: value for key, value in message.items() if value is not None}
        true = [id_ for _, id_ in expected(subscriptions, [given_message])]

        assert sorted(true) == sorted(matcher.match(given_message).ids)


@given(_conditions, _messages, st.integers(0, 12), st.integers(0, 20))
def test_all_ways_to_ask_agree(stored_conditions, given_messages, late, loose):
    """One message at a time, all at once and the interpreter agree on subscriptions and leaf ids, whenever added."""
    numbers = count()
    subscriptions = subscriptions_of(
        [with_ids(condition, lambda: f"leaf{next(numbers)}") for condition in stored_conditions]
    )
    matcher = Matcher(subscriptions[late:])
    for subscription in subscriptions[:late]:
        matcher.add(subscription)
    if loose > 10:
        matcher.stats()
    true = [
        sorted(
            (
                subscription.id,
                tuple(subscription.destinations),
                tuple(leaf.id for leaf in leaves(subscription.condition) if evaluate(leaf, message)),
            )
            for subscription in subscriptions
            if evaluate(subscription.condition, message)
        )
        for message in given_messages
    ]

    assert true == [sorted(map(tuple, matcher.match(message))) for message in given_messages]
    assert true == [sorted(map(tuple, pairs)) for pairs in matcher.match_many(given_messages)]


def test_rows_that_are_alive():
    """Only the selected rows are matched, given as numbers or as a mask; values of other rows are not read."""
    index = Index.of(subscriptions_of([kiwi("k", "a")]))
    columns = {"k": Column(["a", ["not hashable"], "a", "b"])}

    assert index.match(columns, 4, [0, 2, 3]).rows.tolist() == [0, 2]
    assert index.match(columns, 4, np.array([False, False, True, True])).rows.tolist() == [2]
    assert index.match(columns, 4, []).rows.tolist() == []


def test_values_that_are_no_texts():
    """A column of other values is matched by their texts; a value without a text is an absent key."""
    index = Index.of(subscriptions_of([kiwi("n", "7"), not_(kiwi("n", "7")), kiwi("n", "true")]))
    numbers = Column([7, 8, None, 9], lambda value: None if value == 9 else str(value))
    flags = Column([True, 1.0], lambda value: "true")

    def matching_pairs(column):
        result = index.match({"n": column}, len(column.values))
        return list(zip(result.rows.tolist(), result.subscriptions.tolist(), strict=True))

    assert matching_pairs(numbers) == [(0, 0), (1, 1), (2, 1), (3, 1)]
    assert sorted(matching_pairs(flags)) == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_texts_beside_other_values():
    """Keys whose columns are texts and keys whose columns are not are matched together, and so are absent values."""
    conditions = [
        all_of(kiwi("n", "7"), kiwi("text", "ab*")),
        all_of(kiwi("text", "*bc"), kiwi("other", "x")),
        not_(kiwi("text", "*")),
    ]
    index = Index.of(subscriptions_of(conditions))
    numbers = Column([7, 8, 7, None] * 10, str)
    columns = {
        "n": numbers,
        "text": Column(["abc", "abc", None, "x"] * 10),
        "other": Column(["x", None, "x", "x"] * 10),
    }

    result = index.match(columns, 40)

    first = [pair for pair in zip(result.rows.tolist(), result.subscriptions.tolist(), strict=True) if pair[0] < 4]
    assert sorted(first) == [(0, 0), (0, 1), (2, 2)]
    assert len(result.rows) == 30


def test_keys_that_are_absent():
    """A key that no column has is absent; a column that no condition looks at is passed over."""
    index = Index.of(subscriptions_of([not_(kiwi("a", "x")), kiwi("b", "*")]))

    assert pairs(index, [{"c": "y"}]) == [(0, "0")]
    assert index.keys == ("a", "b")


def test_deliveries():
    """A match is one delivery for each destination, in the order of rows; equal destinations have one number."""
    index = Index.of([Subscription(d, kiwi("k", "*"), id=i) for d, i in ((["x", "y"], "1"), ([], "2"), (["x"], "3"))])
    deliveries = index.deliveries(index.match({"k": Column(["a", None, "b"])}, 3))
    texts = index.destinations(deliveries.destinations).to_pylist()

    assert sorted(zip(deliveries.rows.tolist(), texts, strict=True)) == [
        (0, "x"),
        (0, "x"),
        (0, "y"),
        (2, "x"),
        (2, "x"),
        (2, "y"),
    ]
    assert sorted(deliveries.rows.tolist()) == deliveries.rows.tolist()
    assert len(set(deliveries.destinations.tolist())) == 2


def test_nothing():
    """An index of nothing matches nothing, and a batch of nothing is matched by nothing."""
    index = Index.of(())

    assert (pairs(index, [{"a": "b"}]), len(index), index.keys) == ([], 0, ())
    assert pairs(Index.of(subscriptions_of([not_(kiwi("a", "b"))])), []) == []


def test_of_a_store():
    """An index of a store or a snapshot has its revision."""
    store = MemoryStore()
    created = store.create(Subscription(["d"], kiwi("k", "a")))

    assert (store.revision(), 1) == (Index.of(store).revision, len(Index.of(store)))
    assert [(0, created)] == pairs(Index.of(Snapshot(store.snapshot().subscriptions, 9)), [{"k": "a"}])


def test_lone_surrogates():
    """Texts that have no UTF-8 are texts all the same."""
    index = Index.of(subscriptions_of([kiwi("k", "\ud800"), kiwi("k", "\ud800*")]))

    assert pairs(index, [{"k": "\ud800"}, {"k": "\ud800x"}, {"k": "\udc00"}]) == [(0, "0"), (0, "1"), (1, "1")]


def test_many_candidates_of_one_message():
    """A message that thousands of subscriptions have to be verified for is matched like any other."""
    matcher = Matcher(subscriptions_of([not_(kiwi("k", f"v{n}")) for n in range(1_001)]))
    matcher.remove("7")
    ids = matcher.match({"k": "v8"}).ids

    assert sorted(ids, key=int) == [str(n) for n in range(1_001) if n not in (7, 8)]


def test_exactly_one_of_alternatives():
    """Xor of texts of one key is true for one of them, and for a text that is named twice it never is."""
    index = Index.of(subscriptions_of([one_of(kiwi("k", "a"), kiwi("k", "b")), one_of(kiwi("k", "a"), kiwi("k", "a"))]))

    assert pairs(index, [{"k": "a"}, {"k": "b"}, {"k": "c"}]) == [(0, "0"), (1, "0")]


def test_asked_by_several_threads():
    """Threads that ask one index at once, with values that all are new, get the answers that they get alone."""
    conditions = [all_of(kiwi("a", f"v{n}"), Kiwi("b", f"w{n % 50}*", ignore_case=True)) for n in range(500)]
    subscriptions = subscriptions_of(conditions)
    index = Index.of(subscriptions)
    batches = [[{"a": f"v{(n * 7 + k) % 600}", "b": f"W{n % 60}x"} for n in range(400)] for k in range(12)]
    results: dict[int, list[tuple[int, str]]] = {}

    def ask(number):
        results[number] = pairs(index, batches[number])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    def alone(batch):
        # Each value of `a` is wanted by one subscription: the interpreter need not be asked of the others.
        candidates = ((row, int(message["a"][1:])) for row, message in enumerate(batch))
        return sorted((row, str(n)) for row, n in candidates if n < 500 and evaluate(conditions[n], batch[row]))

    assert {number: alone(batch) for number, batch in enumerate(batches)} == results
    assert sum(map(len, results.values())) > 50


def test_a_manifest_is_read_back(tmp_path: Path) -> None:
    """With the files that it names."""
    manifest = Manifest(7, (SegmentFiles("a.segment", "a.gone"), SegmentFiles("b.segment")))
    manifest.write(tmp_path)

    assert Manifest.read(tmp_path, 7) == manifest
    assert manifest.names() == ["a.segment", "a.gone", "b.segment"]


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "damaged"), ('{"format": 999}', "of format 999"), ("[]", "of format None")]
)
def test_a_manifest_that_cannot_be_used(tmp_path: Path, text: str, problem: str) -> None:
    """A missing manifest cannot be used either."""
    manifest_path(tmp_path, 1).write_text(text)

    with pytest.raises(IndexFileError, match=problem):
        Manifest.read(tmp_path, 1)
    with pytest.raises(IndexFileError, match="cannot be read"):
        Manifest.read(tmp_path, 2)


def test_tombstones_belong_to_their_segment(tmp_path: Path) -> None:
    """One of another size is refused, and so is a changed byte."""
    path = tmp_path / "a.gone"
    gone = np.arange(19) % 3 == 0
    write_gone(path, gone)

    assert read_gone(path, 19).tolist() == gone.tolist()
    with pytest.raises(IndexFileError, match="does not belong"):
        read_gone(path, 20)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(IndexFileError, match="damaged"):
        read_gone(path, 19)
