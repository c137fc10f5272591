"""A fresh leaf as CONTRIBUTING.md describes it: a module and a line of the registry are all that Python needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from turnout.conditions import leaf

_MODULE = """
from collections.abc import Iterator
from dataclasses import dataclass, field

from turnout.conditions.anchor import PRESENCE, Anchor
from turnout.conditions.leaf import (
    NUMBER, VALUE, Atom, AtomKind, Check, Choice, Leaf, LeafField, LeafKind, LeafSpec, Sign, ValueTest, key_text
)


@dataclass(frozen=True, slots=True)
class Longer(Leaf):
    key: str
    length: float
    negated: bool = False
    id: str = field(default="", compare=False)

    def holds(self, value: str) -> bool:
        return len(value) > self.length

    def text(self) -> str:
        return f"{key_text(self.key)} longer {self.length:g}"

    def check(self) -> Check:
        return Check(self.key, "nchars", f"{self.length:g}", negated=self.negated)

    def anchors(self) -> Iterator[Anchor]:
        yield Anchor(self.key, PRESENCE, "")

    def literals(self):
        return ((Atom(self.key, 60, number=self.length), True),)


LONGER = LeafSpec(
    Longer,
    (LeafKind("lengthCondition", Longer, (LeafField("length", "length", NUMBER, 0.0),)),),
    signs=(Sign("longer", lambda reader, key, _sign: Longer(key, float(reader.require(VALUE, "a number")))),),
    tests=(ValueTest("nchars", 60, lambda check, value: len(value) > float(check.text)),),
    atoms=(AtomKind(60, lambda atom, value: len(value) > atom.number),),
    choices={"longer": Choice("is longer than", lambda key, value: Longer(key, float(value)))},
)
"""

_SCRIPT = """
import importlib.util
import sys

FOLDER, REAL = sys.argv[1:]


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "turnout.conditions.leaves":
            return None
        return importlib.util.spec_from_file_location(
            name, FOLDER + "/__init__.py", submodule_search_locations=[FOLDER, REAL]
        )


sys.meta_path.insert(0, Finder())

from turnout.conditions import decode, encode, evaluate, explain, format_condition, parse
from turnout.conditions.leaves.longer import Longer
from turnout.console.pages.subscriptions import TESTS
from turnout.subscriptions import Matcher, Subscription, open_store
from turnout.subscriptions.search import LEAF_KINDS, Search, find
from turnout.subscriptions.stores._record import decode_record, document_of, encode_record, subscription_of

TEXT = "name longer 3 AND NOT city longer 4"
condition = parse(TEXT)
stored = Subscription(["d"], condition, {}, "s").identified()
assert format_condition(condition) == TEXT
assert decode(encode(condition)) == condition
assert decode_record("s", encode_record(stored, str), 1) == stored
assert subscription_of(document_of(stored, 1)) == stored

messages = [{"name": "x" * n, "city": "y" * n} for n in range(7)] + [{"name": "long enough"}, {"city": "y"}]
store = open_store("memory://")
store.create(stored)
store.create(Subscription(["d"], parse("name longer 5 OR city:y"), {}, "other"))
matcher = Matcher.from_store(store)
for message in messages:
    expected = {one.id for one in store.snapshot() if evaluate(one.condition, message)}
    found = {match.subscription_id for match in matcher.match(message)}
    assert found == expected, (message, found)
assert [one.id for one in find(store, Search(leaf="name longer 5"), limit=9).items] == ["other"]
assert [one.id for one in find(store, Search(kind="length"), limit=9).items] == ["other", "s"], LEAF_KINDS
assert "longer" in str(explain(condition, messages[1]))
assert TESTS["longer"].leaf("name", "3") == Longer("name", 3.0)
print("the leaf works")
"""


def test_a_module_and_a_line(tmp_path: Path) -> None:
    """Text, JSON, rows, documents, the index, search, explain and the console take a leaf that only the registry names.

    The loops run without being compiled: they would be compiled for this process alone.
    """
    registry = Path(leaf.__file__).parent / "leaves" / "__init__.py"
    listed = registry.read_text(encoding="utf-8").replace(
        "    COMPARE_FIELDS,\n)", "    COMPARE_FIELDS,\n    LONGER,\n)"
    )
    first = "from turnout.conditions.leaf import LeafSpec\n"
    text = listed.replace(first, f"{first}from turnout.conditions.leaves.longer import LONGER\n")
    (tmp_path / "__init__.py").write_text(text, encoding="utf-8")
    (tmp_path / "longer.py").write_text(_MODULE, encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, tmp_path, registry.parent],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == "the leaf works\n", done.stderr
