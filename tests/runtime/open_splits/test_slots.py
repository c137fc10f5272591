"""Task slots that open splits take: routes that find none wait."""

from __future__ import annotations

from turnout.runtime.open_splits import SlotUse, TaskSlots


def test_one_slot_is_left_for_others() -> None:
    """Of two applications each has its own."""
    slots = TaskSlots()

    assert not slots.take("one", 1, "a")
    assert [slots.take("two", 3, route) for route in "abc"] == [True, True, False]
    assert slots.use("one", 1) == SlotUse(1, (), ("a",))
    assert slots.use("two", 3) == SlotUse(3, ("a", "b"), ("c",))


def test_a_route_that_waits_takes_what_is_given_back() -> None:
    """Repeated requests of one route count once; a route that ends no longer waits."""
    slots = TaskSlots()
    assert slots.take("app", 2, "a")
    assert not any(slots.take("app", 2, "b") for _ in range(3))
    assert not slots.take("app", 2, "c")
    slots.give_back("app", "c")
    slots.give_back("app", "a")

    assert slots.use("app", 2) == SlotUse(2, (), ("b",))
    assert slots.take("app", 2, "b")
    assert slots.use("app", 2) == SlotUse(2, ("b",), ())


def test_an_application_that_grows() -> None:
    """The number that a route has seen last counts."""
    slots = TaskSlots()
    assert slots.use("app", 2).total == 2
    slots.take("app", 4, "a")

    assert slots.use("app", 2).total == 4
