"""Random conditions and messages, from so few letters that they often meet."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from turnout.conditions import (
    Cidr,
    Compare,
    CompareFields,
    Element,
    Exists,
    FieldOperator,
    Group,
    Kiwi,
    Logic,
    Operator,
    Regex,
    SubjectMatch,
    format_condition,
)

KEYS = ("subject", "location", "price", "price:number", "ip", "ключ")
LEAF_KEYS = (*KEYS, "*")

_texts = st.text(alphabet="abAB_1 -.é́ΣσςЖ😀", max_size=7)
_patterns = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "*",
                "?",
                "text:",
                "a",
                "b",
                "ab",
                "aba",
                "abab",
                "A",
                "_",
                "1",
                "\\*",
                "\\?",
                "\\\\",
                "é",
                "Σ",
                "😀",
                " ",
                "-",
            ]
        )
    ),
    max_size=5,
).map("".join)
_numbers = st.sampled_from([-1.5, 0.0, 1.0, 2.5, 10.0, 1e300])
_networks = st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "0.0.0.0/0", "fe80::/10", "::/0", "::1/128"])

values = st.one_of(
    _texts,
    st.lists(st.sampled_from(["a", "b", "ab", "aba", "é", "Σ", " ", "1"]), max_size=6).map("".join),
    st.sampled_from(
        ["-1.5", "0", "1", "1.0", "+2.5", "2.50", "1e1", "1e999", ".", "1.", ".5", " 1", "NaN", "1d", "0x10", "١"]
    ),
    st.sampled_from(
        [
            "10.1.2.3",
            "10.2.0.1",
            "11.0.0.1",
            "010.1.2.3",
            "10.1.2",
            "10.1.2.256",
            "::1",
            "fe80::1",
            "::",
            "1::2::3",
            "::ffff:10.1.2.3",
            "FE80::A",
            "fe80::1%eth0",
            "1:2:3:4:5:6:7:8",
            "1:2:3:4:5:6:7::",
            "12345::",
        ]
    ),
)

_subjects = st.lists(st.sampled_from(["a", "b", "ab", "é", "1"]), min_size=1, max_size=4).map(".".join)
_subject_filters = st.builds(
    lambda tokens, rest: ".".join([*tokens, *rest]),
    st.lists(st.sampled_from(["a", "b", "ab", "*", "é", "a*", "?"]), min_size=1, max_size=3),
    st.sampled_from([(), (), (">",)]),
)

_fields = st.sampled_from(["a", "b", "n", "t[]", "t", "*", "."])
_inner = st.recursive(
    st.one_of(
        st.builds(Element, _fields, st.sampled_from([".:a", "n>0 OR a:*b*", "NOT a:a", "any(t, .:number=1)"])),
        st.builds(Kiwi, _fields, st.sampled_from(["a", "*b*", "1", "a*", "*"]), negated=st.booleans()),
        st.builds(Compare, _fields, st.sampled_from(list(Operator)), st.sampled_from([0.0, 1.0, 2.5])),
        st.builds(Exists, _fields),
        st.builds(CompareFields, st.sampled_from("abt."), st.sampled_from(list(FieldOperator)), st.sampled_from("abn")),
    ),
    lambda children: st.builds(Group, st.sampled_from(list(Logic)), st.lists(children, min_size=2, max_size=3)),
    max_leaves=4,
)
_objects = st.dictionaries(
    st.sampled_from("abnt"), st.sampled_from(["a", "ab", 1, 2.5, None, True, ["a", 1], {"a": 1}]), max_size=4
)
values = st.one_of(values, _subjects, _objects.map(json.dumps), st.lists(_objects, max_size=3).map(json.dumps))

messages = st.dictionaries(st.sampled_from(KEYS), values, max_size=len(KEYS))

_several = st.one_of(values, st.lists(values, min_size=2, max_size=5, unique=True).map(tuple))
multivalued_messages = st.dictionaries(st.sampled_from(KEYS), _several, max_size=len(KEYS))

_regexes = st.one_of(
    st.sampled_from(["^a", "b$", "(?i)aba", "a.?b", "(a|b)+1", "[^a]b", "(?i)(?:σ|é)", "ab{2}", "\\.", "(?s)a.*b"]),
    st.lists(
        st.sampled_from(["a", "b", "ab", ".", "A", "é", "[ab]", "(ab)", "(a|b)?", "b*", "a+", "\\d"]),
        min_size=1,
        max_size=4,
    ).map("".join),
)

_keys, _flags = st.sampled_from(LEAF_KEYS), st.booleans()
one_key_leaves = st.one_of(
    st.builds(
        Kiwi,
        _keys,
        st.one_of(_patterns, st.sampled_from(["a*", "ab", "*b", "*aba*", "*", ""])),
        partial=_flags,
        ignore_case=_flags,
        negated=_flags,
    ),
    st.builds(Kiwi, _keys, _patterns, negated=_flags),
    st.builds(
        Compare, st.sampled_from(["price", "subject", "*"]), st.sampled_from(list(Operator)), _numbers, negated=_flags
    ),
    st.builds(Exists, _keys, negated=_flags),
    st.builds(Cidr, st.sampled_from(["ip", "subject", "*"]), _networks, negated=_flags),
    st.builds(Regex, _keys, _regexes, negated=_flags),
    st.builds(SubjectMatch, _keys, _subject_filters, negated=_flags),
    st.builds(Element, _keys, _inner.map(format_condition), negated=_flags),
)

leaves = st.one_of(
    one_key_leaves,
    st.builds(
        CompareFields,
        st.sampled_from(KEYS),
        st.sampled_from([FieldOperator.EQUAL, FieldOperator.DIFFERENT]),
        st.sampled_from(KEYS),
        _flags,
        negated=_flags,
    ),
    st.builds(
        CompareFields,
        st.sampled_from(KEYS),
        st.sampled_from(list(FieldOperator)),
        st.sampled_from(KEYS),
        negated=_flags,
    ),
)

conditions = st.recursive(
    leaves,
    lambda children: st.builds(
        Group, st.sampled_from(list(Logic)), st.lists(children, min_size=1, max_size=4), negated=_flags
    ),
    max_leaves=12,
)
