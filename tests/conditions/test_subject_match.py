"""A leaf with the wildcards of NATS."""

from __future__ import annotations

import pytest

from turnout.conditions import SubjectMatch, decode, encode, evaluate, format_condition, not_, parse, subject_match
from turnout.conditions.leaf import Atom
from turnout.conditions.leaves.subject_match import SUBJECT
from turnout.engine.subject_filters import asked_of
from turnout.errors import ConditionError
from turnout.rpc.convert import condition_from, data_to
from turnout.rpc.v1.subscriptions_pb2 import ConditionInput, ConditionOutput
from turnout.subscriptions import Matcher, Subscription, open_store
from turnout.subscriptions.analysis.diagram import relation

SUBJECTS = ("orders", "orders.eu", "orders.eu.1", "orders.us.1", "orders.eu.1.new", "bills.eu.1", "orders..1", "")


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        ("orders.>", ["orders.eu", "orders.eu.1", "orders.us.1", "orders.eu.1.new"]),
        ("orders.*", ["orders.eu"]),
        ("*.eu.1", ["orders.eu.1", "bills.eu.1"]),
        ("orders.*.1", ["orders.eu.1", "orders.us.1"]),
        ("*.*.*.>", ["orders.eu.1.new"]),
        ("orders", ["orders"]),
        ("orders.e*", []),
        (">", ["orders", "orders.eu", "orders.eu.1", "orders.us.1", "orders.eu.1.new", "bills.eu.1"]),
    ],
)
def test_subjects_of_a_filter(subject: str, wanted: list[str]) -> None:
    """As nats-server delivers them: by the interpreter, one by one, in batches, and beside other subscriptions."""
    leaf = subject_match("subject", subject)
    assert [text for text in SUBJECTS if evaluate(leaf, {"subject": text})] == wanted
    many = [Subscription(["d"], f"subject matches x{n}.>", id=f"x{n}") for n in range(50)]
    matcher = Matcher([Subscription(["d"], leaf, id="one"), *many])
    assert [text for text in SUBJECTS if matcher.match({"subject": text}).ids] == wanted
    batch = [{"subject": text} for text in SUBJECTS] * 20
    assert matcher.match_many(batch).ids() == [["one"] * (text in wanted) for text in SUBJECTS] * 20
    both = [{"subject": ("none", text)} for text in SUBJECTS]
    assert [bool(found) for found in matcher.match_many(both).ids()] == [
        text in wanted or subject == ">" for text in SUBJECTS
    ]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("subject matches orders.*.>", None),
        ("NOT subject matches orders.>", None),
        ("subject NOT MATCHES a.b", "NOT subject matches a.b"),
        ('topic matches "a b.*"', None),
        ('subject matches "orders.>" AND a:b', "subject matches orders.> AND a:b"),
        ("subject:matches", None),
        ("matches:a", None),
    ],
)
def test_text_json_and_protobuf(text: str, form: str | None) -> None:
    """Each form is read back."""
    condition = parse(text)
    assert format_condition(condition) == (form or text)
    assert parse(format_condition(condition)) == decode(encode(condition)) == condition
    output = data_to(Subscription(["d"], condition, id="a")).route.condition
    assert condition_from(ConditionOutput.FromString(output.SerializeToString())) == condition


def test_protobuf_of_an_input() -> None:
    """A client of gRPC gives it as one message."""
    message = ConditionInput(subjectCondition={"key": "subject", "subject": "orders.>", "not": True})
    assert condition_from(message) == not_(SubjectMatch("subject", "orders.>"))


@pytest.mark.parametrize("url", ["memory://subjects", "sqlite:///{}/s.db"])
def test_stores_keep_it(url: str, tmp_path) -> None:
    """Also inside of a condition about elements."""
    with open_store(url.format(tmp_path)) as store:
        condition = parse("subject matches orders.> AND any(items, topic matches a.*)")
        store.create(Subscription(["d"], condition, id="one"))
        assert store.read("one").condition == condition


@pytest.mark.parametrize(
    ("subject", "problem"),
    [("", "it is empty"), ("a..b", "'a..b' has an empty token"), ("a.>.b", "> is possible only at the end of a.>.b")],
)
def test_what_is_no_filter(subject: str, problem: str) -> None:
    """It would never match."""
    with pytest.raises(ConditionError, match="not a filter of subjects") as caught:
        subject_match("subject", subject)
    assert problem in str(caught.value)


def test_it_is_looked_up() -> None:
    """By its beginning, its end and what is between wildcards."""
    found = {str(anchor) for anchor in subject_match("s", "orders.*.new").anchors()}
    assert {"s ^6 'orders'", "s $4 '.new'"} <= found


@pytest.mark.parametrize(
    ("premise", "conclusion", "follows"),
    [
        ("orders.*.new", "orders.>", True),
        ("orders.*", "bills.*", False),
        ("orders.*", "*.eu", None),
        ("orders.>", "orders.*", None),
    ],
)
def test_one_filter_covers_another(premise: str, conclusion: str, follows: bool | None) -> None:
    """Analysis knows which filters are contained in others, and which exclude each other."""
    one, other = (Atom("subject", SUBJECT, text=text) for text in (premise, conclusion))
    assert relation(one, other) is follows


def test_filters_at_the_server() -> None:
    """The subjects that a subscription can want are those of the filter, or a few more."""
    assert asked_of(parse("subject matches orders.> AND a:b"), ["subject"]) == "orders.?*"
    assert asked_of(parse("NOT subject matches orders.>"), ["subject"]) is None
