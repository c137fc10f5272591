"""Anchors that many subscriptions share."""

from __future__ import annotations

import sys
from types import FrameType

from tests.subscriptions.index.asking import expected, pairs, subscriptions_of
from turnout.conditions import all_of, any_of, kiwi, parse
from turnout.subscriptions import Subscription
from turnout.subscriptions.index import Index
from turnout.subscriptions.index.build import build
from turnout.subscriptions.index.literal_choice import Costs


def test_hot_anchors():
    """Subscriptions that share their rarest text are distinguished by a second one, and by members of sets."""
    conditions = [all_of(kiwi("a", "x"), kiwi("b", f"b{n % 40}"), kiwi("c", f"c{n % 7}")) for n in range(2_000)]
    conditions += [all_of(kiwi("a", "x"), any_of(kiwi("b", f"b{n % 40}"), kiwi("b", "b1"))) for n in range(200)]
    conditions += [all_of(kiwi("a", "x"), kiwi("t", f"t{n % 40}", partial=True)) for n in range(200)]
    subscriptions = subscriptions_of(conditions)
    index = Index.of(subscriptions, sample=[{"a": "x", "b": "b1", "c": "c2"}])
    given_messages = [{"a": "x", "b": "b1", "c": "c3", "t": "t3 t5"}, {"a": "x", "b": "b17", "c": "c1"}, {"a": "y"}]

    assert expected(subscriptions, given_messages) == pairs(index, given_messages)


def paired_entries(second):
    """The number of entries that are found by two texts, of 20 that share each of five values."""
    conditions = [all_of(kiwi("a", f"a{n // 20}"), kiwi("b", f"b{second(n)}")) for n in range(100)]
    return len(build(subscriptions_of(conditions), Costs([])).arrays.pair_key)


def test_a_second_text_that_all_share_is_not_looked_up():
    """Entries of one text are found by a second one only where these differ, so that candidates are saved."""
    assert paired_entries(lambda n: n // 20) == 0
    assert paired_entries(lambda n: n % 10) == 100


def test_the_steps_of_a_build_are_few() -> None:
    """A reader of `build` follows one call for each step, and not the parts of all steps."""
    called: set[tuple[str, str]] = set()
    own = "turnout.subscriptions.index.build"

    def note(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        if event != "call" or caller is None or caller.f_globals.get("__name__") != own:
            return
        if caller.f_code.co_qualname in ("build", "_arrays"):
            called.add((str(frame.f_globals.get("__name__")), frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        build([Subscription(["d"], parse(f"a:x{n} AND (b>{n} OR c:y*)"), id=str(n)) for n in range(20)], Costs())
    finally:
        sys.setprofile(before)

    steps = {name for name in called if name[0].startswith("turnout.subscriptions.index")}
    assert ("turnout.subscriptions.index.build", "entry_columns") in steps
    assert len(steps) <= 16
