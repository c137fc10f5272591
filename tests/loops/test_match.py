"""Tests of turnout.loops.match: compiled and interpreted, in any division into calls, it is the interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conditions.strategies import conditions, messages, multivalued_messages
from tests.subscriptions.index.asking import expected, subscriptions_of
from turnout.base.multivalued import metadata_of
from turnout.conditions import Kiwi, all_of, any_of, kiwi, not_, one_of, parse
from turnout.errors import RecordError
from turnout.loops import facts, texts
from turnout.loops import match as loop
from turnout.loops import segment_arrays as layout
from turnout.loops.compiled import Loop
from turnout.subscriptions import Matcher, Subscription
from turnout.subscriptions.index import Index, segment_matcher
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.layers import Layer
from turnout.subscriptions.index.literal_choice import Costs

pytestmark = pytest.mark.usefixtures("compiled_loops")


def _pairs(index, given_messages, size):
    found: list[tuple[int, str]] = []
    for begin in range(0, len(given_messages), size):
        matches = index.match_messages(list(map(metadata_of, given_messages[begin : begin + size])))
        ids = index.subscription_ids(matches.subscriptions).to_pylist()
        found += zip((matches.rows + begin).tolist(), ids, strict=True)
    return sorted(found)


@contextmanager
def interpreted_loops():
    """Run loops interpreted where compiled ones would run."""
    with pytest.MonkeyPatch.context() as patch:
        for own in (*vars(texts).values(), *vars(facts).values(), *vars(layout).values(), *vars(loop).values()):
            if isinstance(own, Loop):
                patch.setattr(own, "_run", own.interpreted)
                patch.setattr(own, "direct", own.interpreted)
        yield patch


@given(
    st.lists(conditions, min_size=1, max_size=12),
    st.lists(st.one_of(messages, multivalued_messages), min_size=1, max_size=24),
)
def test_is_the_interpreter(stored_conditions, given_messages) -> None:
    """One by one, two, twenty and all at once; interpreted and compiled; with buffers that have to grow."""
    subscriptions = subscriptions_of(stored_conditions)
    wanted = expected(subscriptions, given_messages)
    index = Index.of(subscriptions)
    for size in (1, 2, 20, len(given_messages)):
        assert _pairs(index, given_messages, size) == wanted
    with interpreted_loops() as patch:
        assert _pairs(index, given_messages, len(given_messages)) == wanted
        patch.setattr(segment_matcher, "_FIRST_ROOMS", segment_matcher._Rooms(1, 1, 1, 1, 1, 4))
        assert _pairs(Index.of(subscriptions), given_messages, 3) == wanted


def test_letters_beyond_ascii() -> None:
    """Folded, in words, at a beginning, at an end, and within."""
    patterns = ["Ä*", "*Ö", "*üß*", "ΣΑΣ", "İ*", "??Ö", "*Ä*Ö"]
    own = [
        Kiwi("k", text, ignore_case=fold, partial=word)
        for text in patterns
        for fold in (False, True)
        for word in (False, True)
    ]
    subscriptions = subscriptions_of([*own, *map(not_, own)])
    values = ["Ärger Ö", "ärger ö", "süß", "SÜSS", "σας", "ΣΑΣ σας", "i̇x", "İx", "abÖ", "ä, ö!", "\ud800Ä"]
    seen = [{"k": text} for text in values]

    assert _pairs(Index.of(subscriptions), seen, 4) == expected(subscriptions, seen)


def test_what_is_asked() -> None:
    """Expressions, long numbers and words of patterns are decided elsewhere, each by itself."""
    written = [
        "k =~ a+b",
        "ip in 10.0.0.0/8",
        "ip in 2001:db8::/32",
        "n > 9007199254740993.5",
        "n = 1e-30",
        "NOT k =~ b",
    ]
    subscriptions = subscriptions_of([*map(parse, written), Kiwi("k", "?a*b", partial=True), kiwi("k", "*")])
    seen = [
        {"k": "xaab", "ip": "10.1.2.3", "n": "9007199254740994"},
        {"k": "b", "ip": "2001:db8::1", "n": "0.000000000000000000000000000001"},
        {"k": ("xa b", "zaab"), "ip": ("x", "10.0.0.1"), "n": ("1e400", "5")},
    ]

    assert _pairs(Index.of(subscriptions), seen, 3) == expected(subscriptions, seen)


def test_answers_are_for_one_segment() -> None:
    """What one segment asked is not given to the next one, whose tests have the same numbers."""
    first, second = subscriptions_of([parse("k =~ a+b")]), subscriptions_of([parse("k =~ b+c")])
    index = Index([Layer(build(own, Costs())) for own in (first, second)], 0)
    seen: list[dict[str, object]] = [{"k": "ab"}, {"k": "bc"}, {"k": "abc"}, {"k": "x"}]
    wanted = sorted(expected(first, seen) + expected(second, seen))

    assert _pairs(index, seen, 4) == _pairs(index, seen, 1) == wanted
    found = [index.match_one(json.dumps(one).encode()) for one in seen]
    assert found == [[[0], []], [[], [0]], [[0], [0]], [[], []]]


def test_networks() -> None:
    """Addresses in each of their forms, of several values and of all keys; other texts are in no network."""
    networks = ["10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "10.128.0.0/9", "2001:db8::/32", "::/0", "::ffff:a00:0/103"]
    own = [parse(f"ip in {network}") for network in networks]
    subscriptions = subscriptions_of([*own, *map(not_, own), all_of(own[0], kiwi("k", "1")), parse("* in 10.0.0.0/8")])
    addresses = [
        "10.1.2.3",
        "10.200.0.1",
        "9.9.9.9",
        "2001:DB8:0::1",
        "::",
        "::ffff:10.1.2.3",
        "1.2.3",
        "x",
        "",
        "010.1.2.3",
    ]
    seen: list[dict[str, object]] = [{"ip": address, "k": "1"} for address in addresses]
    seen += [{"ip": ("x", "10.1.2.3", "::1")}, {"other": "10.1.2.3"}, {"k": "1"}, {}]

    assert _pairs(Index.of(subscriptions), seen, 5) == expected(subscriptions, seen)
    assert _pairs(Index.of(subscriptions), seen, 1) == expected(subscriptions, seen)


@pytest.mark.parametrize("sign", ["<", "<=", "=", "!=", ">=", ">", "=i=", "!=i!="])
def test_two_keys(sign) -> None:
    """Numbers as such, other values as texts, folded or not; of several, one of each key."""
    own = parse(f"a{sign}field(b)")
    subscriptions = subscriptions_of([own, not_(own), all_of(kiwi("c", "*x*"), own)])
    texts_ = ["1", "1.0", "2", "1e400", "9007199254740993", "9007199254740992", "x", "X", "xy", "", "É", "é", "[", "{"]
    seen: list[dict[str, object]] = [{"a": a, "b": b, "c": "axa"} for a in texts_ for b in texts_]
    seen += [{"a": "x"}, {"b": "1"}, {"a": ("1", "x"), "b": ("X", "É", "0")}, {"a": ("é", "X"), "b": ("É", "x")}]

    assert _pairs(Index.of(subscriptions), seen, len(seen)) == expected(subscriptions, seen)


def test_parts_that_are_compared_too_often() -> None:
    """A text of one letter, and thousands of parts that begin like it, take linear time in another way."""
    subscriptions = subscriptions_of(kiwi("k", f"*aaaa{'a' * (n % 50)}b{n}*") for n in range(2_000))
    subscriptions += subscriptions_of([kiwi("k", "*aaaaa*")])
    seen = [{"k": "a" * 20_000}, {"k": "a" * 2_000 + "b7"}]

    assert sorted(_pairs(Index.of(subscriptions[:-1]), seen, 2)) == expected(subscriptions[:-1], seen)


def test_trees_stop_early_and_count() -> None:
    """Groups within groups, negated ones, and exactly one of several."""
    a, b, c, d = (kiwi(key, "1") for key in "abcd")
    nested = [
        one_of(all_of(a, b), not_(any_of(c, all_of(b, d))), one_of(a, c, d)),
        not_(one_of(not_(all_of(a, any_of(b, c))), d)),
        any_of(all_of(a, not_(b)), all_of(c, one_of(a, d), any_of(b, not_(d)))),
    ]
    subscriptions = subscriptions_of(nested)
    seen = [{key: "1" for bit, key in enumerate("abcd") if number >> bit & 1} for number in range(16)]

    assert _pairs(Index.of(subscriptions), seen, 16) == expected(subscriptions, seen)


def test_stamps_begin_again() -> None:
    """A matcher that has seen half a billion messages forgets what they had."""
    matcher = Matcher(subscriptions_of([kiwi("k", "a"), kiwi("j", "*b*")]))
    own = matcher._state.layers[0].view.segment.matcher
    matcher.match({"k": "a"})
    (buffers,) = own._free
    buffers.scratch.state[layout.EPOCH] = layout.MOST_EPOCH - 2

    assert [sorted(matcher.match({"k": "a", "j": "abc"}).ids) for _ in range(3)] == [["0", "1"]] * 3


ANY = Subscription(["d"], any_of(kiwi("k", "*"), kiwi("j", "1")), id="any")


@given(st.lists(conditions, min_size=1, max_size=12), st.lists(st.one_of(messages, multivalued_messages), min_size=1))
def test_json_is_what_it_decodes_to(stored_conditions, given_messages):
    """Messages as JSON match as those that they are, one by one and together, with leaves; interpreted too."""
    subscriptions = subscriptions_of(stored_conditions)
    matcher = Matcher(subscriptions)
    texts = [json.dumps(message).encode() for message in given_messages]
    expected = [matcher.match(message) for message in given_messages]

    assert [matcher.match(text) for text in texts] == expected
    assert matcher.match_many(texts) == expected
    with interpreted_loops() as patch:
        patch.setattr(segment_matcher, "_FIRST_ROOMS", segment_matcher._Rooms(1, 1, 1, 1, 1, 4))
        small = Matcher(subscriptions)
        assert [small.match(text) for text in texts] == expected
        assert small.match_many(texts) == expected


@pytest.mark.parametrize(
    "value", ["1.50", "-0", "1e3", "12345678901234567890", "0.0001", "7.25", "true", "null", '"\\u00e9"', '["1", "a"]']
)
def test_values_of_json(value):
    """Values of JSON that are no texts are seen as if they had been decoded, also twice in an object."""
    seen = {"k": json.loads(value)}
    texts = [str(one) for one in (0.0001, 1.5, 0, 1000, 12345678901234567890, 7.25, "true", "é", "a", "0.0", "1.0E-4")]
    matcher = Matcher([*(Subscription(["d"], kiwi("k", text), id=text) for text in texts), ANY])
    for text in (f'{{"k": {value}, "other": [1, {{"k": "x"}}]}}', f'{{"k": "x", "k": {value}}}'):
        assert sorted(matcher.match(text.encode()).ids) == sorted(matcher.match(seen).ids)
        assert matcher.match_many([text.encode()] * 2).ids() == matcher.match_many([seen] * 2).ids()


@pytest.mark.parametrize("text", [b"", b"[]", b'"k"', b'{"k": "1"', b'{"k": "1"} {}', b'{"k": "\xff"}', b'{"k": 01}'])
def test_bytes_that_are_no_object(text):
    """They are an error, also among others."""
    matcher = Matcher([ANY])
    for call in (lambda: matcher.match(text), lambda: matcher.match_many([b"{}", text])):
        with pytest.raises(RecordError, match="no JSON object"):
            call()


def test_some_of_a_batch_of_json_ask():
    """Those with letters that fold, or an expression, are answered by themselves, each among the others, in order."""
    conditions_ = [Kiwi("k", "ä*", ignore_case=True), kiwi("k", "*"), parse("j =~ a+b"), not_(kiwi("k", "plain"))]
    matcher = Matcher(subscriptions_of(conditions_))
    seen = [{"k": text, "j": other} for text in ("plain", "Ärger", "x") for other in ("aab", "c", "É")] + [{}]
    for ensure_ascii in (False, True):
        objects = [json.dumps(one, ensure_ascii=ensure_ascii).encode() for one in seen]
        for size in (2, 5, len(seen)):
            batches = [objects[at : at + size] for at in range(0, len(seen), size)]
            found = [ids for batch in batches for ids in matcher.match_many(batch).ids()]
            assert list(map(sorted, found)) == [sorted(matcher.match(one).ids) for one in seen]


def test_a_zero_is_no_end_of_an_object():
    """Objects are divided by zeros, but a text with one is not two objects."""
    matcher = Matcher([ANY])
    for no_objects in ([b"{}\0{}"], [b"{}\0{}", b""], [b"{}\0{}", b" "], [b"", b"{}\0{}"]):
        with pytest.raises(RecordError, match="no JSON object"):
            matcher.match_many(no_objects)


def test_new_subscriptions_match_json():
    """They are evaluated one by one, before they are in an index."""
    matcher = Matcher()
    matcher.add(ANY)

    assert matcher.match(b'{"k": 1}').ids == ["any"]
    assert matcher.match_many([b'{"k": 1}', b"{}"]).ids() == [["any"], []]


_FUZZ = """
import json
import random
from turnout.loops import compile_loops
assert compile_loops()
from turnout.conditions import Kiwi, Regex, parse
from turnout.subscriptions import Matcher, Subscription
random_ = random.Random(5)
alphabet = ["a", "b", "*", "?", "ü", "\\ud800", "\\U0001f600", "1", ".", "e", "-", " ", "\\0", "Σ"]
def text(most): return "".join(random_.choices(alphabet, k=random_.randrange(most)))
def condition():
    if random_.random() < 0.3:
        return parse(f"k{random_.choice(['<', '>=', '='])}{random_.randrange(9)}")
    return Kiwi(random_.choice("kj*"), text(7), ignore_case=random_.random() < 0.5, partial=random_.random() < 0.3)
for _ in range(20):
    matcher = Matcher([Subscription(["d"], condition(), id=str(n)) for n in range(60)])
    rows = [{key: text(random_.choice([1, 4, 41])) for key in "kjx"} for _ in range(60)]
    many = list(map(sorted, matcher.match_many(rows).ids()))
    assert many == [sorted(matcher.match(row).ids) for row in rows]
    whole = [{key: own.replace("\\ud800", "") for key, own in row.items()} for row in rows]
    texts = [json.dumps(row, ensure_ascii=random_.random() < 0.5).encode() for row in whole]
    alone = [sorted(matcher.match(one).ids) for one in whole]
    assert [sorted(matcher.match(one).ids) for one in texts] == alone
    for size in (7, 60):
        parts = [matcher.match_many(texts[begin : begin + size]).ids() for begin in range(0, 60, size)]
        assert [sorted(ids) for part in parts for ids in part] == alone
"""


@pytest.mark.heavy
def test_no_read_outside_of_a_buffer(tmp_path) -> None:
    """Any texts, with bounds checks on."""
    environment = {**os.environ, "NUMBA_BOUNDSCHECK": "1", "TURNOUT_LOOPS_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _FUZZ], env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
