"""Plain lines against the general way: the same subscriptions, or none."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnout.conditions import Kiwi, leaves
from turnout.errors import SubscriptionInvalidError
from turnout.subscriptions import open_store
from turnout.subscriptions.lines import import_lines, read_plain, subscription_from_json
from turnout.subscriptions.stores._record import encode_record, lookup_rows
from turnout.subscriptions.validation import MAX_STARS, PLAIN_TEXT

LEAF = '{"kiwiCondition": {"key": "k", "pattern": "v"}}'
LINE = f'{{"route": {{"destinations": ["d"], "condition": {LEAF}}}}}'
PAIR = LINE.replace(
    LEAF,
    '{"groupCondition": {"logic": "Or", "group": [{"kiwiCondition": {"not": true, "key": "a", "pattern": "*b"}}, '
    '{"kiwiTreeCondition": {"id": "n", "key": "a", "pattern": "b*", "partial": true}}]}}',
)
_words = st.sampled_from(("", "a", "b*", "*", "x\\*", "ä", '"', "\n", "\ud800", "x" * 200, "*" * (MAX_STARS + 1)))
_bodies = st.fixed_dictionaries(
    {"key": _words | st.integers(), "pattern": _words},
    optional={"id": _words, "not": st.booleans() | st.none(), "partial": st.booleans(), "ignoreCase": st.booleans()},
)
_nodes = st.builds(
    lambda kinds, body: dict.fromkeys(kinds, body),
    st.lists(st.sampled_from(("kiwiCondition", "kiwiTreeCondition", "existsCondition", "kiwi")), max_size=2)
    | st.sampled_from((["kiwiCondition"], ["kiwiTreeCondition"])),
    _bodies,
)
_groups = st.fixed_dictionaries(
    {"logic": st.sampled_from(("And", "Or", "Xor", 1, "and")), "group": st.lists(_nodes, max_size=3)},
    optional={"id": _words, "not": st.booleans()},
).map(lambda body: {"groupCondition": body})
_lines = st.fixed_dictionaries(
    {
        "route": st.fixed_dictionaries(
            {
                "destinations": st.lists(st.sampled_from(("d", "a.b", "a..b", "s:x", "a.$1", "", 1)), max_size=2),
                "condition": _nodes | _groups,
            },
            optional={"to": st.none()},
        )
    },
    optional={
        "id": _words,
        "metadata": st.dictionaries(st.sampled_from(("m", "n", "é")), _words | st.none(), max_size=2),
        "revision": st.integers() | st.text(max_size=2),
        "enabled": st.booleans(),
        "expires": st.none(),
    },
)


def _same(line: str | bytes) -> bool:
    """Compare a plain line with the general way; return whether it is one."""
    plain = read_plain(line)
    if plain is None:
        return False
    subscription = subscription_from_json(json.loads(line))
    record = encode_record(plain, lambda: "new")

    assert encode_record(subscription, lambda: "new") == record
    assert (plain.id, plain.metadata) == (subscription.id, subscription.metadata)
    kiwis = [leaf for leaf in leaves(subscription.condition) if isinstance(leaf, Kiwi)]
    rows = {(leaf.key, leaf.pattern, leaf.partial, "s") for leaf in kiwis}
    pairs = [(*pair, "s") for pair in subscription.metadata.items()]
    assert sorted(plain.leaf_rows("s")) == sorted(rows)
    assert lookup_rows([("s", record, 1)]) == (rows, pairs)
    return True


@given(_lines, st.booleans())
@example(json.loads(PAIR), True)
def test_plain_or_general(line, ascii_only):
    """What a plain line gives is what the general way gives."""
    _same(json.dumps(line, ensure_ascii=ascii_only))


@given(st.sampled_from((LINE, PAIR)), st.data())
def test_broken_lines(line, data):
    """A line with other characters in it is not read differently."""
    begin = data.draw(st.integers(0, len(line)))
    end = data.draw(st.integers(begin, min(len(line), begin + 3)))
    _same((line[:begin] + data.draw(st.text(max_size=3)) + line[end:]).encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize(
    ("line", "is_plain"),
    [
        (LINE, True),
        (PAIR, True),
        (LINE.replace('"d"', '"d", "a.b:c"'), True),
        (LINE.replace('{"route"', '{"id": "s1", "revision": 7, "metadata": {"owner": "depot"}, "route"'), True),
        (LINE.replace('"v"', '"' + "v" * PLAIN_TEXT + '"'), False),
        (LINE.replace('"v"', '"' + "*" * (MAX_STARS + 1) + '"'), False),
        (LINE.replace('"v"', r'"\\*"'), False),
        (LINE.replace("kiwi", "kiwiTree").replace('"v"', '"*v"'), False),
        (LINE.replace('"key"', '"not": true, "key"'), False),
        (LINE.replace('"d"', '"a..b"'), False),
        (PAIR.replace("b*", "*b").replace(', "partial": true', "").replace("kiwiTree", "kiwi"), False),
        (PAIR.replace("kiwiTreeCondition", "existsCondition").replace(', "pattern": "b*", "partial": true', ""), False),
    ],
)
def test_the_usual_is_plain(line, is_plain):
    """Lines as exports and clients write them are read quickly; unusual ones are not."""
    assert is_plain == _same(line)


def test_imports_are_equal(tmp_path):
    """A store that takes plain lines holds the same after an import as one that does not, rare kinds in between."""
    rare = LINE.replace(LEAF, '{"compareCondition": {"key": "n", "op": ">", "number": 5}}')
    lines = [
        line.replace('{"route"', f'{{"id": "s{number}", "route"').replace('{"key"', '{"id": "x", "key"')
        for number, line in enumerate((LINE, rare, PAIR) * 5)
    ]
    with open_store(f"sqlite:///{tmp_path}/s.db") as store, open_store("memory://plain") as other:
        import_lines(store, lines, batch=4)
        import_lines(other, lines, batch=4)

        assert store.snapshot().subscriptions == other.snapshot().subscriptions
        assert store.revision() == other.revision()
        found = store.search_by_condition("a", "b*", partial=True)
        assert [match.subscription_id for match in found.items] == ["s11", "s14", "s2", "s5", "s8"]
        with pytest.raises(SubscriptionInvalidError, match=r"line 3: route\.destinations: at least one"):
            import_lines(store, [LINE, "", LINE.replace('"d"', "")])
