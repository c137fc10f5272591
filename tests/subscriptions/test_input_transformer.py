"""Inputs of EventBridge's targets are expressions that give what the user guide says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnout.engine.program import bodies_of
from turnout.expressions import Expression
from turnout.records import Batch
from turnout.records.batch import Record
from turnout.subscriptions.eventbridge import PatternError, projection_of

EVENT = {
    "source": "aws.ec2",
    "region": "us-west-2",
    "resources": ["arn:one", "arn:two"],
    "detail": {"instance-id": "i-0123456789", "state": "RUNNING", "count": 3, "in": {"a": [1]}},
}
PATHS = {"instance": "$.detail.instance-id", "state": "$.detail.state", "n": "$.detail['count']", "all": "$.detail.in"}


@pytest.mark.parametrize(
    ("template", "body"),
    [
        ('"instance <instance> is in <state>"', "instance i-0123456789 is in RUNNING"),
        ('"<instance>"', "i-0123456789"),
        ("<all>", {"a": [1]}),
        (
            '{\n "id" : <instance>,\n "l": [<state>, 1, true, null]}',
            {"id": "i-0123456789", "l": ["RUNNING", 1, True, None]},
        ),
        ('{"text": "say \\"<state>\\" <n> times, 1 < 2"}', {"text": 'say "RUNNING" 3 times, 1 < 2'}),
        ('{"rule": "<aws.events.rule-name>", "event": <aws.events.event>}', {"rule": "r", "event": EVENT}),
    ],
)
def test_templates(template: str, body: object) -> None:
    """Variables in quotes are texts in a text, others are values; a text alone has no quotes around it."""
    _gives({"InputTransformer": {"InputPathsMap": PATHS, "InputTemplate": template}}, body)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ({"InputPath": "$.detail.in.a[0]"}, 1),
        ({"InputPath": "$"}, EVENT),
        ({"InputPath": '$.detail["instance-id"]'}, "i-0123456789"),
        ({"Input": '{"kind": "<fixed>", "n": [1, null]}'}, {"kind": "<fixed>", "n": [1, None]}),
    ],
)
def test_paths_and_constants(target: dict[str, Any], body: object) -> None:
    """A part of the event, or the same for all events."""
    _gives(target, body)


def _gives(target: dict[str, Any], body: object) -> None:
    pytest.importorskip("cel_expr_python", reason='install "turnout[cel]"')
    batch = Batch.of_records([Record("t", EVENT, "k")])
    (found,), errors = bodies_of(Expression(projection_of(target, "r")), batch, batch.alive)
    assert not errors
    assert found is not None
    assert (found.decode() if isinstance(body, str) else json.loads(found)) == body


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ({"InputPath": "$.a[*].b"}, "InputPath: a path here has names and indexes only; found '[*].b'"),
        ({"InputPath": "$..b"}, "InputPath: a path here has names and indexes only; found '..b'"),
        ({"InputPath": "detail"}, "InputPath: expected a path as $.detail.state, found 'detail'"),
        ({"InputPath": "$", "Input": "1"}, "a target has one input, found Input and InputPath"),
        ({"Input": "{"}, "Input: is no JSON"),
        ({"InputTransformer": {}}, "InputTransformer: expected an InputTemplate as a text"),
        (
            {"InputTransformer": {"InputTemplate": '"<x>"'}},
            "InputTransformer.InputTemplate: <x> has no path; there are",
        ),
        ({"InputTransformer": {"InputTemplate": '"a"\n"b"'}}, "InputTransformer.InputTemplate: is no JSON"),
        ({"InputTransformer": {"InputPathsMap": [], "InputTemplate": "[" * 100_000}}, "is no JSON"),
    ],
)
def test_what_has_no_expression(target: dict[str, Any], problem: str) -> None:
    """It is named, with its place."""
    with pytest.raises(PatternError) as caught:
        projection_of(target, "r")
    assert problem in str(caught.value)


def test_no_input_is_the_event() -> None:
    """The event is sent unchanged."""
    assert projection_of({"Id": "1", "Arn": "arn"}, "r") == ""
