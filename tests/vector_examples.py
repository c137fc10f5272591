"""An example for each transform and predicate, taken from the vectors that the tests run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["with_examples"]

_VECTORS = Path(__file__).parent / "vectors" / "connect"
_SECTION = re.compile(r"^###? (\w+).*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_PARTS = ("topic", "key", "value", "headers", "timestamp")
_CHOSEN: dict[str, tuple[str, ...]] = {
    "Cast": ("spec tolerates spaces and upper case",),
    "DropHeaders": ("several names, order of the rest kept, case-sensitive",),
    "ExtractField": ("V2 map lookup foo.bar",),
    "Filter": ("drops a schemaless record",),
    "HeaderFrom": ("move a schemaless nested map",),
    "InsertField": ("all kinds schemaless",),
    "HoistField": ("schemaless map",),
    "InsertHeader": ("literal 128",),
    "MaskField": ("replacement is trimmed",),
    "Flatten": ("delimiter may be several characters",),
    "RegexRouter": ("named group",),
    "ReplaceField": ("exclude and rename schemaless",),
    # What it changes is not seen in a value.
    "SetSchemaMetadata": (),
    "TimestampConverter": ("unix microseconds field to Timestamp",),
    "TimestampRouter": ("custom formats",),
    "TopicNameMatches": ("topic my-prefix-foo", "topic x-my-prefix-foo"),
    "ValueToKey": ("schemaless",),
}
"""The vectors that tell most, by name; of the others it is the shortest."""


def with_examples(reference: str) -> str:
    """The reference of transforms and predicates, each with what it makes of one record."""
    return _SECTION.sub(lambda section: _with_example(section[0], section[1]), reference)


def _with_example(section: str, name: str) -> str:
    file = _VECTORS / f"{name}.json"
    if not file.exists():
        return section
    vectors = json.loads(file.read_text(encoding="utf-8"))
    telling = sorted(filter(_telling, vectors), key=_rank)
    by_name = {vector["name"]: vector for vector in telling}
    chosen = [by_name[vector] for vector in _CHOSEN[name]] if name in _CHOSEN else _first(telling)
    if not chosen:
        return section
    shown = "\n".join(line for filter_ in chosen for line in _lines(filter_))
    return f"{section.rstrip()}\n\n```text\n{shown}\n```\n\n"


def _first(vectors: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first one; of a predicate the first of each answer."""
    answers: dict[Any, dict[str, Any]] = {}
    for vector in vectors:
        answers.setdefault(vector["expect"].get("matches"), vector)
    return list(answers.values())


def _telling(vector: dict[str, Any]) -> bool:
    """Whether a record goes in, and something comes of it that is neither an error nor the same."""
    record, expect = vector.get("record"), vector["expect"]
    if record is None or not isinstance(expect, dict):
        return False
    return bool("matches" in expect or expect.get("dropped") or (_changed(record, expect) if "topic" in expect else ()))


def _rank(vector: dict[str, Any]) -> tuple[bool, int]:
    """Those without a schema before others, and short ones before long ones."""
    return not vector["schemaless"], len(json.dumps([vector["config"], _plain(vector["record"]), vector["expect"]]))


def _lines(vector: dict[str, Any]) -> list[str]:
    options = {name: value for name, value in vector["config"].items() if name != "type"}
    kind = vector["config"]["type"].rpartition(".")[2]
    record, expect = vector["record"], vector["expect"]
    settings = "".join(f", {name}: {json.dumps(value)}" for name, value in options.items())
    lines = [f"{{type: {kind}{settings}}}"]
    if "matches" in expect:
        parts = [part for part in _PARTS[:4] if record[part] and _plain(record[part]) is not None] or ["headers"]
        return [*lines, f"  {_shown(record, parts)} → {'true' if expect['matches'] else 'false'}"]
    if expect.get("dropped"):
        return [*lines, f"  {_shown(record, ('topic', 'value'))} → dropped"]
    changed = _changed(record, expect)
    before = ["value", *changed] if changed == ["key"] else changed
    return [*lines, f"  {_shown(record, before)}", f"  → {_shown(expect, changed)}"]


def _changed(record: dict[str, Any], expect: dict[str, Any]) -> list[str]:
    return [part for part in _PARTS if _plain(record[part]) != _plain(expect[part])]


def _shown(record: dict[str, Any], parts: Any) -> str:
    shown = {part: _plain(record[part]) for part in parts}
    return ", ".join(f"{part} {json.dumps(value, ensure_ascii=False)}" for part, value in shown.items())


def _plain(value: Any) -> Any:
    """A vector's value without the marks of its types, and without its schema."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"schema", "value"}:
        return _plain(value["value"])
    if len(value) == 1 and next(iter(value)).startswith("$"):
        return _plain(next(iter(value.values())))
    if set(value) >= {"key", "value", "schema"}:
        return {value["key"]: _plain(value["value"])}
    return {name: _plain(one) for name, one in value.items()}
