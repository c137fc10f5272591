"""Import and export of JSON lines."""

from __future__ import annotations

import json

import pytest

from tests.contracts.store import subscription
from turnout.conditions import any_of, cidr, compare, exists, kiwi
from turnout.errors import SubscriptionExistsError, SubscriptionInvalidError
from turnout.subscriptions import Subscription, open_store
from turnout.subscriptions.lines import Imported, export_lines, import_lines, subscription_from_json

GOOD = '{"route": {"destinations": ["d"], "condition": {"kiwiCondition": {"key": "k", "pattern": "v"}}}}'


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/s.db") as store:
        yield store


def test_there_and_back(store):
    """Exported lines that are imported elsewhere are identical, ids included."""
    store.create_many(subscription(f"p{n}", metadata={"näme": "\n"}) for n in range(20))
    store.create(
        Subscription(
            ["a", "b"], any_of(compare("n", "<", 2), exists("e"), cidr("i", "::/0"), kiwi("t", "*", tree=True))
        )
    )
    lines = list(export_lines(store))
    with open_store("memory://") as other:
        assert import_lines(other, lines) == Imported(21, 0)
        assert list(export_lines(other)) == lines


def test_a_create_body_is_a_line(store):
    """The original's Create bodies can be imported as they are, and blank lines are passed over."""
    body = (
        '{"metadata" :{"description": "my subscription"}, "route": { "destinations": ["dst0"], "condition": '
        '{"kiwiTreeCondition": {"not" :false, "key": "key0", "pattern": "pattern*", "partial": false}}}}'
    )

    assert import_lines(store, [body, "", "  \n", body.encode()]) == Imported(2, 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "Expecting property name"),
        (b"\xff", "utf-8"),
        (b'{"id":"\xff"}', "utf-8"),
        (GOOD.replace('"k"', '"\xff"').encode("latin-1"), "utf-8"),
        ("[" * 100_000, "nested too deep|recursion"),
        ("7", "the line: expected an object"),
        ('{"rout": {}}', "rout: unknown field; there are id, metadata, route"),
        ("{}", "route: expected an object"),
        ('{"route": {"to": 1}}', "route.to: unknown field"),
        ('{"route": {"destinations": "d"}}', "route.destinations: expected a list of texts, found 'd'"),
        ('{"metadata": {"a": 1}, "route": {}}', "metadata.a: expected text, found 1"),
        ('{"id": 7, "route": {}}', "id: expected text, found 7"),
        ('{"route": {"destinations": ["d"]}}', "route.condition: a condition is missing"),
        ('{"route": {"destinations": ["d"], "condition": {"kiwi": {}}}}', "unknown kind 'kiwi'"),
        (GOOD.replace('["d"]', "[]"), "route.destinations: at least one"),
        (GOOD.replace('"key"', '"not": true, "key"'), "LIM-1"),
        (GOOD.replace('["d"]', r'["\ud800"]'), "no subject can hold"),
        (GOOD.replace('["d"]', '["d", "out..x"]'), r"destinations\[1\]: 'out..x' cannot be published to: an empty"),
        (GOOD.replace('{"route', r'{"metadata": {"a\udfff": "b"}, "route'), "half of a surrogate pair"),
        (GOOD.replace('{"route', r'{"id": "\ud800", "route'), "half of a surrogate pair"),
        (GOOD + " " + GOOD, "Extra data"),
    ],
)
def test_bad_lines(store, line, words):
    """A line that cannot be read is named by its number, with the reason; batches before it are stored."""
    with pytest.raises(SubscriptionInvalidError, match=f"line 4: .*({words})"):
        import_lines(store, [GOOD, GOOD, GOOD, line, GOOD], batch=2)

    assert len(store.snapshot()) == 2


def test_existing_ids(store):
    """An import that is repeated fails at the first id, or skips what is there."""
    lines = [json.dumps({"id": f"s{n}", **json.loads(GOOD)}) for n in range(10)]
    import_lines(store, lines[:4])
    with pytest.raises(SubscriptionExistsError, match="'s0'"):
        import_lines(store, lines)

    assert import_lines(store, lines, existing="skip", batch=3) == Imported(6, 4)
    assert len(store.snapshot()) == 10


def test_a_byte_order_mark(store):
    """A byte order mark at the beginning of a file is ignored."""
    assert import_lines(store, [b"\xef\xbb\xbf" + GOOD.encode(), GOOD]) == Imported(2, 0)


def test_an_id_twice_in_a_batch(store):
    """The first one is stored, the others are there already."""
    line = json.dumps({"id": "same", **json.loads(GOOD)})

    assert import_lines(store, [line, GOOD, line], existing="skip") == Imported(2, 1)


def test_progress(store):
    """Progress says what is stored for good."""
    seen = []
    import_lines(store, [GOOD] * 7, batch=3, progress=lambda done: seen.append((done.created, len(store.snapshot()))))

    assert seen == [(3, 3), (6, 6), (7, 7)]


def test_ids_of_nodes_are_kept():
    """Ids inside the condition stay."""
    data = json.loads(GOOD)
    data["route"]["condition"]["kiwiCondition"]["id"] = "leaf"

    assert subscription_from_json(data).condition.id == "leaf"
