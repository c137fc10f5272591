"""The page of a route with every key, held against the models of the route file."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.documentation import blocks
from turnout.routes import Route
from turnout.routes.document import (
    DeadLetterPart,
    ErrorsPart,
    RouteDocument,
    ScheduledPart,
    SubscriptionsPart,
    TriggerPart,
)
from turnout.routes.endpoints import FileSink, FileSource, KafkaSink, KafkaSource, NatsSink, NatsSource, Part
from turnout.routes.limits import HealthPart
from turnout.routes.webhooks import WebhookEndpoint, WebhooksPart

ROUTES = {block.text.partition("\n")[0].split()[1]: block.text for block in blocks("complete-route.md", "yml")}
_LINE = re.compile(r"^( *)(?:# )?([A-Za-z]+):")


def keys(text: str, *path: str) -> set[str]:
    """The keys of a block, and those behind # that exclude one of them."""
    lines = text.splitlines()
    depth = -1
    for name in path:
        at = next(index for index, line in enumerate(lines) if re.match(rf" *{name}:", line))
        depth = len(lines[at]) - len(lines[at].lstrip())
        following = (n for n, line in enumerate(lines[at + 1 :], at + 1) if len(line) - len(line.lstrip()) <= depth)
        inner = lines[at + 1 : next(following, len(lines))]
        if not inner:
            return set(yaml.safe_load(lines[at])[name])
        lines = inner
    found = [match for match in map(_LINE.match, lines) if match is not None]
    least = min(len(match[1]) for match in found)
    return {match[2] for match in found if len(match[1]) == least}


@pytest.mark.parametrize(
    ("model", "places"),
    [
        (RouteDocument, [("complete-nats",), ("complete-kafka",)]),
        (NatsSource, [("complete-nats", "source")]),
        (NatsSink, [("complete-nats", "sink")]),
        (KafkaSource, [("complete-kafka", "source")]),
        (KafkaSink, [("complete-kafka", "sinks", "back")]),
        (FileSource, [("complete-files", "source")]),
        (FileSink, [("complete-kafka", "sinks", "lake")]),
        (SubscriptionsPart, [("complete-nats", "subscriptions")]),
        (DeadLetterPart, [("complete-nats", "deadLetter")]),
        (ErrorsPart, [("complete-nats", "errors")]),
        (TriggerPart, [("complete-nats", "trigger")]),
        (ScheduledPart, [("complete-nats", "scheduled")]),
        (WebhooksPart, [("complete-nats", "webhooks")]),
        (WebhookEndpoint, [("complete-nats", "webhooks", "endpoints", "billing")]),
        (HealthPart, [("complete-nats", "health")]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_every_key_is_there(model: type[Part], places: list[tuple[str, ...]]) -> None:
    """Neither more nor less than the model has."""
    shown = set().union(*(keys(ROUTES[name], *path) for name, *path in places))

    assert shown == {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize("name", ROUTES)
def test_it_is_a_route(name: str, tmp_path) -> None:
    """Without mistakes, where the files are that it names."""
    for file in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / file).touch()
    (tmp_path / "route.yaml").write_text(ROUTES[name], encoding="utf-8")

    assert Route.load(tmp_path / "route.yaml", {}).name == name
