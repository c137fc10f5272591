"""The in-process matcher finds what the interpreter says, each subscription once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages
from turnout.conditions import all_of, any_of, evaluate, kiwi, leaves, not_, one_of
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.stores.memory import MemoryStore


def matching_ids(matcher, message):
    return sorted(match.subscription_id for match in matcher.match(message))


def test_seed_example():
    """Orders that are not in Helsinki, as in the seed's example; the leaf ids say why."""
    store = MemoryStore()
    condition = all_of(kiwi("subject", "orders*"), not_(kiwi("location", "Helsinki")))
    created = store.create(Subscription(["dst0"], condition))
    matcher = Matcher.from_store(store)
    (match,) = matcher.match({"subject": "orders 17", "location": "Oulu"})

    assert (created, ("dst0",)) == (match.subscription_id, match.destinations)
    assert tuple(leaf.id for leaf in leaves(store.read(created).condition)) == match.leaf_ids
    assert matching_ids(matcher, {"subject": "orders 17", "location": "Helsinki"}) == []
    assert matching_ids(matcher, {"subject": "orders 17"}) == [created]


@given(st.lists(conditions, min_size=1, max_size=12), st.lists(messages, min_size=1, max_size=8))
def test_is_the_interpreter(stored_conditions, given_messages):
    """For any conditions and messages the matches equal those of the interpreter, without duplicates."""
    matcher = Matcher(Subscription(["d"], condition, id=str(n)) for n, condition in enumerate(stored_conditions))
    for message in given_messages:
        expected = sorted(str(n) for n, condition in enumerate(stored_conditions) if evaluate(condition, message))

        assert expected == matching_ids(matcher, message)


@given(st.lists(conditions, min_size=1, max_size=8), st.lists(messages, min_size=1, max_size=4), st.lists(messages))
def test_a_sample_changes_nothing_but_speed(stored_conditions, given_messages, sample):
    """Anchors chosen by a sample of messages find the same."""
    subscriptions = [Subscription(["d"], condition, id=str(n)) for n, condition in enumerate(stored_conditions)]
    matcher, sampled = Matcher(subscriptions), Matcher(subscriptions, sample=sample)
    for message in given_messages:
        assert matching_ids(matcher, message) == matching_ids(sampled, message)


@given(st.lists(conditions, min_size=2, max_size=8), messages, st.data())
def test_follows_its_store(stored_conditions, message, data):
    """After any changes, a matcher that refreshes finds what a new one finds."""
    store = MemoryStore()
    half = len(stored_conditions) // 2
    ids = store.create_many(Subscription(["d"], condition) for condition in stored_conditions[:half])
    matcher = Matcher.from_store(store)
    for gone in data.draw(st.lists(st.sampled_from(ids), unique=True)) if ids else ():
        store.delete(gone)
    store.create_many(Subscription(["d"], condition) for condition in stored_conditions[half:])

    assert matcher.refresh(store)
    assert not matcher.refresh(store)
    assert store.revision() == matcher.revision
    assert matching_ids(Matcher.from_store(store), message) == matching_ids(matcher, message)


@given(st.booleans())
def test_values_that_are_no_texts(many):
    """They are seen as on a route, and leave nothing behind that a later message would meet."""
    pairs = (("n", "total>100"), ("t", "total:120"), ("b", "urgent:true"), ("x", "note exists"))
    others = [Subscription(["d"], f"z:{number}", id=f"z{number}") for number in range(3000 if many else 0)]
    matcher = Matcher([*(Subscription(["d"], text, id=id_) for id_, text in pairs), *others])
    message = {"total": 120, "urgent": True, "note": None}

    assert matching_ids(matcher, message) == sorted(matcher.match_many([message]).ids()[0]) == ["b", "n", "t"]
    assert matching_ids(matcher, {"total": "120"}) == ["n", "t"]
    assert matching_ids(matcher, {"total": 120.5, "note": [1]}) == ["n", "x"]


def test_removing_everything_leaves_nothing():
    """An emptied matcher has no anchors left to probe."""
    matcher = Matcher([Subscription(["d"], any_of(kiwi("k", "a*"), not_(kiwi("k", "b"))), id="x")])
    matcher.remove("x")
    stats = matcher.stats()

    assert (stats.subscriptions, stats.terms, stats.anchors, stats.always) == (0, 0, 0, 0)


def test_many_leaves():
    """A hundred alternatives for one key are a hundred terms without anything to verify."""
    names = [f"n{n}" for n in range(100)]
    matcher = Matcher([Subscription(["d"], any_of(*(kiwi("k", name) for name in names)), id="x")])

    assert matching_ids(matcher, {"k": "n99"}) == ["x"]
    assert matcher.stats().terms == 100
    assert matching_ids(matcher, {"k": "other"}) == []


def test_overlapping_alternatives():
    """However many alternatives there are, each is a term with nothing to verify besides, and none is found twice."""
    matcher = Matcher([Subscription(["d"], any_of(*(kiwi(f"k{n}", "a*") for n in range(200))), id="x")])

    assert (matcher.stats().terms, matcher.stats().always) == (200, 0)
    assert matching_ids(matcher, {"k199": "abc"}) == ["x"]
    assert matching_ids(matcher, {"k1": "abc", "k3": "ab", "k199": "a"}) == ["x"]
    assert matcher.match_many([{"k1": "abc", "k3": "ab"}, {"k199": "b", "other": "abc"}]).ids() == [["x"], []]


def test_alternatives_of_words():
    """Alternatives for the words of a text are one set, found by each of them and verified at once."""
    words = [kiwi("text", word, partial=True) for word in ("night", "train", "bus")]
    matcher = Matcher(
        [
            Subscription(["d"], any_of(*words), id="any"),
            Subscription(["d"], all_of(kiwi("city", "Oulu"), any_of(*words)), id="both"),
            Subscription(["d"], not_(any_of(*words)), id="none"),
        ]
    )

    assert matching_ids(matcher, {"text": "night train", "city": "Oulu"}) == ["any", "both"]
    assert matching_ids(matcher, {"text": "tram", "city": "Oulu"}) == ["none"]


def test_exactly_one():
    """Xor is true for exactly one true child, not for an odd number."""
    matcher = Matcher([Subscription(["d"], one_of(kiwi("a", "1"), kiwi("b", "1"), kiwi("c", "1")), id="x")])

    assert matching_ids(matcher, {"a": "1"}) == ["x"]
    assert matching_ids(matcher, {"a": "1", "b": "1"}) == []
    assert matching_ids(matcher, {"a": "1", "b": "1", "c": "1"}) == []
    assert matching_ids(matcher, {}) == []


def test_rarest_anchor():
    """A conjunction is looked up by its rarer leaf, so that a popular value has few subscriptions to verify."""
    conditions = [all_of(kiwi("topic", "popular"), kiwi("user", f"u{n}")) for n in range(50)]
    matcher = Matcher(Subscription(["d"], condition, id=str(n)) for n, condition in enumerate(conditions))

    assert all(anchor.key == "user" for anchor, _ in matcher.stats(100).hottest)


def test_sample_decides():
    """Values that are rare in messages are preferred, independent of the number of subscriptions."""
    conditions = [all_of(kiwi("kind", "rare"), kiwi("user", f"u{n}")) for n in range(50)]
    sample = [{"kind": "usual", "user": f"u{n}"} for n in range(50)]
    matcher = Matcher((Subscription(["d"], one, id=str(n)) for n, one in enumerate(conditions)), sample=sample)

    assert [(anchor.key, count) for anchor, count in matcher.stats().hottest] == [("kind", 50)]
