"""Answers of pySigma 2.0.1 for rules and events: ``python -m tests.subscriptions.sigma.pysigma_answers`` writes them.

pySigma parses rules and applies filters and lists; its conditions are evaluated here by the specification's words.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["ANSWERS", "CASES", "answers"]

ANSWERS = Path(__file__).parents[2] / "vectors" / "sigma" / "answers.json"
_ID = "5013198e-6a2b-4f0c-9f0e-0a4b5b4b1c11"
_HEAD = f"title: t\nid: {_ID}\nname: own\nlogsource: {{product: linux, category: process}}\n"
_OTHER = "title: f\nlogsource: {product: linux}\n"


def _rule(search: str, condition: str = "s") -> str:
    return f"{_HEAD}detection:\n  s: {search}\n  condition: {condition}\n"


def _filter(rules: str, search: str, condition: str = "not s", head: str = _OTHER) -> str:
    return f"{head}filter:\n  rules: {rules}\n  s: {search}\n  u_a: {{c: '1'}}\n  condition: {condition}\n"


_EVENTS: tuple[dict[str, str], ...] = (
    {"a": "admin"},
    {"a": "ADMIN", "c": "1"},
    {"a": "x-admin-1", "b": "srv"},
    {"a": "%admins%"},
    {"a": "root\nadmin"},
    {"a": "root admin", "b": "SRV"},
    {"a": "2024-03-05T03:09:10Z"},
    {"a": "2024-12-15 23:59:59"},
    {"a": "2024-03-05", "b": "srv"},
    {"a": "0324-03-05T03:00:00Z"},
    {"a": "3"},
    {},
)
_LISTS = {"admins": ["admin", "root*"], "hosts": ["srv", "db"], "none": []}
_PARTS = (
    *(("year", 2024), ("month", 3), ("day", 5), ("hour", 3)),
    *(("minute", 9), ("hour", 23), ("minute", 59), ("day", 15)),
)
CASES: tuple[list[str], ...] = (
    [_rule("{a|expand: '%admins%'}")],
    [_rule("{a|expand: ['%admins%', '3']}")],
    [_rule("{a|contains|expand: 'x-%admins%'}")],
    [_rule("{a|expand|contains: '%admins%-1'}")],
    [_rule("{a|expand|contains|all: ['%admins%', '%hosts%']}")],
    [_rule("{a|expand: '%admins%', b|expand: '%hosts%'}")],
    [_rule("{a: '%admins%'}")],
    [_rule("{a|expand: 'no %placeholder'}")],
    [_rule("{a|re: '^admin$'}")],
    [_rule("{a|re|ignorecase: '^admin$'}")],
    [_rule("{a|re|i: '^admin$'}")],
    [_rule("{a|re|multiline: '^admin$'}")],
    [_rule("{a|re|dotall: 'root.admin'}")],
    [_rule("{a|re|s|m|i: 'ROOT.ADMIN$'}")],
    *([_rule(f"{{a|{part}: {number}}}")] for part, number in _PARTS),
    [_rule("{a|hour: [3, 23]}")],
    [_rule("{a|contains: admin}"), _filter("any", "{b: srv}")],
    [_rule("{a|contains: admin}"), _filter("[own]", "{b: srv}")],
    [_rule("{a|contains: admin}"), _filter(f"[{_ID}]", "{b: srv}")],
    [_rule("{a|contains: admin}"), _filter("[other]", "{b: srv}")],
    [_rule("{a|contains: admin}"), _filter("any", "{b: srv}", head=_OTHER.replace("linux", "windows"))],
    [_rule("{a|contains: admin}"), _filter("any", "{b: srv}", "not 1 of them")],
    [_rule("{a|contains: admin}"), _filter("any", "{b: srv}"), _filter("own", "{a: admin}", "not 1 of u_*")],
    [_rule("{a|contains: admin}", "not s"), _filter("any", "{b: srv}", "s")],
)


def answers() -> list[list[bool]]:
    """For each case, whether its first rule is true of each event."""
    # pySigma is in no extra: without it there is nothing to check types by.
    collections, pipelines, transformations = (
        import_module(f"sigma.{name}") for name in ("collection", "processing.pipeline", "processing.transformations")
    )
    found = []
    for documents in CASES:
        collection = collections.SigmaCollection.from_yaml("---\n".join(documents))
        collection.resolve_rule_references()
        rule: Any = collection.rules[0]
        item = pipelines.ProcessingItem(transformations.ValueListPlaceholderTransformation())
        pipelines.ProcessingPipeline(items=[item], vars=_LISTS).apply(rule)
        (condition,) = rule.detection.parsed_condition
        parsed = condition.parse()
        found.append([_holds(parsed, event) for event in _EVENTS])
    return found


def _holds(condition: Any, event: dict[str, str]) -> bool:
    kind = type(condition).__name__
    if kind in ("ConditionAND", "ConditionOR", "ConditionNOT"):
        parts = [_holds(part, event) for part in condition.args]
        return all(parts) if kind == "ConditionAND" else any(parts) if kind == "ConditionOR" else not parts[0]
    return condition.field in event and _matches(condition.value, event[condition.field])


def _matches(value: Any, text: str) -> bool:
    kind = type(value).__name__
    if kind == "SigmaString":
        wildcards = {"WILDCARD_MULTI": ".*", "WILDCARD_SINGLE": "."}
        parts = [re.escape(part) if isinstance(part, str) else wildcards[part.name] for part in value.s]
        return re.fullmatch("".join(parts), text, re.IGNORECASE | re.DOTALL) is not None
    if kind == "SigmaRegularExpression":
        flags = re.RegexFlag(0)
        for flag in value.flags:
            flags |= re.RegexFlag[flag.name]
        return re.search(str(value.regexp), text, flags) is not None
    assert kind == "SigmaTimestampPart", kind
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return False
    unit = value.timestamp_part.name.lower()
    has_clock = len(text) > 10 or unit not in ("hour", "minute")
    return has_clock and getattr(moment, unit) == value.number


if __name__ == "__main__":
    ANSWERS.write_text(json.dumps(answers()).replace("], ", "],\n") + "\n", encoding="utf-8")
